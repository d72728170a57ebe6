"""Findings: results of checks that stop a migration, and the preflight of a table with its findings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import InitVar, dataclass, field

from tableferry.errors import Refused, TableferryError
from tableferry.fleet.jobs.job import PauseReason, TargetFormat
from tableferry.spark.tables import TableName


@dataclass(frozen=True)
class PauseFinding:
    """One result of a check that stops a migration.

    Attributes:
        reason: The reason with which the job pauses.
        condition: The error condition; empty if the error had only a sentence.
        parameters: The values of the condition's parameters.
        message: The problem and its place.
        remedy: The user's next step.
        text: All of it in one line.
    """

    reason: PauseReason
    error: InitVar[TableferryError]
    condition: str = field(init=False)
    parameters: Mapping[str, object] = field(init=False, hash=False)
    message: str = field(init=False)
    remedy: str = field(init=False)
    text: str = field(init=False)

    def __post_init__(self, error: TableferryError) -> None:
        text = f"{error.message} {error.remedy}" if error.condition == self.reason else error.one_line
        values = error.to_dict() | {"text": text.replace("\n", " ")}
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def refusal(self) -> Refused:
        """The finding as an error."""
        return Refused(self.condition or self.text, **self.parameters)


@dataclass(frozen=True)
class Preflight:
    """The facts and findings of a table before its migration.

    Attributes:
        table: The table.
        format: Its new format.
        findings: The findings that stop it.
        remarks: Remarks that don't stop it.
        stored_as: Its file format; empty if the table is missing.
        files: The number of its files; this and the following are None if they weren't read.
        bytes: Their total size.
        partitions: The number of its partitions.
        blocked_seconds: The time for which writers will wait, estimated from migrated tables; None before
            the first.
        rewritten: Whether its rows are rewritten, because the new table can't use its files.
        rewrite_seconds: The time of the rewrite, estimated from rewritten tables; None before the first.
    """

    table: TableName
    format: TargetFormat
    findings: tuple[PauseFinding, ...] = ()
    remarks: tuple[str, ...] = ()
    stored_as: str = ""
    files: int | None = None
    bytes: int | None = None
    partitions: int | None = None
    blocked_seconds: float | None = None
    rewritten: bool = False
    rewrite_seconds: float | None = None
