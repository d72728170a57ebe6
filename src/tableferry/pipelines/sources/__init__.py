"""Read the rows of sources, views and legacy tables, and check their columns."""
