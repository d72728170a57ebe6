"""Merge the schemas of a table's files: match columns by name, and widen types if all readers can.

The comment below the imports lists the widenings that were tried with Spark and deltalake.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tableferry.amounts import counted, first_of
from tableferry.errors import Refused
from tableferry.formats.parquet.files import FileSchema
from tableferry.spark import types
from tableferry.spark.types import Array, ColumnPath, DataType, Decimal, Field, Map, Primitive, Struct

# The widenings were tried with tables whose hand-written first commit names files of both types. The readers
# were Spark 4.1.4 with Delta 4.4.0 (vectorized reader on and off) and deltalake 1.6.6 (Arrow and DataFusion).
# The columns were dictionary-encoded and plain, at the top level, in structs and in arrays, with values at
# both ends of each type. Each reader read all rows, and then filtered them by each value.
#
# All readers read these correctly, without the `typeWidening` feature:
# - byte, short and int as any wider integer, as double, and as decimals with at least 10 integer digits
# - long as decimals with at least 20 integer digits
# - float as double, decimals as wider decimals, date as timestamp_ntz
# With the feature and `delta.typeChanges`, Spark reads the same, and deltalake fails ("not yet supported").
# So the feature isn't enabled.
#
# These are refused because Spark fails or returns other values: long as double, int as float, numbers as
# string, date as timestamp, and unsigned integers as decimals. Spark reads unsigned 4294967295 as -1 without
# the vectorized reader, and fails with it.
#
# These are refused because the meaning differs, although readers convert them: timestamp_ntz and timestamp,
# binary and string.
#
# pandas and Arrow store a column that has only nulls, without a type, as INT32 with the logical type UNKNOWN.
# Spark reads such nulls as byte, short, int, long, double and date, and deltalake as any type. As float,
# decimal, string, binary, boolean, timestamps, structs, arrays and maps, Spark fails with
# PARQUET_COLUMN_DATA_TYPE_MISMATCH at the top level, in structs and in arrays, although there is no value to
# read.

_WHOLE = (types.BYTE, types.SHORT, types.INTEGER, types.LONG)
# The digits of the widest stored value, because Parquet readers widen by the physical type: 32 or 64 bits.
_WHOLE_DIGITS = {types.BYTE: 10, types.SHORT: 10, types.INTEGER: 10, types.LONG: 20}
_MOST_DIGITS = 38
# A double represents every int exactly, but not every long.
_IN_DOUBLE = (types.BYTE, types.SHORT, types.INTEGER, types.FLOAT, types.DOUBLE)
# The types as which Spark reads nulls without a type.
_NULLS_READ_AS = (types.BYTE, types.SHORT, types.INTEGER, types.LONG, types.DOUBLE, types.DATE)


@dataclass(frozen=True, order=True)
class Widening:
    """A column whose type in a file is narrower than the table's; the types are in SQL notation."""

    path: ColumnPath
    narrow: str
    wide: str
    file: str

    def __str__(self) -> str:
        return f"`{'.'.join(self.path)}` from {self.narrow} to {self.wide}"


@dataclass(frozen=True)
class Merged:
    """The merged schema of a table's files, without partition columns that only the directory names have.

    Attributes:
        untyped: The columns that have no type in any file, each with an example file.
    """

    columns: Struct
    widenings: tuple[Widening, ...] = ()
    untyped: Mapping[ColumnPath, str] = field(default_factory=dict, hash=False)


class _File(NamedTuple):
    """A file whose schema is added; `undecimal` and `untyped` are as in `FileSchema`."""

    name: str
    undecimal: frozenset[ColumnPath]
    untyped: frozenset[ColumnPath]


@dataclass
class _Node:
    """A column, field or element during the merge: its type so far, and each type that a file has.

    Attributes:
        file: The first file with a type for it.
        typed: Whether a file has a type for it; if not, ``type`` is the storage type of the nulls.
        nulls_in: The first file in which it has nulls without a type; empty if no file has them.
    """

    type: DataType
    file: str
    typed: bool = True
    nulls_in: str = ""
    undecimal: bool = False
    metadata: dict[str, Any] = field(default_factory=dict)
    seen: dict[Primitive, str] = field(default_factory=dict)
    parts: dict[str, _Node] = field(default_factory=dict)


def merge(schemas: Iterable[tuple[FileSchema, str]]) -> Merged:
    """Return the schema with which all files can be read.

    Columns and struct fields have the order in which they first occur in the files. All are nullable, because
    a file may lack them. Each has the first comment that occurs.

    Args:
        schemas: The schemas, each with a file that has it; a schema may occur several times.

    Raises:
        Refused: The columns of two files conflict.
    """
    merged: dict[int, FileSchema] = {}
    top = _Node(Struct(), "")
    for schema, file in schemas:
        if id(schema) not in merged:
            merged[id(schema)] = schema
            _add(top, schema.columns, _File(file, schema.undecimal, schema.untyped), ())
    untyped = dict(_settle_nulls(top, ()))
    columns = _finished(top)
    assert isinstance(columns, Struct)
    return Merged(columns, tuple(_widenings(top, ())), untyped)


def fitting(
    schemas: Iterable[tuple[FileSchema, str]],
    with_rows: Collection[int],
    fit: Callable[[Sequence[tuple[FileSchema, str]]], Merged],
) -> tuple[Merged, frozenset[int]]:
    """Merge the schemas of all files, except files without rows whose schema doesn't fit the others.

    Args:
        schemas: The schemas to merge, each with a file that has it, in file order.
        with_rows: The ids (`id`) of the schemas that a file with rows has.
        fit: Merges some of the schemas, or raises Refused.

    Returns:
        The merged schema, and the ids of the schemas that were left out.

    Raises:
        Refused: The schemas of files with rows conflict, or all files are empty and their schemas conflict.
    """
    everything = list(schemas)
    kept = {id(schema) for schema, _ in everything} & set(with_rows)
    empty = [id(schema) for schema, _ in everything if id(schema) not in kept]
    try:
        return fit(everything), frozenset()
    except Refused:
        if not empty or not kept:
            raise
    merged = fit([item for item in everything if id(item[0]) in kept])
    for schema in empty:
        with suppress(Refused):
            merged = fit([item for item in everything if id(item[0]) in {*kept, schema}])
            kept.add(schema)
    return merged, frozenset(empty) - kept


def left_out_note(files: Sequence[str]) -> str:
    """Return a note about the files that a table lacks because `fitting` left their schemas out."""
    return (
        f"{counted(len(files), 'file is left out, as it has', 'files are left out, as they have')} no rows, "
        f"and other columns or types than the rest: {first_of(files)}"
    )


def require_types(
    location: str, merged: Merged, partitions: Collection[str], remedy: str, files: str = "every file"
) -> None:
    """Refuse columns that have no type in any file.

    Args:
        location: The table's folder.
        merged: The schema of its files.
        partitions: The partition columns, in lower case; their type doesn't come from the files.
        remedy: The end of the message.
        files: The checked files, as the message names them.

    Raises:
        Refused: A column has no type in any file.
    """
    for path, file in merged.untyped.items():
        if path[0].lower() not in partitions:
            raise Refused(
                "COLUMN_WITHOUT_TYPE",
                table=location,
                column=_name(path),
                files=files,
                file=file,
                advice=remedy,
            )


def require_common_columns(location: str, schemas: Iterable[tuple[FileSchema, str]]) -> None:
    """Refuse files that can't form one table.

    Args:
        location: The table's folder.
        schemas: The schemas of the files, each with the name of a file that has it.

    Raises:
        Refused: A file has no column, or the files form groups without a common column.
    """
    groups: list[tuple[set[str], str]] = []
    for schema, file in schemas:
        names, first = {column.name.lower() for column in schema.columns.fields}, file
        if not names:
            raise Refused("FILE_WITHOUT_COLUMNS", table=location, file=file)
        apart = []
        for known, example in groups:
            if names.isdisjoint(known):
                apart.append((known, example))
            else:
                names, first = names | known, example
        groups = [*apart, (names, first)]
    if len(groups) > 1:
        (some, one), (others, other), *_ = groups
        raise Refused(
            "FILES_OF_SEVERAL_TABLES",
            table=location,
            file=one,
            columns=sorted(some),
            other=other,
            other_columns=sorted(others),
        )


def widens(narrow: Primitive, wide: Primitive) -> bool:
    """Return whether files of the narrow type can be read as the wide type with unchanged values."""
    return _wider(narrow, wide) == wide


def _add(node: _Node, data_type: DataType, file: _File, path: ColumnPath) -> None:
    """Merge a file's type of a column into the column's type in the previous files."""
    if path in file.untyped:
        node.nulls_in = node.nulls_in or file.name
        return
    if not node.typed:
        node.type, node.file, node.typed = _without_parts(data_type), file.name, True
    match node.type, data_type:
        case (Struct(), Struct()):
            spellings = {name.lower(): name for name in node.parts}
            for column in data_type.fields:
                if column.name not in node.parts and (spelling := spellings.get(column.name.lower())):
                    raise Refused(
                        "COLUMN_SPELLED_DIFFERENTLY",
                        column=_name((*path, spelling)),
                        file=node.parts[spelling].file,
                        other_column=_name((*path, column.name)),
                        other=file.name,
                    )
                _part(node, column.name, column.type, file, path, column.metadata)
        case (Array(), Array()):
            _part(node, "element", data_type.element, file, path)
        case (Map(), Map()):
            _part(node, "key", data_type.key, file, path)
            _part(node, "value", data_type.value, file, path)
        case (types.Atomic() | Decimal(), types.Atomic() | Decimal()):
            wider = _wider(node.type, data_type)
            undecimal = path in file.undecimal
            rigid = isinstance(wider, Decimal) and (
                (node.undecimal and wider != node.type) or (undecimal and wider != data_type)
            )
            if wider is None or rigid:
                raise _conflict(node, data_type, file.name, path, rigid)
            node.type = wider
            node.undecimal = node.undecimal or undecimal
            node.seen.setdefault(data_type, file.name)
        case _:
            raise _conflict(node, data_type, file.name, path, False)


def _part(
    node: _Node,
    name: str,
    data_type: DataType,
    file: _File,
    above: ColumnPath,
    metadata: Mapping[str, Any] | None = None,
) -> None:
    part = node.parts.get(name)
    if part is None:
        typed = (*above, name) not in file.untyped
        part = node.parts[name] = _Node(_without_parts(data_type), file.name, typed)
    part.metadata = {**(metadata or {}), **part.metadata}
    _add(part, data_type, file, (*above, name))


def _without_parts(data_type: DataType) -> DataType:
    return Struct() if isinstance(data_type, Struct) else data_type


def _settle_nulls(node: _Node, path: ColumnPath) -> Iterator[tuple[ColumnPath, str]]:
    """Settle the type of columns that contain nulls without a type, and yield columns without any type.

    A float column becomes double, because Spark can't read such nulls as float.

    Raises:
        Refused: Spark can't read such nulls as the column's type.
    """
    if node.nulls_in and not node.typed:
        yield path, node.nulls_in
    elif node.nulls_in and node.type == types.FLOAT:
        node.type = types.DOUBLE
    elif node.nulls_in and node.type not in _NULLS_READ_AS:
        raise Refused(
            "NULLS_NOT_READABLE_AS_TYPE",
            column=_name(path),
            file=node.nulls_in,
            type=_finished(node),
            other=node.file,
        )
    for name, part in node.parts.items():
        yield from _settle_nulls(part, (*path, name))


def _wider(left: Primitive, right: Primitive) -> Primitive | None:
    """Return the narrowest type that represents the values of both types; None if no type does."""
    if left == right:
        return left
    if left in _WHOLE and right in _WHOLE:
        return max(left, right, key=_WHOLE.index)
    if left in _IN_DOUBLE and right in _IN_DOUBLE:
        return types.DOUBLE
    if {left, right} == {types.DATE, types.TIMESTAMP_NTZ}:
        return types.TIMESTAMP_NTZ
    left_decimal, right_decimal = _as_decimal(left), _as_decimal(right)
    if left_decimal is None or right_decimal is None:
        return None
    scale = max(left_decimal.scale, right_decimal.scale)
    whole = max(left_decimal.precision - left_decimal.scale, right_decimal.precision - right_decimal.scale)
    return Decimal(whole + scale, scale) if whole + scale <= _MOST_DIGITS else None


def _as_decimal(leaf: Primitive) -> Decimal | None:
    if isinstance(leaf, Decimal):
        return leaf
    return Decimal(_WHOLE_DIGITS[leaf], 0) if leaf in _WHOLE_DIGITS else None


def _finished(node: _Node) -> DataType:
    match node.type:
        case Struct():
            return Struct(
                tuple(Field(name, _finished(part), True, part.metadata) for name, part in node.parts.items())
            )
        case Array():
            return Array(_finished(node.parts["element"]))
        case Map():
            return Map(_finished(node.parts["key"]), _finished(node.parts["value"]))
        case leaf:
            return leaf


def _widenings(node: _Node, path: ColumnPath) -> Iterable[Widening]:
    for narrow, file in node.seen.items():
        if narrow != node.type:
            yield Widening(path, str(narrow), str(node.type), file)
    for name, part in node.parts.items():
        yield from _widenings(part, (*path, name))


def _conflict(node: _Node, data_type: DataType, file: str, path: ColumnPath, rigid: bool) -> Refused:
    known_type, known_file = _finished(node), node.file
    if not isinstance(data_type, Struct | Array | Map):
        # Name a type that a file really has; a widened type may be in none of them.
        clashing = (item for item in node.seen.items() if rigid or _wider(item[0], data_type) is None)
        known_type, known_file = next(clashing, (known_type, known_file))
    return Refused(
        "COLUMN_TYPES_CONFLICT_DECIMAL" if rigid else "COLUMN_TYPES_CONFLICT",
        column=_name(path),
        type=known_type,
        file=known_file,
        other_type=data_type,
        other=file,
    )


def _name(path: ColumnPath) -> str:
    return ".".join(path)
