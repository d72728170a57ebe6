"""Conversion in place: a directory or table of Parquet files becomes Delta, with no data file rewritten."""
