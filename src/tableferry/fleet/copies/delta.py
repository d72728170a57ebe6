"""Create a Delta table over the directory of a Hive table, whose entry and files stay unchanged.

The log is the folder ``_delta_log`` in the Hive table's directory, a name that Hive doesn't read. A second,
external entry in the catalog points to the directory as Delta.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import unquote

from tableferry.convert import overlay
from tableferry.errors import Refused, StateError, TableError
from tableferry.fleet.copies import copy_removal, delta_trial, hadoop_log
from tableferry.fleet.copies.iceberg_files import parquet_footers
from tableferry.fleet.hive_tables.hive_table import HiveTable
from tableferry.fleet.hive_tables.table_files import (
    ListedFile,
    Listing,
    TableFiles,
    paths_below,
    refuse_files_outside_partitions,
    refuse_nested_files,
)
from tableferry.fleet.jobs import steps
from tableferry.fleet.jobs.job import Job, TargetFormat
from tableferry.fleet.jobs.step_plan import Kind
from tableferry.fleet.warehouse import hive
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.job_tables import entries, is_in_hive_directory, kinds
from tableferry.fleet.warehouse.prepared_copy import DeltaDraft
from tableferry.fleet.warehouse.step_run import StepRun
from tableferry.formats.hive.locations import below, reachable, split
from tableferry.spark.catalog import SPARK_ERRORS, explaining
from tableferry.spark.driver import in_process
from tableferry.spark.quoting import literal, quote
from tableferry.spark.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

# The operations that copying a table's definition adds to a log after its first commit.
_DEFINING = frozenset({"SET TBLPROPERTIES", "UNSET TBLPROPERTIES", "CHANGE COLUMN", "CHANGE COLUMNS"})


def create_copy(warehouse: Warehouse, source: TableName, target: TableName) -> int:
    """Create a Delta table that contains each file of a Hive table once; return the number of files.

    The function can be repeated.

    Raises:
        TableError: A statement failed; run again when its cause is fixed.
        Refused: The table can't become a Delta table, or another table has the target's name.
    """
    table = hive.require_eligible_table(warehouse, source, TargetFormat.DELTA)
    listed = hive.last_table_files(warehouse, table)
    _demand_in_partitions(listed)
    with explaining("NEW_TABLE_NOT_CREATED", source=source, target=target):
        draft = _create_copy(warehouse, listed, target)
    if warehouse.prepared is not None:
        warehouse.prepared.delta_draft = DeltaDraft.of(draft, listed) if draft else None
    return len(listed.listing.read)


def draft_commit(warehouse: Warehouse, listed: TableFiles) -> DeltaDraft | None:
    """Draft a copy's only commit; None if the table has no files, or only Spark can write the commit.

    Raises:
        TableError: The table's definition or files can't be read.
        Refused: The table can't become a Delta table.
    """
    if not listed.listing.read or not can_be_drafted(warehouse, listed.table):
        return None
    _demand_in_partitions(listed)
    draft = _draft(warehouse, listed, _find_hadoop_files(warehouse, listed))
    return DeltaDraft.of(draft, listed) if draft else None


def write_checkpoint(step: steps.WriteCheckpoint, run: StepRun) -> Job:
    """Write a checkpoint of a copy's first commit if it lists many files and the log is on a local disk.

    Otherwise, and if it fails, readers read the commit until Delta writes its own checkpoint.
    """
    warehouse, target = run.warehouse, step.table
    spark = warehouse.spark
    try:
        entry = entries(warehouse, (target,)).get(target)
        delta = entry is not None and entry.kind is Kind.DELTA
        root = reachable(entry.location, same_machine=in_process(spark)) if entry and delta else None
        if root is not None:
            warehouse.effect(partial(overlay.write_checkpoint, spark, root), of=())
    except (StateError, TableError) as error:
        _log.warning("%s has no checkpoint: %s", target, error.one_line)
    return run.job


def is_log_unchanged(warehouse: Warehouse, table: HiveTable, draft: overlay.Draft) -> bool:
    """Return whether the log in a Hive table's directory has exactly the drafted commit.

    Raises:
        StateError: The log can't be read.
    """
    root = reachable(table.location, same_machine=in_process(warehouse.spark))
    log = overlay.log_at(root) if root else hadoop_log.read(warehouse, table.location)
    return log is not None and overlay.is_unchanged(warehouse.spark, draft, log)


def _draft(warehouse: Warehouse, listed: TableFiles, far: overlay.FarFiles | None) -> overlay.Draft | None:
    return overlay.draft(
        warehouse.spark,
        listed.table.name,
        column_mapping=warehouse.column_mapping,
        known=_known_footers(warehouse),
        far=far,
    )


def _demand_in_partitions(listed: TableFiles) -> None:
    name, files = listed.table.name, listed.listing
    if refusal := refuse_nested_files(name, files) or refuse_files_outside_partitions(name, files):
        raise refusal


def _find_hadoop_files(warehouse: Warehouse, listed: TableFiles) -> overlay.FarFiles | None:
    """Return a table's files if this process reaches them, and a log, only through Hadoop."""
    location = listed.table.location
    if not is_reached_by_hadoop(warehouse, location):
        return None
    return list_hadoop_files(warehouse.spark, location, listed.listing)


def is_reached_by_hadoop(warehouse: Warehouse, location: str) -> bool:
    """Return whether this process reaches a table's directory, and a log in it, only through Hadoop."""
    near = reachable(location, same_machine=in_process(warehouse.spark))
    return near is None and hadoop_log.is_within_reach(warehouse, location)


def list_hadoop_files(spark: SparkSession, location: str, listing: Listing) -> overlay.FarFiles:
    """Return the listed files below a table's directory, with the function by which Hadoop reads them.

    The caller has refused files outside of all partitions, and partitions outside the directory.

    Raises:
        StateError: The cluster doesn't expose its Java.
    """
    listed = listing.files if listing.read else ()
    paths = paths_below(listed, location)
    inside = [(path, file) for path, file in zip(paths, listed, strict=True) if path]
    files = [(path, file.size, file.modified // 1000) for path, file in inside]
    return overlay.FarFiles(files, parquet_footers.by_hadoop(spark, [file for _, file in inside]))


def _known_footers(warehouse: Warehouse) -> overlay.KnownFooters:
    """Return the footers of files that were compared before."""
    prepared = warehouse.prepared
    return prepared.compared.footers if prepared and prepared.compared else {}


def can_be_drafted(warehouse: Warehouse, table: HiveTable) -> bool:
    """Return whether this process can write a Hive table's log, and the table has none yet.

    Raises:
        StateError: The directory can't be listed.
    """
    if reachable(table.location, same_machine=in_process(warehouse.spark)) is None:
        log = hadoop_log.read(warehouse, table.location)
        return log is not None and not log.names
    return not overlay.has_log(warehouse.spark, table.location)


def _create_copy(warehouse: Warehouse, listed: TableFiles, target: TableName) -> overlay.Draft | None:
    """Write the log and the catalog entry; return the commit if this call wrote it."""
    spark, table, files = warehouse.spark, listed.table, listed.listing.read
    delta_trial.remove_trials(warehouse, table)
    if in_process(spark) and reachable(table.location, same_machine=True) is None:
        hadoop_log.finish(warehouse, table.location)
    registered = _is_registered(warehouse, table, target)
    logged, draft = overlay.has_log(spark, table.location), None
    if (logged and not _is_current(warehouse, table, files, registered)) or (registered and not logged):
        copy_removal.drop_delta(warehouse, target if registered else None, table.location)
        registered = logged = False
    if not logged:
        outside = [part for part in listed.partitions if below(part.location, table.location) is None]
        if outside:
            raise Refused(
                "PARTITIONS_OUTSIDE_DIRECTORY",
                table=table.name,
                folder=table.location,
                partitions=list(map(str, outside)),
            )
        if far := _find_hadoop_files(warehouse, listed):
            if draft := _draft(warehouse, listed, far):
                hadoop_log.write(warehouse, table.location, draft)
        else:
            mapping, known = warehouse.column_mapping, _known_footers(warehouse)
            draft = warehouse.effect(
                partial(
                    overlay.write, spark, table.name, empty=not files, column_mapping=mapping, known=known
                ),
                of=(),
            )
    if not registered:
        warehouse.run(
            f"CREATE TABLE {target.sql} USING delta LOCATION {literal(table.location)}", of=(target,)
        )
    return draft


def _is_registered(warehouse: Warehouse, table: HiveTable, target: TableName) -> bool:
    """Return whether the catalog has the target already, over the Hive table's directory.

    Raises:
        Refused: Another table has the target's name.
    """
    kind = kinds(warehouse, (target,)).get(target)
    if kind is None:
        return False
    if is_in_hive_directory(warehouse, table, target):
        return True
    raise Refused("COPY_NAME_TAKEN", table=target, kind=kind.description, source=table.name)


def _is_current(
    warehouse: Warehouse, table: HiveTable, files: Sequence[ListedFile], registered: bool
) -> bool:
    """Return whether the log names exactly the listed files, with their sizes and times.

    Earlier versions of Tableferry didn't mark their first commit, and some compute doesn't allow it. Then
    the copy's catalog entry proves that Tableferry wrote the log.

    Raises:
        Refused: Tableferry didn't write the first commit, or another process wrote to the table.
    """
    spark, path = warehouse.spark, f"delta.{quote(table.location)}"
    history = spark.sql(f"DESCRIBE HISTORY {path}").select("operation", "userMetadata").collect()
    *later, (first, mark) = history
    is_ours = first == "CONVERT" and (registered or mark == overlay.MARK)
    if not is_ours or not _DEFINING.issuperset(row[0] for row in later):
        raise Refused("DELTA_TABLE_IN_HIVE_DIRECTORY", folder=table.location, table=table.name)
    rows = spark.sql(f"SELECT * FROM {path}")
    if sorted(map(split, rows.inputFiles())) != sorted(split(file.path) for file in files):
        return False
    # A rewritten file may have its old name. The query returns no metadata for files without rows.
    known = {(split(file.path), file.size, file.modified // 1000) for file in files}
    try:
        recorded = (
            rows.selectExpr(
                "_metadata.file_path", "_metadata.file_size", "unix_millis(_metadata.file_modification_time)"
            )
            .distinct()
            .collect()
        )
    except SPARK_ERRORS:
        # Spark can't read a file whose size differs from the log.
        return False
    return all((split(unquote(path)), size, modified) in known for path, size, modified in recorded)
