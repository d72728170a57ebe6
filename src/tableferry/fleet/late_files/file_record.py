"""The record of the files that belong in the Hive copy's directories.

It's a folder of Parquet files beside them, written through Spark, as nothing else may reach the storage; the
table's properties name it. Files are only ever added to it: at the switch all that are there, later those
that the new table's log names and those whose rows were taken over. Files that shadow runs insert aren't in
it: they are known by their names.

A file whose rows the new table has, while the Hive copy's partition wasn't written anew yet, is recorded as
settled: nobody is asked about it again, its rows aren't taken over again, and the next shadow run writes its
partition.

Files that belong to no partition are marked as stray: no table has their rows, so they stay when the others
are removed.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from tableferry.fleet.hive_tables.frames import frame_of
from tableferry.fleet.hive_tables.hive_table import HiveTable
from tableferry.fleet.hive_tables.progress_properties import PARTITIONS, ROOT, fingerprint, sync_folder
from tableferry.fleet.warehouse import hive
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.hive_files import ListedFile, Listing, TableFiles, list_files
from tableferry.fleet.warehouse.prepared_copy import EarlyRecord
from tableferry.formats.hive.locations import below, escape_wildcards
from tableferry.formats.hive.partitions import same_values
from tableferry.spark.quoting import literal
from tableferry.spark.tables import TableName

FILES, ODD = "tableferry.known_files", "tableferry.odd_directories"

# Records of earlier versions lack the last columns.
_SCHEMA = "path STRING, size BIGINT, modified BIGINT, settled BOOLEAN, stray BOOLEAN"

# So many files take a second or more to be written.
_MANY = 1000


class RecordedFiles(NamedTuple):
    """The files of a record.

    Attributes:
        known: Those that belong in the Hive copy's directories.
        settled: Those that came late, and whose rows the new table has.
    """

    known: frozenset[ListedFile]
    settled: frozenset[ListedFile]


@dataclass(frozen=True)
class Record:
    """A Hive copy's record.

    Attributes:
        root: The table's directory at the switch; by now it may read others.
        odd: Whether a partition's directory isn't named after it, or was outside the root.
    """

    warehouse: Warehouse
    folder: str
    root: str
    odd: bool = False

    @classmethod
    def of(cls, warehouse: Warehouse, properties: Mapping[str, str]) -> Record | None:
        """Return the record that a Hive copy's properties name; None if it has none."""
        if FILES not in properties or ROOT not in properties:
            return None
        return cls(warehouse, properties[FILES], properties[ROOT], properties.get(ODD) == "true")

    @classmethod
    def begin(cls, warehouse: Warehouse, name: TableName) -> None:
        """Record the files of a Hive table that has many, while people write, so that few are left to record.

        Raises:
            TableError: There is no such table, or a directory can't be listed.
        """
        prepared, table = warehouse.prepared, hive.read_layout(warehouse, name)
        if prepared is None:
            return
        listing = hive.last_table_files(warehouse, table).listing
        if len(listing.files) >= _MANY and not _is_begun(prepared.recorded, listing):
            record = cls(warehouse, _new_folder(table), table.location)
            record.add(listing.files, stray=listing.stray)
            prepared.recorded = EarlyRecord(record.folder, frozenset(listing.files), frozenset(listing.stray))

    @classmethod
    def create(cls, warehouse: Warehouse, name: TableName) -> Record:
        """Record all files of a Hive table's directories, as this run last listed them, in place of others.

        Raises:
            TableError: There is no such table, or a directory can't be listed.
        """
        table = hive.read_layout(warehouse, name)
        listed = hive.last_table_files(warehouse, table)
        columns = hive.partition_columns(table)
        odd = not all(
            same_values(partition.spec, below(partition.location, table.location) or "", columns)
            for partition in listed.partitions
        )
        files, stray = frozenset(listed.listing.files), frozenset(listed.listing.stray)
        prepared = warehouse.prepared
        begun = prepared.recorded if prepared else None
        if begun is None or not _is_begun(begun, listed.listing):
            begun = EarlyRecord(_new_folder(table), frozenset())
        folder, left = begun.folder, files - begun.files
        record = cls(warehouse, folder, table.location, odd)
        if left or not files:
            record.add(left, stray=stray)
        if prepared is not None:
            prepared.recorded = EarlyRecord(folder, files, stray)
        warehouse.run(
            f"ALTER TABLE {name.sql} SET TBLPROPERTIES "
            f"({literal(FILES)} = {literal(folder)}, {literal(ROOT)} = {literal(table.location)}, "
            f"{literal(ODD)} = {literal(str(odd).lower())}, "
            f"{literal(PARTITIONS)} = {literal(_partitions_of(listed))})",
            of=(name,),
        )
        return record

    def is_there(self) -> bool:
        """Say whether it has files; somebody may have removed the folder that it's in.

        Raises:
            TableError: It can't be listed.
        """
        return bool(list_files(self.warehouse, [self.folder]))

    def forget(self, name: TableName) -> None:
        """Take it out of the properties of its Hive copy."""
        properties = ", ".join(map(literal, (FILES, ROOT, ODD)))
        self.warehouse.run(f"ALTER TABLE {name.sql} UNSET TBLPROPERTIES IF EXISTS ({properties})")

    def files(self) -> RecordedFiles:
        """Return the files that are recorded."""
        rows = self.warehouse.spark.read.schema(_SCHEMA).parquet(escape_wildcards(self.folder)).collect()
        return RecordedFiles(
            frozenset(ListedFile(*row[:3]) for row in rows if not row["settled"]),
            frozenset(ListedFile(*row[:3]) for row in rows if row["settled"]),
        )

    def stray(self) -> frozenset[ListedFile] | None:
        """Return the recorded files that belonged to no partition; None if nobody noted which they are."""
        frame = self.warehouse.spark.read.schema(_SCHEMA).parquet(escape_wildcards(self.folder))
        rows = frame.where("stray OR stray IS NULL").collect()
        if any(row["stray"] is None for row in rows):
            return None
        return frozenset(ListedFile(*row[:3]) for row in rows)

    def add(
        self, files: Iterable[ListedFile], *, settled: bool = False, stray: Iterable[ListedFile] = ()
    ) -> None:
        """Record more files, some of which may be stray."""
        strays = set(stray)
        rows = [(*file, settled, file in strays) for file in files]
        frame = frame_of(self.warehouse.spark, rows, _SCHEMA).coalesce(1)
        self.warehouse.effect(lambda: frame.write.mode("append").parquet(self.folder), of=())

    def directories(self, known: Iterable[ListedFile]) -> list[str]:
        """Return the directories that a late writer may write to: the root, and those outside of it."""
        outside = {file.path.rpartition("/")[0] for file in known if below(file.path, self.root) is None}
        return [self.root, *sorted(outside)]


def _is_begun(begun: EarlyRecord | None, listing: Listing) -> bool:
    """Say whether a record can be added to: one is of no use if a file went, or became stray since."""
    return (
        begun is not None
        and begun.files <= set(listing.files)
        and begun.stray == begun.files.intersection(listing.stray)
    )


def _partitions_of(listed: TableFiles) -> str:
    partitions, table = listed.partitions, listed.table
    if not table.partition_columns:
        return fingerprint((), (table.location,))
    return fingerprint(
        (partition.spec for partition in partitions), [partition.location for partition in partitions]
    )


def _new_folder(table: HiveTable) -> str:
    return f"{sync_folder(table.location)}/known-{uuid.uuid4().hex[:8]}"
