"""Removes what is left of a Hive table, as `leftovers` has found it, from catalog and storage."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from tableferry.amounts import first_of
from tableferry.errors import Refused, StateError
from tableferry.fleet.jobs.job import TargetFormat
from tableferry.fleet.jobs.plan import Kind
from tableferry.fleet.late_files.classification import DIRECTORY, run_of
from tableferry.fleet.late_files.file_record import Record
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.every_version import named_anywhere
from tableferry.fleet.warehouse.existing import entries
from tableferry.fleet.warehouse.files import ListedFile, list_files
from tableferry.fleet.warehouse.iceberg import properties_of
from tableferry.fleet.warehouse.identity import change_unchanged
from tableferry.fleet.warehouse.leftovers import (
    GC,
    Leftovers,
    demand_alone,
    demand_apart,
    demand_keeps_files,
    described,
)
from tableferry.fleet.warehouse.table_storage import storage_of
from tableferry.formats.hive.locations import below, split
from tableferry.spark.catalog import explaining, parallel_map
from tableferry.spark.tables import TableName
from tableferry.storage.port import TableStorage

_log = logging.getLogger(__name__)

# What records and trials call their folders, and shadow runs theirs: the beginning of a table's id, which
# may look like a date, so what is in them counts too.
_RECORD, _SHADOW = re.compile(r"(?:known|try)-[0-9a-f]{8}"), re.compile(r"[0-9a-f]{8}")
# What the names of shadow's files have in them.
_SHADOWS = "tableferry-"
# So many files are removed between two looks at the claim.
_AT_ONCE = 100


@dataclass(frozen=True)
class Removed:
    """What became of what was written for Hive.

    Attributes:
        folders: Folders that are gone.
        files: How many files are gone that lay among the new table's.
        kept: Folders of which some version of the new table reads files.
        left: What can't be removed from here.
    """

    folders: tuple[str, ...] = ()
    files: int = 0
    kept: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


def drop(warehouse: Warehouse, target: TableName, archived: TableName, found: Leftovers) -> None:
    """Drop the archived Hive table's entry, and none of its files; done already is fine.

    Raises:
        ClaimLost: Another worker has the job.
        Refused: It is another table than the one that was looked at, or would take its files along.
        TableError: It may not be dropped, or changes in this very moment.
    """
    entry = entries(warehouse, (archived,)).get(archived)
    if entry is None:
        return
    if (entry.kind, entry.location, entry.created) != (Kind.HIVE, found.location, found.created):
        raise Refused("ARCHIVED_TABLE_REPLACED", table=archived)
    demand_keeps_files(described(warehouse, archived))
    with explaining("TABLE_NOT_DROPPED", table=archived):
        # What was just looked at is looked at again right before it goes: by then it may own its files.
        change_unchanged(
            warehouse,
            (archived, target),
            lambda: warehouse.spark.sql(f"DROP TABLE {archived.sql}").collect(),
            of=(archived,),
        )


def remove_read_files(
    warehouse: Warehouse, target: TableName, form: TargetFormat, found: Leftovers
) -> Removed:
    """Remove the files that a Hive table read whose rows were rewritten; no other one goes.

    The record of the switch says which these are, so they go before that does: those that were there at the
    switch and belonged to a partition, and those that came late and whose rows were taken over.

    Raises:
        ClaimLost: Another worker has the job.
        Refused: The new table lies among them.
        TableError: The new table's files can't be listed, a directory can't, or the record can't be read.
    """
    demand_apart(warehouse, target, found)
    read: frozenset[ListedFile] | None = None
    if found.record:
        record = Record(warehouse, found.record, found.root)
        with explaining("FILE_RECORD_NOT_READABLE", folder=found.record):
            # Somebody may have removed it, and it never comes back.
            stray = record.stray() if record.is_there() else None
            read = None if stray is None else frozenset[ListedFile]().union(*record.files()) - stray
    if read is None:
        return Removed(left=(f"{found.root} (nobody knows which of its files the Hive table read)",))
    named = _named(warehouse, target, form, (found.root,))
    gone, left = _remove_files(warehouse, found, named, read=read)
    return Removed(files=gone, left=tuple(left))


def _named(
    warehouse: Warehouse, target: TableName, form: TargetFormat, folders: Iterable[str]
) -> frozenset[str]:
    """Return the files that some version of the new table names: shadow's, and those in some folders."""
    location = entries(warehouse, (target,))[target].location
    fragments = [f"/{split(folder)[2].rpartition('/')[2]}/" for folder in folders]
    return frozenset(named_anywhere(warehouse, target, form, location, (_SHADOWS, *fragments)))


def remove(
    warehouse: Warehouse, target: TableName, form: TargetFormat, found: Leftovers, *, rewritten: bool = False
) -> Removed:
    """Remove what shadow wrote for Hive alone; done already is fine.

    Raises:
        ClaimLost: Another worker has the job.
        TableError: The new table's files can't be listed, or a directory can't.
    """
    named = _named(warehouse, target, form, found.folders)
    gone, left = 0, list[str]()
    if form is TargetFormat.ICEBERG and not rewritten:
        gone, left = _remove_files(warehouse, found, named)
    removed, kept = [], []
    for folder in found.folders:
        storage = storage_of(warehouse.spark, folder)
        names = None if storage is None else _names(storage, folder)
        if storage is None or names is None:
            left.append(folder)
            continue
        for child in names:
            whole = f"{folder}/{child}"
            if any(_overlap(whole, file) for file in named):
                kept.append(whole)
            elif not _is_ours(storage, folder, child) or not warehouse.effect(
                partial(_remove, storage, whole), of=()
            ):
                left.append(whole)
            else:
                removed.append(whole)
        if _is_empty(storage, folder):
            warehouse.effect(partial(storage.remove_empty, folder), of=())
    return Removed(tuple(removed), gone, tuple(kept), tuple(left))


def allow_cleaning(warehouse: Warehouse, target: TableName, archived: TableName, found: Leftovers) -> None:
    """Let an Iceberg table remove files again, as any other does; done already is fine.

    The property is taken away rather than set to true: that way nothing of Hive's takes it for a wish that a
    DROP TABLE remove the files.

    Raises:
        ClaimLost: Another worker has the job.
        Refused: Another table lies in its directories, or the Hive table is there again.
        TableError: It may not be changed.
    """
    if archived in entries(warehouse, (archived,)):
        raise Refused("ARCHIVED_TABLE_EXISTS_AGAIN", table=archived)
    if properties_of(warehouse, target).get(GC, "true").lower() != "false":
        return
    demand_alone(warehouse, target, archived, found)
    statement = f"ALTER TABLE {warehouse.iceberg(target).sql} UNSET TBLPROPERTIES IF EXISTS ('{GC}')"
    with explaining("TABLE_NOT_CHANGED", table=target):
        change_unchanged(warehouse, (target,), lambda: warehouse.spark.sql(statement).collect(), of=(target,))


def _remove_files(
    warehouse: Warehouse,
    found: Leftovers,
    named: Iterable[str],
    *,
    read: Collection[ListedFile] = (),
) -> tuple[int, list[str]]:
    """Remove what shadow runs appended to Hive's partitions, and files that the Hive table read.

    Returns:
        How many files, and which stay.
    """
    known = {split(path)[2] for path in named}
    of_hive = {file._replace(path=split(file.path)[2]) for file in read}
    roots = {root: storage_of(warehouse.spark, root) for root in (found.root, *found.outside)}
    listed = [
        file.path
        for file in list_files(warehouse, list(roots))
        if (run_of(file.path) is not None or file._replace(path=split(file.path)[2]) in of_hive)
        and split(file.path)[2] not in known
    ]
    left = list[str]()
    for start in range(0, len(listed), _AT_ONCE):
        some = listed[start : start + _AT_ONCE]
        left += warehouse.effect(partial(_remove_each, roots, some), of=())
    rest = [f"{first_of(left, 'more files')}{'' if read else ' (written by shadow)'}"] if left else []
    return len(listed) - len(left), rest


def _remove_each(roots: Mapping[str, TableStorage[str] | None], files: Sequence[str]) -> list[str]:
    """Remove files that lie below some roots, several at once; return those that stay."""

    def gone(file: str) -> bool:
        storage = next((roots[root] for root in roots if below(file, root) is not None), None)
        return storage is not None and _remove(storage, file)

    return [file for file, is_gone in zip(files, parallel_map(gone, files), strict=True) if not is_gone]


def _names(storage: TableStorage[str], folder: str) -> tuple[str, ...] | None:
    """List what is right below a directory; None if that can't be done."""
    try:
        return storage.all_names(folder)
    except StateError as error:
        _log.warning("%s is left: %s", folder, error.one_line)
        return None


def _is_ours(storage: TableStorage[str], folder: str, child: str) -> bool:
    """Say whether a folder is a record's or a trial's, or has what shadow runs wrote and nothing else."""
    if _RECORD.fullmatch(child):
        return True
    names = _names(storage, f"{folder}/{child}") if _SHADOW.fullmatch(child) else None
    return names is not None and all(map(DIRECTORY.fullmatch, names))


def _is_empty(storage: TableStorage[str], folder: str) -> bool:
    """Say whether a directory is there, with nothing in it."""
    try:
        return storage.exists(folder) and not storage.all_names(folder)
    except StateError as error:
        _log.warning("%s is left: %s", folder, error.one_line)
        return False


def _remove(storage: TableStorage[str], location: str) -> bool:
    """Remove a file or a directory; say whether it's gone."""
    try:
        storage.remove(location)
    except StateError as error:
        _log.warning("%s is left: %s", location, error.one_line)
        return False
    return True


def _overlap(folder: str, file: str) -> bool:
    """Say whether a path is a folder's, or lies in it, or holds it; whatever their schemes are."""
    inner, outer = split(file)[2] + "/", split(folder)[2] + "/"
    return inner.startswith(outer) or outer.startswith(inner)
