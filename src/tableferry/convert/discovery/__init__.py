"""Detect the contents of a directory: tables, data files, other formats."""
