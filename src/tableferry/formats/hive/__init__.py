"""Read Hive tables, their locations and their partitions, for every migration route.

`locations`, `partitions` and `sql` are pure. `catalog_tables`, `catalog_partitions`, `session_catalog` and
`settings` use Spark.
"""
