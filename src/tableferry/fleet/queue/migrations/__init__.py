"""How a database gets the queue's tables, and gets them up to date."""
