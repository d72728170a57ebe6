"""Shadow runs, which copy the new table's changes to the Hive copy."""
