"""Names and texts as SQL reads them, whatever characters they have."""

from __future__ import annotations

import re
from collections.abc import Mapping

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def quote(name: str) -> str:
    """Write an identifier."""
    return "`" + name.replace("`", "``") + "`"


def unquote(text: str) -> str:
    """Read an identifier, which may be in backticks."""
    quoted = len(text) > 1 and text[0] == text[-1] == "`"
    return text[1:-1].replace("``", "`") if quoted else text


def identifier(*parts: str) -> str:
    """Write a name, the parts that SQL wants so in backticks and the others as they are."""
    return ".".join(part if _PLAIN.fullmatch(part) else quote(part) for part in parts)


def literal(text: str) -> str:
    """Write a text as a string."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def pairs(properties: Mapping[str, str]) -> str:
    """Write properties or options, by their keys and in parentheses."""
    written = (f"{literal(key)} = {literal(value)}" for key, value in sorted(properties.items()))
    return f"({', '.join(written)})"
