"""Carries over what people defined on a table: comments, properties, its owner, grants and tags."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tableferry.fleet.jobs.job import TargetFormat
from tableferry.fleet.warehouse import asking, hive, metastore, versions
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.hive_table import HiveTable
from tableferry.spark.catalog import described_with_columns, explaining
from tableferry.spark.quoting import literal, pairs, quote
from tableferry.spark.redaction import HIDDEN
from tableferry.spark.tables import TableName

# Properties that the metastore, Spark and Hive's tools keep for themselves.
_SYSTEM = frozenset(
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
_SYSTEM_PREFIXES = ("spark.sql.", "impala.", "stats_generated", "tableferry.", "delta.")
# What means something to Iceberg, and is decided where its table is made.
_ICEBERG_PREFIXES = (
    "format-version",
    "gc.",
    "write.",
    "read.",
    "commit.",
    "history.",
    # By Hive's storage handler, without whose classes nobody lists the schema any more.
    "engine.",
    "schema.name-mapping",
    "table_type",
)


def user_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that somebody set, and that mean nothing to the target's format.

    Those are left out whose values Spark hides.
    """
    return {
        key: value
        for key, value in properties.items()
        if value != HIDDEN
        and key.lower() not in _SYSTEM
        and not key.lower().startswith(_SYSTEM_PREFIXES + _ICEBERG_PREFIXES)
    }


def carry(warehouse: Warehouse, source: TableName, target: TableName, form: TargetFormat) -> str:
    """Give a target the comments, properties, owner, grants and tags of a Hive table; return its version.

    Done already is fine.

    The owner is set in the metastore where its client is reached, and otherwise by `Access.carry`, as grants
    and tags are.

    Raises:
        TableError: The target may not be changed.
    """
    table = hive.demand(warehouse, source)
    with explaining("DEFINITION_NOT_COPIED", source=source, target=target):
        named = warehouse.named(target, form)
        comments, details = described_with_columns(warehouse.spark, named)
        for statement in _statements(warehouse, table, named, comments, details):
            warehouse.run(statement, of=(target,))
    owner = details.get("Owner", "")
    if table.owner and owner != table.owner and metastore.reached(warehouse.spark, target):

        def set_owner(entry: Any) -> None:
            entry.setOwner(table.owner)

        warehouse.effect(lambda: metastore.alter(warehouse.spark, target, set_owner), of=(target,))
    warehouse.effect(lambda: warehouse.access.carry(source, target), of=())
    # No definition is a snapshot of Iceberg's.
    known = versions.described(details) if form is TargetFormat.ICEBERG else None
    return known or versions.current(warehouse, target, form)


def _statements(
    warehouse: Warehouse,
    table: HiveTable,
    target: TableName,
    comments: Mapping[str, str],
    details: Mapping[str, str],
) -> list[str]:
    """Return what is left to do; nothing is set twice, as each statement is a commit of the target."""
    statements = []
    wanted = user_properties(table.properties).items()
    # DESCRIBE doesn't say where a property ends, so what it doesn't show clearly is asked for.
    shown = details.get("Table Properties", "").replace("[", ",").replace("]", ",")
    clear = all(f",{key}={value}," in shown for key, value in wanted)
    missing = set() if clear else wanted - asking.properties(warehouse.spark, target).items()
    if missing:
        statements.append(f"ALTER TABLE {target.sql} SET TBLPROPERTIES {pairs(dict(missing))}")
    if table.comment and details.get("Comment") != table.comment:
        statements.append(f"COMMENT ON TABLE {target.sql} IS {literal(table.comment)}")
    for column in table.columns:
        if column.comment and comments.get(column.name.lower()) != column.comment:
            statements.append(
                f"ALTER TABLE {target.sql} ALTER COLUMN {quote(column.name)} "
                f"COMMENT {literal(column.comment)}"
            )
    return statements
