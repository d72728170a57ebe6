"""Metadata, partitions, files and properties of Hive tables, without the fleet's warehouse."""
