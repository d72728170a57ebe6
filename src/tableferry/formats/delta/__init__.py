"""Read and write the log of Delta tables: commits, column mapping, statistics."""
