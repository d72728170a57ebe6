"""Quote and unquote SQL identifiers, string literals and property lists."""

from __future__ import annotations

import re
from collections.abc import Mapping

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def quote(name: str) -> str:
    """Return an identifier in backticks."""
    return "`" + name.replace("`", "``") + "`"


def unquote(text: str) -> str:
    """Return an identifier without its backticks, if it has any."""
    quoted = len(text) > 1 and text[0] == text[-1] == "`"
    return text[1:-1].replace("``", "`") if quoted else text


def identifier(*parts: str) -> str:
    """Return a dotted name; only the parts that need backticks get them."""
    return ".".join(part if _PLAIN.fullmatch(part) else quote(part) for part in parts)


def literal(text: str) -> str:
    """Return a text as a string literal in single quotes."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def pairs(properties: Mapping[str, str]) -> str:
    """Return properties or options as a list in parentheses, sorted by key."""
    written = (f"{literal(key)} = {literal(value)}" for key, value in sorted(properties.items()))
    return f"({', '.join(written)})"
