"""What a conversion changes, as data: planned, described and performed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias, assert_never

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


@dataclass(frozen=True)
class PutFirstCommit:
    """Write the first commit of a log, unless there is one.

    Attributes:
        root: The table's folder.
        contents: What the commit says.
        scanned_by: Who reads all data for its statistics; None if they are the footers', or there are none.
    """

    root: str
    contents: Contents
    scanned_by: Reader | None = None


@dataclass(frozen=True)
class ConvertNatively:
    """Let Spark's own command convert a folder that only Spark reaches.

    Attributes:
        location: The folder's URI.
        table: Its name, if the catalog's entry is to be switched too.
        partitions: Its partition columns, which that command can't find by itself.
        statistics: Whether it scans the data for statistics.
    """

    location: str
    table: TableName | None
    partitions: tuple[PartitionColumn, ...]
    statistics: bool


@dataclass(frozen=True)
class SwitchEntry:
    """Let the catalog's entry say that the table is Delta, and keep what else it says."""

    table: TableName


@dataclass(frozen=True)
class Verify:
    """Compare the rows of the Parquet files with those of the Delta table."""

    location: str


Step: TypeAlias = RegisterPartitions | PutFirstCommit | ConvertNatively | SwitchEntry | Verify


def describe(step: Step) -> str:
    """Say a step in one line."""
    match step:
        case RegisterPartitions():
            return f"make {step.table}'s partitions in the catalog those on disk (MSCK REPAIR TABLE)"
        case PutFirstCommit():
            statistics = "with statistics" if step.contents.statistics else "without statistics"
            return (
                f"write the first commit of {step.root}/_delta_log: {len(step.contents.files):,} files, "
                f"{statistics}{'' if step.scanned_by is None else ' from reading all data'}"
            )
        case ConvertNatively():
            return (
                f"run Spark's CONVERT TO DELTA on {step.table or step.location}"
                f"{'' if step.statistics else ', without statistics'}"
            )
        case SwitchEntry():
            return f"switch {step.table}'s entry in the catalog to Delta"
        case Verify():
            return f"compare the rows of {step.location} as Parquet and as Delta"
        case _:
            assert_never(step)
