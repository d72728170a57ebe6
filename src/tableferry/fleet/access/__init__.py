"""Owners, readers and rights of tables: Unity Catalog, a metastore, a file of users."""
