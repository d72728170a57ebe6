"""The rows of sources, views and legacy tables, and their columns."""
