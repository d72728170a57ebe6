"""Tables whose files can't become the new table's: their rows are rewritten, in chunks that are kept."""
