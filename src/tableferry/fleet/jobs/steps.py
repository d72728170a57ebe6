"""The steps of a table's migration, as data; each step can be repeated.

``str(step)`` is the step's line in a dry run and in a report. `jobs.step_plan` decides which steps a
transition has, and `modes.performer` performs them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tableferry.fleet.jobs.job import TargetFormat
from tableferry.spark.tables import TableName


class _Described:
    """A step whose line is ``text``, formatted with its fields."""

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
    """Repeat the preflight, because weeks may have passed since the last one."""

    text = "repeat the preflight of {table}"


class TryShadow(_OnTable):
    """Write a row to a scratch table as a shadow run does, before anything is changed."""

    text = "write a row to a scratch table of {table}, as a shadow run does"


class PrepareCopy(_FromTo):
    """Create an Iceberg copy and compare its rows before the block, so that the block is short."""

    text = "create {target} over the files of {source}, and compare their rows; writes stay possible"


class CompareAhead(_OnTable):
    """Compare a table's rows with the rows of the later Delta copy, before the block."""

    text = "compare the rows of {table} as Hive and as Delta read them; writes stay possible"


@dataclass(frozen=True)
class RewriteAhead(_OnCopy):
    """Write a table's rows to its copy and compare them before the block, so that the block is short."""

    text = "write the rows of {hive} to {target}, and compare them; writes stay possible"


@dataclass(frozen=True)
class RewriteRest(_OnCopy):
    """Write the rows to a copy that changed since."""

    text = "write the rows to {target} that changed in {hive} since"


@dataclass(frozen=True)
class VerifyRewritten(_OnCopy):
    """Check that a rewritten copy has the same rows."""

    text = "compare the rows of {hive} and {target} that weren't compared before"


class BlockWrites(_OnTable):
    """Revoke all write privileges, and record the listing where privileges don't exist."""

    text = "block writes to {table}"


class UnblockWrites(_OnTable):
    """Grant exactly the revoked privileges."""

    text = "unblock writes to {table}"


class CheckFence(_OnTable):
    """Compare the table's files with those at the block; a change is copied or pauses the job."""

    text = "check that {table} wasn't written to since the block"


class RecordFiles(_OnTable):
    """Record the files that belong in the Hive copy's directories."""

    text = "record the files of {table}"


@dataclass(frozen=True)
class CheckLate(_OnCopy):
    """List files that were written to the Hive copy's directories after the switch.

    Attributes:
        decide: Whether a file that may be of a write in progress is an error; if not, the next check decides.
    """

    decide: bool = True
    text = "list late files in the directories of {hive}"


class MakeExternal(_OnTable):
    """Make a managed table external, so that a rename keeps its directory."""

    text = "make {table} external, so that a rename moves no file"


class MakeManaged(_OnTable):
    """Make a table managed again, if it was managed."""

    text = "make {table} managed again, if it was managed"


@dataclass(frozen=True)
class MakeTarget:
    """Create the copy over the same data files, without rewriting them."""

    source: TableName
    target: TableName
    format: TargetFormat

    def __str__(self) -> str:
        return f"create {self.target} as {self.format.value.capitalize()} over the files of {self.source}"


class CopyDefinition(_FromTo):
    """Copy comments, properties, owner, grants and tags."""

    text = "copy the definition of {source} to {target}"


class CopyAccess(_FromTo):
    """Copy the owner, the grants and the tags, with their changes since the switch."""

    text = "copy the owner, grants and tags of {source} to {target}"


class Verify(_FromTo):
    """Check that both tables have the same rows."""

    text = "compare the rows of {source} and {target}"


@dataclass(frozen=True)
class VerifyShadow(_Described):
    """Check that the Hive copy has the rows that the target had at the watermark."""

    target: TableName
    hive: TableName
    text = "compare the rows of {hive} with the copied rows of {target}"


@dataclass(frozen=True)
class Rename(_Described):
    """Rename a table."""

    table: TableName
    to: TableName
    text = "rename {table} to {to}"


class MakeView(_FromTo):
    """Create a view with the table's old name over the new table in another schema or catalog."""

    text = "create {source} as a view of {target}"


class CheckView(_FromTo):
    """Check that the table's old name is still the view of the new table, so that it can be dropped."""

    text = "check that {source} is a view of {target}"


class DropView(_FromTo):
    """Drop the view that has the table's old name."""

    text = "drop the view {source} of {target}"


class WriteCheckpoint(_OnTable):
    """Write a checkpoint of a Delta table with many files, after the block."""

    text = "write a checkpoint of {table}, if its log is long"


class CheckViews(_OnTable):
    """Check that the views over a table can still be read."""

    text = "read the views over {table}"


class Shadow(_OnCopy):
    """Copy the changes of the target to the Hive copy."""

    text = "copy the changes of {target} to {hive}"


class ShadowWritten(_OnCopy):
    """Copy the changes of the target to the Hive copy, if the target was written to."""

    text = "copy the changes of {target}, if it was written to, to {hive}"


@dataclass(frozen=True)
class CheckSuspended(_Described):
    """Check that the Hive table reads no file of a suspended shadow run."""

    hive: TableName
    text = "check {hive} for rows that a suspended shadow run wrote twice"


@dataclass(frozen=True)
class RemoveRewritten(_Described):
    """Remove the files of a dropped, rewritten copy, unless another table reads them."""

    target: TableName
    hive: TableName
    folder: str
    text = "remove {folder}, the files of {target}"


class RestoreEntry(_OnCopy):
    """Create the catalog entry of a dropped Delta table again, if its log exists."""

    text = "restore {target} from its Delta log, if the log exists"


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
    """Restore the comment that a Hive table had before the warning."""

    text = "restore the comment of {table}"


class DropCopy(_OnCopy):
    """Drop the target, if the migration created it; files that the Hive table reads stay."""

    text = "drop {target}, and keep the files that Hive reads"


class AllowLogCleaning(_OnTable):
    """Let Delta clean old commits, which record the contents of a copy during the rewrite."""

    text = "let Delta clean old commits of {table}"


class NoteLeftovers(_OnCopy):
    """Record the remains of an archived Hive table, and check that no other table needs them."""

    text = "record the remains of {hive}, and check that no other table needs them"


@dataclass(frozen=True)
class DropArchived(_Described):
    """Drop the entry of the archived Hive table, and keep its files.

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
    """Remove the files that shadow wrote for Hive alone.

    Attributes:
        rewritten: Whether the new table's rows were rewritten, so that it reads no file of Hive's.
    """

    target: TableName
    format: TargetFormat
    rewritten: bool = False

    def __str__(self) -> str:
        return f"remove the files that shadow wrote for Hive alone, if {self.target} reads them in no version"


class AllowCleaning(_OnTable):
    """Let Iceberg remove files that no snapshot needs; no other table reads them now."""

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
