"""What the catalog knows of a Hive table, in one DESCRIBE."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tableferry.errors import Refused, TableError, first_line
from tableferry.fleet.checks.eligibility import ineligibility
from tableferry.fleet.jobs.job import TargetFormat
from tableferry.fleet.jobs.plan import Kind
from tableferry.fleet.warehouse.asking import demand_shown, describe
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.existing import entries
from tableferry.fleet.warehouse.hive_files import TableFiles, listing
from tableferry.fleet.warehouse.hive_table import Format, HiveColumn, HiveTable
from tableferry.formats.hive.catalog_partitions import list_partitions
from tableferry.formats.hive.partitions import CatalogPartition, PartitionColumn
from tableferry.spark import catalog
from tableferry.spark.catalog import SPARK_ERRORS
from tableferry.spark.tables import TableName
from tableferry.spark.types import BYTE, DECLARED_AS, INTEGER, LONG, SHORT, STRING

_FORMATS: Sequence[Format] = ("parquet", "orc", "avro", "text", "csv", "json")
# The ends of Hive's classes; a text file's SerDe tells more than its input format.
_SERDES: Mapping[str, Format] = {
    "ParquetHiveSerDe": "parquet",
    "OrcSerde": "orc",
    "AvroSerDe": "avro",
    "OpenCSVSerde": "csv",
    "CSVSerde": "csv",
    "JsonSerDe": "json",
}
_INPUTS: Mapping[str, Format] = {"TextInputFormat": "text", "SequenceFileInputFormat": "sequencefile"}

# The input formats of files that the new table takes as they are.
_OWN_INPUTS: Mapping[Format, Sequence[str]] = {
    "parquet": ("MapredParquetInputFormat", "DeprecatedParquetInputFormat"),
    "orc": ("OrcInputFormat",),
    "avro": ("AvroContainerInputFormat",),
}

_READABLE = ("parquet", "orc", "avro", "text", "csv", "json", "sequencefile")

# What DESCRIBE names among a table's options, and decides on no row.
_NO_OPTIONS = ("path", "serialization.format")

# What Hive says of columns that only the files know.
_NO_COMMENT = "from deserializer"

# A column's metadata in which Spark keeps the declared type, and a char in it.
_CHAR = re.compile(r"\bchar\(")

_INTEGERS = {"tinyint": BYTE, "smallint": SHORT, "int": INTEGER, "bigint": LONG}


def facts(warehouse: Warehouse, name: TableName) -> HiveTable | None:
    """Return what the catalog knows of a table; None if there is none.

    Raises:
        TableError: It may not be described.
    """
    entry = entries(warehouse, (name,)).get(name)
    if entry is None:
        return None
    if entry.kind is not Kind.HIVE:
        return HiveTable(name, entry.kind)
    described = warehouse.seen.described if warehouse.seen else []
    for before, table in described:
        if (before, table.name) == (entry, name):
            return table
    try:
        table = table_of(name, describe(warehouse.spark, name))
        # Spark may lack the classes of another format.
        table = _with_chars(warehouse, table) if table.format in _READABLE else table
        described.append((entry, table))
        return table
    except SPARK_ERRORS as error:
        if catalog.condition(error).startswith(catalog.MISSING):
            return None
        raise TableError("TABLE_NOT_DESCRIBABLE", table=name, reason=first_line(error)) from error


def demand(warehouse: Warehouse, name: TableName) -> HiveTable:
    """Return what the catalog knows of a Hive table.

    Raises:
        TableError: There is none, or it may not be described.
        Refused: It is something else.
    """
    table = facts(warehouse, name)
    if table is None:
        raise TableError("TABLE_NOT_FOUND", table=name)
    if table.kind is not Kind.HIVE:
        raise Refused("NOT_A_HIVE_TABLE", table=name, kind=table.kind.description)
    return table


def layout(warehouse: Warehouse, name: TableName) -> HiveTable:
    """Return where a Hive table's files are: all of its facts but its properties, which may be older ones.

    Raises:
        TableError: There is none, or it may not be described.
        Refused: It is something else.
    """
    entry = entries(warehouse, (name,)).get(name)
    if warehouse.seen is not None and entry is not None:
        for before, table in warehouse.seen.described:
            if before._replace(properties="") == entry._replace(properties=""):
                return replace(table, name=name)
    return demand(warehouse, name)


def demand_eligible(warehouse: Warehouse, name: TableName, form: TargetFormat) -> HiveTable:
    """Return what the catalog knows of a Hive table that can become another format.

    Raises:
        TableError: There is none, or it may not be described.
        Refused: It is something else, or can't become that.
    """
    table = demand(warehouse, name)
    if finding := ineligibility(table, form):
        raise finding.refusal
    return table


def partitions(warehouse: Warehouse, table: HiveTable) -> tuple[CatalogPartition, ...]:
    """Return the partitions that the catalog knows, with their locations wherever they are.

    Raises:
        TableError: The catalog doesn't give them.
    """
    if not table.partition_columns:
        return ()
    columns = partition_columns(table)
    return tuple(list_partitions(warehouse.spark, table.name, table.location, columns))


def listed(warehouse: Warehouse, table: HiveTable) -> TableFiles:
    """List a table's partitions and files.

    Raises:
        TableError: The catalog doesn't give its partitions, or a directory can't be listed.
    """
    at = time.time_ns() // 1000
    known = partitions(warehouse, table)
    found = TableFiles(table, known, listing(warehouse, table, known), at)
    if warehouse.prepared is not None:
        warehouse.prepared.listed = found
    return found


def last_listed(warehouse: Warehouse, table: HiveTable) -> TableFiles:
    """Return a table's partitions and files as this run last listed them; if it didn't, list them.

    Raises:
        TableError: As `listed`.
    """
    known = warehouse.prepared.listed if warehouse.prepared else None
    if known is not None and known.table.name == table.name:
        return known._replace(table=table)
    return listed(warehouse, table)


def partition_columns(table: HiveTable) -> tuple[PartitionColumn, ...]:
    """Return a table's partition columns as its partitions are looked up by: integers, else strings."""
    types = {column.name.lower(): _INTEGERS.get(column.type["name"], STRING) for column in table.columns}
    return tuple(PartitionColumn(name, types[name.lower()]) for name in table.partition_columns)


def _with_chars(warehouse: Warehouse, table: HiveTable) -> HiveTable:
    """Put the type ``char`` back into columns that hold one at any depth, for DESCRIBE calls it a string."""
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
    """Return a Hive table by what DESCRIBE … AS JSON says of it.

    Raises:
        TableError: Spark hides a property of ours.
    """
    properties = demand_shown(name, description.get("table_properties", {}))
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
    # Its files only name others, wherever these are: no listing would show that somebody wrote to one.
    if input_format.startswith("Symlink"):
        return "other"
    # Rows of another SerDe can come through any input format.
    known = _SERDES.get(serde) or _INPUTS.get(input_format, "other")
    # Through another one, as Hudi's, Hive reads some of the files only, and Spark all of them.
    own = _OWN_INPUTS.get(known)
    return known if own is None or input_format in own else "other"
