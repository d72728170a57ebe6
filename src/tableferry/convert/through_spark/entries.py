"""Entries of the catalog: what it knows of a table, or of all tables of a schema.

Everything goes through SQL. ``DESCRIBE TABLE EXTENDED … AS JSON`` gives the facts of a Parquet table exactly;
for a Delta table, and for one that another connector owns, Spark has the plain form alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tableferry import catalog
from tableferry.catalog import SPARK_ERRORS
from tableferry.convert.entry import Entry, SerDe
from tableferry.convert.facts import PartitionColumn
from tableferry.convert.locations import reachable
from tableferry.convert.types import Atomic, Decimal, Field, Struct, from_json
from tableferry.driver import in_process
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
_STORAGE = ("Location", "Serde Library", "InputFormat")

# What an undo leaves that died, or somebody who removed the log.
_NO_LOG = "DELTA_PATH_DOES_NOT_EXIST"

# Spark has the exact form of DESCRIBE for its own tables alone.
_NOT_FOR_CONNECTORS = "NOT_SUPPORTED_COMMAND_FOR_V2_TABLE"


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


@dataclass(frozen=True)
class Listed:
    """What the catalog itself says of a table, whatever its log says.

    Attributes:
        provider: ``parquet``, ``delta``, ``view`` or another format.
        type: Whether dropping the table removes its files.
        location: The table's root, as Hadoop writes it: not percent-encoded.
        folder: The root, if this process sees the same files as Spark.
    """

    provider: str
    type: Literal["managed", "external"]
    location: str
    folder: Path | None

    @property
    def is_delta(self) -> bool:
        """Whether the catalog takes it for a Delta table."""
        return self.provider == "delta"


def entry(spark: SparkSession, name: TableName) -> Entry:
    """Return what the catalog knows of a table.

    Raises:
        TableError: There is no such table, it is neither Parquet nor Delta, or it may not be read.
        Refused: It is a view.
    """
    name = qualified(spark, name)
    try:
        return _entry(spark, name)
    except SPARK_ERRORS as error:
        if catalog.condition(error).startswith(catalog.MISSING):
            raise TableError(
                f"there is no table {name}: check its name, its schema and your rights"
            ) from error
        if catalog.condition(error) == _NO_LOG:
            raise TableError(
                f"table {name} is Delta in the catalog, and its log isn't there: restore it, or if an undo "
                f"died, end it with tableferry convert undo {name}"
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
    found: list[TableName] = []
    skipped: list[Skipped] = []
    for table, details in _details(spark, schema, "*").items():
        name = TableName((*schema, table))
        reason = _why_not(details)
        if reason:
            skipped.append(Skipped(name, reason))
        else:
            found.append(name)
    return SchemaTables(tuple(sorted(found)), tuple(sorted(skipped, key=lambda each: each.name)))


def listed(spark: SparkSession, schema: Sequence[str], names: Sequence[str] = ("*",)) -> dict[str, Listed]:
    """Return what the catalog itself says of tables of a schema, by their names in lower case.

    Logs and files aren't looked at, so that a Delta table whose log is gone is found as well.

    Raises:
        TableError: There is no such schema, or it may not be listed.
    """
    found = {}
    for table, details in _details(spark, schema, "|".join(names)).items():
        location = details.get("Location", "")
        found[table.lower()] = Listed(
            "view" if "VIEW" in details.get("Type", "").upper() else _provider_of(details),
            "managed" if details.get("Type", "").upper() == "MANAGED" else "external",
            location,
            reachable(location, same_machine=in_process(spark)),
        )
    return found


def qualified(spark: SparkSession, name: TableName) -> TableName:
    """Give a bare name its schema, so that no temporary view can take the table's place."""
    if len(name.parts) != 1:
        return name
    return TableName((spark.catalog.currentCatalog(), spark.catalog.currentDatabase(), *name.parts))


def _details(spark: SparkSession, schema: Sequence[str], pattern: str) -> dict[str, dict[str, str]]:
    where = TableName(tuple(schema))
    quoted = pattern.replace("\\", "\\\\").replace("'", "\\'")
    try:
        rows = spark.sql(f"SHOW TABLE EXTENDED IN {where.sql} LIKE '{quoted}'").collect()
    except SPARK_ERRORS as error:
        raise TableError(
            f"the tables of schema {where} can't be listed ({first_line(error)}): check its name and your "
            "rights"
        ) from error
    return {row["tableName"]: _lines(row["information"]) for row in rows if not row["isTemporary"]}


def _why_not(details: Mapping[str, str]) -> str | None:
    if "VIEW" in details.get("Type", "").upper():
        return "is a view"
    provider = _provider_of(details)
    return None if provider in ("parquet", "delta") else f"is a {provider} table"


def _provider_of(details: Mapping[str, str]) -> str:
    return _provider(
        details.get("Provider", ""), details.get("Serde Library", ""), details.get("InputFormat", "")
    )


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
        sort_columns=tuple(said.get("sort_columns", ())),
        serde=_serde(said),
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


def _serde(said: Mapping[str, Any]) -> SerDe | None:
    if said["provider"].lower() != "hive":
        return None
    return SerDe(said["serde_library"], said["input_format"], said["output_format"])


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
        # Comments, properties and a view's text may have lines of this form too. They come behind the table's
        # type and before where it is stored.
        if colon and (key in _STORAGE or key not in details):
            details[key] = value
    return details
