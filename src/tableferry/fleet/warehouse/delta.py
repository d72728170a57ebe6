"""Makes a Delta table over the directory of a Hive table, whose entry and files stay as they are.

The log goes into the Hive table's directory, as ``_delta_log``, a name that Hive doesn't read; a second,
external entry shows the directory as Delta.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import unquote

from tableferry.convert import overlay
from tableferry.errors import Refused, StateError, TableError
from tableferry.fleet.jobs.job import TargetFormat
from tableferry.fleet.jobs.plan import Kind
from tableferry.fleet.warehouse import copy_removal, far_log, footers, hive, trial
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.existing import entries, is_over, kinds
from tableferry.fleet.warehouse.files import (
    ListedFile,
    Listing,
    TableFiles,
    paths_below,
    too_deep,
    unregistered,
)
from tableferry.fleet.warehouse.hive_table import HiveTable
from tableferry.fleet.warehouse.prepared import Drafted
from tableferry.formats.hive.locations import below, reachable, split
from tableferry.spark.catalog import SPARK_ERRORS, explaining
from tableferry.spark.driver import in_process
from tableferry.spark.quoting import literal, quote
from tableferry.spark.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

# The operations that carrying a definition over adds to a log after its first commit.
_DEFINING = frozenset({"SET TBLPROPERTIES", "UNSET TBLPROPERTIES", "CHANGE COLUMN", "CHANGE COLUMNS"})


def make(warehouse: Warehouse, source: TableName, target: TableName) -> int:
    """Make a Delta table that holds each file of a Hive table once, and return how many these are.

    Done already, or half, is fine.

    Raises:
        TableError: A statement failed; run again when its cause is fixed.
        Refused: The table can't be Delta as it is, or another table has the target's name.
    """
    table = hive.demand_eligible(warehouse, source, TargetFormat.DELTA)
    listed = hive.last_listed(warehouse, table)
    _demand_in_partitions(listed)
    with explaining("NEW_TABLE_NOT_CREATED", source=source, target=target):
        draft = _make(warehouse, listed, target)
    if warehouse.prepared is not None:
        warehouse.prepared.drafted = Drafted.of(draft, listed) if draft else None
    return len(listed.listing.read)


def drafted(warehouse: Warehouse, listed: TableFiles) -> Drafted | None:
    """Draft a copy's only commit; None if there is no file for it to name, or only Spark can write it.

    Raises:
        TableError: Something about the table can't be read.
        Refused: The table can't be Delta as it is.
    """
    if not listed.listing.read or not can_be_drafted(warehouse, listed.table):
        return None
    _demand_in_partitions(listed)
    draft = _draft(warehouse, listed, _far_files(warehouse, listed))
    return Drafted.of(draft, listed) if draft else None


def write_checkpoint(warehouse: Warehouse, target: TableName) -> None:
    """Write a checkpoint of a copy's first commit if that names many files, where its log is on a disk.

    Elsewhere, and where it fails, readers read the commit, until Delta writes a checkpoint of its own.
    """
    spark = warehouse.spark
    try:
        entry = entries(warehouse, (target,)).get(target)
        delta = entry is not None and entry.kind is Kind.DELTA
        root = reachable(entry.location, same_machine=in_process(spark)) if entry and delta else None
        if root is not None:
            warehouse.effect(partial(overlay.write_checkpoint, spark, root), of=())
    except (StateError, TableError) as error:
        _log.warning("%s has no checkpoint: %s", target, error.one_line)


def stands(warehouse: Warehouse, table: HiveTable, draft: overlay.Draft) -> bool:
    """Say whether the log in a Hive table's directory is as a draft has it, and nothing came to it.

    Raises:
        StateError: It can't be read.
    """
    root = reachable(table.location, same_machine=in_process(warehouse.spark))
    log = overlay.log_at(root) if root else far_log.read(warehouse, table.location)
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
    if refusal := too_deep(name, files) or unregistered(name, files):
        raise refusal


def _far_files(warehouse: Warehouse, listed: TableFiles) -> overlay.FarFiles | None:
    """Return a table's files where this process reaches them, and a log, by Hadoop alone."""
    location = listed.table.location
    return far_files(warehouse.spark, location, listed.listing) if is_far(warehouse, location) else None


def is_far(warehouse: Warehouse, location: str) -> bool:
    """Say whether a table's directory, and a log in it, are reached from here by Hadoop alone."""
    near = reachable(location, same_machine=in_process(warehouse.spark))
    return near is None and far_log.is_within_reach(warehouse, location)


def far_files(spark: SparkSession, location: str, listing: Listing) -> overlay.FarFiles:
    """Return the files of a listing that lie below a table's directory, as Hadoop reads them.

    If none is the table's, those that lie about were refused before. Partitions outside the directory are
    refused, whatever files they have.

    Raises:
        StateError: The cluster keeps its Java to itself.
    """
    listed = listing.files if listing.read else ()
    paths = paths_below(listed, location)
    inside = [(path, file) for path, file in zip(paths, listed, strict=True) if path]
    files = [(path, file.size, file.modified // 1000) for path, file in inside]
    return overlay.FarFiles(files, footers.by_hadoop(spark, [file for _, file in inside]))


def _known_footers(warehouse: Warehouse) -> overlay.KnownFooters:
    """Return the footers of files that were compared, and by them."""
    prepared = warehouse.prepared
    return prepared.compared.footers if prepared and prepared.compared else {}


def can_be_drafted(warehouse: Warehouse, table: HiveTable) -> bool:
    """Say whether this process can write a Hive table's log, and there is none yet.

    Raises:
        StateError: Nobody lets us look.
    """
    if reachable(table.location, same_machine=in_process(warehouse.spark)) is None:
        log = far_log.read(warehouse, table.location)
        return log is not None and not log.names
    return not overlay.has_log(warehouse.spark, table.location)


def _make(warehouse: Warehouse, listed: TableFiles, target: TableName) -> overlay.Draft | None:
    """Write the log and the entry, and return the log's only commit if this process wrote it now."""
    spark, table, files = warehouse.spark, listed.table, listed.listing.read
    trial.sweep(warehouse, table)
    if in_process(spark) and reachable(table.location, same_machine=True) is None:
        far_log.finish(warehouse, table.location)
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
        if far := _far_files(warehouse, listed):
            if draft := _draft(warehouse, listed, far):
                far_log.write(warehouse, table.location, draft)
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
    """Say whether the target is in the catalog already, over the Hive table's directory.

    Raises:
        Refused: Another table has its name.
    """
    kind = kinds(warehouse, (target,)).get(target)
    if kind is None:
        return False
    if is_over(warehouse, table, target):
        return True
    raise Refused("COPY_NAME_TAKEN", table=target, kind=kind.description, source=table.name)


def _is_current(
    warehouse: Warehouse, table: HiveTable, files: Sequence[ListedFile], registered: bool
) -> bool:
    """Say whether the log names just the files that are listed, as they are.

    Earlier versions didn't mark their first commit, and not all compute lets a commit be marked: then the
    copy's entry shows whose log it is.

    Raises:
        Refused: Its first commit isn't ours, or somebody wrote to it.
    """
    spark, path = warehouse.spark, f"delta.{quote(table.location)}"
    history = spark.sql(f"DESCRIBE HISTORY {path}").select("operation", "userMetadata").collect()
    *later, (first, mark) = history
    ours = first == "CONVERT" and (registered or mark == overlay.MARK)
    if not ours or not _DEFINING.issuperset(row[0] for row in later):
        raise Refused("DELTA_TABLE_IN_HIVE_DIRECTORY", folder=table.location, table=table.name)
    rows = spark.sql(f"SELECT * FROM {path}")
    if sorted(map(split, rows.inputFiles())) != sorted(split(file.path) for file in files):
        return False
    # One that was written again may have its old name. What the log says of one without rows says nothing.
    known = {(split(file.path), file.size, file.modified // 1000) for file in files}
    try:
        said = (
            rows.selectExpr(
                "_metadata.file_path", "_metadata.file_size", "unix_millis(_metadata.file_modification_time)"
            )
            .distinct()
            .collect()
        )
    except SPARK_ERRORS:
        # It can't be read by the size that it had.
        return False
    return all((split(unquote(path)), size, modified) in known for path, size, modified in said)
