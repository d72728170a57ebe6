"""Owners, readers and privileges of tables: Unity Catalog, a metastore, a CSV file of users."""
