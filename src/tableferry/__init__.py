"""Tableferry moves tables that people already depend on, without losing a row."""

__version__ = "0.2.0"
