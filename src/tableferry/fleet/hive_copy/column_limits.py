"""Conditions that find values of the new table that don't fit Hive's narrower columns; pure functions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tableferry.spark.quoting import quote
from tableferry.spark.types import declared

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructField

# A string type at any depth of a declared type; the name of a field is followed by a colon.
_TEXT = re.compile(r"(?<![^<:,])(?:string|(?:var)?char\((\d+)\))(?=[,>]|$)")
_INTEGERS = {"byte": (-(2**7), 2**7 - 1), "short": (-(2**15), 2**15 - 1)}


def unfit_condition(field: StructField) -> str:
    """Return the SQL condition that a value of a wider column doesn't fit the Hive column of the same name.

    The condition is null for null values. It's empty if no value can be too wide for the column's type.
    """
    lengths = (match[1] for match in _TEXT.finditer(declared(field)))
    return " OR ".join(_unfit(quote(field.name), field.dataType, lengths, 0))


def fits(value: str, field: StructField) -> bool:
    """Return whether a partition's value, given as text, fits its column."""
    if limits := _INTEGERS.get(field.dataType.typeName()):
        return limits[0] <= int(value) <= limits[1]
    length = _TEXT.fullmatch(declared(field))
    return length is None or length[1] is None or len(value) <= int(length[1])


def _unfit(value: str, kind: DataType, lengths: Iterator[str | None], depth: int) -> Iterator[str]:
    """Yield the conditions of all narrow types in a type, given the limits of its strings in order."""
    match kind.typeName():
        case "byte" | "short" as name:
            least, most = _INTEGERS[name]
            yield f"{value} NOT BETWEEN {least} AND {most}"
        case "string" | "varchar" | "char":
            if length := next(lengths, None):
                yield f"length({value}) > {length}"
        case "struct":
            for field in kind:  # type: ignore[attr-defined]
                yield from _unfit(f"{value}.{quote(field.name)}", field.dataType, lengths, depth)
        case "array":
            yield from _any(value, kind.elementType, lengths, depth)  # type: ignore[attr-defined]
        case "map":
            yield from _any(f"map_keys({value})", kind.keyType, lengths, depth)  # type: ignore[attr-defined]
            yield from _any(f"map_values({value})", kind.valueType, lengths, depth)  # type: ignore[attr-defined]


def _any(values: str, kind: DataType, lengths: Iterator[str | None], depth: int) -> Iterator[str]:
    each = f"e{depth}"
    if conditions := " OR ".join(_unfit(each, kind, lengths, depth + 1)):
        yield f"exists({values}, {each} -> {conditions})"
