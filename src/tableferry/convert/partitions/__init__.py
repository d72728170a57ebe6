"""Infer a table's partition columns from directory names, or check directories against declared columns."""
