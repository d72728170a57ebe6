"""Decide whether Iceberg reads the columns of ORC and Avro files as a table's columns.

Hive and Spark convert a file's values to the table's types wherever possible. Iceberg only widens some types
(https://iceberg.apache.org/spec/#schema-evolution).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from types import MappingProxyType
from typing import Any, NamedTuple

from tableferry.fleet.hive_tables.hive_table import HiveColumn, Type, child_types
from tableferry.spark.types import ColumnPath, lowered


class FileColumn(NamedTuple):
    """A column or nested field, of a file or expected in files.

    Attributes:
        names: Its name, and the other names that it may have in files.
        kind: Its type: ``struct``, ``list``, ``map``, or the name in Iceberg or in the file's format.
        inner: A struct's fields; ``element`` of a list, ``key`` and ``value`` of a map.
        default: Its value in rows of files that lack it, if that isn't null.
        id: Its Iceberg field id; None if the file has no ids.
    """

    names: tuple[str, ...]
    kind: str
    inner: tuple[FileColumn, ...] = ()
    default: str = ""
    id: int | None = None

    @property
    def name(self) -> str:
        """The first name."""
        return self.names[0]


ICEBERG_KINDS: Mapping[str, str] = {
    **dict.fromkeys(("tinyint", "smallint", "int"), "int"),
    "bigint": "long",
    **dict.fromkeys(("timestamp_ltz", "timestamp with local time zone"), "timestamptz"),
    "timestamp_ntz": "timestamp",
    **dict.fromkeys(("varchar", "char"), "string"),
    "array": "list",
}
"""Iceberg's names for types of Hive and ORC; other types have the same name."""

_AVRO_INSTANTS = ("timestamp-millis", "timestamp-micros")
# Avro's readers ignore other logical types. `_AvroTypes` handles decimals and other bytes.
_AVRO_LOGICAL = (
    "date",
    "local-timestamp-micros",
    "local-timestamp-millis",
    "time-micros",
    "time-millis",
    "uuid",
    *_AVRO_INSTANTS,
)
# The other stored types from which Iceberg reads these types.
_READ_FROM = {
    "long": ("int", "timestamp-micros"),
    "double": ("float",),
    "timestamp": _AVRO_INSTANTS,
    "timestamptz": _AVRO_INSTANTS,
}
_REMEDY = "rewrite it, or leave the table in Hive"


def hive_columns(
    columns: Iterable[HiveColumn],
    defaults: Mapping[str, str] = MappingProxyType({}),
    ids: Mapping[ColumnPath, int] = MappingProxyType({}),
) -> tuple[FileColumn, ...]:
    """Return the columns of a Hive table.

    Args:
        columns: Its columns.
        defaults: The values of columns in rows of files that lack them, if these aren't null.
        ids: The Iceberg field ids, by paths in lower case.
    """
    made = (_hive_column((column.name,), column.type, ids) for column in columns)
    return tuple(column._replace(default=defaults.get(column.name, "")) for column in made)


def _hive_column(path: ColumnPath, kind: Type, ids: Mapping[ColumnPath, int]) -> FileColumn:
    inner = tuple(_hive_column((*path, name), part, ids) for name, part in child_types(kind))
    stored = ICEBERG_KINDS.get(kind["name"], kind["name"])
    if stored == "decimal":
        stored = decimal_kind(kind["precision"], kind["scale"])
    return FileColumn(path[-1:], stored, inner, id=ids.get(lowered(path)))


def decimal_kind(precision: int, scale: int) -> str:
    """Return the name of a decimal type."""
    return f"decimal({precision}, {scale})"


def avro_columns(schema: str) -> tuple[FileColumn, ...]:
    """Return the columns of an Avro schema, with their aliases and defaults.

    Raises:
        ValueError: The text isn't the Avro schema of a record.
    """
    try:
        column = _AvroTypes().column("", json.loads(schema))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"it isn't Avro's ({error!r})") from error
    if column.kind != "struct":
        raise ValueError(f"it is of {column.kind}, and not of a record")
    return column.inner


class _AvroTypes:
    """A parser that remembers the named types of a schema, which may refer to them by name."""

    def __init__(self) -> None:
        self._named: dict[str, tuple[Any, str]] = {}
        self._within: list[str] = []

    def column(self, name: str, kind: Any, space: str = "") -> FileColumn:
        """Return a column of a type; ``space`` is the enclosing namespace."""
        match kind:
            case str():
                return self._of_name(name, kind, space)
            case list():
                others = [one for one in kind if one != "null"]
                if len(others) == 1:
                    return self.column(name, others[0], space)
                return FileColumn((name,), "union")
        own, logical, full = kind["type"], str(kind.get("logicalType")), ""
        if "name" in kind:
            full = _full(kind["name"], kind.get("namespace", space))
            space = full.rpartition(".")[0]
            self._named[full] = (kind, space)
        match own:
            case "record":
                self._within.append(full)
                inner = tuple(self._fields(kind["fields"], space))
                self._within.pop()
                return FileColumn((name,), "struct", inner)
            case "array":
                element = self.column("element", kind["items"], space)
                return FileColumn((name,), "list", (element._replace(id=kind.get("element-id")),))
            case "map":
                key, value = FileColumn(("key",), "string"), self.column("value", kind["values"], space)
                pair = (key._replace(id=kind.get("key-id")), value._replace(id=kind.get("value-id")))
                return FileColumn((name,), "map", pair)
            case "bytes" | "fixed" if logical == "decimal":
                return FileColumn((name,), decimal_kind(kind["precision"], kind.get("scale", 0)))
            case "enum":
                return FileColumn((name,), "string")
            case "fixed":
                return FileColumn((name,), "binary")
            case _ if logical in _AVRO_LOGICAL:
                return FileColumn((name,), logical)
            case _:
                return self.column(name, own, space)

    def _of_name(self, name: str, kind: str, space: str) -> FileColumn:
        full = _full(kind, space)
        # A recursive type stays a name.
        if full in self._named and full not in self._within:
            return self.column(name, *self._named[full])
        return FileColumn((name,), "binary" if kind == "bytes" else kind)

    def _fields(self, fields: Sequence[Mapping[str, Any]], space: str) -> Iterator[FileColumn]:
        taken = {field["name"] for field in fields}
        for field in fields:
            column = self.column(field["name"], field["type"], space)
            others = [name for name in field.get("aliases", ()) if name not in taken]
            taken.update(others)
            default = field.get("default")
            yield column._replace(
                names=(field["name"], *others),
                default="" if default is None else json.dumps(default),
                id=field.get("field-id"),
            )


def _full(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def read_by_avro(columns: Iterable[FileColumn], reader: Iterable[FileColumn]) -> tuple[FileColumn, ...]:
    """Return a Hive table's columns with the names and defaults of its Avro schema."""
    by_name = {column.name.lower(): column for column in reader}
    return tuple(
        column._replace(names=own.names, default=own.default, inner=read_by_avro(column.inner, own.inner))
        if (own := by_name.get(column.name.lower()))
        else column
        for column in columns
    )


def read_by_orc(columns: Sequence[FileColumn], file: Sequence[FileColumn]) -> tuple[FileColumn, ...]:
    """Return columns with their names in an ORC file; files of old Hive versions have columns by position."""
    if file and all(column.name.startswith("_col") for column in file):
        return tuple(
            column._replace(names=(*column.names, f"_col{place}")) for place, column in enumerate(columns)
        )
    named = {column.name.lower(): column for column in file}
    return tuple(
        column._replace(names=(same.name,), inner=read_by_orc(column.inner, same.inner))
        if (same := named.get(column.name.lower()))
        else column
        for column in columns
    )


def find_blocker(columns: Sequence[FileColumn], file: Sequence[FileColumn]) -> str:
    """Return why a file can't be added to an Iceberg table, as the end of a sentence; empty if it can.

    Args:
        columns: The table's columns, with the exact names by which Iceberg finds them.
        file: The file's columns.
    """
    if any(column.id is not None for column in _all(file)):
        taken = {column.id for column in _all(columns)} - {None}
        if other := next(_misread(columns, file, taken), ""):
            return (
                f"has field ids, by which Iceberg finds columns, and {other} would be another one, or none: "
                f"{_REMEDY}"
            )
    return next(_list_blockers(columns, file, ()), "")


def _all(columns: Iterable[FileColumn]) -> Iterator[FileColumn]:
    for column in columns:
        yield column
        yield from _all(column.inner)


def _misread(
    columns: Sequence[FileColumn], file: Sequence[FileColumn], taken: Set[int | None]
) -> Iterator[str]:
    """Yield the columns of a file that Iceberg doesn't find by their ids, or finds as another column."""
    for found in file:
        column = next((one for one in columns if found.name in one.names), None)
        if found.id in taken if column is None else found.id != column.id:
            yield found.name
        elif column is not None:
            yield from _misread(column.inner, found.inner, taken)


def _list_blockers(
    columns: Sequence[FileColumn], file: Sequence[FileColumn], path: ColumnPath
) -> Iterator[str]:
    for column in columns:
        found = next((one for one in file if one.name in column.names), None)
        here = (*path, column.name)
        if found is None:
            if column.default:
                yield (
                    f"lacks {'.'.join(here)}, which is {column.default} there, and would be null in Iceberg: "
                    f"{_REMEDY}"
                )
            elif other := next((one.name for one in file if one.name.lower() == column.name.lower()), ""):
                yield (
                    f"calls {'.'.join(here)} {other}, so that Hive may read it there, and neither Spark nor "
                    f"Iceberg does: {_REMEDY}"
                )
        elif column.inner and column.kind == found.kind:
            yield from _list_blockers(column.inner, found.inner, here)
        elif not _is_read(found.kind, column.kind):
            yield (
                f"stores {'.'.join(here)} as {found.kind}, which Iceberg can't read as {column.kind}: "
                f"{_REMEDY}"
            )


def _is_read(stored: str, kind: str) -> bool:
    decimals = stored.startswith("decimal") and kind.startswith("decimal")
    same_scale = decimals and stored.rpartition(",")[2] == kind.rpartition(",")[2]
    return stored == kind or same_scale or stored in _READ_FROM.get(kind, ())
