"""Read from the catalog the condition of a job's new table and Hive copy, for `hand_changes`."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tableferry.convert import overlay
from tableferry.fleet.hive_tables.progress_properties import ROOT, TARGET
from tableferry.fleet.jobs.hand_changes import Condition
from tableferry.fleet.jobs.job import Job, State, TargetFormat
from tableferry.fleet.jobs.names import Names
from tableferry.fleet.jobs.step_plan import Existing, Kind, target_kind
from tableferry.fleet.warehouse import job_tables, target_versions
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.table_renames import rename_statement
from tableferry.spark.catalog import SPARK_ERRORS
from tableferry.spark.tables import TableName

# How Spark and Iceberg report a file that doesn't exist; a refused or failed request is reported otherwise.
_NO_FILE = re.compile(r"NotFoundException|FileNotFoundException|Failed to open input stream|NoSuchKey")


def table_conditions(warehouse: Warehouse, job: Job) -> tuple[Condition, Condition]:
    """Return the conditions of a job's new table and Hive copy, from their entries in the catalog.

    Raises:
        TableError: A schema doesn't exist or can't be listed, or a table can't be described.
    """
    names = Names.of(job)
    tables = job_tables.list_job_tables(warehouse, names)
    return _new_table(warehouse, job, tables), _hive_copy(warehouse, job, tables)


def rename_statements(warehouse: Warehouse, job: Job) -> Mapping[TableName, str]:
    """Return, for each table with one of the job's names, a statement that renames the table.

    Raises:
        TableError: A schema doesn't exist, or the user may not list it.
    """
    return {
        name: rename_statement(warehouse, kind, name, TableName((*name.parts[:-1], f"{name.table}_by_hand")))
        for name, kind in job_tables.kinds(warehouse, Names.of(job).all).items()
    }


def has_lost_metadata(warehouse: Warehouse, job: Job) -> bool:
    """Return whether the new table has an entry, and its metadata files or its log are gone.

    Raises:
        TableError: The catalog or the log can't be read.
    """
    names, form = Names.of(job), job.target_format
    entry = job_tables.entries(warehouse, (names.target,), refresh=True).get(names.target)
    if entry is None or entry.kind is not target_kind(job):
        return False
    if form is TargetFormat.DELTA:
        return not overlay.has_log(warehouse.spark, entry.location)
    try:
        target_versions.current_version(warehouse, names.target, form)
    except SPARK_ERRORS as error:
        return bool(_NO_FILE.search(str(error)))
    return False


def _new_table(warehouse: Warehouse, job: Job, tables: Existing) -> Condition:
    names = Names.of(job)
    match tables.get(names.target):
        case None:
            return Condition.MISSING
        case kind if kind is target_kind(job):
            return Condition.SOUND
        case Kind.OTHER if job_tables.kinds(warehouse, (names.target,))[names.target] is target_kind(job):
            return Condition.REPLACED
        case _:
            return Condition.TAKEN


def _hive_copy(warehouse: Warehouse, job: Job, tables: Existing) -> Condition:
    names = Names.of(job)
    name = names.hive
    # An archive that was interrupted after its rename leaves the state as it was.
    is_renamed = name not in tables and tables.get(names.main) is not Kind.HIVE
    if names.archived in tables and (job.state is State.HIVE_DROPPED or is_renamed):
        name = names.archived
    elif names.elsewhere and name not in tables and tables.get(names.main) is Kind.HIVE:
        # The switch was interrupted, or is being undone.
        name = names.main
    match tables.get(name):
        case None:
            return Condition.MISSING
        case Kind.HIVE if _is_ours(warehouse, job, name):
            return Condition.SOUND
        case _:
            return Condition.REPLACED


def _is_ours(warehouse: Warehouse, job: Job, name: TableName) -> bool:
    """Return whether a Hive table is the one that the job migrated, by its properties or its creation time.

    Earlier versions of Tableferry recorded neither. Such a table counts as the migrated one.
    """
    checked = job.record.checked
    if not checked:
        return True
    entry = job_tables.entries(warehouse, (name,))[name]
    if any(f"{key}=" in entry.properties for key in (ROOT, TARGET)):
        return True
    return job_tables.is_same_creation(checked["created"], entry.created)
