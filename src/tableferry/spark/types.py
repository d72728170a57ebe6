"""Frozen, hashable data classes for column types as in Delta's log; they don't need Spark.

Names and JSON follow the schema serialization format of the Delta protocol, which is also Spark's
(https://github.com/delta-io/delta/blob/master/PROTOCOL.md#schema-serialization-format).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, assert_never, cast

if TYPE_CHECKING:
    from pyspark.sql.types import StructField


ColumnPath: TypeAlias = tuple[str, ...]
"""The names from a column down to a nested field; ``element``, ``key`` and ``value`` in arrays and maps."""

DECLARED_AS = "__CHAR_VARCHAR_TYPE_STRING"
"""The key in a string column's metadata for its ``char`` or ``varchar`` type, in Spark and Delta's log."""


def lowered(path: ColumnPath) -> ColumnPath:
    """Return a path in lower case, because column names aren't case-sensitive."""
    return tuple(name.lower() for name in path)


@dataclass(frozen=True)
class Atomic:
    """A type without parameters; its name is the protocol's, such as ``long`` or ``timestamp_ntz``."""

    name: str

    def __str__(self) -> str:
        return _SQL_NAMES.get(self.name, self.name)


@dataclass(frozen=True)
class Decimal:
    """An exact number with ``precision`` digits, ``scale`` of them after the decimal point."""

    precision: int
    scale: int

    def __str__(self) -> str:
        return f"decimal({self.precision},{self.scale})"


@dataclass(frozen=True)
class Array:
    """An array of elements of one type."""

    element: DataType
    contains_null: bool = True

    def __str__(self) -> str:
        return f"array<{self.element}>"


@dataclass(frozen=True)
class Map:
    """A map with one type for its keys and one for its values."""

    key: DataType
    value: DataType
    value_contains_null: bool = True

    def __str__(self) -> str:
        return f"map<{self.key},{self.value}>"


@dataclass(frozen=True)
class Field:
    """A named column, or a field of a struct.

    Attributes:
        metadata: Further properties in the schema, such as its ``comment``.
    """

    name: str
    type: DataType
    nullable: bool = True
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Struct:
    """An ordered list of fields; a table's schema is a struct."""

    fields: tuple[Field, ...] = ()

    def __str__(self) -> str:
        return f"struct<{','.join(f'{column.name}:{column.type}' for column in self.fields)}>"


Primitive: TypeAlias = Atomic | Decimal
DataType: TypeAlias = Atomic | Decimal | Array | Map | Struct

_T = TypeVar("_T", bound=DataType)

BYTE, SHORT, INTEGER, LONG = Atomic("byte"), Atomic("short"), Atomic("integer"), Atomic("long")
FLOAT, DOUBLE, BOOLEAN = Atomic("float"), Atomic("double"), Atomic("boolean")
STRING, BINARY, DATE = Atomic("string"), Atomic("binary"), Atomic("date")
TIMESTAMP, TIMESTAMP_NTZ, VARIANT = Atomic("timestamp"), Atomic("timestamp_ntz"), Atomic("variant")

_SQL_NAMES = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
}
_ATOMIC = (
    *(BYTE, SHORT, INTEGER, LONG, FLOAT, DOUBLE, BOOLEAN, STRING, BINARY, DATE),
    *(TIMESTAMP, TIMESTAMP_NTZ, VARIANT),
)
_BY_NAME = {atomic.name: atomic for atomic in _ATOMIC}


def declared(field: StructField) -> str:
    """Return the declared type of a Spark column, such as ``varchar(5)``."""
    return str(field.metadata.get(DECLARED_AS, field.dataType.simpleString()))


def to_json(schema: Struct) -> str:
    """Return a schema in the format of the log's ``schemaString``."""
    return json.dumps(plain(schema), ensure_ascii=False, separators=(",", ":"))


def from_json(text: str) -> Struct:
    """Parse a schema from JSON, such as the one in the footers of Spark's Parquet files.

    Raises:
        ValueError: The text isn't a schema, or contains a type that Delta's log doesn't support.
    """
    try:
        schema = typed(json.loads(text))
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"not a schema: {text[:200]}") from error
    if not isinstance(schema, Struct):
        raise ValueError(f"not a struct: {text[:200]}")
    return schema


def changed(data_type: _T, change: Callable[[Field], Field]) -> _T:
    """Return a type with ``change`` applied to every field, from the outermost struct inwards."""
    result: DataType = data_type
    match data_type:
        case Struct():
            fields = [change(column) for column in data_type.fields]
            result = Struct(tuple(replace(column, type=changed(column.type, change)) for column in fields))
        case Array():
            result = Array(changed(data_type.element, change), data_type.contains_null)
        case Map():
            result = Map(
                changed(data_type.key, change),
                changed(data_type.value, change),
                data_type.value_contains_null,
            )
    return cast(_T, result)


def walk(data_type: DataType, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], DataType]]:
    """Yield a type and every type nested in it, each with the names of its enclosing fields."""
    yield path, data_type
    match data_type:
        case Struct():
            for column in data_type.fields:
                yield from walk(column.type, (*path, column.name))
        case Array():
            yield from walk(data_type.element, path)
        case Map():
            yield from walk(data_type.key, path)
            yield from walk(data_type.value, path)


def primitives(columns: Struct) -> dict[tuple[str, ...], list[Primitive]]:
    """Return the primitive types by path; a path into a map can have several, from its keys and values."""
    found: dict[tuple[str, ...], list[Primitive]] = {}
    for path, data_type in walk(columns):
        if isinstance(data_type, Atomic | Decimal):
            found.setdefault(path, []).append(data_type)
    return found


def named_twice(columns: Struct) -> tuple[str, ...]:
    """Return the path of the first name, in lower case, that a struct has twice; ``()`` if all are unique.

    Names that differ only by case are the same.
    """
    for path, kind in walk(columns):
        names = [column.name.lower() for column in kind.fields] if isinstance(kind, Struct) else []
        if twice := next((name for name in names if names.count(name) > 1), ""):
            return (*path, twice)
    return ()


def plain(value: DataType) -> Any:
    """Return a type as the Python value of its JSON in the log."""
    match value:
        case Atomic():
            return value.name
        case Decimal():
            return str(value)
        case Array():
            return {
                "type": "array",
                "elementType": plain(value.element),
                "containsNull": value.contains_null,
            }
        case Map():
            return {
                "type": "map",
                "keyType": plain(value.key),
                "valueType": plain(value.value),
                "valueContainsNull": value.value_contains_null,
            }
        case Struct():
            return {
                "type": "struct",
                "fields": [
                    {
                        "name": column.name,
                        "type": plain(column.type),
                        "nullable": column.nullable,
                        "metadata": dict(column.metadata),
                    }
                    for column in value.fields
                ],
            }
        case _:
            assert_never(value)


def typed(value: Any) -> DataType:
    """Return the type of a Python value that `plain` returned.

    Raises:
        ValueError: Delta's log doesn't support the type.
    """
    if isinstance(value, str):
        if value in _BY_NAME:
            return _BY_NAME[value]
        if value == "decimal":
            return Decimal(10, 0)
        if value.startswith("decimal(") and value.endswith(")"):
            precision, scale = value[8:-1].split(",")
            return Decimal(int(precision), int(scale))
        raise ValueError(f"no type of a column: {value}")
    match value["type"]:
        case "array":
            return Array(typed(value["elementType"]), bool(value["containsNull"]))
        case "map":
            return Map(typed(value["keyType"]), typed(value["valueType"]), bool(value["valueContainsNull"]))
        case "struct":
            return Struct(
                tuple(
                    Field(
                        str(column["name"]),
                        typed(column["type"]),
                        bool(column["nullable"]),
                        dict(column.get("metadata") or {}),
                    )
                    for column in value["fields"]
                )
            )
        case "udt":
            return typed(value["sqlType"])
        case other:
            raise ValueError(f"no type of a column: {other}")
