"""What people do with the jobs of a queue: add, select, look at and group them."""
