"""A shadow run: it copies what changed in the new table to the Hive copy."""
