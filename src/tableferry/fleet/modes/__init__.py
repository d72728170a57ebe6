"""The modes of a fleet; a scheduled job calls one function for each mode."""
