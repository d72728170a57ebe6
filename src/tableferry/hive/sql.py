"""Names and texts as Spark's SQL reads them."""

from __future__ import annotations


def quoted(name: str) -> str:
    """Write a name as an identifier."""
    return "`" + name.replace("`", "``") + "`"


def text(value: str) -> str:
    """Write a text as a literal."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
