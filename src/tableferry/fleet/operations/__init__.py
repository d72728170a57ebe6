"""The user's operations on the jobs of a queue: add, select, list and group them."""
