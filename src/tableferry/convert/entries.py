"""Entries of the catalog: what it knows of a Parquet table, and their switch to Delta.

Everything goes through SQL. ``DESCRIBE TABLE EXTENDED … AS JSON`` gives the facts of a Parquet table exactly;
for a Delta table, and for one that another connector owns, Spark has the plain form alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tableferry import catalog
from tableferry.catalog import SPARK_ERRORS, in_process
from tableferry.convert.facts import PartitionColumn
from tableferry.convert.locations import reachable
from tableferry.convert.types import Atomic, Decimal, Field, Struct, from_json
from tableferry.errors import Refused, TableError, first_line
from tableferry.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The Hive formats that people have, by the end of the input format's name.
_HIVE_FORMATS = {
    "MapredParquetInputFormat": "parquet",
    "OrcInputFormat": "orc",
    "AvroContainerInputFormat": "avro",
    "TextInputFormat": "text",
    "SequenceFileInputFormat": "sequencefile",
    "RCFileInputFormat": "rcfile",
}
_PARQUET_SERDE = "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe"

# Spark has the exact form of DESCRIBE for its own tables alone.
_NOT_FOR_CONNECTORS = "NOT_SUPPORTED_COMMAND_FOR_V2_TABLE"

# The metastore sets it again with every change; `CONVERT TO DELTA` leaves it out of its comparison too.
_TRANSIENT = frozenset({"transient_lastDdlTime"})

_CURRENT_DEFAULT, _EXISTS_DEFAULT = "CURRENT_DEFAULT", "EXISTS_DEFAULT"

# What takes effect in a Delta table of reader version 1 and writer version 2.
_HARMLESS = (
    "delta.appendonly",
    "delta.autooptimize",
    "delta.checkpointinterval",
    "delta.dataskippingnumindexedcols",
    "delta.deletedfileretentionduration",
    "delta.enableexpiredlogcleanup",
    "delta.logretentionduration",
    "delta.randomizefileprefixes",
    "delta.randomprefixlength",
    "delta.settransactionretentionduration",
    "delta.targetfilesize",
    "delta.tunefilesizesforrewrites",
)


_NO_COLUMNS = Struct()


@dataclass(frozen=True)
class Entry:
    """What the catalog knows of a table, at one moment.

    Of a Delta table only the first five and the owner are filled in: everything else is its log's.

    Attributes:
        name: The table, with catalog and schema.
        provider: ``parquet`` for Spark's and for Hive's Parquet, ``delta``.
        type: Whether dropping the table removes its files.
        location: The table's root, as Hadoop writes it: not percent-encoded.
        folder: The root, if this process sees the same files as Spark.
        columns: All columns in their order, with their comments in ``metadata``.
        partition_columns: From the root down.
        comment: The table's comment.
        properties: Its properties, without those that the metastore keeps for itself.
        options: The options that Spark's reader and writer of Parquet take.
        owner: Who owns it.
        buckets: How many files a row's key is hashed to; 0 if none.
        bucket_columns: That key.
    """

    name: TableName
    provider: str
    type: Literal["managed", "external"]
    location: str
    folder: Path | None
    columns: Struct = _NO_COLUMNS
    partition_columns: tuple[PartitionColumn, ...] = ()
    comment: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict, hash=False)
    options: Mapping[str, str] = field(default_factory=dict, hash=False)
    owner: str = ""
    buckets: int = 0
    bucket_columns: tuple[str, ...] = ()

    @property
    def is_delta(self) -> bool:
        """Whether the catalog takes it for a Delta table already."""
        return self.provider == "delta"


@dataclass(frozen=True)
class Skipped:
    """A table of a schema that isn't to be converted.

    Attributes:
        name: The table.
        reason: Why not, as the end of a sentence: ``is a view``.
    """

    name: TableName
    reason: str


@dataclass(frozen=True)
class SchemaTables:
    """What a schema holds.

    Attributes:
        tables: Parquet tables, and the Delta tables among them.
        skipped: Everything else.
    """

    tables: tuple[TableName, ...]
    skipped: tuple[Skipped, ...]


def entry(spark: SparkSession, name: TableName) -> Entry:
    """Return what the catalog knows of a table.

    Raises:
        TableError: There is no such table, it is neither Parquet nor Delta, or it may not be read.
        Refused: It is a view.
    """
    name = _qualified(spark, name)
    try:
        return _entry(spark, name)
    except SPARK_ERRORS as error:
        if catalog.condition(error).startswith(catalog.MISSING):
            raise TableError(
                f"there is no table {name}: check its name, its schema and your rights"
            ) from error
        raise TableError(
            f"table {name} can't be described ({first_line(error)}): check its name and your rights"
        ) from error


def tables(spark: SparkSession, schema: Sequence[str]) -> SchemaTables:
    """List the tables of a schema with one query.

    Args:
        spark: The session.
        schema: Its catalog, if it isn't the current one, and its name.

    Raises:
        TableError: There is no such schema, or it may not be listed.
    """
    where = TableName(tuple(schema))
    try:
        rows = spark.sql(f"SHOW TABLE EXTENDED IN {where.sql} LIKE '*'").collect()
    except SPARK_ERRORS as error:
        raise TableError(
            f"the tables of schema {where} can't be listed ({first_line(error)}): check its name and your "
            "rights"
        ) from error
    found: list[TableName] = []
    skipped: list[Skipped] = []
    for row in rows:
        if row["isTemporary"]:
            continue
        name = TableName((*schema, row["tableName"]))
        reason = _why_not(_lines(row["information"]))
        if reason:
            skipped.append(Skipped(name, reason))
        else:
            found.append(name)
    return SchemaTables(tuple(sorted(found)), tuple(sorted(skipped, key=lambda each: each.name)))


def check_declared(entry: Entry, declared: Sequence[PartitionColumn]) -> None:
    """Refuse partition columns other than the catalog's.

    Raises:
        Refused: They differ in name, type or order.
    """
    if _comparable(declared) != _comparable(entry.partition_columns):
        said, known = (", ".join(map(str, each)) or "nothing" for each in (declared, entry.partition_columns))
        raise Refused(
            f"{entry.name} is partitioned by {known} in the catalog, not by {said}: leave --partitioned-by "
            "out"
        )


def kept_properties(entry: Entry) -> dict[str, str]:
    """Return what the first commit's ``configuration`` has to hold.

    These are all properties but the metastore's time stamp: the command that switches the entry compares them
    with the log's. One that is missing there costs a second commit, or is refused.

    Raises:
        Refused: A property would mean something to Delta that a table of writer version 2 hasn't got.
    """
    kept = {key: value for key, value in entry.properties.items() if key not in _TRANSIENT}
    for key in kept:
        if key.lower().startswith("delta.") and not key.lower().startswith(_HARMLESS):
            raise Refused(
                f"{entry.name} has the property {key}, which begins to mean something when the table becomes "
                f"Delta: ALTER TABLE {entry.name.sql} UNSET TBLPROPERTIES ('{key}'), convert, and set it "
                "again"
            )
    return kept


def log_columns(entry: Entry) -> Struct:
    """Return the columns as the log may hold them: with comments, lengths of char and varchar, and defaults.

    What Spark gives rows of files that lack a column, ``EXISTS_DEFAULT``, is left out, as the protocol has no
    such thing.
    """
    return Struct(
        tuple(
            replace(each, metadata={key: of for key, of in each.metadata.items() if key != _EXISTS_DEFAULT})
            for each in entry.columns.fields
        )
    )


def needs_defaults(entry: Entry) -> bool:
    """Say whether the first commit must have the writer feature ``allowColumnDefaults``."""
    return any(_CURRENT_DEFAULT in each.metadata for each in entry.columns.fields)


def existence_defaults(entry: Entry) -> dict[str, str]:
    """Return what rows read as where their file lacks a column: column and SQL expression.

    In Delta they read as null, or differently from reader to reader: such a table can only be written anew.
    """
    return {
        each.name: str(each.metadata[_EXISTS_DEFAULT])
        for each in entry.columns.fields
        if _EXISTS_DEFAULT in each.metadata
    }


def notes(entry: Entry) -> tuple[str, ...]:
    """Say what a Delta table doesn't keep of this one."""
    said = []
    if entry.buckets:
        said.append(
            f"it is bucketed by {', '.join(entry.bucket_columns)} into {entry.buckets}: Delta reads it right "
            "without the buckets, and writes none"
        )
    if entry.options:
        said.append(f"its options {', '.join(sorted(entry.options))} no longer have an effect")
    return tuple(said)


def _comparable(columns: Sequence[PartitionColumn]) -> list[tuple[str, object]]:
    return [(each.name.lower(), each.type) for each in columns]


def _why_not(details: Mapping[str, str]) -> str | None:
    if "VIEW" in details.get("Type", "").upper():
        return "is a view"
    provider = _provider(
        details.get("Provider", ""), details.get("Serde Library", ""), details.get("InputFormat", "")
    )
    return None if provider in ("parquet", "delta") else f"is a {provider} table"


def _entry(spark: SparkSession, name: TableName) -> Entry:
    try:
        said = json.loads(spark.sql(f"DESCRIBE TABLE EXTENDED {name.sql} AS JSON").collect()[0][0])
    except SPARK_ERRORS as error:
        if catalog.condition(error) != _NOT_FOR_CONNECTORS:
            raise
        details = catalog.described(spark, name)
        said = {"type": details.get("Type", ""), "provider": details.get("Provider", "")}
        said |= {"location": details.get("Location", ""), "owner": details.get("Owner", "")}
    if "VIEW" in said.get("type", "").upper():
        raise Refused(f"{name} is a view: name the Parquet table behind it")
    provider = _provider(
        said.get("provider", ""), said.get("serde_library", ""), said.get("input_format", "")
    )
    if provider not in ("parquet", "delta"):
        raise TableError(
            "CONVERT TO DELTA only supports parquet tables, but you are trying to convert a "
            f"{provider} source: {name}; write it anew with CREATE TABLE … USING delta AS SELECT"
        )
    common = Entry(
        name=name,
        provider=provider,
        type="managed" if said["type"].upper() == "MANAGED" else "external",
        location=said["location"],
        folder=reachable(said["location"], same_machine=in_process(spark)),
        owner=said.get("owner", ""),
    )
    if provider == "delta":
        return common
    try:
        columns = from_json(spark.table(name.sql).schema.json())
    except ValueError as error:
        raise Refused(f"{name} can't be Delta: {error}; write it anew without that column") from error
    return replace(
        common,
        columns=columns,
        partition_columns=_partition_columns(name, columns, said.get("partition_columns", [])),
        comment=said.get("comment"),
        properties=said.get("table_properties", {}),
        options=_options(said.get("storage_properties", {})),
        buckets=int(said.get("num_buckets", 0)),
        bucket_columns=tuple(said.get("bucket_columns", ())),
    )


def _provider(provider: str, serde: str, input_format: str) -> str:
    """Name a table's format; Hive's is known by its SerDe."""
    if provider.lower() != "hive":
        return provider.lower()
    if serde == _PARQUET_SERDE:
        return "parquet"
    short = input_format.rpartition(".")[2]
    # Hive has a Parquet input format that rows of another SerDe can come through.
    return _HIVE_FORMATS.get(short, "hive") if "Parquet" not in short else "hive"


def _partition_columns(name: TableName, columns: Struct, names: Sequence[str]) -> tuple[PartitionColumn, ...]:
    by_name: dict[str, Field] = {each.name.lower(): each for each in columns.fields}
    found = []
    for each in names:
        column = by_name[each.lower()]
        if not isinstance(column.type, Atomic | Decimal):
            raise Refused(
                f"{name} is partitioned by {each}, a {column.type}: Delta can't hold that in its log"
            )
        found.append(PartitionColumn(column.name, column.type))
    return tuple(found)


def _options(storage: Mapping[str, Any]) -> dict[str, str]:
    # What Hive's metastore writes into every entry, and where Spark writes the location once more.
    return {key: str(value) for key, value in storage.items() if key not in ("serialization.format", "path")}


def _lines(information: str) -> dict[str, str]:
    details: dict[str, str] = {}
    for line in information.splitlines():
        key, colon, value = line.partition(": ")
        # A view's text may have lines of this form too, and comes after its type.
        if colon:
            details.setdefault(key, value)
    return details


def _qualified(spark: SparkSession, name: TableName) -> TableName:
    """Give a bare name its schema, so that no temporary view can take the table's place."""
    if len(name.parts) != 1:
        return name
    return TableName((spark.catalog.currentCatalog(), spark.catalog.currentDatabase(), *name.parts))
