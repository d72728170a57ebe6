"""Owners, readers, grants and tags of tables, in Unity Catalog and in a Hive metastore."""
