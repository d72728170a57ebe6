"""Remove what this migration wrote for Hive from the catalog and the storage."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from tableferry.amounts import first_of
from tableferry.errors import Refused, StateError
from tableferry.fleet.closure.leftovers import (
    GC,
    Leftovers,
    described,
    require_alone,
    require_apart,
    require_keeps_files,
)
from tableferry.fleet.closure.referenced_files import list_referenced_files
from tableferry.fleet.hive_tables.table_storage import storage_of
from tableferry.fleet.jobs import steps
from tableferry.fleet.jobs.job import Job, TargetFormat
from tableferry.fleet.jobs.names import Names
from tableferry.fleet.jobs.step_plan import Kind
from tableferry.fleet.late_files.classification import DIRECTORY, run_of
from tableferry.fleet.warehouse import table_descriptions
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.hive_files import list_files
from tableferry.fleet.warehouse.job_tables import entries
from tableferry.fleet.warehouse.step_run import StepRun
from tableferry.fleet.warehouse.table_identity import change_if_unchanged
from tableferry.formats.hive.locations import below, split
from tableferry.spark.catalog import explaining, parallel_map
from tableferry.spark.tables import TableName
from tableferry.storage.port import TableStorage

_log = logging.getLogger(__name__)

KEPT = "kept"
"""A key of `JobRecord.closing`: the directories that closing keeps."""

# The names of files that shadow appended contain this.
_APPENDED = "tableferry-"
# The number of removals between two checks of the claim.
_BATCH = 100


@dataclass(frozen=True)
class RemovalResult:
    """The result of a removal.

    Attributes:
        files: The number of removed files that shadow had appended.
        kept: Folders with files that a version of the new table reads.
        left: Other remaining folders and files.
    """

    files: int = 0
    kept: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


def drop_archived(step: steps.DropArchived, run: StepRun) -> Job:
    """Drop the archived Hive table's entry and none of its files, unless it was dropped already.

    Raises:
        ClaimLost: Another worker has the job.
        Refused: It isn't the recorded table, or dropping it would remove its files.
        TableError: It can't be dropped, or changes at the same time.
    """
    warehouse, archived, found = run.warehouse, step.hive, Leftovers.of(run.job.record.closing)
    entry = entries(warehouse, (archived,)).get(archived)
    if entry is None:
        return run.job
    if (entry.kind, entry.location, entry.created) != (Kind.HIVE, found.location, found.created):
        raise Refused("ARCHIVED_TABLE_REPLACED", table=archived)
    require_keeps_files(described(warehouse, archived))
    with explaining("TABLE_NOT_DROPPED", table=archived):
        # The check is repeated right before the drop, because another process may have made it managed.
        change_if_unchanged(
            warehouse,
            (archived, step.target),
            lambda: warehouse.spark.sql(f"DROP TABLE {archived.sql}").collect(),
            of=(archived,),
        )
    return run.job


def remove_leftovers(step: steps.RemoveLeftovers, run: StepRun) -> Job:
    """Remove what this migration wrote for Hive, and record the directories that stay.

    Raises:
        ClaimLost: Another worker has the job.
        Refused: Another table needs something that would be removed.
        TableError: The new table's files, a directory or a catalog can't be listed.
    """
    job, warehouse, found = run.job, run.warehouse, Leftovers.of(run.job.record.closing)
    # A pause may separate this step from the record by days.
    require_alone(warehouse, step.target, Names.of(job).archived, found)
    removed = remove(warehouse, step.target, step.format, found, rewritten=step.rewritten)
    run.progress.update("files", removed.files)
    job = job.with_record(closing={**job.record.closing, KEPT: list(removed.kept)})
    return job.with_left_directories(removed.left)


def remove(
    warehouse: Warehouse, target: TableName, form: TargetFormat, found: Leftovers, *, rewritten: bool = False
) -> RemovalResult:
    """Remove what this migration wrote for Hive and no version of the new table names; list the rest.

    A table that was reverted and migrated again reads files of its first migration there.

    Raises:
        ClaimLost: Another worker has the job.
        Refused: The new table of rewritten rows is among the Hive table's files.
        TableError: The new table's files, or a directory, can't be listed.
    """
    location = entries(warehouse, (target,))[target].location
    fragments = [f"/{split(folder)[2].rpartition('/')[2]}/" for folder in found.parents]
    named = list_referenced_files(warehouse, target, form, location, (_APPENDED, *fragments))
    files, left = 0, list[str]()
    if rewritten:
        require_apart(warehouse, target, found)
        left.append(f"{found.root} (the Hive table's own files)")
    if rewritten or form is TargetFormat.ICEBERG:
        # A Delta table in the Hive table's directory references these files by relative paths.
        files, appended = _remove_appended(warehouse, found, named)
        left += [f"{first_of(appended, 'more files')} (written by shadow)"] if appended else []
    kept, written = [], {split(folder)[2] for folder in found.written}
    for parent in found.parents:
        storage = storage_of(warehouse.spark, parent)
        names = None if storage is None else _names(storage, parent)
        if storage is None or names is None:
            left.append(parent)
            continue
        for folder in (f"{parent}/{name}" for name in names):
            if any(_overlap(folder, file) for file in named):
                kept.append(folder)
            elif (
                split(folder)[2] not in written
                or not _is_shadows(storage, folder, found)
                or not warehouse.effect(partial(_is_done, folder, storage.remove), of=())
            ):
                left.append(folder)
        if _is_empty(storage, parent):
            warehouse.effect(partial(_is_done, parent, storage.remove_empty), of=())
    return RemovalResult(files, tuple(kept), tuple(left))


def allow_cleaning(step: steps.AllowCleaning, run: StepRun) -> Job:
    """Let an Iceberg table remove files again.

    The property is removed and not set to true, because then Hive's DROP TABLE would remove files.

    Raises:
        ClaimLost: Another worker has the job.
        Refused: Another table is in its directories, or the archived Hive table exists again.
        TableError: The table can't be changed.
    """
    warehouse, target, archived = run.warehouse, step.table, Names.of(run.job).archived
    if archived in entries(warehouse, (archived,)):
        raise Refused("ARCHIVED_TABLE_EXISTS_AGAIN", table=archived)
    if (
        table_descriptions.properties(warehouse.spark, warehouse.iceberg(target)).get(GC, "true").lower()
        != "false"
    ):
        return run.job
    require_alone(warehouse, target, archived, Leftovers.of(run.job.record.closing))
    statement = f"ALTER TABLE {warehouse.iceberg(target).sql} UNSET TBLPROPERTIES IF EXISTS ('{GC}')"
    with explaining("TABLE_NOT_CHANGED", table=target):
        change_if_unchanged(warehouse, (target,), lambda: warehouse.spark.sql(statement).collect())
    return run.job


def _remove_appended(warehouse: Warehouse, found: Leftovers, named: Iterable[str]) -> tuple[int, list[str]]:
    """Remove the files that shadow appended to Hive's partitions; return their number and the rest."""
    known = {split(path)[2] for path in named}
    roots = {root: storage_of(warehouse.spark, root) for root in (found.root, *found.outside)}
    listed = [
        file.path
        for file in list_files(warehouse, list(roots))
        if run_of(file.path) is not None and split(file.path)[2] not in known
    ]
    left = list[str]()
    for start in range(0, len(listed), _BATCH):
        left += warehouse.effect(partial(_remove_each, roots, listed[start : start + _BATCH]), of=())
    return len(listed) - len(left), left


def _remove_each(roots: Mapping[str, TableStorage[str] | None], files: Sequence[str]) -> list[str]:
    """Remove files below some roots; return those that remain."""

    def is_gone(file: str) -> bool:
        storage = next((roots[root] for root in roots if below(file, root) is not None), None)
        return storage is not None and _is_done(file, storage.remove)

    return [file for file, gone in zip(files, parallel_map(is_gone, files), strict=True) if not gone]


def _names(storage: TableStorage[str], folder: str) -> tuple[str, ...] | None:
    """Return the names in a directory; None if it can't be listed."""
    try:
        return storage.all_names(folder)
    except StateError as error:
        _log.warning("%s is left: %s", folder, error.one_line)
        return None


def _is_empty(storage: TableStorage[str], folder: str) -> bool:
    try:
        return storage.exists(folder) and not storage.all_names(folder)
    except StateError:
        return False


def _is_shadows(storage: TableStorage[str], folder: str, found: Leftovers) -> bool:
    """Return whether a folder is the record, or contains only directories of shadow runs."""
    names = () if folder == found.record else _names(storage, folder)
    return names is not None and all(map(DIRECTORY.fullmatch, names))


def _is_done(location: str, change: Callable[[str], object]) -> bool:
    """Make a change to a file or a directory; return whether the storage made it."""
    try:
        change(location)
    except StateError as error:
        _log.warning("%s is left: %s", location, error.one_line)
        return False
    return True


def _overlap(folder: str, file: str) -> bool:
    """Return whether a path is a folder, is in it, or contains it; schemes don't count."""
    inner, outer = split(file)[2] + "/", split(folder)[2] + "/"
    return inner.startswith(outer) or outer.startswith(inner)
