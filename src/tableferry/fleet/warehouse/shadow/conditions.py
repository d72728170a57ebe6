"""SQL texts for partitions: pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from tableferry.fleet.warehouse.shadow.partitions import Partition
from tableferry.hive.sql import quoted, text

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

# With more in one condition, planning takes longer than reading.
_AT_ONCE = 200


def chunks(partitions: Iterable[Partition]) -> list[list[Partition]]:
    """Divide partitions into as many as one condition should name."""
    every = list(partitions)
    return [every[start : start + _AT_ONCE] for start in range(0, len(every), _AT_ONCE)]


def where(partitions: Sequence[Partition], columns: Sequence[str], kinds: Mapping[str, str]) -> str:
    """Write the condition on rows to be in one of some partitions.

    Args:
        partitions: The partitions; for a table without any, that's the whole table.
        columns: The partition columns.
        kinds: The types of the rows' columns.
    """
    if not columns:
        return "true"
    types = {column.lower(): kind for column, kind in kinds.items()}
    if len(columns) > 1:
        return " OR ".join(
            f"({' AND '.join(_is(*pair, types) for pair in zip(columns, each, strict=True))})"
            for each in partitions
        )
    [column], values = columns, [value for (value,) in partitions]
    some = ", ".join(_typed(value, types[column.lower()]) for value in values if value is not None)
    told = [f"{quoted(column)} IN ({some})"] if some else []
    return " OR ".join([*told, _is(column, None, types)] if None in values else told)


def spec(partition: Partition, columns: Sequence[str]) -> str:
    """Name a partition as ALTER TABLE does."""
    values = ", ".join(
        f"{quoted(column)} = {'null' if value is None else text(value)}"
        for column, value in zip(columns, partition, strict=True)
    )
    return f"PARTITION ({values})"


def texts(columns: Sequence[str]) -> list[str]:
    """Write expressions of partition columns' values as texts, named ``p0``, ``p1``, …."""
    return [f"CAST({quoted(column)} AS STRING) AS p{number}" for number, column in enumerate(columns)]


def sql_type(kind: DataType) -> str:
    """Write a type as SQL reads it, with quotes around names of fields that aren't plain."""
    match kind.typeName():
        case "struct":
            fields = (f"{_field(each.name)}:{sql_type(each.dataType)}" for each in kind)  # type: ignore[attr-defined]
            return f"struct<{','.join(fields)}>"
        case "array":
            return f"array<{sql_type(kind.elementType)}>"  # type: ignore[attr-defined]
        case "map":
            return f"map<{sql_type(kind.keyType)},{sql_type(kind.valueType)}>"  # type: ignore[attr-defined]
        case _:
            return kind.simpleString()


def _field(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else quoted(name)


def _is(column: str, value: str | None, types: Mapping[str, str]) -> str:
    if value is None:
        return f"{quoted(column)} IS NULL"
    return f"{quoted(column)} = {_typed(value, types[column.lower()])}"


def _typed(value: str, kind: str) -> str:
    return text(value) if kind == "string" else f"CAST({text(value)} AS {kind})"
