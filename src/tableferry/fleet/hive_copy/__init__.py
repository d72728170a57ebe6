"""The Hive copy, and the updates that it needs after the new table changed."""
