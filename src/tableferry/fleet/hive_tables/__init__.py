"""Hive tables: columns and types, partitions, directories, properties, and the metastore's client."""
