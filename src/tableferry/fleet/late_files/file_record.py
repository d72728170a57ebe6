"""The record of the known files in the Hive copy's directories.

The record is a folder of Parquet files beside these directories; the table's properties contain its path.
Spark writes it, because other code may have no access to the storage. At the switch, all existing files are
recorded. Later runs add files that the new table's log names, and late files whose rows were appended. Files
of shadow runs aren't recorded, because their names identify them.

A late file is recorded as settled if its rows are in the new table but the Hive copy's partition isn't
rewritten yet. Its rows aren't appended again, and the next shadow run rewrites its partition.

Files that belong to no partition are recorded as stray. No table contains their rows, so closing keeps them.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from tableferry.fleet.copies import preparation
from tableferry.fleet.copies.comparison import RowsDiffer
from tableferry.fleet.hive_tables.frames import frame_of
from tableferry.fleet.hive_tables.hive_table import HiveTable
from tableferry.fleet.hive_tables.progress_properties import PARTITIONS, ROOT, fingerprint, sync_folder
from tableferry.fleet.hive_tables.table_files import ListedFile, Listing, TableFiles
from tableferry.fleet.jobs import steps
from tableferry.fleet.jobs.job import Job, PauseReason
from tableferry.fleet.warehouse import hive
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.hive_files import list_files
from tableferry.fleet.warehouse.prepared_copy import EarlyRecord
from tableferry.fleet.warehouse.step_run import StepRun, pausing
from tableferry.formats.hive.locations import below, escape_wildcards
from tableferry.formats.hive.partitions import same_values
from tableferry.spark.quoting import literal
from tableferry.spark.tables import TableName

FILES, ODD = "tableferry.known_files", "tableferry.odd_directories"

# Records that earlier versions wrote lack the last columns.
_SCHEMA = "path STRING, size BIGINT, modified BIGINT, settled BOOLEAN, stray BOOLEAN"

# Recording this number of files takes about a second.
_MANY = 1000


class RecordedFiles(NamedTuple):
    """The files of a record.

    Attributes:
        known: Files that belong in the Hive copy's directories.
        settled: Late files whose rows are in the new table.
    """

    known: frozenset[ListedFile]
    settled: frozenset[ListedFile]


def prepare_copy(step: steps.PrepareCopy, run: StepRun) -> Job:
    """Create a copy and compare its rows before the block, and record the files of a large table.

    Raises:
        StepPaused: The rows differ.
        Refused: As in `preparation.prepare`.
        TableError: As in `preparation.prepare`.
    """
    with pausing(PauseReason.ROWS_DIFFER, RowsDiffer):
        run.progress.update("rows", preparation.prepare(run.warehouse, step.source, step.target))
    FileRecord.begin(run.warehouse, step.source)
    return run.job


def compare_ahead(step: steps.CompareAhead, run: StepRun) -> Job:
    """Compare the rows of a later Delta copy before the block, and record the files of a large table.

    Raises:
        StepPaused: The rows differ.
        Refused: As in `preparation.compare_ahead`.
        TableError: As in `preparation.compare_ahead`.
    """
    with pausing(PauseReason.ROWS_DIFFER, RowsDiffer):
        run.progress.update("rows", preparation.compare_ahead(run.warehouse, step.table))
    FileRecord.begin(run.warehouse, step.table)
    return run.job


def record_files(step: steps.RecordFiles, run: StepRun) -> Job:
    """Record all files of a Hive table's directories as this run last listed them; replace older records.

    Raises:
        TableError: The table is missing, or a directory can't be listed.
    """
    warehouse, name = run.warehouse, step.table
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
    if begun is None or not _can_extend(begun, listed.listing):
        begun = EarlyRecord(_new_folder(table), frozenset())
    folder, left = begun.folder, files - begun.files
    if left or not files:
        FileRecord(warehouse, folder, table.location, odd).add(left, stray=stray)
    if prepared is not None:
        prepared.recorded = EarlyRecord(folder, files, stray)
    warehouse.run(
        f"ALTER TABLE {name.sql} SET TBLPROPERTIES "
        f"({literal(FILES)} = {literal(folder)}, {literal(ROOT)} = {literal(table.location)}, "
        f"{literal(ODD)} = {literal(str(odd).lower())}, "
        f"{literal(PARTITIONS)} = {literal(_partitions_of(listed))})",
        of=(name,),
    )
    return run.job


@dataclass(frozen=True)
class FileRecord:
    """The file record of a Hive copy.

    Attributes:
        root: The table's directory at the switch; shadow runs may have changed it since.
        odd: Whether a partition's directory isn't named after the partition, or was outside the root.
    """

    warehouse: Warehouse
    folder: str
    root: str
    odd: bool = False

    @classmethod
    def of(cls, warehouse: Warehouse, properties: Mapping[str, str]) -> FileRecord | None:
        """Return the record that a Hive copy's properties name; None if they name none."""
        if FILES not in properties or ROOT not in properties:
            return None
        return cls(warehouse, properties[FILES], properties[ROOT], properties.get(ODD) == "true")

    @classmethod
    def begin(cls, warehouse: Warehouse, name: TableName) -> None:
        """Record the files of a large Hive table before writes are blocked, to shorten the block.

        Raises:
            TableError: The table is missing, or a directory can't be listed.
        """
        prepared, table = warehouse.prepared, hive.read_layout(warehouse, name)
        if prepared is None:
            return
        listing = hive.last_table_files(warehouse, table).listing
        if len(listing.files) >= _MANY and not _can_extend(prepared.recorded, listing):
            record = cls(warehouse, _new_folder(table), table.location)
            record.add(listing.files, stray=listing.stray)
            prepared.recorded = EarlyRecord(record.folder, frozenset(listing.files), frozenset(listing.stray))

    def exists(self) -> bool:
        """Return whether the record's folder contains files; a person may have removed it.

        Raises:
            TableError: The folder can't be listed.
        """
        return bool(list_files(self.warehouse, [self.folder]))

    def remove_from_properties(self, name: TableName) -> None:
        """Remove the record from its Hive copy's properties."""
        properties = ", ".join(map(literal, (FILES, ROOT, ODD)))
        self.warehouse.run(f"ALTER TABLE {name.sql} UNSET TBLPROPERTIES IF EXISTS ({properties})")

    def files(self) -> RecordedFiles:
        """Return the recorded files."""
        rows = self.warehouse.spark.read.schema(_SCHEMA).parquet(escape_wildcards(self.folder)).collect()
        return RecordedFiles(
            frozenset(ListedFile(*row[:3]) for row in rows if not row["settled"]),
            frozenset(ListedFile(*row[:3]) for row in rows if row["settled"]),
        )

    def stray(self) -> frozenset[ListedFile] | None:
        """Return the recorded files of no partition; None if an earlier version wrote the record."""
        frame = self.warehouse.spark.read.schema(_SCHEMA).parquet(escape_wildcards(self.folder))
        rows = frame.where("stray OR stray IS NULL").collect()
        if any(row["stray"] is None for row in rows):
            return None
        return frozenset(ListedFile(*row[:3]) for row in rows)

    def add(
        self, files: Iterable[ListedFile], *, settled: bool = False, stray: Iterable[ListedFile] = ()
    ) -> None:
        """Add files to the record; those in `stray` are marked as stray."""
        strays = set(stray)
        rows = [(*file, settled, file in strays) for file in files]
        frame = frame_of(self.warehouse.spark, rows, _SCHEMA).coalesce(1)
        self.warehouse.effect(lambda: frame.write.mode("append").parquet(self.folder), of=())

    def directories(self, known: Iterable[ListedFile]) -> list[str]:
        """Return the directories into which late writers may write: the root and directories outside it."""
        outside = {file.path.rpartition("/")[0] for file in known if below(file.path, self.root) is None}
        return [self.root, *sorted(outside)]


def _can_extend(begun: EarlyRecord | None, listing: Listing) -> bool:
    """Return whether an early record can be extended: its files still exist, and the same ones are stray."""
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
