"""Read the catalog's entry for a table, and list the tables of a schema, with SQL.

``DESCRIBE TABLE EXTENDED … AS JSON`` returns exact metadata for Parquet tables. For Delta tables and tables
of other connectors, Spark supports only the plain ``DESCRIBE``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tableferry.errors import Refused, TableError, first_line
from tableferry.formats.hive.catalog_entry import Entry, SerDe
from tableferry.formats.hive.catalog_tables import list_tables, provider_name, qualified
from tableferry.formats.hive.locations import reachable
from tableferry.formats.hive.partitions import PartitionColumn
from tableferry.spark import catalog
from tableferry.spark.catalog import SPARK_ERRORS
from tableferry.spark.driver import in_process
from tableferry.spark.redaction import HIDDEN, SHOWN
from tableferry.spark.settings import optional_settings
from tableferry.spark.tables import TableName
from tableferry.spark.types import Atomic, Decimal, Struct, from_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The table's log is missing after an interrupted undo, or after a user removed it.
_NO_LOG = "DELTA_PATH_DOES_NOT_EXIST"

# Spark supports DESCRIBE … AS JSON only for its own tables.
_NOT_FOR_CONNECTORS = "NOT_SUPPORTED_COMMAND_FOR_V2_TABLE"


@dataclass(frozen=True, order=True)
class Skipped:
    """A table of a schema that can't be converted.

    Attributes:
        reason: The reason, as the end of a sentence: ``is a view``.
    """

    name: TableName
    reason: str


@dataclass(frozen=True)
class SchemaTables:
    """The Parquet and Delta tables of a schema, and the tables and views that are skipped."""

    tables: tuple[TableName, ...]
    skipped: tuple[Skipped, ...]


def entry(spark: SparkSession, name: TableName) -> Entry:
    """Return the catalog's entry for a table.

    Raises:
        TableError: The table is missing, is neither Parquet nor Delta, or can't be read.
        Refused: It is a view, or it has a column that Delta doesn't support.
    """
    name = qualified(spark, name)
    try:
        return _entry(spark, name)
    except SPARK_ERRORS as error:
        if catalog.condition(error).startswith(catalog.MISSING):
            raise TableError("TABLE_NOT_FOUND", table=name) from error
        if catalog.condition(error) == _NO_LOG:
            raise TableError("DELTA_LOG_OF_TABLE_MISSING", table=name) from error
        raise TableError("TABLE_NOT_DESCRIBABLE", table=name, reason=first_line(error)) from error


def tables(spark: SparkSession, schema: Sequence[str]) -> SchemaTables:
    """Return the tables of a schema, with one query.

    Args:
        spark: The session.
        schema: The schema's name, after the catalog's name if that isn't the current catalog.

    Raises:
        TableError: The schema is missing, or it can't be listed.
    """
    names: list[TableName] = []
    skipped: list[Skipped] = []
    for table in list_tables(spark, schema).values():
        if table.provider in ("parquet", "delta"):
            names.append(table.name)
        else:
            article = "a view" if table.provider == "view" else f"a {table.provider} table"
            skipped.append(Skipped(table.name, f"is {article}"))
    return SchemaTables(tuple(sorted(names)), tuple(sorted(skipped)))


def delta_tables_in(spark: SparkSession, schema: Sequence[str], folder: Path) -> list[TableName]:
    """Return the names of a schema's Delta tables that are stored in this folder.

    Raises:
        TableError: The schema is missing, or it can't be listed.
    """
    real = os.path.realpath(folder)
    return [
        table.name
        for table in list_tables(spark, schema).values()
        if table.is_delta and table.folder is not None and os.path.realpath(table.folder) == real
    ]


def _described(spark: SparkSession, name: TableName) -> dict[str, Any]:
    return dict(json.loads(spark.sql(f"DESCRIBE TABLE EXTENDED {name.sql} AS JSON").collect()[0][0]))


def _entry(spark: SparkSession, name: TableName) -> Entry:
    try:
        described = _described(spark, name)
        if HIDDEN in described.get("table_properties", {}).values():
            with optional_settings(spark, SHOWN):
                described = _described(spark, name)
    except SPARK_ERRORS as error:
        if catalog.condition(error) != _NOT_FOR_CONNECTORS:
            raise
        details = catalog.described(spark, name)
        described = {"type": details.get("Type", ""), "provider": details.get("Provider", "")}
        described |= {"location": details.get("Location", ""), "owner": details.get("Owner", "")}
    if "VIEW" in described.get("type", "").upper():
        raise Refused("TABLE_IS_VIEW", table=name)
    provider = provider_name(
        described.get("provider", ""), described.get("serde_library", ""), described.get("input_format", "")
    )
    if provider not in ("parquet", "delta"):
        raise TableError("NOT_PARQUET", provider=f"a {provider}", table=name)
    common = Entry(
        name=name,
        provider=provider,
        type="managed" if described["type"].upper() == "MANAGED" else "external",
        location=described["location"],
        folder=reachable(described["location"], same_machine=in_process(spark)),
        owner=described.get("owner", ""),
    )
    if provider == "delta":
        return common
    try:
        columns = from_json(spark.table(name.sql).schema.json())
    except ValueError as error:
        raise Refused("CATALOG_COLUMN_NOT_IN_DELTA", table=name, reason=error) from error
    return replace(
        common,
        columns=columns,
        partition_columns=_partition_columns(name, columns, described.get("partition_columns", [])),
        comment=described.get("comment"),
        properties=described.get("table_properties", {}),
        options=_options(described.get("storage_properties", {})),
        buckets=int(described.get("num_buckets", 0)),
        bucket_columns=tuple(described.get("bucket_columns", ())),
        sort_columns=tuple(described.get("sort_columns", ())),
        serde=_serde(described),
    )


def _serde(described: Mapping[str, Any]) -> SerDe | None:
    if described["provider"].lower() != "hive":
        return None
    return SerDe(described["serde_library"], described["input_format"], described["output_format"])


def _partition_columns(name: TableName, columns: Struct, names: Sequence[str]) -> tuple[PartitionColumn, ...]:
    by_name = {column.name.lower(): column for column in columns.fields}
    partition_columns = []
    for spelling in names:
        column = by_name[spelling.lower()]
        if not isinstance(column.type, Atomic | Decimal):
            raise Refused("CATALOG_PARTITION_TYPE", table=name, column=spelling, type=column.type)
        partition_columns.append(PartitionColumn(column.name, column.type))
    return tuple(partition_columns)


def _options(storage: Mapping[str, Any]) -> dict[str, str]:
    # Hive's metastore adds ``serialization.format`` to every entry. Spark repeats the location in ``path``.
    return {key: str(value) for key, value in storage.items() if key not in ("serialization.format", "path")}
