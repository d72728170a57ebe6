"""The effects of a table's migration, as frozen dataclasses; each can be done twice.

``describe`` says in a line what one does: a dry run prints these, and a real run does them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from tableferry.fleet.job import TargetFormat
from tableferry.tables import TableName


@dataclass(frozen=True)
class TryShadow:
    """Write a row beside the table as a shadow run does, while nothing has been changed yet."""

    table: TableName


@dataclass(frozen=True)
class BlockWrites:
    """Take the right to write from everybody, and note the listing where nothing takes rights."""

    table: TableName


@dataclass(frozen=True)
class UnblockWrites:
    """Give exactly the rights back that were taken."""

    table: TableName


@dataclass(frozen=True)
class CheckFence:
    """Compare the table's files with those at the block; a change is copied or pauses the job."""

    table: TableName


@dataclass(frozen=True)
class RecordFiles:
    """Record the files that belong in the Hive copy's directories."""

    table: TableName


@dataclass(frozen=True)
class CheckLate:
    """Look for files that came into the Hive copy's directories since the switch."""

    target: TableName
    hive: TableName
    format: TargetFormat


@dataclass(frozen=True)
class MakeExternal:
    """Let a managed table keep its directory when it is renamed."""

    table: TableName


@dataclass(frozen=True)
class MakeManaged:
    """Make a table managed again, if it was."""

    table: TableName


@dataclass(frozen=True)
class MakeTarget:
    """Make the copy over the same data files; none is rewritten."""

    source: TableName
    target: TableName
    format: TargetFormat


@dataclass(frozen=True)
class CopyDefinition:
    """Carry over comments, properties, owner and grants."""

    source: TableName
    target: TableName


@dataclass(frozen=True)
class CopyAccess:
    """Carry over the owner and the grants, with what people changed of them since the switch."""

    source: TableName
    target: TableName


@dataclass(frozen=True)
class Verify:
    """Demand that both hold the same rows."""

    source: TableName
    target: TableName


@dataclass(frozen=True)
class VerifyShadow:
    """Demand that the Hive copy holds the rows that the target had at the watermark."""

    target: TableName
    hive: TableName


@dataclass(frozen=True)
class Rename:
    """Give a table another name."""

    table: TableName
    to: TableName


@dataclass(frozen=True)
class CheckViews:
    """Demand that the views above a table still read."""

    table: TableName


@dataclass(frozen=True)
class Shadow:
    """Bring the Hive copy in step with the target."""

    target: TableName
    hive: TableName
    format: TargetFormat


@dataclass(frozen=True)
class DropCopy:
    """Drop the target; files that the Hive table reads stay."""

    table: TableName
    format: TargetFormat


Step = (
    TryShadow
    | BlockWrites
    | UnblockWrites
    | CheckFence
    | RecordFiles
    | CheckLate
    | MakeExternal
    | MakeManaged
    | MakeTarget
    | CopyAccess
    | CopyDefinition
    | Verify
    | VerifyShadow
    | Rename
    | CheckViews
    | Shadow
    | DropCopy
)


def describe(step: Step) -> str:
    """Say in a line what a step does."""
    match step:
        case TryShadow(table):
            return f"write a row beside {table}, as its Hive copy will be kept in step"
        case BlockWrites(table):
            return f"block writes to {table}"
        case UnblockWrites(table):
            return f"let writers in to {table}"
        case CheckFence(table):
            return f"make sure that nobody wrote to {table} since the block"
        case RecordFiles(table):
            return f"record the files of {table}"
        case CheckLate(_, hive, _):
            return f"look for files that came into the directories of {hive} since the switch"
        case MakeExternal(table):
            return f"make {table} external, so that a new name moves no file"
        case MakeManaged(table):
            return f"make {table} managed again, if it was"
        case MakeTarget(source, target, form):
            return f"make {target} as {form.value.capitalize()} over the files of {source}"
        case CopyDefinition(source, target):
            return f"carry the definition of {source} over to {target}"
        case CopyAccess(source, target):
            return f"carry the owner and the grants of {source} over to {target}"
        case Verify(source, target):
            return f"compare the rows of {source} and {target}"
        case VerifyShadow(target, hive):
            return f"compare the rows of {hive} with those of {target} that were copied"
        case Rename(table, to):
            return f"rename {table} to {to}"
        case CheckViews(table):
            return f"read the views above {table}"
        case Shadow(target, hive, _):
            return f"copy what changed in {target} to {hive}"
        case DropCopy(table, _):
            return f"drop {table}, and keep the files that Hive reads"
        case _:
            assert_never(step)
