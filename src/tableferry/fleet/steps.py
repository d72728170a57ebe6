"""The effects of a table's migration, as frozen dataclasses; each can be done twice.

What `str` makes of one is its line in a dry run and in a report. `perform` does them: it needs the warehouse,
and with it Spark, which whatever decides on steps must do without.
"""

from __future__ import annotations

from dataclasses import dataclass

from tableferry.fleet.job import TargetFormat
from tableferry.tables import TableName


@dataclass(frozen=True)
class TryShadow:
    """Write a row beside the table as a shadow run does, while nothing has been changed yet."""

    table: TableName

    def __str__(self) -> str:
        return f"write a row beside {self.table}, as its Hive copy will be kept in step"


@dataclass(frozen=True)
class BlockWrites:
    """Take the right to write from everybody, and note the listing where nothing takes rights."""

    table: TableName

    def __str__(self) -> str:
        return f"block writes to {self.table}"


@dataclass(frozen=True)
class UnblockWrites:
    """Give exactly the rights back that were taken."""

    table: TableName

    def __str__(self) -> str:
        return f"let writers in to {self.table}"


@dataclass(frozen=True)
class CheckFence:
    """Compare the table's files with those at the block; a change is copied or pauses the job."""

    table: TableName

    def __str__(self) -> str:
        return f"make sure that nobody wrote to {self.table} since the block"


@dataclass(frozen=True)
class RecordFiles:
    """Record the files that belong in the Hive copy's directories."""

    table: TableName

    def __str__(self) -> str:
        return f"record the files of {self.table}"


@dataclass(frozen=True)
class CheckLate:
    """Look for files that came into the Hive copy's directories since the switch.

    Attributes:
        target: The new table.
        hive: The Hive copy.
        format: The new table's format.
        decide: Whether a file that may be of a write which is going on is an error; if not, it's left to the
            next look.
    """

    target: TableName
    hive: TableName
    format: TargetFormat
    decide: bool = True

    def __str__(self) -> str:
        return f"look for files that came into the directories of {self.hive} since the switch"


@dataclass(frozen=True)
class MakeExternal:
    """Let a managed table keep its directory when it is renamed."""

    table: TableName

    def __str__(self) -> str:
        return f"make {self.table} external, so that a new name moves no file"


@dataclass(frozen=True)
class MakeManaged:
    """Make a table managed again, if it was."""

    table: TableName

    def __str__(self) -> str:
        return f"make {self.table} managed again, if it was"


@dataclass(frozen=True)
class MakeTarget:
    """Make the copy over the same data files; none is rewritten."""

    source: TableName
    target: TableName
    format: TargetFormat

    def __str__(self) -> str:
        return f"make {self.target} as {self.format.value.capitalize()} over the files of {self.source}"


@dataclass(frozen=True)
class CopyDefinition:
    """Carry over comments, properties, owner and grants."""

    source: TableName
    target: TableName

    def __str__(self) -> str:
        return f"carry the definition of {self.source} over to {self.target}"


@dataclass(frozen=True)
class CopyAccess:
    """Carry over the owner and the grants, with what people changed of them since the switch."""

    source: TableName
    target: TableName

    def __str__(self) -> str:
        return f"carry the owner and the grants of {self.source} over to {self.target}"


@dataclass(frozen=True)
class Verify:
    """Demand that both hold the same rows."""

    source: TableName
    target: TableName

    def __str__(self) -> str:
        return f"compare the rows of {self.source} and {self.target}"


@dataclass(frozen=True)
class VerifyShadow:
    """Demand that the Hive copy holds the rows that the target had at the watermark."""

    target: TableName
    hive: TableName

    def __str__(self) -> str:
        return f"compare the rows of {self.hive} with those of {self.target} that were copied"


@dataclass(frozen=True)
class Rename:
    """Give a table another name."""

    table: TableName
    to: TableName

    def __str__(self) -> str:
        return f"rename {self.table} to {self.to}"


@dataclass(frozen=True)
class CheckViews:
    """Demand that the views above a table still read."""

    table: TableName

    def __str__(self) -> str:
        return f"read the views above {self.table}"


@dataclass(frozen=True)
class Shadow:
    """Bring the Hive copy in step with the target."""

    target: TableName
    hive: TableName
    format: TargetFormat

    def __str__(self) -> str:
        return f"copy what changed in {self.target} to {self.hive}"


@dataclass(frozen=True)
class CheckSuspended:
    """Demand that the Hive table reads no file of a shadow run that was suspended."""

    hive: TableName

    def __str__(self) -> str:
        return f"look for rows in {self.hive} that a suspended shadow run wrote twice"


@dataclass(frozen=True)
class DropCopy:
    """Drop the target; files that the Hive table reads stay."""

    table: TableName
    format: TargetFormat

    def __str__(self) -> str:
        return f"drop {self.table}, and keep the files that Hive reads"


Step = (
    TryShadow
    | BlockWrites
    | UnblockWrites
    | CheckFence
    | RecordFiles
    | CheckLate
    | CheckSuspended
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
