"""What Hive's metastore and directories say of tables, whichever route asks: locations, partitions, entries.

`locations`, `partitions` and `sql` are pure; `catalog_tables`, `catalog_partitions`, `session_catalog` and
`settings` ask Spark.
"""
