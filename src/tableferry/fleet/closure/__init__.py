"""Close a completed job: remove what this migration wrote for Hive, and list the remaining files."""
