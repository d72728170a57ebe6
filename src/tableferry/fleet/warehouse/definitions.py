"""Carries over what people said of a table: comments, properties, its owner and its grants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tableferry.catalog import SPARK_ERRORS, described
from tableferry.errors import TableError, first_line
from tableferry.fleet.plan import Kind
from tableferry.fleet.warehouse import hive, metastore
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.eligibility import HiveTable
from tableferry.fleet.warehouse.existing import kind
from tableferry.hive.sql import quoted, text
from tableferry.tables import TableName

# What the metastore, Spark and Hive's tools keep for themselves.
_THEIRS = frozenset(
    {
        "bucketing_version",
        "column_stats_accurate",
        "comment",
        "external",
        "external.table.purge",
        "last_modified_by",
        "last_modified_time",
        "location",
        "numfiles",
        "numfileserasurecoded",
        "numpartitions",
        "numrows",
        "owner",
        "provider",
        "rawdatasize",
        "storage_handler",
        "totalsize",
        "transactional",
        "transactional_properties",
        "transient_lastddltime",
    }
)
_THEIR_PREFIXES = ("spark.sql.", "impala.", "stats_generated", "tableferry.", "delta.")
# What means something to Iceberg, and is decided where its table is made.
_ICEBERGS = (
    "format-version",
    "gc.",
    "write.",
    "read.",
    "commit.",
    "history.",
    "schema.name-mapping",
    "table_type",
)


def kept(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that somebody set, and that mean nothing to the target's format."""
    return {
        key: value
        for key, value in properties.items()
        if key.lower() not in _THEIRS and not key.lower().startswith(_THEIR_PREFIXES + _ICEBERGS)
    }


def carry(warehouse: Warehouse, source: TableName, target: TableName) -> None:
    """Give a target the comments, properties, owner and grants of a Hive table; done already is fine.

    The owner is the metastore's where its client is reached, and otherwise the catalog's business of
    `Access.carry`, as grants are.

    Raises:
        TableError: The target may not be changed.
    """
    table = hive.demand(warehouse, source)
    named = warehouse.iceberg(target) if kind(warehouse, target) is Kind.ICEBERG else target
    try:
        for statement in _statements(warehouse, table, named):
            warehouse.run(statement)
        owner = described(warehouse.spark, target).get("Owner", "")
    except SPARK_ERRORS as error:
        raise TableError(
            f"the definition of {source} can't be carried over to {target} ({first_line(error)}): check your "
            "rights, and run again"
        ) from error
    if table.owner and owner != table.owner and metastore.reached(warehouse.spark, target):
        warehouse.effect(
            lambda: metastore.alter(warehouse.spark, target, lambda entry: _own(entry, table.owner))
        )
    warehouse.effect(lambda: warehouse.access.carry(source, target))


def _own(entry: Any, owner: str) -> None:
    entry.setOwner(owner)


def _statements(warehouse: Warehouse, table: HiveTable, named: TableName) -> list[str]:
    """Say what is to be done, and nothing of what is as it should be: each is a commit of the target."""
    spark = warehouse.spark
    said = []
    there = {row["key"]: row["value"] for row in spark.sql(f"SHOW TBLPROPERTIES {named.sql}").collect()}
    if missing := {key: value for key, value in kept(table.properties).items() if there.get(key) != value}:
        pairs = ", ".join(f"{text(key)} = {text(value)}" for key, value in sorted(missing.items()))
        said.append(f"ALTER TABLE {named.sql} SET TBLPROPERTIES ({pairs})")
    if table.comment and described(spark, named).get("Comment") != table.comment:
        said.append(f"COMMENT ON TABLE {named.sql} IS {text(table.comment)}")
    comments = {each.name.lower(): each.metadata.get("comment", "") for each in spark.table(named.sql).schema}
    for column in table.columns:
        if column.comment and comments.get(column.name.lower()) != column.comment:
            said.append(
                f"ALTER TABLE {named.sql} ALTER COLUMN {quoted(column.name)} COMMENT {text(column.comment)}"
            )
    return said
