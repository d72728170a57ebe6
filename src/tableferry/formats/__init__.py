"""Read and write file and table formats: Parquet, Delta, Iceberg and Hive, for all routes."""
