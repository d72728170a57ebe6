"""Add the files of a Hive table to an Iceberg table: checks, metrics, name mapping and commits."""
