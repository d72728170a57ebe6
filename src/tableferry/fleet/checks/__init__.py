"""Checks that decide whether a table can be migrated."""
