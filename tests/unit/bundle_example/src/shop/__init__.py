"""A shop's numbers."""
