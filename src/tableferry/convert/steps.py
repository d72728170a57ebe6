"""What a conversion changes, as data: planned, shown by what each says of itself, and performed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from tableferry.convert.log.contents import Contents
from tableferry.hive.partitions import PartitionColumn
from tableferry.tables import TableName


class Reader(StrEnum):
    """Where files are read."""

    AUTO = "auto"
    PROCESS = "process"
    SPARK = "spark"


@dataclass(frozen=True)
class RegisterPartitions:
    """Make the catalog's partitions those that are on disk."""

    table: TableName

    def __str__(self) -> str:
        return f"make {self.table}'s partitions in the catalog those on disk (MSCK REPAIR TABLE)"


@dataclass(frozen=True)
class UndoConversion:
    """Take away the first commit of an earlier conversion, whose files aren't those of the folder.

    Attributes:
        root: The table's folder.
        table_id: The id of the table that the commit made; another one isn't touched.
    """

    root: str
    table_id: str

    def __str__(self) -> str:
        return f"undo the earlier conversion, whose commit in {self.root}/_delta_log names other files"


@dataclass(frozen=True)
class PutFirstCommit:
    """Write the first commit of a log, unless there is one.

    Attributes:
        scanned_by: Who reads all data for its statistics; None if they are the footers', or there are none.
        unsafe: Whether storage needn't be able to create a file only if there is none.
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
    """Write a checkpoint of a log, from which readers know a table of many files sooner."""

    root: str

    def __str__(self) -> str:
        return f"write a checkpoint of {self.root}/_delta_log"


@dataclass(frozen=True)
class ConvertNatively:
    """Let Spark's own command convert a folder that only Spark reaches.

    Attributes:
        table: Its name, if the catalog's entry is to be switched too.
        partitions: Its partition columns, which that command can't find by itself.
        statistics: Whether it scans the data for statistics.
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
    """Let the catalog's entry say that the table is Delta, and keep what else it says."""

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
