"""Read a Hive table's metadata from the catalog with one DESCRIBE, and list its partitions and files."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tableferry.errors import Refused, TableError, first_line
from tableferry.fleet.checks.eligibility import require_eligible
from tableferry.fleet.hive_tables.hive_table import Format, HiveColumn, HiveTable
from tableferry.fleet.hive_tables.table_files import TableFiles
from tableferry.fleet.jobs.job import TargetFormat
from tableferry.fleet.jobs.step_plan import Kind
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.hive_files import listing
from tableferry.fleet.warehouse.job_tables import entries
from tableferry.fleet.warehouse.table_descriptions import describe, require_shown_properties
from tableferry.formats.hive.catalog_partitions import list_partitions
from tableferry.formats.hive.partitions import CatalogPartition, PartitionColumn
from tableferry.spark import catalog
from tableferry.spark.catalog import SPARK_ERRORS
from tableferry.spark.tables import TableName
from tableferry.spark.types import BYTE, DECLARED_AS, INTEGER, LONG, SHORT, STRING

_FORMATS: Sequence[Format] = ("parquet", "orc", "avro", "text", "csv", "json")
# Suffixes of Hive's classes; for text files, the SerDe is more specific than the input format.
_SERDES: Mapping[str, Format] = {
    "ParquetHiveSerDe": "parquet",
    "OrcSerde": "orc",
    "AvroSerDe": "avro",
    "OpenCSVSerde": "csv",
    "CSVSerde": "csv",
    "JsonSerDe": "json",
}
_INPUTS: Mapping[str, Format] = {"TextInputFormat": "text", "SequenceFileInputFormat": "sequencefile"}

# The input formats of files that the new table can reference unchanged.
_OWN_INPUTS: Mapping[Format, Sequence[str]] = {
    "parquet": ("MapredParquetInputFormat", "DeprecatedParquetInputFormat"),
    "orc": ("OrcInputFormat",),
    "avro": ("AvroContainerInputFormat",),
}

_READABLE = ("parquet", "orc", "avro", "text", "csv", "json", "sequencefile")

# Options in the result of DESCRIBE that don't affect rows.
_NO_OPTIONS = ("path", "serialization.format")

# Hive's comment for columns that only the SerDe defines.
_NO_COMMENT = "from deserializer"

# A char in the declared type, which Spark keeps in a column's metadata.
_CHAR = re.compile(r"\bchar\(")

_INTEGERS = {"tinyint": BYTE, "smallint": SHORT, "int": INTEGER, "bigint": LONG}


def facts(warehouse: Warehouse, name: TableName) -> HiveTable | None:
    """Return a table's metadata in the catalog; None if it doesn't exist.

    Raises:
        TableError: The user may not describe the table.
    """
    entry = entries(warehouse, (name,)).get(name)
    if entry is None:
        return None
    if entry.kind is not Kind.HIVE:
        return HiveTable(name, entry.kind)
    described = warehouse.table_cache.described if warehouse.table_cache else []
    for before, table in described:
        if (before, table.name) == (entry, name):
            return table
    try:
        table = table_of(name, describe(warehouse.spark, name))
        # Reading another format's schema may need classes that Spark lacks.
        table = _with_chars(warehouse, table) if table.format in _READABLE else table
        described.append((entry, table))
        return table
    except SPARK_ERRORS as error:
        if catalog.condition(error).startswith(catalog.MISSING):
            return None
        raise TableError("TABLE_NOT_DESCRIBABLE", table=name, reason=first_line(error)) from error


def require_hive_table(warehouse: Warehouse, name: TableName) -> HiveTable:
    """Return a Hive table's metadata in the catalog.

    Raises:
        TableError: The table doesn't exist, or the user may not describe it.
        Refused: It isn't a Hive table.
    """
    table = facts(warehouse, name)
    if table is None:
        raise TableError("TABLE_NOT_FOUND", table=name)
    if table.kind is not Kind.HIVE:
        raise Refused("NOT_A_HIVE_TABLE", table=name, kind=table.kind.description)
    return table


def read_layout(warehouse: Warehouse, name: TableName) -> HiveTable:
    """Return a Hive table's metadata; its properties may be outdated.

    Raises:
        TableError: The table doesn't exist, or the user may not describe it.
        Refused: It isn't a Hive table.
    """
    entry = entries(warehouse, (name,)).get(name)
    if warehouse.table_cache is not None and entry is not None:
        for before, table in warehouse.table_cache.described:
            if before._replace(properties="") == entry._replace(properties=""):
                return replace(table, name=name)
    return require_hive_table(warehouse, name)


def require_eligible_table(warehouse: Warehouse, name: TableName, form: TargetFormat) -> HiveTable:
    """Return the metadata of a Hive table that can be migrated to a format.

    Raises:
        TableError: The table doesn't exist, or the user may not describe it.
        Refused: It isn't a Hive table, or can't be migrated.
    """
    table = require_hive_table(warehouse, name)
    require_eligible(table, form)
    return table


def partitions(warehouse: Warehouse, table: HiveTable) -> tuple[CatalogPartition, ...]:
    """Return the catalog's partitions of a table, with their locations.

    Raises:
        TableError: The partitions can't be listed.
    """
    if not table.partition_columns:
        return ()
    columns = partition_columns(table)
    return tuple(list_partitions(warehouse.spark, table.name, table.location, columns))


def list_table_files(warehouse: Warehouse, table: HiveTable) -> TableFiles:
    """List a table's partitions and files.

    Raises:
        TableError: The partitions or a directory can't be listed.
    """
    at = time.time_ns() // 1000
    known = partitions(warehouse, table)
    found = TableFiles(table, known, listing(warehouse, table, known), at)
    if warehouse.prepared is not None:
        warehouse.prepared.listed = found
    return found


def last_table_files(warehouse: Warehouse, table: HiveTable) -> TableFiles:
    """Return the run's last listing of a table's partitions and files; list them if there is none.

    Raises:
        TableError: As in `list_table_files`.
    """
    known = warehouse.prepared.listed if warehouse.prepared else None
    if known is not None and known.table.name == table.name:
        return known._replace(table=table)
    return list_table_files(warehouse, table)


def partition_columns(table: HiveTable) -> tuple[PartitionColumn, ...]:
    """Return a table's partition columns with the types for partition lookups: integers or strings."""
    types = {column.name.lower(): _INTEGERS.get(column.type["name"], STRING) for column in table.columns}
    return tuple(PartitionColumn(name, types[name.lower()]) for name in table.partition_columns)


def _with_chars(warehouse: Warehouse, table: HiveTable) -> HiveTable:
    """Set the type ``char`` on columns that contain one at any depth; DESCRIBE shows it as a string."""
    chars = {
        field.name.lower()
        for field in warehouse.spark.table(table.name.sql).schema
        if _CHAR.search(field.metadata.get(DECLARED_AS, ""))
    }
    columns = (
        replace(column, type={"name": "char"}) if column.name.lower() in chars else column
        for column in table.columns
    )
    return replace(table, columns=tuple(columns))


def table_of(name: TableName, description: Mapping[str, Any]) -> HiveTable:
    """Return a Hive table's metadata from the result of DESCRIBE … AS JSON.

    Raises:
        TableError: Spark hides a property that Tableferry set.
    """
    properties = require_shown_properties(name, description.get("table_properties", {}))
    return HiveTable(
        name=name,
        kind=Kind.HIVE,
        format=_format(description),
        managed=description["type"].upper() == "MANAGED",
        location=description.get("location", ""),
        columns=tuple(
            HiveColumn(
                column["name"],
                column["type"],
                column.get("comment", "").replace(_NO_COMMENT, ""),
                column.get("default", ""),
            )
            for column in description["columns"]
        ),
        partition_columns=tuple(description.get("partition_columns", ())),
        buckets=max(0, int(description.get("num_buckets", 0))),
        transactional=properties.get("transactional", "").lower() == "true",
        comment=description.get("comment", ""),
        properties=properties,
        owner=description.get("owner", ""),
        options={
            key: value
            for key, value in description.get("storage_properties", {}).items()
            if key not in _NO_OPTIONS
        },
        serde=description.get("serde_library", "") if description.get("provider") == "hive" else "",
    )


def _format(description: Mapping[str, Any]) -> Format:
    provider = description.get("provider", "").lower()
    if provider != "hive":
        return next((form for form in _FORMATS if form == provider), "other")
    classes = (description.get(key, "").rpartition(".")[2] for key in ("serde_library", "input_format"))
    serde, input_format = classes
    # Its files are lists of other files, so a listing shows no changes to the data.
    if input_format.startswith("Symlink"):
        return "other"
    # Another SerDe can be used with any input format.
    known = _SERDES.get(serde) or _INPUTS.get(input_format, "other")
    # With other input formats, such as Hudi's, Hive reads only some of the files, but Spark reads all.
    own = _OWN_INPUTS.get(known)
    return known if own is None or input_format in own else "other"
