"""Keeping the Hive copy in step with the table that took its place: changes, plan, performing."""
