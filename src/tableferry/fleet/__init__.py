"""Fleet migration: a warehouse of Hive tables becomes Iceberg or Delta, by a queue and five modes."""
