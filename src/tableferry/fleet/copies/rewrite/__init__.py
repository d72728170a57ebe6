"""Rewrite the rows of tables whose files can't become the new table's files, in chunks."""
