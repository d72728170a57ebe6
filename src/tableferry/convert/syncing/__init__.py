"""Lets converted tables follow their folders, to which others still write Parquet."""
