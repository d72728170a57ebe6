"""Parse the declaration of partition columns that a user writes: ``year int, month int``."""

from __future__ import annotations

import re

from tableferry.errors import Refused
from tableferry.formats.hive.partitions import PartitionColumn
from tableferry.spark import types
from tableferry.spark.types import Decimal, Primitive

_TYPES = {
    **dict.fromkeys(("tinyint", "byte"), types.BYTE),
    **dict.fromkeys(("smallint", "short"), types.SHORT),
    **dict.fromkeys(("int", "integer"), types.INTEGER),
    **dict.fromkeys(("bigint", "long"), types.LONG),
    **dict.fromkeys(("float", "real"), types.FLOAT),
    **dict.fromkeys(("timestamp", "timestamp_ltz"), types.TIMESTAMP),
    "double": types.DOUBLE,
    "boolean": types.BOOLEAN,
    "string": types.STRING,
    "binary": types.BINARY,
    "date": types.DATE,
    "timestamp_ntz": types.TIMESTAMP_NTZ,
}
_COLUMN = re.compile(
    r"\s*(?:`((?:[^`]|``)+)`|([^\s`,:()]+))(?:\s*:|\s)?([^,()`]*(?:\([^()]*\))?[^,()`]*)(,|$)"
)
_DECIMAL = re.compile(r"(?:decimal|dec|numeric)(?:\s*\(\s*([0-9]{1,3})\s*(?:,\s*([0-9]{1,3})\s*)?\))?")
_DIGITS = 38
_OFFERED = (
    "tinyint, smallint, int, bigint, float, double, decimal(10,2), boolean, string, binary, date, timestamp, "
    "timestamp_ntz"
)


def parse_partition_columns(text: str) -> tuple[PartitionColumn, ...]:
    """Return the partition columns of a declaration as in SQL: names, in backticks if needed, and types.

    Raises:
        Refused: The text isn't valid, has a column twice, or has a type that no partition column can have.
    """
    columns: list[PartitionColumn] = []
    position = 0
    while position < len(text) or not columns:
        number = len(columns) + 1
        match = _COLUMN.match(text, position)
        if match is None or (match[4] and match.end() == len(text)):
            rest = text[position:].strip()
            raise Refused("PARTITION_DECLARATION_SYNTAX", number=number, text=text, rest=rest[:40])
        name = match[1].replace("``", "`") if match[1] else match[2]
        if any(name.lower() == column.name.lower() for column in columns):
            raise Refused("PARTITION_DECLARATION_DUPLICATE", text=text, column=name)
        columns.append(PartitionColumn(name, _type(match[3].strip().lower(), name, text)))
        position = match.end()
    return tuple(columns)


def _type(text: str, column: str, declaration: str) -> Primitive:
    if not text:
        raise Refused("PARTITION_DECLARATION_WITHOUT_TYPE", column=column, types=_OFFERED, text=declaration)
    if text in _TYPES:
        return _TYPES[text]
    match = _DECIMAL.fullmatch(text)
    if match is None:
        raise Refused(
            "PARTITION_DECLARATION_TYPE", type=text, column=column, types=_OFFERED, text=declaration
        )
    precision, scale = int(match[1] or 10), int(match[2] or 0)
    if not max(scale, 1) <= precision <= _DIGITS:
        raise Refused("PARTITION_DECIMAL_INVALID", type=text, column=column, digits=_DIGITS, text=declaration)
    return Decimal(precision, scale)
