"""What the catalog knows of a Hive table, in one DESCRIBE."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tableferry import catalog
from tableferry.catalog import SPARK_ERRORS
from tableferry.errors import Refused, TableError, first_line
from tableferry.fleet.plan import Kind
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.eligibility import Format, HiveColumn, HiveTable
from tableferry.fleet.warehouse.existing import kinds
from tableferry.hive.catalog_partitions import list_partitions
from tableferry.hive.partitions import CatalogPartition, PartitionColumn
from tableferry.tables import TableName
from tableferry.types import BYTE, INTEGER, LONG, SHORT, STRING

_FORMATS: Mapping[str, Format] = {
    "parquet": "parquet",
    "orc": "orc",
    "avro": "avro",
    "text": "text",
    "csv": "csv",
    "json": "json",
}
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

_FILES = ("parquet", "orc", "avro")

# Where Spark keeps what was declared, and a char in it.
_DECLARED = "__CHAR_VARCHAR_TYPE_STRING"
_PADDED = re.compile(r"\bchar\(")

_INTEGERS = {"tinyint": BYTE, "smallint": SHORT, "int": INTEGER, "bigint": LONG}


def facts(warehouse: Warehouse, name: TableName) -> HiveTable | None:
    """Return what the catalog knows of a table; None if there is none.

    Raises:
        TableError: It may not be described.
    """
    kind = kinds(warehouse, (name,)).get(name)
    if kind is None:
        return None
    if kind is not Kind.HIVE:
        return HiveTable(name, kind)
    try:
        [row] = warehouse.spark.sql(f"DESCRIBE TABLE EXTENDED {name.sql} AS JSON").collect()
        table = _table(name, json.loads(row[0]))
        # Spark may lack the classes of another format.
        return _padded(warehouse, table) if table.format in _FILES else table
    except SPARK_ERRORS as error:
        if catalog.condition(error).startswith(catalog.MISSING):
            return None
        raise TableError(
            f"table {name} can't be described ({first_line(error)}): check your rights"
        ) from error


def demand(warehouse: Warehouse, name: TableName) -> HiveTable:
    """Return what the catalog knows of a Hive table.

    Raises:
        TableError: There is none, or it may not be described.
        Refused: It is something else.
    """
    table = facts(warehouse, name)
    if table is None:
        raise TableError(f"there is no table {name}: check its name, its schema and your rights")
    if table.kind is not Kind.HIVE:
        raise Refused(f"{name} is {table.kind.words}, and a Hive table is needed: put the names right")
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


def partition_columns(table: HiveTable) -> tuple[PartitionColumn, ...]:
    """Return a table's partition columns as its partitions are looked up by: integers, else strings."""
    types = {column.name.lower(): _INTEGERS.get(column.type["name"], STRING) for column in table.columns}
    return tuple(PartitionColumn(name, types[name.lower()]) for name in table.partition_columns)


def _padded(warehouse: Warehouse, table: HiveTable) -> HiveTable:
    """Return a table with its chars, at any depth, for DESCRIBE calls a char a string."""
    found = {
        field.name.lower()
        for field in warehouse.spark.table(table.name.sql).schema
        if _PADDED.search(field.metadata.get(_DECLARED, ""))
    }
    columns = (
        replace(each, type={"name": "char"}) if each.name.lower() in found else each for each in table.columns
    )
    return replace(table, columns=tuple(columns))


def _table(name: TableName, said: Mapping[str, Any]) -> HiveTable:
    properties = said.get("table_properties", {})
    return HiveTable(
        name=name,
        kind=Kind.HIVE,
        format=_format(said),
        managed=said["type"].upper() == "MANAGED",
        location=said.get("location", ""),
        columns=tuple(
            HiveColumn(each["name"], each["type"], each.get("comment", "")) for each in said["columns"]
        ),
        partition_columns=tuple(said.get("partition_columns", ())),
        buckets=max(0, int(said.get("num_buckets", 0))),
        transactional=properties.get("transactional", "").lower() == "true",
        comment=said.get("comment", ""),
        properties=properties,
        owner=said.get("owner", ""),
    )


def _format(said: Mapping[str, Any]) -> Format:
    provider = said.get("provider", "").lower()
    if provider != "hive":
        return _FORMATS.get(provider, "other")
    serde, read = (said.get(key, "").rpartition(".")[2] for key in ("serde_library", "input_format"))
    # Rows of another SerDe can come through any input format.
    return _SERDES.get(serde) or (_INPUTS.get(read) if "Parquet" not in read else None) or "other"
