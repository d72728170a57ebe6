"""Footers of Parquet files: read, understood, and made the text that Delta's log holds."""
