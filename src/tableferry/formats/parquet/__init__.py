"""Read footers and statistics of Parquet files, for the log of a Delta table or an Iceberg manifest."""
