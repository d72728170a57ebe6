"""The effects of a table's migration, as frozen dataclasses; each can be done twice.

What `str` makes of one is its line in a dry run and in a report. `perform` does them: it needs the warehouse,
and with it Spark, which whatever decides on steps must do without.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tableferry.fleet.jobs.job import TargetFormat
from tableferry.spark.tables import TableName


class _Described:
    """A step whose line is `text`, with its fields in the place of their names."""

    text: ClassVar[str]

    def __str__(self) -> str:
        return self.text.format(**vars(self))


@dataclass(frozen=True)
class _OnTable(_Described):
    table: TableName


@dataclass(frozen=True)
class _FromTo(_Described):
    source: TableName
    target: TableName


@dataclass(frozen=True)
class _OnCopy(_Described):
    target: TableName
    hive: TableName
    format: TargetFormat


class RepeatPreflight(_OnTable):
    """Look again at what would stop the migration, for weeks may have passed since somebody looked."""

    text = "look again at what would stop the migration of {table}"


class TryShadow(_OnTable):
    """Write a row beside the table as a shadow run does, while nothing has been changed yet."""

    text = "write a row beside {table}, as its Hive copy will be kept in step"


class PrepareCopy(_FromTo):
    """Make an Iceberg copy and compare its rows while people write, so that little is left for later."""

    text = "make {target} over the files of {source}, and compare their rows, while people go on writing"


class CompareAhead(_OnTable):
    """Compare a table's rows with those of the Delta copy to come, while people write."""

    text = "compare the rows of {table} as Hive and as Delta show them, while people go on writing"


@dataclass(frozen=True)
class RewriteAhead(_OnCopy):
    """Write a table's rows into its copy, and compare them, while people write, so that little is left."""

    text = "write the rows of {hive} into {target}, and compare them, while people go on writing"


@dataclass(frozen=True)
class RewriteRest(_OnCopy):
    """Write into a copy the rows that came since."""

    text = "write into {target} what changed in {hive} since"


@dataclass(frozen=True)
class VerifyRewritten(_OnCopy):
    """Demand that a copy that was rewritten holds the same rows."""

    text = "compare the rows of {hive} and {target} that weren't compared before"


class BlockWrites(_OnTable):
    """Take the right to write from everybody, and note the listing where nothing takes rights."""

    text = "block writes to {table}"


class UnblockWrites(_OnTable):
    """Give exactly the rights back that were taken."""

    text = "let writers in to {table}"


class CheckFence(_OnTable):
    """Compare the table's files with those at the block; a change is copied or pauses the job."""

    text = "make sure that nobody wrote to {table} since the block"


class RecordFiles(_OnTable):
    """Record the files that belong in the Hive copy's directories."""

    text = "record the files of {table}"


@dataclass(frozen=True)
class CheckLate(_OnCopy):
    """Look for files that came into the Hive copy's directories since the switch.

    Attributes:
        decide: Whether a file that may be of a write in progress is an error; if not, it's left to the next
            look.
    """

    decide: bool = True
    text = "look for files that came into the directories of {hive} since the switch"


class MakeExternal(_OnTable):
    """Let a managed table keep its directory when it is renamed."""

    text = "make {table} external, so that a new name moves no file"


class MakeManaged(_OnTable):
    """Make a table managed again, if it was."""

    text = "make {table} managed again, if it was"


@dataclass(frozen=True)
class MakeTarget:
    """Make the copy over the same data files; none is rewritten."""

    source: TableName
    target: TableName
    format: TargetFormat

    def __str__(self) -> str:
        return f"make {self.target} as {self.format.value.capitalize()} over the files of {self.source}"


class CopyDefinition(_FromTo):
    """Carry over comments, properties, owner, grants and tags."""

    text = "carry the definition of {source} over to {target}"


class CopyAccess(_FromTo):
    """Carry over the owner, the grants and the tags, with what people changed of them since the switch."""

    text = "carry the owner, grants and tags of {source} over to {target}"


class Verify(_FromTo):
    """Demand that both hold the same rows."""

    text = "compare the rows of {source} and {target}"


@dataclass(frozen=True)
class VerifyShadow(_Described):
    """Demand that the Hive copy holds the rows that the target had at the watermark."""

    target: TableName
    hive: TableName
    text = "compare the rows of {hive} with those of {target} that were copied"


@dataclass(frozen=True)
class Rename(_Described):
    """Give a table another name."""

    table: TableName
    to: TableName
    text = "rename {table} to {to}"


class MakeView(_FromTo):
    """Let a table's old name show the new table, which is in another schema or catalog."""

    text = "let {source} be a view of {target}"


class CheckView(_FromTo):
    """Demand that a table's old name is the view of the new one still, so that it can be dropped."""

    text = "make sure that {source} is a view of {target}"


class DropView(_FromTo):
    """Free a table's old name of the view of the new one."""

    text = "drop the view {source} of {target}"


class WriteCheckpoint(_OnTable):
    """Write a checkpoint of a Delta table of many files, which nobody waits for by now."""

    text = "write a checkpoint of {table}, if its log is long"


class CheckViews(_OnTable):
    """Demand that the views above a table still read."""

    text = "read the views above {table}"


class Shadow(_OnCopy):
    """Bring the Hive copy in step with the target."""

    text = "copy what changed in {target} to {hive}"


class ShadowWritten(_OnCopy):
    """Bring the Hive copy in step with the target, if anybody wrote to that since it was made."""

    text = "copy what was written to {target}, if anything was, to {hive}"


@dataclass(frozen=True)
class CheckSuspended(_Described):
    """Demand that the Hive table reads no file of a shadow run that was suspended."""

    hive: TableName
    text = "look for rows in {hive} that a suspended shadow run wrote twice"


@dataclass(frozen=True)
class RemoveRewritten(_Described):
    """Remove the files of a dropped copy whose rows were rewritten, unless somebody reads some there."""

    target: TableName
    hive: TableName
    folder: str
    text = "remove {folder}, which was written for {target}"


class RestoreEntry(_OnCopy):
    """Enter a dropped Delta table in the catalog again, if its log is left."""

    text = "restore {target} from its Delta log, if that is left"


class RestoreHiveCopy(_OnCopy):
    """Create the Hive copy again, without rows, which the next shadow run writes."""

    text = "create {hive} again with the columns of {target}"


class AdoptTable(_OnCopy):
    """Continue with a table that replaced the new one."""

    text = "continue with {target}, which replaced the new table"


class DropEntry(_OnTable):
    """Drop the entry of a table whose metadata files are gone."""

    text = "drop the entry of {table}, whose metadata files are gone"


class WarnOfSharedFiles(_FromTo):
    """Warn in the Hive copy's comment that it shares its files with a Delta table."""

    text = "warn in the comment of {source} that it shares its files with {target}"


class RestoreComment(_OnTable):
    """Give a Hive table the comment that it had before the warning."""

    text = "restore the comment of {table}"


class DropCopy(_OnCopy):
    """Drop the target, if it was made of the Hive table; files that this reads stay."""

    text = "drop {target}, and keep the files that Hive reads"


class AllowLogCleaning(_OnTable):
    """Let a Delta table forget old commits, which say what a copy holds as long as it's rewritten."""

    text = "let {table} forget old commits, as any other table does"


class NoteLeftovers(_OnCopy):
    """Note what is to be removed of an archived Hive table, and make sure that nobody else needs it."""

    text = "make sure that only {hive} needs what is left of Hive's, and note what that is"


@dataclass(frozen=True)
class DropArchived(_Described):
    """Drop the archived Hive table's entry, and none of its files.

    Attributes:
        rewritten: Whether the new table's rows were rewritten, so that it reads none of them.
    """

    target: TableName
    hive: TableName
    rewritten: bool = False

    def __str__(self) -> str:
        reads = "" if self.rewritten else f", which {self.target} reads"
        return f"drop {self.hive}, and keep its files{reads}"


@dataclass(frozen=True)
class RemoveLeftovers(_Described):
    """Remove the files that are Hive's alone: all of them, if the rows were rewritten.

    Attributes:
        rewritten: Whether they were.
    """

    target: TableName
    format: TargetFormat
    rewritten: bool = False

    def __str__(self) -> str:
        which = "Hive's files" if self.rewritten else "the files that shadow wrote for Hive alone"
        return f"remove {which}, of which {self.target} reads none in any version"


class AllowCleaning(_OnTable):
    """Let Iceberg remove files that no snapshot needs any more; nobody else reads them now."""

    text = "let Iceberg remove files that {table} needs no more"


Step = (
    RepeatPreflight
    | TryShadow
    | PrepareCopy
    | CompareAhead
    | RewriteAhead
    | RewriteRest
    | VerifyRewritten
    | RemoveRewritten
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
    | MakeView
    | CheckView
    | DropView
    | WriteCheckpoint
    | CheckViews
    | Shadow
    | ShadowWritten
    | WarnOfSharedFiles
    | RestoreComment
    | RestoreEntry
    | RestoreHiveCopy
    | AdoptTable
    | DropEntry
    | DropCopy
    | AllowLogCleaning
    | NoteLeftovers
    | DropArchived
    | RemoveLeftovers
    | AllowCleaning
)
