"""Translate an Iceberg schema to Delta columns, and check whether readers can find columns by name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from tableferry.errors import Refused
from tableferry.formats.delta import column_mapping
from tableferry.spark import types
from tableferry.spark.types import Array, DataType, Decimal, Field, Map, Struct

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.types import IcebergType

_Path: TypeAlias = tuple[str, ...]


def columns_of(schema: Schema, source: str, *, with_ids: bool) -> Struct:
    """Return the columns of an Iceberg schema as Delta columns.

    Args:
        schema: The Iceberg schema.
        source: The table's name, for errors.
        with_ids: Add the ids of Delta's column mapping, by which readers find the columns in the files.

    Raises:
        Refused: Delta can't read a column's type or default from these files, or two names differ only in
            upper and lower case.
    """
    columns = _struct(schema.as_struct(), source, with_ids)
    assert isinstance(columns, Struct)
    if twice := types.named_twice(columns):
        *above, name = twice
        where = f" in {'.'.join(above)}" if above else ""
        raise Refused("ICEBERG_COLUMNS_DIFFER_BY_CASE", table=source, column=name, place=where)
    return columns


def needs_ids(metadata: TableMetadata) -> str:
    """Return why readers can't find a table's columns by name in all files; empty if they can.

    A file keeps the column names of the time when it was written. Iceberg can remove old schemas from the
    metadata, and only a complete list of schemas proves that no column was renamed.
    """
    ids: dict[_Path, set[int]] = {}
    names: dict[int, set[_Path]] = {}
    for schema in metadata.schemas:
        for path, number in _paths(schema.as_struct(), ()):
            ids.setdefault(path, set()).add(number)
            names.setdefault(number, set()).add(path)
    if renamed := next((sorted(paths) for paths in names.values() if len(paths) > 1), None):
        return f"`{'` and `'.join(map('.'.join, renamed))}` are two names of one column"
    if again := next((path for path, numbers in ids.items() if len(numbers) > 1), ()):
        return f"`{'.'.join(again)}` is the name of a column and of one that was dropped"
    if odd := next((path[-1] for path in ids if not _is_plain(path[-1])), ""):
        return f"`{odd}` isn't spelled so in the files"
    numbers = sorted(schema.schema_id for schema in metadata.schemas)
    if numbers != list(range(len(numbers))):
        return "old schemas are gone, so the columns' old names are unknown"
    return ""


def ids_of(schema: Schema) -> dict[_Path, int]:
    """Return the ids of columns and struct fields by path, except fields in lists and maps."""
    return dict(_nested(schema.as_struct(), ()))


def _nested(struct: Any, above: _Path) -> Iterator[tuple[_Path, int]]:
    from pyiceberg.types import StructType

    for column in struct.fields:
        path = (*above, column.name)
        yield path, column.field_id
        if isinstance(column.field_type, StructType):
            yield from _nested(column.field_type, path)


def _paths(kind: IcebergType, above: _Path) -> Iterator[tuple[_Path, int]]:
    """Yield the path and id of each column and field, including those in lists and maps."""
    from pyiceberg.types import ListType, MapType, StructType

    match kind:
        case StructType():
            for column in kind.fields:
                path = (*above, column.name)
                yield path, column.field_id
                yield from _paths(column.field_type, path)
        case ListType():
            yield from _paths(kind.element_type, (*above, "element"))
        case MapType():
            yield from _paths(kind.key_type, (*above, "key"))
            yield from _paths(kind.value_type, (*above, "value"))
        case _:
            pass


def _is_plain(name: str) -> bool:
    """Return whether Iceberg's writers store a name unchanged in files, by Avro's rules for names."""
    return (
        name.isascii()
        and name.replace("_", "a").isalnum()
        and not name[:1].isdigit()
        and column_mapping.fits(name)
    )


def _struct(kind: IcebergType, source: str, with_ids: bool, above: str = "") -> DataType:
    from pyiceberg import types as iceberg

    match kind:
        case iceberg.StructType():
            return Struct(tuple(_field(column, source, with_ids, above) for column in kind.fields))
        case iceberg.ListType():
            return Array(_struct(kind.element_type, source, with_ids, f"{above}element."))
        case iceberg.MapType():
            return Map(
                _struct(kind.key_type, source, with_ids, f"{above}key."),
                _struct(kind.value_type, source, with_ids, f"{above}value."),
            )
        case iceberg.DecimalType():
            return Decimal(kind.precision, kind.scale)
        case iceberg.FixedType():
            return types.BINARY
        case _:
            simple: dict[type[Any], DataType] = {
                iceberg.BooleanType: types.BOOLEAN,
                iceberg.IntegerType: types.INTEGER,
                iceberg.LongType: types.LONG,
                iceberg.FloatType: types.FLOAT,
                iceberg.DoubleType: types.DOUBLE,
                iceberg.DateType: types.DATE,
                iceberg.TimestampType: types.TIMESTAMP_NTZ,
                iceberg.TimestamptzType: types.TIMESTAMP,
                iceberg.StringType: types.STRING,
                iceberg.BinaryType: types.BINARY,
            }
            if type(kind) in simple:
                return simple[type(kind)]
            raise Refused("ICEBERG_COLUMN_TYPE", table=source, column=above.rstrip("."), type=kind)


def _field(column: Any, source: str, with_ids: bool, above: str) -> Field:
    path = f"{above}{column.name}"
    if getattr(column, "initial_default", None) is not None:
        raise Refused("ICEBERG_COLUMN_DEFAULT", table=source, column=path, default=column.initial_default)
    metadata: dict[str, Any] = {"comment": column.doc} if column.doc else {}
    if with_ids:
        # A file may contain another column under this name, and Spark would skip files by its statistics. So
        # the physical name is derived from the id.
        metadata |= column_mapping.names(column.field_id, f"col-{column.field_id}")
    return Field(column.name, _struct(column.field_type, source, with_ids, f"{path}."), True, metadata)
