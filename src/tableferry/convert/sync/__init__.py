"""Update converted tables to the Parquet files that other processes still write to their folders."""
