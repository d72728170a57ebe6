"""Perform the steps of a conversion plan; each step can be repeated."""

from __future__ import annotations

import logging
import shlex
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

from tableferry import verify
from tableferry.convert import catalog, commit_contents, converted_table, existing_log
from tableferry.convert.discovery import listing
from tableferry.convert.plan import Plan
from tableferry.convert.readers import with_statistics
from tableferry.convert.steps import (
    ConvertNatively,
    PutFirstCommit,
    RegisterPartitions,
    Step,
    SwitchEntry,
    UndoConversion,
    Verify,
    WriteCheckpoint,
)
from tableferry.errors import Busy, Refused, TableError, TableferryError
from tableferry.formats import iceberg
from tableferry.formats.delta import initial_commit
from tableferry.progress import Task, task
from tableferry.spark.driver import track_jobs
from tableferry.spark.provider import SparkProvider
from tableferry.storage import AnyPath, path_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)


def perform(plan: Plan, spark: SparkProvider, *, level: int = logging.INFO) -> verify.Verdict | None:
    """Perform a plan's steps in order, and return the result of the row comparison, if it is one of them.

    Args:
        plan: The plan.
        spark: Provides the session if a step needs one.
        level: The log level of the steps.

    Raises:
        TableferryError: A step failed; the folder is unchanged, or a complete Delta table.
    """
    verdict = None
    for step in plan.steps:
        with task(_log, str(step), table=plan.source, level=level) as running:
            verdict = _perform(step, plan, spark, running) or verdict
    return verdict


def _perform(step: Step, plan: Plan, spark: SparkProvider, running: Task) -> verify.Verdict | None:
    match step:
        case RegisterPartitions():
            catalog.partitions.register_partitions(spark.session(), step.table)
        case UndoConversion():
            initial_commit.undo(path_of(step.root), step.table_id)
        case PutFirstCommit():
            root, progress = path_of(step.root), partial(running.update, "files")
            planned = with_statistics(root, step.contents, spark, step.scanned_by, progress)
            put(root, planned, unsafe=step.unsafe)
            running.update("files", len(step.contents.files))
        case WriteCheckpoint():
            _write_checkpoint(path_of(step.root))
        case ConvertNatively():
            session = spark.session()
            with track_jobs(session, running):
                _natively(session, step)
        case SwitchEntry():
            session = spark.session()
            entry = catalog.entries.entry(session, step.table)
            # A log from before this run may lack properties that only the catalog has.
            catalog.switch.switch_to_delta(session, entry, merge_properties=True)
            if entry.folder is not None:
                _require_switched_in_time(entry.folder, plan.source)
        case Verify():
            session = spark.session()
            names = [column.name for column in plan.partition_columns]
            with track_jobs(session, running):
                verdict = catalog.row_comparison.compare_rows(session, step.location, plan.schema, names)
            running.update("rows", verdict.source.rows)
            return verdict
        case _:
            assert_never(step)
    return None


def write_first_checkpoint(root: AnyPath) -> None:
    """Write a checkpoint of a log's first commit, even if later commits exist; log a warning if it fails."""
    _write_checkpoint(root, 0)


def _write_checkpoint(root: AnyPath, version: int | None = None) -> None:
    """Write a checkpoint; only log a warning if it fails, because a table is complete without it."""
    try:
        converted_table.write_checkpoint(root, version)
    except TableferryError as error:
        _log.warning("%s", error.one_line)


def _natively(spark: SparkSession, step: ConvertNatively) -> None:
    if step.table:
        entry = catalog.entries.entry(spark, step.table)
        catalog.native_engine.convert_table(spark, entry, statistics=step.statistics)
    else:
        catalog.native_engine.convert(spark, step.location, step.partitions, statistics=step.statistics)
    # Spark's command lists the folder once and may then read for hours, during which files can change.
    listed = catalog.native_engine.list_files(spark, step.location)
    log = catalog.log_comparison.compare(spark, step.location, listed, step.table)
    if log.differences:
        raise TableError(
            "FILES_CHANGED_DURING_NATIVE_CONVERSION", table=step.location, changes="; ".join(log.differences)
        )


def put(root: AnyPath, planned: commit_contents.Contents, *, unsafe: bool = False) -> None:
    """Write the first commit, and check before and after the write that the folder has its files.

    Raises:
        Busy: Another converter wrote its commit first, or replaced this one.
        Refused: A file was added, removed or changed during the conversion; the folder has no log.
    """
    _unchanged(root, planned)
    initial_commit.put(
        root, planned.table_id, commit_contents.lines(planned, initial_commit.now()), unsafe=unsafe
    )
    # Where storage can't create a file exclusively, a concurrent converter may have replaced the commit.
    initial_commit.require_table(root, planned.table_id)
    try:
        _unchanged(root, planned)
    except Refused:
        # Another process may have found the same change, and already undone the commit.
        with suppress(Busy, TableError):
            initial_commit.undo(root, planned.table_id)
        raise


def _require_switched_in_time(root: Path, source: str) -> None:
    """Check that no process wrote Parquet between the listing of the folder and the switch of the entry.

    Raises:
        TableError: The folder's files differ from those in the commit.
    """
    if (conversion := existing_log.conversion(root)) is None:
        return
    named, listed = (
        [file._replace(modified=0) for file in files]
        for files in (conversion.listed, listing.visible_files(root))
    )
    if changes := listing.changes(named, listed):
        raise TableError(
            "FILES_CHANGED_DURING_SWITCH",
            table=source,
            changes="; ".join(changes),
            source=shlex.quote(source),
        )


def _unchanged(root: AnyPath, planned: commit_contents.Contents) -> None:
    if planned.iceberg:
        if (now := iceberg.metadata.current(planned.iceberg.table)) != planned.iceberg.at:
            raise Refused("ICEBERG_CHANGED_DURING_CONVERSION", table=root, metadata=now)
        return
    if changes := listing.changes(planned.listed, listing.list_files(root)):
        raise Refused("FILES_CHANGED_DURING_CONVERSION", table=root, changes="; ".join(changes))
