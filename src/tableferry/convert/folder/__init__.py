"""What a directory holds: tables, data files, other formats."""
