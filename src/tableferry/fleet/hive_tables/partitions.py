"""Partitions as tuples of their values as strings; without Spark."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Decimal

from tableferry.errors import Refused
from tableferry.formats.hive.partitions import NULL, unescape
from tableferry.spark.tables import TableName

Partition = tuple[str | None, ...]
"""A partition's values as Spark casts them to strings, in column order; empty for an unpartitioned table."""

WHOLE: Partition = ()

# The characters that Spark and Hive escape in a partition's directory name.
_TO_ESCAPE = re.compile(r"[\x01-\x1f\x7f\"#%'*/:=?\\{\[\]^]")
_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
_DATE = re.compile(r"(\d{4})-(\d\d?)-(\d\d?)", re.ASCII)
_INTEGERS = {"tinyint", "smallint", "int", "integer", "bigint"}


def canonical(text: str, kind: str) -> str | None:
    """Return a partition value of the metastore as Spark spells it; None for Hive's name of a null partition.

    Only integers and decimals are checked; a malformed value of another type is returned. Floating-point
    numbers aren't normalised.

    Args:
        text: The value, unescaped.
        kind: The column's type in lower case, such as ``decimal(10,2)``.

    Raises:
        ValueError: The value isn't an integer.
        ArithmeticError: The value isn't a decimal.
    """
    if text == NULL:
        return None
    if kind in _INTEGERS:
        if not _INTEGER.fullmatch(text):
            raise ValueError(f"{text} is no whole number")
        return str(int(text))
    if kind.startswith("decimal"):
        scale = int(kind.rstrip(")").rpartition(",")[2]) if "," in kind else 0
        return format(Decimal(text).quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP), "f")
    if kind == "boolean":
        return text.lower()
    if kind == "date" and (parts := _DATE.fullmatch(text)):
        return f"{parts[1]}-{parts[2]:0>2}-{parts[3]:0>2}"
    if kind.startswith("timestamp"):
        return re.sub(r"(\.\d*?)0+$", r"\1", text).rstrip(".") if "." in text else text
    return text


def parsed(table: TableName, spec: str, kinds: Sequence[str]) -> Partition:
    """Parse a line of SHOW PARTITIONS.

    Raises:
        Refused: A value doesn't have its column's type; the metastore accepts any string.
    """
    try:
        return parse(spec, kinds)
    except (ValueError, ArithmeticError) as error:
        raise Refused(
            "PARTITION_VALUE_OF_OTHER_TYPE", table=table, partition=spec, types=", ".join(kinds)
        ) from error


def raw(spec: str) -> Partition:
    """Parse a line of SHOW PARTITIONS, and keep the catalog's spelling of the values."""
    values = (unescape(level.partition("=")[2]) for level in spec.split("/"))
    return tuple(None if value == NULL else value for value in values)


def parse(spec: str, kinds: Sequence[str]) -> Partition:
    """Parse a line of SHOW PARTITIONS.

    Raises:
        ValueError: A value doesn't have its column's type.
        ArithmeticError: A value doesn't have its column's type.
    """
    return tuple(
        None if value is None else canonical(value, kind)
        for value, kind in zip(raw(spec), kinds, strict=True)
    )


def spell(partition: Partition, columns: Sequence[str]) -> str:
    """Return the path of a partition's directory, as Spark's writer names it."""
    return "/".join(
        f"{_escape(column)}={NULL if value is None else _escape(value)}"
        for column, value in zip(columns, partition, strict=True)
    )


def _escape(text: str) -> str:
    return _TO_ESCAPE.sub(lambda match: f"%{ord(match[0]):02X}", text)


def nulls_first(partition: Partition) -> tuple[tuple[bool, str], ...]:
    """Return the sort key of a partition; nulls are first."""
    return tuple((value is not None, value or "") for value in partition)
