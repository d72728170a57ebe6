"""Find the files and entries of an archived Hive table, and check that nothing else needs them.

<directory>/k=1/part-0.parquet              the new table reads it, so it stays
<directory>/k=1/tableferry-<run>-0.parquet  rows that shadow appended for Hive (Iceberg only)
<directory>_sync/<id>/n…                    partitions that shadow rewrote for Hive
<directory>_sync/known-<id>                 the record of files that shows late files
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from tableferry.amounts import first_of
from tableferry.errors import Refused, StateError, TableError, first_line
from tableferry.fleet.commands import command
from tableferry.fleet.hive_tables.copy_locations import hive_location_of
from tableferry.fleet.hive_tables.hive_table import PURGE, HiveTable
from tableferry.fleet.hive_tables.progress_properties import FOLDER, sync_folder
from tableferry.fleet.hive_tables.table_storage import storage_of
from tableferry.fleet.jobs import steps
from tableferry.fleet.jobs.job import Job, TargetFormat
from tableferry.fleet.jobs.names import first_name
from tableferry.fleet.jobs.step_plan import Kind
from tableferry.fleet.late_files.file_record import FILES, FileRecord
from tableferry.fleet.warehouse import hive, table_descriptions
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.job_tables import entries, is_created_from
from tableferry.fleet.warehouse.shared_directories import TableDirectories
from tableferry.fleet.warehouse.step_run import StepRun
from tableferry.fleet.warehouse.table_descriptions import describe
from tableferry.fleet.warehouse.views import list_views_over
from tableferry.formats.hive.locations import below, split
from tableferry.spark.catalog import SPARK_ERRORS, explaining
from tableferry.spark.tables import TableName

_log = logging.getLogger(__name__)

GC = "gc.enabled"
"""The property of an Iceberg table that allows it to remove files."""

# Any process can write into properties, so the paths there must have the form that this migration gives them.
_WRITTEN = re.compile(rf".+{re.escape(sync_folder(''))}/(?:known-)?[0-9a-f]{{8}}")


@dataclass(frozen=True)
class Leftovers:
    """The remaining entry and directories of a Hive table, which a job records before it removes them.

    Attributes:
        root: The Hive table's directory at the switch.
        written: The folders that this migration wrote for Hive.
        outside: The directories of partitions outside of all these.
        location: The directory in the archived table's entry; empty if the entry was missing.
        created: The creation time in that entry.
        record: The folder of the record of files; empty if unknown.
    """

    root: str
    written: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()
    location: str = ""
    created: str = ""
    record: str = ""

    @classmethod
    def of(cls, note: Mapping[str, Any]) -> Self:
        """Parse a job's record; earlier versions recorded only one of the written folders."""
        record = note.get("record", "")
        return cls(
            note["root"],
            tuple(note.get("written", [record] if record else ())),
            tuple(note.get("outside", ())),
            note.get("location", ""),
            note.get("created", ""),
            record,
        )

    def note(self) -> dict[str, Any]:
        """Return the job's record."""
        values = asdict(self).items()
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values}

    @property
    def parents(self) -> tuple[str, ...]:
        """The directories beside the Hive table's directory in which migrations write folders for Hive."""
        parents = [sync_folder(self.root), *(folder.rpartition("/")[0] for folder in self.written)]
        return tuple({split(parent)[2]: parent for parent in parents}.values())


@dataclass(frozen=True)
class LeftoverStatus:
    """The information of ``--list`` about one table.

    Attributes:
        hive: The archived Hive table; None if it was dropped.
        directory: The Hive table's directory at the switch.
        folders: The existing folders that were written for Hive, or that can't be listed.
        gc_enabled: Whether an Iceberg table may remove files; None for Delta.
        blocker: Why the table can't be closed; empty if it can.
    """

    hive: TableName | None
    directory: str
    folders: tuple[str, ...]
    gc_enabled: bool | None
    blocker: str = ""


def note_leftovers(step: steps.NoteLeftovers, run: StepRun) -> Job:
    """Record the leftovers of an archived Hive table, and check that nothing else needs them.

    The following steps can't be undone, so the job can't be reverted after this record.

    Raises:
        Refused: Another table replaced the recorded one, or needs something that will be removed.
        TableError: The new table is missing, or a table or a catalog can't be read.
    """
    job, warehouse, noted = run.job, run.warehouse, run.job.record.closing
    if noted and not is_recorded_table(warehouse, step.hive, Leftovers.of(noted)):
        raise Refused(
            "ARCHIVED_TABLE_REPLACED_DURING_CLOSE", table=step.hive, command=command("resume", job.name)
        )
    found = find_leftovers(warehouse, step.target, step.hive, step.format)
    require_no_dependents(warehouse, step.target, step.hive, step.format, found)
    if job.is_rewritten:
        require_apart(warehouse, step.target, found)
    return run.save(job.with_record(closing=found.note(), accept=""))


def find_leftovers(
    warehouse: Warehouse, target: TableName, archived: TableName, form: TargetFormat
) -> Leftovers:
    """Return the leftovers of a Hive table; if its entry was dropped, only the directory is known.

    Raises:
        TableError: The new table is missing, or a table can't be described.
    """
    existing = entries(warehouse, (target, archived))
    if target not in existing:
        raise TableError("TABLE_NOT_FOUND", table=target)
    derived, entry = hive_location_of(existing[target].location, form), existing.get(archived)
    if entry is None or entry.kind is not Kind.HIVE:
        return Leftovers(derived)
    table = described(warehouse, archived)
    record = FileRecord.of(warehouse, table.properties)
    root = (record.root if record else derived).rstrip("/")
    named = [table.properties.get(key, "") for key in (FILES, FOLDER)]
    found = Leftovers(
        root,
        tuple(folder for folder in named if _WRITTEN.fullmatch(folder)),
        (),
        entry.location,
        entry.created,
        record.folder if record else "",
    )
    locations = [table.location, *(part.location for part in hive.partitions(warehouse, table))]
    inside = (root, *found.parents)
    outside = {place for place in locations if all(below(place, directory) is None for directory in inside)}
    return Leftovers(**{**vars(found), "outside": tuple(sorted(outside))})


def read_status(
    warehouse: Warehouse, target: TableName, archived: TableName, form: TargetFormat
) -> LeftoverStatus:
    """Return the information for ``--list``; nothing is changed.

    Raises:
        TableError: The new table is missing, or a table can't be described.
    """
    found = find_leftovers(warehouse, target, archived, form)
    blocker = ""
    try:
        require_no_dependents(warehouse, target, archived, form, found)
    except Refused as error:
        blocker = error.one_line
    gc = None
    if form is TargetFormat.ICEBERG:
        try:
            gc = (
                table_descriptions.properties(warehouse.spark, warehouse.iceberg(target))
                .get(GC, "true")
                .lower()
                == "true"
            )
        except SPARK_ERRORS as error:
            raise TableError("TABLE_NOT_DESCRIBABLE", table=target, reason=first_line(error)) from error
    folders = tuple(folder for folder in found.parents if _may_exist(warehouse, folder))
    return LeftoverStatus(archived if found.location else None, found.root, folders, gc, blocker)


def _may_exist(warehouse: Warehouse, folder: str) -> bool:
    try:
        storage = storage_of(warehouse.spark, folder)
        return storage is None or storage.exists(folder)
    except StateError:
        return True


def described(warehouse: Warehouse, archived: TableName) -> HiveTable:
    """Describe a Hive table without the run's cache."""
    with explaining("TABLE_NOT_DESCRIBABLE", table=archived):
        return hive.table_of(archived, describe(warehouse.spark, archived))


def is_recorded_table(warehouse: Warehouse, archived: TableName, noted: Leftovers) -> bool:
    """Return whether the archived Hive table exists and is the recorded one.

    The creation time isn't compared, because its time zone depends on the machine.

    Raises:
        TableError: The table can't be described.
    """
    entry = entries(warehouse, (archived,)).get(archived)
    if entry is None or entry.kind is not Kind.HIVE:
        return False
    if entry.location == noted.location:
        return True
    # A shadow run may have changed the location after it was recorded.
    record = FileRecord.of(warehouse, described(warehouse, archived).properties)
    return record is not None and record.folder == noted.record


def require_no_dependents(
    warehouse: Warehouse, target: TableName, archived: TableName, form: TargetFormat, found: Leftovers
) -> None:
    """Check that the new table replaces the Hive table, and that nothing else needs what will be removed.

    Raises:
        Refused: One of these checks fails, or dropping the Hive table would remove its files.
        TableError: A table can't be described, or a catalog can't be listed.
    """
    entry = entries(warehouse, (target,))[target]
    if not is_created_from(warehouse, first_name(archived), target, entry, form, (found.root,)):
        undo = command("close --undo", first_name(archived))
        raise Refused("SUCCESSOR_OF_OTHER_FILES", table=target, folder=found.root, command=undo)
    if archived in entries(warehouse, (archived,)):
        require_keeps_files(described(warehouse, archived))
        if readers := list_views_over(warehouse, archived):
            raise Refused("ARCHIVED_TABLE_HAS_READERS", table=archived, readers=readers, target=target)
    require_alone(warehouse, target, archived, found)


def require_keeps_files(table: HiveTable) -> None:
    """Check that dropping a Hive table removes none of its files, which the new table reads.

    Raises:
        Refused: The drop would remove files.
    """
    if table.managed or table.properties.get(PURGE, "").lower() == "true":
        raise Refused("DROP_REMOVES_FILES", table=table.name, property=PURGE)


def require_apart(warehouse: Warehouse, target: TableName, found: Leftovers) -> None:
    """Check that a table whose rows were rewritten isn't among the Hive table's files.

    Raises:
        Refused: The table is among these files.
    """
    own = entries(warehouse, (target,))[target].location
    if below(own, found.root) is not None or below(found.root, own) is not None:
        raise Refused("REWRITTEN_TABLE_AMONG_OLD_FILES", table=target, folder=own, old_folder=found.root)


def require_alone(warehouse: Warehouse, target: TableName, archived: TableName, found: Leftovers) -> None:
    """Check that no other table is in the directories of a job's tables.

    Raises:
        Refused: Another table is in them, and its files would be removed.
        TableError: A catalog can't be listed.
    """
    directories = warehouse.directories or TableDirectories()
    own = entries(warehouse, (target,))[target].location
    places = dict.fromkeys((found.root, *found.parents, *found.outside, own))
    # The new table may be in another catalog.
    catalogs = {table.parts[0]: table for table in (target, archived)}.values()
    with explaining("NEIGHBOURS_NOT_LISTABLE", table=target):
        others = {
            f"{name} at {location}"
            for place in places
            for table in catalogs
            for name, location in directories.overlapping(warehouse.spark, table, place, (target, archived))
        }
        unlisted = [schema for table in catalogs for schema in directories.unlisted(warehouse.spark, table)]
    if others:
        raise Refused("OTHER_TABLES_IN_DIRECTORIES", table=target, others=sorted(others))
    if unlisted:
        text = "%s: the tables of %s can't be listed, so one of them may be in its directories"
        _log.warning(text, target, first_of(unlisted))
