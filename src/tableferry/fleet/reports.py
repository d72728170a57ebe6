"""What modes, preflights and workers did with jobs, for whoever asks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import InitVar, dataclass, field
from datetime import datetime
from typing import Literal

from tableferry.errors import Refused, TableferryError
from tableferry.fleet.jobs.job import Job, PauseReason, TargetFormat
from tableferry.spark.tables import TableName

Outcome = Literal["done", "planned", "waiting", "paused", "failed", "lost"]


@dataclass(frozen=True)
class JobReport:
    """What became of one job in a run.

    Attributes:
        job: The job as the run left it.
        outcome: ``done`` as far as it goes now, ``planned`` by a dry run, ``waiting`` for its wave,
            ``paused`` for a person, ``failed`` and to be tried again by the next run, or ``lost`` to another
            worker.
        did: What was done, or would be, a line each.
        error: Why it waits, failed or is lost; empty otherwise.
        seconds: How long the run worked on it.
    """

    job: Job
    outcome: Outcome
    did: tuple[str, ...] = ()
    error: str = ""
    seconds: float = field(default=0.0, compare=False)


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
    """What is known of a table before its migration.

    Attributes:
        table: The table.
        format: What it is to become.
        findings: What would stop it.
        remarks: What people should know all the same.
        stored_as: How its rows are stored; empty where there is no such table.
        files: How many files it has; this and what follows is None where nobody looked at them.
        bytes: How large they are together.
        partitions: How many partitions it has.
        blocked_seconds: How long writers will have to wait, by what others took; None before one was moved.
        rewritten: Whether its rows are rewritten, as its files can't become the new table's.
        rewrite_seconds: How long that takes, by what others took; None before one was rewritten.
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


@dataclass(frozen=True)
class ModeReport:
    """What a run of a mode did with each job that it took, in the order in which they ended."""

    jobs: tuple[JobReport, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing failed; a pause is a person's turn, and no failure."""
        return all(job.outcome != "failed" for job in self.jobs)

    @property
    def paused(self) -> bool:
        """Whether jobs paused in this run."""
        return any(job.outcome == "paused" for job in self.jobs)


@dataclass(frozen=True)
class Run:
    """What a worker, or somebody who edited jobs, did in the last seven days.

    Attributes:
        worker: Its name.
        last: When it last changed a job's state, or paused or resumed one.
        changes: How many of these there were.
        pauses: How many of these paused a job.
    """

    worker: str
    last: datetime
    changes: int
    pauses: int
