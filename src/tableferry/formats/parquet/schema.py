"""Interpret a Parquet file's schema as Spark does, or refuse it with the column that Delta can't have.

The rules are those of Spark's ParquetToSparkSchemaConverter with its default settings, including lists and
maps of older writers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from typing import NamedTuple

from tableferry.formats.parquet.elements import Element
from tableferry.formats.parquet.files import FileSchema, Leaf
from tableferry.spark import types
from tableferry.spark.types import Array, ColumnPath, DataType, Decimal, Field, Map, Primitive, Struct

# The number of decimal digits that always fit; BINARY has no limit except the maximum of a decimal.
_MOST_DIGITS = 38
_DIGITS = {"INT32": 9, "INT64": 18, "BINARY": _MOST_DIGITS}

_SIGNED = {8: types.BYTE, 16: types.SHORT, 32: types.INTEGER}
_UNSIGNED = {8: types.SHORT, 16: types.INTEGER, 32: types.LONG}

_REMEDIES = {
    "TIMESTAMP": "write it again with timestamps in microseconds",
    "TIME": "write it again with the time as a string or as an integer",
    "UUID": "write it again with the UUID as a string",
    "FLOAT16": "write it again as float",
    "INTERVAL": "write it again as a number",
}
_REMEDY = "write it again with a type that Spark reads"

# Delta doesn't have these types, although the files store plain integers.
_FOREIGN = re.compile(r'"(?:type|elementType|keyType|valueType)":"(interval[^"]*|time\(\d+\))"')

# Metadata keys that describe the table or query from which Spark wrote the file. The lengths of char and
# varchar are among them: they are rules of that table, and Spark doesn't read them from files either.
_INTERNAL = re.compile(r"delta\.|CURRENT_DEFAULT$|EXISTS_DEFAULT$|__")


class Illegal(ValueError):
    """A Delta table can't have the schema; the message continues a sentence after the file's name."""


class Stored(NamedTuple):
    """A column or field of primitive type.

    Attributes:
        column: The number of its column chunk in each row group.
        element: The schema element that states how its values are stored.
    """

    path: ColumnPath
    column: int
    element: Element


@dataclass(frozen=True)
class Interpreted:
    """A schema as Spark reads it; the leaves are in the file's order.

    `undecimal` and `untyped` are as in `FileSchema`.

    Attributes:
        stored: Leaves outside arrays and maps.
        repeated: Leaves in arrays and maps, with ``element``, ``key`` and ``value`` in their paths.
        two_level: Arrays in the older two-level form: the repeated field is the element, so it can't be null.
        ids: The field ids of columns and fields.
    """

    columns: Struct
    stored: tuple[Stored, ...]
    undecimal: frozenset[ColumnPath]
    untyped: frozenset[ColumnPath]
    repeated: tuple[Stored, ...] = ()
    two_level: tuple[ColumnPath, ...] = ()
    ids: Mapping[ColumnPath, int] = dataclass_field(default_factory=dict, hash=False)


def interpret(root: Element) -> Interpreted:
    """Return the schema that Spark would read.

    Raises:
        Illegal: Spark or Delta can't read one of the columns.
    """
    reader = _SchemaReader()
    columns = reader.struct(root, (), True)
    stored = tuple(Stored(path, *leaf) for path, leaf in reader.leaves.items())
    repeated = tuple(Stored(path, *leaf) for path, leaf in reader.repeated.items())
    return Interpreted(
        columns,
        stored,
        frozenset(reader.undecimal),
        frozenset(reader.untyped),
        repeated,
        tuple(reader.two_level),
        reader.ids,
    )


def with_spark_schema(file: Interpreted, row_metadata: str) -> tuple[FileSchema, tuple[int, ...]]:
    """Apply Spark's own schema (comments, Variant) from the footer to the file's columns.

    ``row_metadata`` is the JSON under ``org.apache.spark.sql.parquet.row.metadata``, or empty. It counts only
    if it has the file's columns. Other tools copy the entry into files with other columns, and Spark itself
    would lose those columns.

    Returns:
        The schema, and the index of each of its leaves among the stored leaves.

    Raises:
        Illegal: A column has a type that Delta doesn't have.
    """
    if foreign := _FOREIGN.search(row_metadata):
        raise Illegal(f"has a column of type {foreign[1]}, which Delta doesn't have: {_REMEDY}")
    columns = file.columns
    if row_metadata:
        try:
            fitting = _with_spark_type(columns, types.from_json(row_metadata))
        except ValueError:  # Other versions of Spark have other types; the file's own types are sufficient.
            fitting = None
        columns = fitting if isinstance(fitting, Struct) else columns
    leaves = {
        index: Leaf(stored.path, leaf_type)
        for index, stored in enumerate(file.stored)
        if (leaf_type := _type_at(columns, stored.path)) is not None
    }
    return FileSchema(columns, tuple(leaves.values()), file.undecimal, file.untyped), tuple(leaves)


class _SchemaReader:
    """Read a schema in one pass, and number the columns as row groups do: depth first."""

    def __init__(self) -> None:
        self.column = 0
        self.leaves: dict[ColumnPath, tuple[int, Element]] = {}
        self.repeated: dict[ColumnPath, tuple[int, Element]] = {}
        self.undecimal: set[ColumnPath] = set()
        self.untyped: set[ColumnPath] = set()
        self.two_level: list[ColumnPath] = []
        self.ids: dict[ColumnPath, int] = {}

    def struct(self, group: Element, path: ColumnPath, plain: bool) -> Struct:
        """Return a group's fields as a struct; ``plain`` is whether the group is outside arrays and maps."""
        spellings: dict[str, str] = {}
        fields: list[Field] = []
        for child in group.children:
            spelling = spellings.setdefault(child.name.lower(), child.name)
            child_path = (*path, child.name)
            if len(spellings) == len(fields):
                first, second = _name((*path, spelling)), _name(child_path)
                raise Illegal(
                    f"has both column {first} and column {second}, which Spark can't tell apart: "
                    "write it again with different names"
                )
            if child.repetition == "repeated":
                self.two_level.append(child_path)
                repeated = Array(self.type(child, (*child_path, "element"), False), False)
                fields.append(Field(child.name, repeated, nullable=False))
            else:
                child_type = self.type(child, child_path, plain)
                fields.append(Field(child.name, child_type, nullable=child.repetition == "optional"))
        return Struct(tuple(fields))

    def type(self, element: Element, path: ColumnPath, plain: bool) -> DataType:
        """Return the type of one element, regardless of its repetition."""
        if element.id is not None:
            self.ids[path] = element.id
        if element.physical:
            leaf_type = _leaf(element, path)
            if _untyped(element):
                self.untyped.add(path)
            elif _undecimal(element):
                self.undecimal.add(path)
            (self.leaves if plain else self.repeated)[path] = (self.column, element)
            self.column += 1
            return leaf_type
        if not element.children:
            raise Illegal(f"has column {_name(path)} without a field: write it again without the column")
        match element.annotation.kind if element.annotation else "":
            case "":
                return self.struct(element, path, plain)
            case "VARIANT" if element.annotation and element.annotation.version == 1:
                return self.variant(element, path, plain)
            case "LIST":
                return self.array(element, path)
            case "MAP" | "MAP_KEY_VALUE":
                return self.map(element, path)
            case _:
                raise _illegal(element, path)

    def array(self, group: Element, path: ColumnPath) -> Array:
        repeated = group.children[0]
        if len(group.children) != 1 or repeated.repetition != "repeated":
            raise _illegal(group, path)
        itself = (
            repeated.physical
            or len(repeated.children) > 1
            or repeated.name in ("array", f"{group.name}_tuple")
            or not repeated.children
        )
        if itself:
            self.two_level.append(path)
            return Array(self.type(repeated, (*path, "element"), False), False)
        element = repeated.children[0]
        return Array(self.type(element, (*path, "element"), False), element.repetition == "optional")

    def map(self, group: Element, path: ColumnPath) -> Map:
        entry = group.children[0]
        if len(group.children) != 1 or entry.repetition != "repeated" or len(entry.children) != 2:
            raise _illegal(group, path)
        key, value = entry.children
        return Map(
            self.type(key, (*path, "key"), False),
            self.type(value, (*path, "value"), False),
            value.repetition == "optional",
        )

    def variant(self, group: Element, path: ColumnPath, plain: bool) -> types.Atomic:
        """Read a Variant, shredded or not; it's null where its ``metadata`` field is null."""
        inner = _SchemaReader()
        inner.column = self.column
        inner.struct(replace(group, annotation=None), path, plain)
        self.column = inner.column
        if plain and (metadata := inner.leaves.get((*path, "metadata"))):
            self.leaves[path] = metadata
        return types.VARIANT


def _leaf(element: Element, path: ColumnPath) -> Primitive:
    annotation = element.annotation
    # Spark reads a column of nulls without a known type as its physical type.
    kind = annotation.kind if annotation and annotation.kind != "UNKNOWN" else ""
    match element.physical, kind:
        case ("BOOLEAN", _):
            return types.BOOLEAN
        case ("FLOAT", _):
            return types.FLOAT
        case ("DOUBLE", _):
            return types.DOUBLE
        case ("INT96", _):
            return types.TIMESTAMP
        case ("INT32", ""):
            return types.INTEGER
        case ("INT64", ""):
            return types.LONG
        case ("BINARY" | "FIXED_LEN_BYTE_ARRAY", "") | ("BINARY", "BSON"):
            return types.BINARY
        case ("BINARY", "STRING" | "ENUM" | "JSON"):
            return types.STRING
        case ("INT32", "DATE"):
            return types.DATE
        case (_, "DECIMAL") if annotation:
            most = _DIGITS.get(element.physical) or _digits(element.length)
            if (
                not 0 < annotation.precision <= min(most, _MOST_DIGITS)
                or not 0 <= annotation.scale <= annotation.precision
            ):
                raise _illegal(element, path)
            return Decimal(annotation.precision, annotation.scale)
        case ("INT32", "INTEGER") if annotation and annotation.bits in _SIGNED:
            return (_SIGNED if annotation.signed else _UNSIGNED)[annotation.bits]
        case ("INT64", "INTEGER") if annotation and annotation.bits == 64:
            return types.LONG if annotation.signed else Decimal(20, 0)
        case ("INT64", "TIMESTAMP") if annotation and annotation.unit != "NANOS":
            return types.TIMESTAMP if annotation.utc else types.TIMESTAMP_NTZ
        case _:
            raise _illegal(element, path)


def _untyped(element: Element) -> bool:
    annotation = element.annotation
    return annotation is not None and annotation.kind == "UNKNOWN" and element.physical == "INT32"


def _undecimal(element: Element) -> bool:
    annotation = element.annotation
    return annotation is not None and (annotation.kind == "UNKNOWN" or not annotation.signed)


def _digits(length: int) -> int:
    """Return the number of decimal digits that always fit into ``length`` bytes, one bit of them the sign."""
    return len(str(2 ** (8 * min(length, 17) - 1) - 1)) - 1 if length > 0 else 0


def _illegal(element: Element, path: ColumnPath) -> Illegal:
    remedy = _REMEDIES.get(element.annotation.kind if element.annotation else "", _REMEDY)
    return Illegal(f"has column {_name(path)} of type {element}, which Spark can't read: {remedy}")


def _name(path: ColumnPath) -> str:
    name = ".".join(path)
    return f"`{name if name.isprintable() else name.encode('unicode_escape').decode()}`"


def _with_spark_type(file: DataType, spark: DataType) -> DataType | None:
    """Apply the types and metadata of Spark's schema to the file's type; None if the two don't match."""
    match file, spark:
        case (Struct(), Struct()):
            if [column.name for column in file.fields] != [column.name for column in spark.fields]:
                return None
            fields = []
            for column, described in zip(file.fields, spark.fields, strict=True):
                inner = _with_spark_type(column.type, described.type)
                if inner is None:
                    return None
                metadata = {
                    key: entry for key, entry in described.metadata.items() if not _INTERNAL.match(key)
                }
                fields.append(Field(column.name, inner, column.nullable, metadata))
            return Struct(tuple(fields))
        case (Array(), Array()):
            element = _with_spark_type(file.element, spark.element)
            return None if element is None else Array(element, file.contains_null)
        case (Map(), Map()):
            key, value = _with_spark_type(file.key, spark.key), _with_spark_type(file.value, spark.value)
            return None if key is None or value is None else Map(key, value, file.value_contains_null)
        case (Struct(), types.VARIANT):
            # By default, Spark writes a Variant into a group without an annotation.
            fits = {"metadata", "value"} <= {column.name for column in file.fields}
            return types.VARIANT if fits else None
        case _:
            return file if file == spark else None


def _type_at(columns: DataType, path: ColumnPath) -> Primitive | None:
    """Return a leaf's type, or None if Spark's schema has a Variant instead of the struct around the leaf."""
    for name in path:
        if not isinstance(columns, Struct):
            return None
        columns = next(column.type for column in columns.fields if column.name == name)
    return None if isinstance(columns, Struct | Array | Map) else columns
