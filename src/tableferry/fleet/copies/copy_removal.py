"""Drop the copy of a Hive table after a revert; the files that Hive reads stay.

A table with the copy's name that Tableferry didn't create stays too. The copy's version is checked before it
gets a name that no writer knows, and again afterwards. If another process wrote to it, it gets its name back.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from functools import partial
from pathlib import Path

from tableferry import storage
from tableferry.convert import overlay
from tableferry.errors import Refused
from tableferry.fleet.copies import hadoop_log
from tableferry.fleet.hive_tables.progress_properties import ROOT
from tableferry.fleet.jobs import steps
from tableferry.fleet.jobs.job import Job, PauseReason, TargetFormat
from tableferry.fleet.jobs.names import dropped_name
from tableferry.fleet.warehouse import hive, table_descriptions, table_renames, target_versions
from tableferry.fleet.warehouse.context import DecisionRequired, Warehouse
from tableferry.fleet.warehouse.job_tables import Entry, entries, is_created_from
from tableferry.fleet.warehouse.step_run import StepRun, pausing
from tableferry.fleet.warehouse.table_identity import change_if_unchanged
from tableferry.formats.hive.catalog_tables import list_tables
from tableferry.formats.hive.locations import reachable, split
from tableferry.spark.catalog import SPARK_ERRORS, explaining
from tableferry.spark.driver import in_process
from tableferry.spark.tables import TableName

_log = logging.getLogger(__name__)

# The name of a log during its removal; listings skip it.
_REMOVED_LOG = "_tableferry_dropped_log"


class CopyWrittenAfterSync(DecisionRequired):
    """A copy was written to after the last update of Hive, and a person must decide about the rows."""


def drop_copy(step: steps.DropCopy, run: StepRun) -> Job:
    """Drop an Iceberg or Delta copy, unless it has a version that Hive lacks, or is missing.

    The version of the last update of Hive is the job's watermark. A person can accept a later version.

    The only removed file is a Delta log, if this process reaches it. Iceberg's own directory stays, because
    it can contain partitions of the Hive table after a probation. A table with the copy's name that wasn't
    created from the Hive table stays unchanged.

    Raises:
        StepPaused: The copy has a later version; it stays unchanged.
        Refused: The drop would remove the copy's files, which Hive reads.
        TableError: The user may not drop the copy.
    """
    warehouse, source, name, form = run.warehouse, step.hive, step.target, step.format
    watermark, accept = run.job.shadow_watermark, run.job.record.accept
    expected = frozenset(version for version in (watermark, accept) if version) if watermark else None
    with (
        pausing(PauseReason.WRITTEN_WHILE_BLOCKED, CopyWrittenAfterSync),
        explaining("TABLE_NOT_DROPPED", table=name),
    ):
        existing = entries(warehouse, (name, dropped_name(name)))
        copies = {
            copy
            for copy, entry in existing.items()
            if _is_made_of(warehouse, source, copy, entry, form, is_recorded_table=watermark is not None)
        }
        for other in existing.keys() - copies:
            words = existing[other].kind.description
            _log.warning("%s is %s that wasn't made of %s, and stays as it is", other, words, source)
        if form is TargetFormat.ICEBERG:
            _drop_iceberg(warehouse, name, copies, expected)
        elif name in copies:
            table_renames.require_fixed_location(name, existing[name])
            directory = read_location(warehouse, name)
            # The log is read before the version, so a commit between the two changes the log's identity.
            log = _read_log_identity(_reachable(warehouse, directory))
            seen = _require_version(warehouse, name, form, expected)
            if log is None and seen:
                expected = expected or frozenset((seen,))
            _drop_delta(warehouse, name, directory, log, expected)
    return run.job.with_record(accept="")


def _is_made_of(
    warehouse: Warehouse,
    source: TableName,
    name: TableName,
    entry: Entry,
    form: TargetFormat,
    *,
    is_recorded_table: bool,
) -> bool:
    """Return whether this fleet created a table from a Hive table.

    Args:
        warehouse: The warehouse.
        source: The Hive table.
        name: The table.
        entry: Its catalog entry.
        form: The expected format.
        is_recorded_table: Whether the job records a version of its copy, which proves that it created one.
    """
    directories: list[str] = []
    if form is TargetFormat.DELTA:
        # During a probation, the Hive table's directory may have changed.
        first = table_descriptions.properties(warehouse.spark, source).get(ROOT, "")
        directories = [hive.read_layout(warehouse, source).location, first]
    if not is_created_from(warehouse, source, name, entry, form, directories):
        return False
    if is_recorded_table or split(entry.location) not in map(split, directories):
        return True
    try:
        history = warehouse.spark.sql(f"DESCRIBE HISTORY {name.sql}").where("version = 0")
        return [row[0] for row in history.select("userMetadata").collect()] == [overlay.MARK]
    except SPARK_ERRORS:
        if overlay.has_log(warehouse.spark, entry.location):
            raise
        # An interrupted drop has removed the log already.
        return True


def read_location(warehouse: Warehouse, name: TableName) -> str:
    """Return a table's location in the catalog, even if its log is missing."""
    return list_tables(warehouse.spark, name.parts[:-1], (name.table,))[name.table.lower()].location


def drop_delta(warehouse: Warehouse, name: TableName | None, directory: str) -> None:
    """Drop the entry of a Delta table, if it has one, and remove its log if this process reaches it."""
    _drop_delta(warehouse, name, directory, _read_log_identity(_reachable(warehouse, directory)), None)


def _drop_iceberg(
    warehouse: Warehouse, name: TableName, copies: Collection[TableName], expected: frozenset[str] | None
) -> None:
    aside, form = dropped_name(name), TargetFormat.ICEBERG
    if name in copies:
        seen = _require_version(warehouse, name, form, expected)
        expected = expected or frozenset((seen,))
        # A writer that has the table open doesn't find it by this name any more, and fails.
        table_renames.rename_table(warehouse, name, aside)
    elif aside not in copies:
        return
    try:
        _require_version(warehouse, aside, form, expected)
    except CopyWrittenAfterSync:
        table_renames.rename_table(warehouse, aside, name)
        raise
    statement = f"DROP TABLE {warehouse.iceberg(aside).sql}"
    change_if_unchanged(warehouse, (aside,), lambda: warehouse.spark.sql(statement).collect())


def _require_version(
    warehouse: Warehouse, name: TableName, form: TargetFormat, expected: frozenset[str] | None
) -> str:
    """Require that a copy has one of the expected versions, and return its version; empty without a log.

    Raises:
        CopyWrittenAfterSync: The copy has another version.
    """
    try:
        current = target_versions.current_version(warehouse, name, form)
    except SPARK_ERRORS:
        if form is TargetFormat.ICEBERG:
            raise
        # An interrupted drop has removed the log already.
        return ""
    if expected is not None and current not in expected:
        raise _written_after_sync(str(name), current, expected)
    return current


def _drop_delta(
    warehouse: Warehouse,
    name: TableName | None,
    directory: str,
    log: overlay.LogIdentity | None,
    expected: frozenset[str] | None,
) -> None:
    # The log is moved first. The next run finds and drops an entry without a log, but a log without an entry
    # looks like another user's table.
    root = _reachable(warehouse, directory)
    if root is None and in_process(warehouse.spark):
        try:
            hadoop_log.remove(warehouse, directory, expected)
        except hadoop_log.NewerCommit as error:
            if expected is None:
                raise _log_replaced(directory) from error
            raise _written_after_sync(f"the Delta table in {directory}", error.version, expected) from error
    if root is not None:
        if log is not None:
            warehouse.effect(partial(storage.remove, root / _REMOVED_LOG))
            warehouse.effect(partial(_move_log, root, log))
        _require_unchanged_log(root, log, expected)
    if name is not None:
        change_if_unchanged(
            warehouse, (name,), lambda: warehouse.spark.sql(f"DROP TABLE {name.sql}").collect()
        )
    if root is not None:
        warehouse.effect(partial(storage.remove, root / _REMOVED_LOG))


def _move_log(root: Path, expected: overlay.LogIdentity) -> None:
    """Move a log to a name that listings skip, unless the log has changed.

    Raises:
        Refused: The table was migrated again or written to.
    """
    if overlay.log_identity(root) != expected:
        raise _log_replaced(str(root))
    overlay.log_folder(root).rename(root / _REMOVED_LOG)


def _require_unchanged_log(
    root: Path, log: overlay.LogIdentity | None, expected: frozenset[str] | None
) -> None:
    """Check a log that this run or a killed run has moved, and move it back if it has changed.

    Raises:
        CopyWrittenAfterSync: A write ended after the first check of the version.
    """
    names = storage.names(root / _REMOVED_LOG)
    if expected is None and log is not None:
        expected = frozenset((str(overlay.newest_version(log.names)),))
    version = str(overlay.newest_version(names))
    if names and expected is not None and version not in expected:
        if not overlay.log_folder(root).exists():
            (root / _REMOVED_LOG).rename(overlay.log_folder(root))
        raise _written_after_sync(f"the Delta table in {root}", version, expected)


def _written_after_sync(copy: str, version: str, expected: frozenset[str]) -> CopyWrittenAfterSync:
    return CopyWrittenAfterSync(
        "COPY_WRITTEN_AFTER_SYNC",
        version,
        table=copy,
        version=version,
        expected=" or ".join(sorted(expected)),
    )


def _log_replaced(directory: str) -> Refused:
    return Refused("DELTA_LOG_REPLACED", folder=directory)


def _reachable(warehouse: Warehouse, directory: str) -> Path | None:
    return reachable(directory, same_machine=in_process(warehouse.spark))


def _read_log_identity(root: Path | None) -> overlay.LogIdentity | None:
    """Return a log's identity; None if this process doesn't see a log."""
    if root is None or not overlay.log_folder(root).exists():
        return None
    return overlay.log_identity(root)
