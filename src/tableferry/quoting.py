"""Names and texts as SQL reads them, whatever characters they have."""

from __future__ import annotations


def quote(name: str) -> str:
    """Write an identifier."""
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    """Write a text as a string."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
