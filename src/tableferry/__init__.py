"""Tableferry migrates tables that are in use, without losing rows."""

__version__ = "0.3.0"
