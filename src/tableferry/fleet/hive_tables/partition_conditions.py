"""Build SQL conditions and expressions for partitions and types; without Spark."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from tableferry.fleet.hive_tables.partitions import Partition
from tableferry.spark.quoting import literal, quote

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

MOST = 200
"""The limit of partitions in one condition; with more, Spark plans longer than it reads."""


def chunks(partitions: Iterable[Partition]) -> list[list[Partition]]:
    """Divide partitions into chunks that one condition can name."""
    listed = list(partitions)
    return [listed[start : start + MOST] for start in range(0, len(listed), MOST)]


def where(partitions: Sequence[Partition], columns: Sequence[str], kinds: Mapping[str, str]) -> str:
    """Return the condition that a row is in one of some partitions, given the types of its columns."""
    if not columns:
        return "true"
    types = {column.lower(): kind for column, kind in kinds.items()}
    if len(columns) > 1:
        return " OR ".join(
            f"({' AND '.join(_is(*pair, types) for pair in zip(columns, partition, strict=True))})"
            for partition in partitions
        )
    [column], values = columns, [value for (value,) in partitions]
    literals = ", ".join(_typed(value, types[column.lower()]) for value in values if value is not None)
    conditions = [f"{quote(column)} IN ({literals})"] if literals else []
    return " OR ".join([*conditions, _is(column, None, types)] if None in values else conditions)


def spec(partition: Partition, columns: Sequence[str]) -> str:
    """Return the partition spec for ALTER TABLE."""
    values = ", ".join(
        f"{quote(column)} = {'null' if value is None else literal(value)}"
        for column, value in zip(columns, partition, strict=True)
    )
    return f"PARTITION ({values})"


def texts(columns: Sequence[str]) -> list[str]:
    """Return expressions of the partition columns' values as strings, named ``p0``, ``p1``, …."""
    return [f"CAST({quote(column)} AS STRING) AS p{number}" for number, column in enumerate(columns)]


def casts(names: Iterable[str], columns: Mapping[str, str]) -> list[str]:
    """Return expressions that cast columns to the types of others; columns without a match are null."""
    existing = {name.lower(): quote(name) for name in names}
    return [
        f"CAST({existing.get(column.lower(), 'NULL')} AS {kind}) AS {quote(column)}"
        for column, kind in columns.items()
    ]


def sql_types(schema: StructType) -> dict[str, str]:
    """Return the types of columns as SQL reads them, by the columns' names."""
    return {field.name: sql_type(field.dataType) for field in schema}


def sql_type(kind: DataType) -> str:
    """Return a type's SQL, with quotes around field names that need them."""
    match kind.typeName():
        case "struct":
            fields = (f"{_field(field.name)}:{sql_type(field.dataType)}" for field in kind)  # type: ignore[attr-defined]
            return f"struct<{','.join(fields)}>"
        case "array":
            return f"array<{sql_type(kind.elementType)}>"  # type: ignore[attr-defined]
        case "map":
            return f"map<{sql_type(kind.keyType)},{sql_type(kind.valueType)}>"  # type: ignore[attr-defined]
        case _:
            return kind.simpleString()


def _field(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else quote(name)


def _is(column: str, value: str | None, types: Mapping[str, str]) -> str:
    if value is None:
        return f"{quote(column)} IS NULL"
    return f"{quote(column)} = {_typed(value, types[column.lower()])}"


def _typed(value: str, kind: str) -> str:
    return literal(value) if kind == "string" else f"CAST({literal(value)} AS {kind})"
