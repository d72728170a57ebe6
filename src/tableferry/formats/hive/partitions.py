"""Partitions and their values in the catalog and in directory names, without Spark."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from tableferry.spark.types import BYTE, INTEGER, LONG, SHORT, Primitive

NULL = "__HIVE_DEFAULT_PARTITION__"
"""The text that represents a null value in a directory's name."""

_ESCAPED = re.compile("(?:%[0-9A-Fa-f]{2})+")


@dataclass(frozen=True)
class PartitionColumn:
    """A column whose values are in directory names."""

    name: str
    type: Primitive

    def __str__(self) -> str:
        return f"{self.name} {self.type}"


@dataclass(frozen=True, order=True)
class CatalogPartition:
    """A partition in the catalog.

    Attributes:
        spec: Its values in the form of a directory name: ``year=2024/city=S%3Ao``.
    """

    spec: str
    location: str

    def __str__(self) -> str:
        return f"{self.spec} at {self.location}"


def split_spec(spec: str) -> list[tuple[str, str]]:
    """Return the columns and values of ``year=2024/city=S%3Ao``, unescaped."""
    levels = (level.partition("=") for level in spec.split("/"))
    return [(unquote(name), unquote(value)) for name, _, value in levels]


def values_of(directory: str, columns: Sequence[PartitionColumn]) -> tuple[str | int, ...] | None:
    """Return a partition directory's values, or None if its name has other columns.

    Values of integer columns are integers, so that ``01`` equals ``1``.
    """
    levels = split_spec(directory)
    if len(levels) != len(columns):
        return None
    values: list[str | int] = []
    for (name, value), column in zip(levels, columns, strict=True):
        if name.lower() != column.name.lower():
            return None
        integer = column.type in (BYTE, SHORT, INTEGER, LONG) and re.fullmatch(r"[+-]?[0-9]+", value)
        values.append(int(value) if integer else value)
    return tuple(values)


def same_values(spec: str, directory: str, columns: Sequence[PartitionColumn]) -> bool:
    """Return whether a directory below the root has the values of a partition."""
    values = values_of(spec, columns)
    return values is not None and values == values_of(directory, columns)


def unescape(text: str) -> str:
    """Decode percent-escapes such as ``%3A``, once.

    Hive and Spark escape only ASCII characters. Other octets come from writers that escape UTF-8, such as
    Arrow, and are decoded as UTF-8. Octets that aren't UTF-8 are read as in Spark: one character per octet.
    """
    return _ESCAPED.sub(_decoded, text) if "%" in text else text


def has_escaped_utf8(text: str) -> bool:
    """Return whether a name escapes non-ASCII characters, which neither Hive nor Spark does."""
    return "%" in text and any(not _decoded(run).isascii() for run in _ESCAPED.finditer(text))


def _decoded(escaped: re.Match[str]) -> str:
    octets = bytes.fromhex(escaped[0].replace("%", ""))
    try:
        return octets.decode()
    except UnicodeDecodeError:
        return octets.decode("latin-1")
