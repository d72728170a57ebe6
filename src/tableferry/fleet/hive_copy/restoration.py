"""Restore tables that people dropped: the Hive copy from the new table, a Delta table from its log."""

from __future__ import annotations

import logging
import uuid

from tableferry.convert import overlay
from tableferry.fleet.hive_copy.delta_changes import DeltaTarget
from tableferry.fleet.hive_copy.target import Target, read_target
from tableferry.fleet.hive_copy.update_plan import plan_columns
from tableferry.fleet.hive_tables.copy_locations import hive_location_of
from tableferry.fleet.hive_tables.hive_table import PURGE, SOURCE
from tableferry.fleet.hive_tables.progress_properties import ROOT, TARGET
from tableferry.fleet.jobs import steps
from tableferry.fleet.jobs.job import Job, TargetFormat
from tableferry.fleet.warehouse import table_descriptions
from tableferry.fleet.warehouse.job_tables import entries
from tableferry.fleet.warehouse.step_run import StepRun
from tableferry.formats.hive.sql import in_metastore
from tableferry.spark import catalog
from tableferry.spark.catalog import explaining
from tableferry.spark.quoting import literal, pairs, quote
from tableferry.spark.tables import TableName

_log = logging.getLogger(__name__)

# The formats in which Spark creates and writes a Hive table without Hive's writer.
_FORMATS = ("parquet", "orc", "avro")


def restore_hive_copy(step: steps.RestoreHiveCopy, run: StepRun) -> Job:
    """Recreate a dropped Hive copy as an external table without rows, in an empty directory.

    Its columns are the new table's. The next shadow run writes all rows. An existing copy isn't changed. Its
    files have the format of the Hive table's files, or Parquet if Spark can't write that format.

    Raises:
        Refused: Hive has no type for a column.
        TableError: The new table can't be read, or the Hive table can't be created.
    """
    warehouse, target, hive, form = run.warehouse, step.target, step.hive, step.format
    found = entries(warehouse, (target, hive))
    if hive in found:
        return run.job
    new = read_target(warehouse, target, form)
    root = hive_location_of(found[target].location, form)
    keys = _partition_columns(new)
    types = new.columns()
    every = plan_columns({}, types, (), new.type_substitutes, str(hive)).every
    named = {column.lower() for column in keys}
    columns = ", ".join(f"{quote(name)} {kind}" for name, kind in every.items() if name.lower() not in named)
    by = ", ".join(f"{quote(name)} {every[name]}" for name in every if name.lower() in named)
    stored = run.job.stg_format if run.job.stg_format in _FORMATS else "parquet"
    properties = {ROOT: root, PURGE: "false"}
    location = f"{root}_restored_{uuid.uuid4().hex[:8]}"
    statement = (
        f"CREATE EXTERNAL TABLE {in_metastore(hive)} ({columns}) "
        f"{f'PARTITIONED BY ({by}) ' if by else ''}STORED AS {stored.upper()} "
        f"LOCATION {literal(location)} TBLPROPERTIES {pairs(properties)}"
    )
    with explaining("HIVE_COPY_NOT_RESTORED", table=hive):
        warehouse.run(statement, of=(hive,))
    _log.warning("%s was recreated in %s; the next shadow run copies the rows of %s", hive, location, target)
    return run.job


def restore_entry(step: steps.RestoreEntry, run: StepRun) -> Job:
    """Create the catalog entry of a dropped Delta table again, if its log still exists.

    The Hive copy's properties contain the log's directory and the new table's id. Nothing is created for
    Iceberg, without a log, or if the log has another id. The job is returned unchanged.

    Raises:
        TableError: The Hive copy or the log can't be read, or the table exists or can't be created.
    """
    warehouse, target = run.warehouse, step.target
    if step.format is not TargetFormat.DELTA:
        return run.job
    properties = table_descriptions.properties(warehouse.spark, step.hive)
    root = properties.get(ROOT)
    if root is None or not overlay.has_log(warehouse.spark, root):
        return run.job
    facts = catalog.facts(warehouse.spark, TableName.at(root))
    if facts is None or properties.get(TARGET, facts.table_id) != facts.table_id:
        return run.job
    with explaining("NEW_TABLE_NOT_RESTORED", table=target, folder=root):
        warehouse.run(f"CREATE TABLE {target.sql} USING delta LOCATION {literal(root)}", of=(target,))
    return run.job


def adopt_table(step: steps.AdoptTable, run: StepRun) -> Job:
    """Record that a table was created from a Hive table, so that the job continues with it.

    Raises:
        TableError: Permission to change its properties is missing.
    """
    warehouse, target = run.warehouse, step.target
    with explaining("TABLE_NOT_CHANGED", table=target):
        warehouse.run(
            f"ALTER TABLE {warehouse.named(target, step.format).sql} "
            f"SET TBLPROPERTIES ({literal(SOURCE)} = {literal(step.hive.key)})",
            of=(target,),
        )
    return run.job


def drop_entry(step: steps.DropEntry, run: StepRun) -> Job:
    """Drop the catalog entry of a table whose metadata files are missing; its data files stay.

    Raises:
        TableError: Permission to drop it is missing.
    """
    warehouse, target = run.warehouse, step.table
    with explaining("TABLE_NOT_DROPPED", table=target):
        warehouse.run(f"DROP TABLE {warehouse.named(target, run.job.target_format).sql}", of=(target,))
    return run.job


def _partition_columns(target: Target) -> tuple[str, ...]:
    if isinstance(target, DeltaTarget):
        return target.partition_columns
    return target.metadata.first_partition_columns()
