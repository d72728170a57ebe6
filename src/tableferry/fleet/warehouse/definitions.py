"""Copy the comments, properties, owner, grants and tags from the Hive table to the new table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from tableferry.fleet.hive_tables import metastore
from tableferry.fleet.hive_tables.hive_table import HiveTable
from tableferry.fleet.jobs import steps
from tableferry.fleet.jobs.job import Job, TargetFormat
from tableferry.fleet.warehouse import hive, table_descriptions, target_versions
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.step_run import StepRun
from tableferry.spark.catalog import described_with_columns, explaining
from tableferry.spark.quoting import literal, pairs, quote
from tableferry.spark.redaction import HIDDEN
from tableferry.spark.tables import TableName

# Properties that the metastore, Spark and Hive's tools set.
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
# Properties with a meaning in Iceberg, which the creation of the Iceberg table sets.
_ICEBERG_PREFIXES = (
    "format-version",
    "gc.",
    "write.",
    "read.",
    "commit.",
    "history.",
    # They name Hive's storage handler; without its classes the schema's tables can't be listed.
    "engine.",
    "schema.name-mapping",
    "table_type",
)


def user_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that users set and that have no meaning in the target's format.

    Properties whose values Spark hides are left out.
    """
    return {
        key: value
        for key, value in properties.items()
        if value != HIDDEN
        and key.lower() not in _SYSTEM
        and not key.lower().startswith(_SYSTEM_PREFIXES + _ICEBERG_PREFIXES)
    }


def copy_definition(step: steps.CopyDefinition, run: StepRun) -> Job:
    """Copy comments, properties, owner, grants and tags from a Hive table, and record the target's version.

    Values that the target already has aren't set again. The metastore's client sets the owner if this process
    can use it; otherwise `Access.carry` sets it with the grants and tags.

    Raises:
        TableError: The user may not change the target.
    """
    warehouse, source, target, form = run.warehouse, step.source, step.target, run.job.target_format
    table = hive.require_hive_table(warehouse, source)
    with explaining("DEFINITION_NOT_COPIED", source=source, target=target):
        named = warehouse.named(target, form)
        comments, details = described_with_columns(warehouse.spark, named)
        for statement in _statements(warehouse, table, named, comments, details):
            warehouse.run(statement, of=(target,))
    owner = details.get("Owner", "")
    if table.owner and owner != table.owner and metastore.is_reachable(warehouse.spark, target):

        def set_owner(entry: Any) -> None:
            entry.setOwner(table.owner)

        warehouse.effect(lambda: metastore.alter(warehouse.spark, target, set_owner), of=(target,))
    warehouse.effect(lambda: warehouse.access.carry(source, target), of=())
    # Definitions create no Iceberg snapshot, so the described one is still current. In a Delta table each
    # comment creates a version, so the watermark is the version after the last one.
    known = target_versions.snapshot_in_description(details) if form is TargetFormat.ICEBERG else None
    watermark = known or target_versions.current_version(warehouse, target, form)
    return replace(run.job, shadow_watermark=watermark)


def copy_access(step: steps.CopyAccess, run: StepRun) -> Job:
    """Copy the owner, the grants and the tags, with their changes since the switch."""
    access = run.warehouse.access
    run.warehouse.effect(partial(access.carry, step.source, step.target), of=())
    return run.job


def _statements(
    warehouse: Warehouse,
    table: HiveTable,
    target: TableName,
    comments: Mapping[str, str],
    details: Mapping[str, str],
) -> list[str]:
    """Return the statements for missing definitions only, because each one commits to the target."""
    statements = []
    wanted = user_properties(table.properties).items()
    # DESCRIBE doesn't quote properties. If one can't be found in its text, SHOW TBLPROPERTIES decides.
    shown = details.get("Table Properties", "").replace("[", ",").replace("]", ",")
    clear = all(f",{key}={value}," in shown for key, value in wanted)
    missing = set() if clear else wanted - table_descriptions.properties(warehouse.spark, target).items()
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
