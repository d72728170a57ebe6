"""Check the user's requests for the new table: a schema, properties and clustering columns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tableferry import storage
from tableferry.amounts import first_of
from tableferry.errors import Refused
from tableferry.formats.delta.column_mapping import physical_name
from tableferry.formats.hive.partitions import PartitionColumn
from tableferry.formats.parquet.files import FileSchema
from tableferry.formats.parquet.schema_merge import Merged, merge
from tableferry.spark import types
from tableferry.spark.tables import parts_of
from tableferry.spark.types import Atomic, DataType, Decimal, Field, Struct

if TYPE_CHECKING:
    from sqlglot import exp

_BOOLEAN, _NUMBER, _ANY = "true|false", "-?[0-9]+", ".+"
_INTERVAL, _SIZE = "(?i)(interval )?[0-9]+ [a-z]+", "(?i)[0-9]+[a-z]*"
# Properties that are valid for any files, each with a pattern of its values and the table features it needs.
_PROPERTIES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "delta.appendOnly": (_BOOLEAN, ()),
    "delta.autoOptimize.autoCompact": (_ANY, ()),
    "delta.autoOptimize.optimizeWrite": (_BOOLEAN, ()),
    "delta.checkpoint.writeStatsAsJson": (_BOOLEAN, ()),
    "delta.checkpoint.writeStatsAsStruct": (_BOOLEAN, ()),
    "delta.checkpointInterval": ("[1-9][0-9]*", ()),
    "delta.dataSkippingNumIndexedCols": (_NUMBER, ()),
    "delta.deletedFileRetentionDuration": (_INTERVAL, ()),
    "delta.enableChangeDataFeed": (_BOOLEAN, ("changeDataFeed",)),
    "delta.enableDeletionVectors": (_BOOLEAN, ("deletionVectors",)),
    "delta.enableExpiredLogCleanup": (_BOOLEAN, ()),
    "delta.enableTypeWidening": (_BOOLEAN, ("typeWidening",)),
    "delta.isolationLevel": ("Serializable|WriteSerializable", ()),
    "delta.logRetentionDuration": (_INTERVAL, ()),
    "delta.parquet.compression.codec": (_ANY, ()),
    "delta.randomizeFilePrefixes": (_BOOLEAN, ()),
    "delta.setTransactionRetentionDuration": (_INTERVAL, ()),
    "delta.targetFileSize": (_SIZE, ()),
    "delta.tuneFileSizesForRewrites": (_BOOLEAN, ()),
}
_FOR_WRITERS = frozenset({"changeDataFeed"})
_MOST_CLUSTERED = 4


@dataclass(frozen=True)
class DeclaredSchema:
    """The declared columns of a table, including partition columns, and the file that declares them."""

    columns: Struct
    file: str

    def as_a_file(self) -> tuple[FileSchema, str]:
        """Return the schema as a file's schema; first in a merge, it decides the order and the comments."""
        return FileSchema(self.columns, ()), self.file

    def partitions(self, columns: Sequence[PartitionColumn]) -> list[PartitionColumn]:
        """Return partition columns with their declared names and types, if the schema has them.

        Raises:
            Refused: A declared type isn't valid for a partition column.
        """
        by_name = {column.name.lower(): column for column in self.columns.fields}
        given = []
        for column in columns:
            if found := by_name.get(column.name.lower()):
                if not isinstance(found.type, Atomic | Decimal):
                    raise Refused(
                        "DECLARED_SCHEMA_PARTITION_TYPE", column=found.name, type=found.type, schema=self.file
                    )
                column = PartitionColumn(found.name, found.type)
            given.append(column)
        return given

    def require_all(self, merged: Merged, schemas: Iterable[tuple[FileSchema, str]]) -> None:
        """Check that the schema declares all columns of the files, with types for all their values.

        Args:
            merged: The schema merged from this one and the files'.
            schemas: The files' schemas, each with a file that has it.

        Raises:
            Refused: The schema lacks a column of a file, or a declared type is too narrow.
        """
        known, actual = types.primitives(self.columns), types.primitives(merged.columns)
        new = next((path for path in actual if path not in known), None)
        if new is not None:
            file = next(file for schema, file in schemas if new in types.primitives(schema.columns))
            raise Refused("DECLARED_SCHEMA_COLUMN_MISSING", column=".".join(new), file=file, schema=self.file)
        for path, kinds in actual.items():
            if kinds != known[path]:
                declared, needed = (" and ".join(map(str, these)) for these in (known[path], kinds))
                raise Refused(
                    "DECLARED_SCHEMA_TYPE_TOO_NARROW",
                    column=".".join(path),
                    type=declared,
                    schema=self.file,
                    needed=needed,
                )


@dataclass(frozen=True)
class Requested:
    """The user's requests for a table, in addition to the contents of its files.

    Attributes:
        cluster_by: The clustering columns, as dotted paths.
        properties: The table properties to set.
        schema: The declared columns; None to use the files' columns.
    """

    cluster_by: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict, hash=False)
    schema: DeclaredSchema | None = None

    def __bool__(self) -> bool:
        return bool(self.cluster_by or self.properties or self.schema)

    @property
    def features(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The table features for readers and writers, and those for writers only."""
        needed = [
            feature
            for key, value in self.properties.items()
            if value.lower() != "false"
            for feature in _PROPERTIES.get(key, ("", ()))[1]
        ]
        clustering = ("clustering", "domainMetadata") if self.cluster_by else ()
        return (
            tuple(feature for feature in needed if feature not in _FOR_WRITERS),
            (*(feature for feature in needed if feature in _FOR_WRITERS), *clustering),
        )


NOTHING_MORE = Requested()


def of(cluster_by: Iterable[str], properties: Mapping[str, str], schema: Path | None) -> Requested:
    """Check the properties, read the schema, and return the requests.

    Raises:
        Refused: The schema can't be read, a property can't be set by a conversion, or its value is invalid.
    """
    for key, value in properties.items():
        if not key.lower().startswith("delta."):
            continue
        if key not in _PROPERTIES:
            raise Refused("PROPERTY_NOT_SETTABLE", property=key, settable=", ".join(sorted(_PROPERTIES)))
        if not re.fullmatch(_PROPERTIES[key][0], value):
            raise Refused("PROPERTY_VALUE_INVALID", property=key, value=value)
    return Requested(tuple(cluster_by), dict(properties), None if schema is None else read_schema(schema))


def clustered(columns: Iterable[str], schema: Struct, indexed: Struct, partitioned: bool) -> list[list[str]]:
    """Return the paths of the clustering columns, in physical names.

    Args:
        columns: The requested columns, as dotted paths; a name with a dot is in backticks.
        schema: The table's columns.
        indexed: The columns that get statistics.
        partitioned: Whether the table has partition columns.

    Raises:
        Refused: The table is partitioned, too many columns are requested, or a column is missing or has no
            statistics.
    """
    asked = list(columns)
    if partitioned and asked:
        raise Refused("CLUSTERED_TABLE_WITH_PARTITIONS")
    if len(asked) > _MOST_CLUSTERED:
        raise Refused("CLUSTERING_COLUMNS_TOO_MANY", most=_MOST_CLUSTERED)
    with_statistics = {path for path, kind in types.walk(indexed) if not isinstance(kind, Struct)}
    paths = []
    for name in asked:
        found = _physical(schema, parts_of(name) if "`" in name else name.split("."))
        if found is None:
            raise Refused(
                "CLUSTERING_COLUMN_MISSING",
                column=name,
                columns=[f"`{column.name}`" for column in schema.fields],
            )
        path, exact = found
        if exact not in with_statistics:
            raise Refused("CLUSTERING_COLUMN_WITHOUT_STATISTICS", column=name)
        paths.append(path)
    return paths


def _physical(columns: Struct, names: Sequence[str]) -> tuple[list[str], tuple[str, ...]] | None:
    """Return a column's physical path and its path in the schema; None if it's missing. Case is ignored."""
    first = next((column for column in columns.fields if column.name.lower() == names[0].lower()), None)
    if first is None:
        return None
    physical = physical_name(first)
    if len(names) == 1:
        return [physical], (first.name,)
    inner = _physical(first.type, names[1:]) if isinstance(first.type, Struct) else None
    return inner and ([physical, *inner[0]], (first.name, *inner[1]))


def _names(schema: Struct) -> str:
    return first_of([f"`{column.name}`" for column in schema.fields])


def read_schema(file: Path) -> DeclaredSchema:
    """Read a schema from Spark's ``df.schema.json()``, or from SQL: ``id bigint, name string``.

    All columns are nullable, because a file may lack them.

    Raises:
        Refused: The file is missing or contains no valid schema.
    """
    text = storage.read_text(file)
    if text is None:
        raise Refused("DECLARED_SCHEMA_FILE_MISSING", file=file)
    try:
        columns = types.from_json(text) if text.lstrip().startswith("{") else _from_sql(text)
        if twice := types.named_twice(columns):
            raise ValueError(f"`{twice[-1]}` exists twice")
    except ValueError as error:
        raise Refused("DECLARED_SCHEMA_NOT_UNDERSTOOD", file=file, reason=error) from error
    return DeclaredSchema(merge([(FileSchema(columns, ()), str(file))]).columns, str(file))


def _from_sql(text: str) -> Struct:
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    try:
        parsed = sqlglot.parse_one(f"CREATE TABLE t ({text.strip().rstrip(',;')})", dialect="spark")
    except SqlglotError as error:
        raise ValueError(str(error).split("\n")[0]) from error
    schema = parsed.this if isinstance(parsed, exp.Create) else None
    columns = schema.expressions if isinstance(schema, exp.Schema) else []
    if not columns or not all(isinstance(column, exp.ColumnDef) for column in columns):
        raise ValueError("it isn't names with types")
    return Struct(tuple(map(_field, columns)))


def _field(column: exp.ColumnDef) -> Field:
    from sqlglot import exp

    kind = column.args.get("kind")
    if not isinstance(kind, exp.DataType):
        raise ValueError(f"column {column.name} has no type")
    comment = column.find(exp.CommentColumnConstraint)
    metadata = {"comment": comment.this.name} if comment is not None else {}
    return Field(column.name, _type(kind), True, metadata)


def _type(kind: exp.DataType) -> DataType:
    """Translate a sqlglot type to Spark's."""
    from sqlglot import exp

    inner = kind.expressions
    match kind.this:
        case exp.DataType.Type.ARRAY if inner:
            return types.Array(_type(inner[0]))
        case exp.DataType.Type.MAP if len(inner) == 2:
            return types.Map(_type(inner[0]), _type(inner[1]))
        case exp.DataType.Type.STRUCT if inner:
            return Struct(tuple(_field(column) for column in inner))
        case exp.DataType.Type.DECIMAL:
            digits = [int(part.name) for part in inner]
            return Decimal(digits[0] if digits else 10, digits[1] if len(digits) > 1 else 0)
        case _ if kind.this in _sql_types():
            return _sql_types()[kind.this]
        case _:
            raise ValueError(f"no type of a column: {kind.sql(dialect='spark')}")


@cache
def _sql_types() -> Mapping[object, DataType]:
    from sqlglot import exp

    kinds = exp.DataType.Type
    return {
        kinds.TINYINT: types.BYTE,
        kinds.SMALLINT: types.SHORT,
        kinds.INT: types.INTEGER,
        kinds.BIGINT: types.LONG,
        kinds.FLOAT: types.FLOAT,
        kinds.DOUBLE: types.DOUBLE,
        kinds.BOOLEAN: types.BOOLEAN,
        kinds.TEXT: types.STRING,
        kinds.BINARY: types.BINARY,
        kinds.VARBINARY: types.BINARY,
        kinds.DATE: types.DATE,
        kinds.TIMESTAMP: types.TIMESTAMP,
        kinds.TIMESTAMPTZ: types.TIMESTAMP,
        kinds.TIMESTAMPLTZ: types.TIMESTAMP,
        kinds.TIMESTAMPNTZ: types.TIMESTAMP_NTZ,
        kinds.VARIANT: types.VARIANT,
    }
