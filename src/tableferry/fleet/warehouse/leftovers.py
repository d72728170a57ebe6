"""What is left of a Hive table after its archive, who else needs it, and how it is removed.

    <directory>/k=1/part-0.parquet              the new table reads it: it stays, whatever happens
    <directory>/k=1/tableferry-<run>-0.parquet  rows that shadow appended for Hive (Iceberg only)
    <directory>_sync/<id>/n…                    partitions that shadow rewrote for Hive
    <directory>_sync/known-<id>                 the record by which late files are found

What was written for Hive is told by its name, and removed only where no version of the new table names it:
one that was reverted and migrated again reads files of the first migration there. `removing` does that.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from tableferry.amounts import first_of
from tableferry.errors import Refused, StateError, TableError, first_line
from tableferry.fleet.commands import command
from tableferry.fleet.hive_copy.table import PURGE
from tableferry.fleet.jobs.job import TargetFormat
from tableferry.fleet.jobs.names import first_name
from tableferry.fleet.jobs.plan import Kind
from tableferry.fleet.late_files.file_record import Record
from tableferry.fleet.warehouse import hive, iceberg
from tableferry.fleet.warehouse.asking import describe
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.existing import entries, is_made_of
from tableferry.fleet.warehouse.hive_table import HiveTable
from tableferry.fleet.warehouse.progress_properties import FOLDER, sync_folder
from tableferry.fleet.warehouse.rewriting.places import hive_location_of
from tableferry.fleet.warehouse.shared_directories import Neighbourhood
from tableferry.fleet.warehouse.table_storage import storage_of
from tableferry.fleet.warehouse.views import above
from tableferry.formats.hive.locations import below
from tableferry.spark.catalog import SPARK_ERRORS, explaining
from tableferry.spark.tables import TableName

_log = logging.getLogger(__name__)

GC = "gc.enabled"
"""The property by which an Iceberg table removes no file as long as it is false."""


@dataclass(frozen=True)
class Leftovers:
    """Where what is left of a Hive table lies.

    Attributes:
        root: The Hive table's directory at the switch; most of its files are the new table's.
        folders: Where rows were written for Hive alone.
        outside: Partitions' directories that lie in none of these.
        location: The archived table's directory, by which its entry is known; empty if it was gone already.
        created: When its entry was made, by which it is known too.
        record: The folder of the record of its files at the switch; empty if nobody knows it.
    """

    root: str
    folders: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()
    location: str = ""
    created: str = ""
    record: str = ""

    @classmethod
    def of(cls, note: Mapping[str, Any]) -> Self:
        """Read a job's note."""
        lists = {name: tuple(note.get(name, ())) for name in ("folders", "outside")}
        texts = {name: note.get(name, "") for name in ("root", "location", "created", "record")}
        return cls(folders=lists["folders"], outside=lists["outside"], **texts)

    def note(self) -> dict[str, Any]:
        """Return it as a job notes it."""
        return {
            name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()
        }


def find(warehouse: Warehouse, target: TableName, archived: TableName, form: TargetFormat) -> Leftovers:
    """Find what is left of a Hive table; of one whose entry is gone, by where the new table lies.

    Raises:
        TableError: There is no new table, or something may not be looked at.
    """
    existing = entries(warehouse, (target, archived))
    if target not in existing:
        raise TableError("TABLE_NOT_FOUND", table=target)
    location, entry = existing[target].location.rstrip("/"), existing.get(archived)
    derived = hive_location_of(location, form)
    if entry is None or entry.kind is not Kind.HIVE:
        return Leftovers(derived, (sync_folder(derived),))
    table = described(warehouse, archived)
    record = Record.of(warehouse, table.properties)
    root = (record.root if record else derived).rstrip("/")
    noted = [record.folder] if record else []
    noted += [table.properties[FOLDER]] if FOLDER in table.properties else []
    # A migration before this one has noted another, which is looked at where it is this one's too.
    parents = [folder.rpartition("/")[0] for folder in noted] or [sync_folder(root)]
    # Anybody can write into properties.
    folders = [parent for parent in parents if parent.endswith(sync_folder(""))]
    inside = [root, *folders]
    locations = [table.location, *(part.location for part in hive.partitions(warehouse, table))]
    outside = {place for place in locations if all(below(place, directory) is None for directory in inside)}
    return Leftovers(
        root,
        tuple(dict.fromkeys(folders)),
        tuple(sorted(outside)),
        entry.location,
        entry.created,
        record.folder if record else "",
    )


def is_noted(warehouse: Warehouse, archived: TableName, noted: Leftovers) -> bool:
    """Say whether the archived Hive table is there, and the one that a job has noted.

    When its entry was made doesn't tell, as each machine spells that in its own time zone.

    Raises:
        TableError: It can't be described, or its schema may not be listed.
    """
    entry = entries(warehouse, (archived,)).get(archived)
    if entry is None or entry.kind is not Kind.HIVE:
        return False
    if entry.location == noted.location:
        return True
    # A shadow run may have written it elsewhere since.
    record = Record.of(warehouse, described(warehouse, archived).properties)
    return record is not None and record.folder == noted.record


def demand_unneeded(
    warehouse: Warehouse, target: TableName, archived: TableName, form: TargetFormat, found: Leftovers
) -> None:
    """Make sure that nobody but Hive needs what is to be removed, and that the new table is Hive's successor.

    Raises:
        Refused: Somebody does, or it isn't; or dropping the Hive table would remove its files.
        TableError: Something may not be looked at.
    """
    _demand_successor(warehouse, target, archived, form, found)
    if archived in entries(warehouse, (archived,)):
        demand_keeps_files(described(warehouse, archived))
        if readers := above(warehouse, archived):
            raise Refused("ARCHIVED_TABLE_HAS_READERS", table=archived, readers=readers, target=target)
    demand_alone(warehouse, target, archived, found)


def demand_apart(warehouse: Warehouse, target: TableName, found: Leftovers) -> None:
    """Make sure that a table whose rows were rewritten doesn't lie among the files that are to be removed.

    Raises:
        Refused: It does, or it isn't known where these are.
    """
    own = entries(warehouse, (target,))[target].location
    if below(own, found.root) is not None or below(found.root, own) is not None:
        raise Refused("REWRITTEN_TABLE_AMONG_OLD_FILES", table=target, folder=own, old_folder=found.root)


def demand_alone(warehouse: Warehouse, target: TableName, archived: TableName, found: Leftovers) -> None:
    """Make sure that no other table lies where a job's tables do.

    Raises:
        Refused: One does: files that it reads would be removed.
        TableError: The catalog can't be listed.
    """
    neighbourhood = warehouse.neighbourhood or Neighbourhood()
    own = entries(warehouse, (target,))[target].location
    places = dict.fromkeys((found.root, *found.folders, *found.outside, own))
    # The new table may be in another catalog than Hive's tables.
    catalogs = {table.parts[0]: table for table in (target, archived)}.values()
    with explaining("NEIGHBOURS_NOT_LISTABLE", table=target):
        others = {
            f"{name} at {location}"
            for place in places
            for table in catalogs
            for name, location in neighbourhood.around(warehouse.spark, table, place, (target, archived))
        }
        unlisted = [schema for table in catalogs for schema in neighbourhood.unlisted(warehouse.spark, table)]
    if others:
        raise Refused("OTHER_TABLES_IN_DIRECTORIES", table=target, others=sorted(others))
    if unlisted:
        _log.warning(
            "%s: the tables of %s can't be listed, so it isn't known whether one lies in its directories",
            target, first_of(unlisted),
        )  # fmt: skip


def described(warehouse: Warehouse, archived: TableName) -> HiveTable:
    """Describe a Hive table anew, whatever this run knows of it."""
    with explaining("TABLE_NOT_DESCRIBABLE", table=archived):
        return hive.table_of(archived, describe(warehouse.spark, archived))


def _demand_successor(
    warehouse: Warehouse, target: TableName, archived: TableName, form: TargetFormat, found: Leftovers
) -> None:
    """Make sure that a table is the one that was made over the Hive table's files, and has all rows.

    Raises:
        Refused: It isn't: somebody made another one of its name.
    """
    entry = entries(warehouse, (target,))[target]
    if not is_made_of(warehouse, first_name(archived), target, entry, form, (found.root,)):
        raise Refused(
            "SUCCESSOR_OF_OTHER_FILES",
            table=target,
            folder=found.root,
            command=command("close --undo", first_name(archived)),
        )


def demand_keeps_files(table: HiveTable) -> None:
    """Make sure that dropping a Hive table removes none of its files, which are the new table's too.

    Raises:
        Refused: It would.
    """
    if table.managed or table.properties.get(PURGE, "").lower() == "true":
        raise Refused("DROP_REMOVES_FILES", table=table.name, property=PURGE)


@dataclass(frozen=True)
class Left:
    """What is left of one table's Hive side, for who asks.

    Attributes:
        hive: The archived Hive table; None if it's gone.
        directory: Its directory at the switch, whose files the new table reads.
        folders: The folders of what was written for Hive alone, those that this process sees to be gone left
            out.
        gc_enabled: Whether the Iceberg table may remove files; None for Delta.
        hinders: What closing would refuse now; empty for nothing.
    """

    hive: TableName | None
    directory: str
    folders: tuple[str, ...]
    gc_enabled: bool | None
    hinders: str = ""


def look(warehouse: Warehouse, target: TableName, archived: TableName, form: TargetFormat) -> Left:
    """Look at what is left of a Hive table, and change nothing.

    Raises:
        TableError: There is no new table, or something may not be looked at.
    """
    found = find(warehouse, target, archived, form)
    hinders = ""
    try:
        demand_unneeded(warehouse, target, archived, form, found)
    except Refused as error:
        hinders = error.one_line
    gc = None
    if form is TargetFormat.ICEBERG:
        try:
            gc = iceberg.properties_of(warehouse, target).get(GC, "true").lower() == "true"
        except SPARK_ERRORS as error:
            raise TableError("TABLE_NOT_DESCRIBABLE", table=target, reason=first_line(error)) from error
    there = tuple(folder for folder in found.folders if _may_be_there(warehouse, folder))
    return Left(archived if found.location else None, found.root, there, gc, hinders)


def _may_be_there(warehouse: Warehouse, folder: str) -> bool:
    try:
        storage = storage_of(warehouse.spark, folder)
        return storage is None or storage.exists(folder)
    except StateError:
        return True
