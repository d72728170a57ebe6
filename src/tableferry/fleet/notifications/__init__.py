"""E-mails to owners and readers of tables: drafted, recorded in the queue, and then sent."""
