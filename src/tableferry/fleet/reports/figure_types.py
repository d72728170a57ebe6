"""The types of a fleet's figures. `figure_queries` counts them, and `status` puts them together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from tableferry.fleet.jobs.job import State, TargetFormat, Trouble
from tableferry.fleet.jobs.transitions import BACK
from tableferry.fleet.jobs.waves import Wave
from tableferry.spark.tables import TableName


class Phase(StrEnum):
    """A part of the migration, as people name it; in the order in which jobs reach it."""

    NEW = "new"
    READY = "ready"
    MIGRATING = "migrating"
    PROBATION = "probation"
    COMPLETED = "completed"
    GOING_BACK = "going_back"
    REVERTED = "reverted"


PHASES: Mapping[State, Phase] = {
    State.UNDEFINED: Phase.NEW,
    State.READY: Phase.READY,
    State.WRITES_BLOCKED: Phase.MIGRATING,
    State.ICEBERG_READY: Phase.MIGRATING,
    State.ICEBERG_PRIMARY: Phase.MIGRATING,
    State.WRITES_UNBLOCKED: Phase.PROBATION,
    State.HIVE_DROPPED: Phase.COMPLETED,
    State.SYNC_HIVE: Phase.GOING_BACK,
    State.HIVE_PRIMARY: Phase.GOING_BACK,
    State.ICEBERG_DROPPED: Phase.REVERTED,
}
"""Every state in the order of the migration, forward and then back."""

STATE_WORDS: Mapping[State, str] = {
    State.UNDEFINED: "new, not ready yet",
    State.READY: "waiting for its notification and its day",
    State.WRITES_BLOCKED: "writes blocked",
    State.ICEBERG_READY: "copy made",
    State.ICEBERG_PRIMARY: "names swapped",
    State.WRITES_UNBLOCKED: "on probation",
    State.HIVE_DROPPED: "completed",
    State.SYNC_HIVE: "going back: Hive table up to date",
    State.HIVE_PRIMARY: "going back: names swapped",
    State.ICEBERG_DROPPED: "reverted",
}

PHASE_WORDS: Mapping[Phase, str] = {
    Phase.NEW: "New",
    Phase.READY: "Ready",
    Phase.MIGRATING: "Being migrated",
    Phase.PROBATION: "On probation",
    Phase.COMPLETED: "Completed",
    Phase.GOING_BACK: "Going back",
    Phase.REVERTED: "Reverted",
}

TO_DO = (Phase.NEW, Phase.READY, Phase.MIGRATING)
"""The phases of jobs that aren't migrated yet."""


AGES = (1, 7, 30, 90)
"""The ages in days at which one column of `AgeCount` ends and the next begins."""


class Milestone(NamedTuple):
    """A move to a state, from another one or, if that is None, from any, that counts for the pace."""

    state: State
    was: State | None = None


MIGRATED = Milestone(State.WRITES_UNBLOCKED, was=State.ICEBERG_PRIMARY)
ARCHIVED = Milestone(State.HIVE_DROPPED)
REVERTED = Milestone(State.ICEBERG_DROPPED)


@dataclass(frozen=True)
class StateCount:
    """Jobs in one state, archived ones among them, and how many of these are paused."""

    state: State
    words: str
    jobs: int
    paused: int


@dataclass(frozen=True)
class AgeCount:
    """Jobs of one phase by when they last changed state, paused or were resumed, in days of UTC.

    That is today, 1 to 6 days ago, 7 to 29, 30 to 89, and longer ago.
    """

    phase: Phase
    today: int
    under_week: int
    under_month: int
    under_quarter: int
    older: int


@dataclass(frozen=True)
class OwnerCount:
    """One owner's jobs; a job with two owners counts for each.

    Attributes:
        owner: The owner; empty for jobs without one, None for all owners without a separate row.
        to_do: Not yet switched.
        reverted: Back on Hive, or being reverted.
        paused: Paused, wherever they are.
    """

    owner: str | None
    jobs: int
    to_do: int
    probation: int
    completed: int
    reverted: int
    paused: int


@dataclass(frozen=True)
class SchemaCount:
    """One schema's jobs.

    Attributes:
        schema: Its name, with its catalog; None for all schemas without a separate row.
        to_do: Not yet switched.
        reverted: Back on Hive, or being reverted.
        paused: Paused, wherever they are.
        bytes: The size of the tables that a preprocessor has measured.
    """

    schema: str | None
    jobs: int
    to_do: int
    probation: int
    completed: int
    reverted: int
    paused: int
    bytes: int


@dataclass(frozen=True)
class WaveCount:
    """One wave's jobs, as a schema's are counted.

    Attributes:
        wave: The wave, with its limits.
        bytes_moved: How large those tables are that are on probation or completed.
    """

    wave: Wave
    jobs: int
    to_do: int
    probation: int
    completed: int
    reverted: int
    paused: int
    bytes: int
    bytes_moved: int


@dataclass(frozen=True)
class PauseCount:
    """Paused jobs of one reason, by the code before its colon.

    Attributes:
        remedy: The user's next step.
    """

    reason: str
    jobs: int
    remedy: str


@dataclass(frozen=True)
class StuckCount:
    """Stuck jobs of one cause.

    Attributes:
        words: The cause for people.
        since: Since when the job is stuck that has been stuck longest.
        commands: The commands that resolve the listed jobs, the command of most jobs first.
    """

    trouble: Trouble
    words: str
    jobs: int
    since: datetime
    commands: tuple[str, ...]


@dataclass(frozen=True)
class FormatCount:
    """Jobs to one format, and how many of these are completed."""

    target_format: TargetFormat
    jobs: int
    completed: int


@dataclass(frozen=True)
class Stuck:
    """A job that should move and doesn't.

    Attributes:
        words: The trouble for people.
        owners: The people to ask.
        command: The command to run.
    """

    task_id: int
    table: TableName
    trouble: Trouble
    words: str
    state: State
    since: datetime
    owners: tuple[str, ...]
    command: str


@dataclass(frozen=True)
class PausedTable:
    """A job that waits for a person.

    Attributes:
        reason: Why, with details.
        since: When it last changed.
        owners: The people to ask.
        command: The command to run after its reason is resolved.
    """

    task_id: int
    table: TableName
    reason: str
    state: State
    since: datetime
    owners: tuple[str, ...]
    command: str


@dataclass(frozen=True)
class Run:
    """The changes that a worker, or a person who edited jobs, made in the last seven days.

    Attributes:
        worker: The worker's or the person's name.
        last: The time of the latest change of a job's state, pause or resume.
        changes: The number of these changes.
        pauses: The number of changes that paused a job.
    """

    worker: str
    last: datetime
    changes: int
    pauses: int


@dataclass(frozen=True)
class WaitingJobs:
    """Running jobs that aren't at an end and wait for the same day and wave.

    Attributes:
        wave: The wave that they are in, if any.
        notified: The day of the second notification on probation, elsewhere of the first.
    """

    state: State
    desired_state: State
    wave: str | None
    initial_gap_days: int
    probation_gap_days: int
    notified: date | None
    jobs: int

    @property
    def is_reverting(self) -> bool:
        """Whether they are being reverted."""
        return (self.state, self.desired_state) in BACK

    @property
    def migration_begins(self) -> date | None:
        """The first day on which they can be migrated; None before their notification."""
        return None if self.notified is None else self.notified + timedelta(days=self.initial_gap_days)

    @property
    def probation_ends(self) -> date | None:
        """The day on which their probation ends; None before their notification."""
        return None if self.notified is None else self.notified + timedelta(days=self.probation_gap_days)


@dataclass(frozen=True)
class Due:
    """Due jobs: announced ones by their day, and those on probation by the day of its end.

    Days are in UTC, and a week is today and the six days after it. Jobs that wait for a wave aren't due.
    `notifications` counts the jobs whose first or second notification may be sent now.
    """

    migrations_overdue: int
    migrations_today: int
    migrations_week: int
    archives_overdue: int
    archives_today: int
    archives_week: int
    notifications: int


@dataclass(frozen=True)
class Pace:
    """The jobs that moved recently.

    Attributes:
        days: How many days back, and today.
        elapsed: The number of these days since the fleet began; today counts in part.
        migrated: Jobs whose writers were let in to the copy.
        finished: Jobs whose Hive table was archived.
        reverted: Jobs whose copy was dropped.
    """

    days: int
    elapsed: float
    migrated: int
    finished: int
    reverted: int
    migrated_per_day: float
    finished_per_day: float


@dataclass(frozen=True)
class Span:
    """The days between which something is expected.

    Attributes:
        earliest: At the best pace that the last weeks make likely.
        expected: At the pace of the last 28 days.
        latest: At the worst pace that they make likely; None when that could be none at all.
    """

    earliest: date
    expected: date
    latest: date | None


@dataclass(frozen=True)
class Forecast:
    """When the remaining jobs are completed; without paused jobs, because it isn't known when they resume.

    Attributes:
        to_migrate: Jobs that aren't switched yet.
        to_finish: Jobs that aren't completed yet, with the former.
        left_out: Paused jobs.
        migrated: When the last is switched; None without a forecast, or when none is left.
        completed: When the last is completed; likewise.
        words: The forecast in one or two sentences.
    """

    to_migrate: int
    to_finish: int
    left_out: int
    migrated: Span | None
    completed: Span | None
    words: str


@dataclass(frozen=True)
class Day:
    """How many jobs were in each `Phase` at the end of a day in UTC."""

    day: date
    new: int
    ready: int
    migrating: int
    probation: int
    completed: int
    going_back: int
    reverted: int

    @property
    def to_do(self) -> int:
        """Jobs that weren't switched yet."""
        return sum(getattr(self, phase.value) for phase in TO_DO)


@dataclass(frozen=True)
class Figures:
    """The figures of a fleet.

    Attributes:
        at: When the queue was read.
        total: All jobs, archived ones among them.
        archived: Jobs that left the queue: they are completed.
        states: Jobs by state, in the order of the migration.
        ages: Jobs in the queue by phase and age.
        owners: The owners with most jobs that aren't completed, then the rest in one row.
        schemas: The schemas with most jobs that aren't completed, then the rest in one row.
        waves: The waves by their names.
        pauses: Paused jobs by reason, most first.
        stuck_causes: Stuck jobs by their trouble, most first.
        stuck: Jobs that should move and don't, the longest first; at most `LISTED`.
        paused_jobs: Paused jobs, the longest first; at most `LISTED`, without reverted ones.
        runs: The changes of each worker in the last seven days, the latest first; at most `LATEST_RUNS`.
        pace: The jobs that moved in the last 7 and the last 28 days.
        days: The phases day by day; the last is today, as it is now.
    """

    at: datetime
    total: int
    archived: int
    paused: int
    states: tuple[StateCount, ...]
    ages: tuple[AgeCount, ...]
    owners: tuple[OwnerCount, ...]
    owner_count: int
    schemas: tuple[SchemaCount, ...]
    schema_count: int
    waves: tuple[WaveCount, ...]
    pauses: tuple[PauseCount, ...]
    formats: tuple[FormatCount, ...]
    stuck: tuple[Stuck, ...]
    stuck_causes: tuple[StuckCount, ...]
    stuck_total: int
    paused_jobs: tuple[PausedTable, ...]
    runs: tuple[Run, ...]
    due: Due
    pace: tuple[Pace, ...]
    forecast: Forecast
    days: tuple[Day, ...]

    def in_phase(self, phase: Phase) -> int:
        """Return how many jobs are in a phase, archived ones among those that are completed."""
        return sum(count.jobs for count in self.states if PHASES[count.state] is phase)
