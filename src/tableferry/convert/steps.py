"""The steps of a conversion as data: a plan lists them, a report prints them, and `perform` runs them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from tableferry.convert.commit_contents import Contents
from tableferry.formats.hive.partitions import PartitionColumn
from tableferry.spark.tables import TableName


class Reader(StrEnum):
    """Where files are read."""

    AUTO = "auto"
    PROCESS = "process"
    SPARK = "spark"


@dataclass(frozen=True)
class RegisterPartitions:
    """Update the catalog's partitions to those on disk."""

    table: TableName

    def __str__(self) -> str:
        return f"make {self.table}'s partitions in the catalog those on disk (MSCK REPAIR TABLE)"


@dataclass(frozen=True)
class UndoConversion:
    """Remove the first commit of an earlier conversion, because it names other files than the folder has.

    Attributes:
        root: The table's folder.
        table_id: The id of the table that the commit created; a commit of another table isn't removed.
    """

    root: str
    table_id: str

    def __str__(self) -> str:
        return f"undo the earlier conversion, whose commit in {self.root}/_delta_log names other files"


@dataclass(frozen=True)
class PutFirstCommit:
    """Write the first commit of a log, unless it exists.

    Attributes:
        scanned_by: The reader that scans all data for statistics; None if they come from footers or aren't
            written.
        unsafe: Whether to write the commit even if storage doesn't support conditional creation (only if the
            file doesn't exist).
    """

    root: str
    contents: Contents
    scanned_by: Reader | None = None
    unsafe: bool = False

    def __str__(self) -> str:
        statistics = "with statistics" if self.contents.statistics else "without statistics"
        scanned = "" if self.scanned_by is None else " from reading all data"
        files = f"{len(self.contents.files):,} files"
        return f"write the first commit of {self.root}/_delta_log: {files}, {statistics}{scanned}"


@dataclass(frozen=True)
class WriteCheckpoint:
    """Write a checkpoint of a log, from which readers load a table of many files faster."""

    root: str

    def __str__(self) -> str:
        return f"write a checkpoint of {self.root}/_delta_log"


@dataclass(frozen=True)
class ConvertNatively:
    """Convert a folder with Spark's own command, because only Spark reaches it or the user asked for it.

    Attributes:
        table: The table's name, if the command also switches the catalog entry.
        partitions: The partition columns, which the command can't infer.
        statistics: Whether the command collects statistics from the data.
    """

    location: str
    table: TableName | None
    partitions: tuple[PartitionColumn, ...]
    statistics: bool

    def __str__(self) -> str:
        statistics = "" if self.statistics else ", without statistics"
        return f"run Spark's CONVERT TO DELTA on {self.table or self.location}{statistics}"


@dataclass(frozen=True)
class SwitchEntry:
    """Change the provider of the table's catalog entry to Delta, and keep the rest of the entry."""

    table: TableName

    def __str__(self) -> str:
        return f"switch {self.table}'s entry in the catalog to Delta"


@dataclass(frozen=True)
class Verify:
    """Compare the rows of the Parquet files with those of the Delta table."""

    location: str

    def __str__(self) -> str:
        return f"compare the rows of {self.location} as Parquet and as Delta"


Step: TypeAlias = (
    RegisterPartitions
    | UndoConversion
    | PutFirstCommit
    | WriteCheckpoint
    | ConvertNatively
    | SwitchEntry
    | Verify
)
