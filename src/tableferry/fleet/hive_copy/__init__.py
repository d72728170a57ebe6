"""The Hive copy, and what it needs after the new table changed."""
