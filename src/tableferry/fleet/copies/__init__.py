"""Create the copy of a Hive table as a Delta or Iceberg table, compare it, and remove it."""
