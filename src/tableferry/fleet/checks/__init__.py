"""What decides whether a table can be migrated."""
