"""What the figures of a whole fleet are made of: groups of jobs, counted by the database.

A fleet of 100,000 jobs has 500,000 events; what comes back are some thousand groups, and the few jobs that
somebody should look at. Each query groups by little: databases sort what they group, or hash it, and five
queries with few columns take less time than one with many.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Select, Text, case, cast, func, select

from tableferry.fleet.jobs.job import Job, State, TargetFormat
from tableferry.fleet.jobs.transitions import BACK
from tableferry.fleet.jobs.waves import Wave
from tableferry.fleet.queue.dialects import LONGEST_KEY, code_of, day_of, key_of
from tableferry.fleet.queue.schema import events, jobs, jobs_archive
from tableferry.fleet.queue.selections import Selection, numbered
from tableferry.fleet.queue.store import Store
from tableferry.fleet.queue.stuck_jobs import PausedJob, StuckJob, last_change, paused_jobs, stuck_jobs
from tableferry.fleet.reports import Run
from tableferry.spark.tables import TableName

_c = jobs.c
_ENDS = (State.HIVE_DROPPED.value, State.ICEBERG_DROPPED.value)

LATELY = timedelta(days=7)
"""How far back runs are shown."""

# A run passes through them in minutes: days don't show them.
_INNER = (State.ICEBERG_READY, State.ICEBERG_PRIMARY)


@dataclass(frozen=True)
class Group:
    """Jobs that are alike."""

    state: State
    paused: bool
    target_format: TargetFormat
    jobs: int


@dataclass(frozen=True)
class CountByAge:
    """Jobs that last changed state, paused or went on, or were added, on a day."""

    since: date
    state: State
    jobs: int


@dataclass(frozen=True)
class CountByOwners:
    """Jobs of the same owners, in the same state."""

    owners: tuple[str, ...]
    state: State
    paused: bool
    jobs: int


@dataclass(frozen=True)
class CountBySchema:
    """Jobs of one schema, archived ones among them, in the same state."""

    schema: str
    state: State
    paused: bool
    jobs: int
    bytes: int


@dataclass(frozen=True)
class CountByWave:
    """Jobs of one wave, archived ones among them, in the same state."""

    wave: str
    state: State
    paused: bool
    jobs: int
    bytes: int


@dataclass(frozen=True)
class CountByWait:
    """Running jobs that aren't at an end, with what they wait for.

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
        """The day on which their probation is over; None before their notification."""
        return None if self.notified is None else self.notified + timedelta(days=self.probation_gap_days)


@dataclass(frozen=True)
class CountByMove:
    """Jobs that changed their state on a day."""

    day: date
    was: State
    state: State
    jobs: int


@dataclass(frozen=True)
class CountByDayAdded:
    """Jobs, archived ones among them, by the day they were added."""

    added: date
    jobs: int


@dataclass(frozen=True)
class Aggregates:
    """All that the figures are computed from.

    Attributes:
        reasons: Paused jobs by the code of their reason.
        by_age: Jobs in the queue by the day of their last change.
        by_owners: The same by owners.
        by_schema: Jobs by their schema.
        waves: The waves by their names.
        by_wave: Jobs by their wave.
        archived: Jobs in the archive, by what they became.
        runs: What each worker did in the last `LATELY`.
        stuck: Stuck jobs by the rule that applies to them, what explains most first.
        paused: Paused jobs, the longest first: a part of them.
        listed: The jobs that the last two name, by number: a part of them.
    """

    groups: tuple[Group, ...]
    reasons: tuple[tuple[str, int], ...]
    by_age: tuple[CountByAge, ...]
    by_owners: tuple[CountByOwners, ...]
    by_schema: tuple[CountBySchema, ...]
    waves: tuple[Wave, ...]
    by_wave: tuple[CountByWave, ...]
    archived: tuple[tuple[TargetFormat, int], ...]
    waiting: tuple[CountByWait, ...]
    moved: tuple[CountByMove, ...]
    by_day_added: tuple[CountByDayAdded, ...]
    runs: tuple[Run, ...]
    stuck: tuple[tuple[StuckJob, ...], ...]
    paused: tuple[PausedJob, ...]
    listed: dict[int, Job]


def aggregate(store: Store, now: datetime, rest: timedelta, *, listed: int) -> Aggregates:
    """Count the queue; of the jobs of each rule, and of the paused ones, `listed` many are read whole."""
    stuck = stuck_jobs(store, now, rest)
    paused = paused_jobs(store, limit=listed)
    named = {job.task_id for job in paused}
    named |= {job.task_id for by_rule in stuck for job in by_rule[:listed]}
    return Aggregates(
        groups=_groups(store),
        reasons=_reasons(store),
        by_age=_by_age(store),
        by_owners=_by_owners(store),
        by_schema=_by_schema(store),
        waves=tuple(store.waves()),
        by_wave=by_wave(store),
        archived=_archived(store),
        waiting=_waiting(store),
        moved=_moved(store),
        by_day_added=_by_day_added(store),
        runs=_runs(store, now),
        stuck=stuck,
        paused=paused,
        listed={job.task_id: job for job in store.jobs(numbered(sorted(named)))} if named else {},
    )


def _groups(store: Store) -> tuple[Group, ...]:
    query = select(_c.state, _c.desired_state, _c.migration_paused, _c.target_format)
    return tuple(
        Group(State(state), bool(paused), TargetFormat(form), int(count))
        for state, _, paused, form, count in store.rows(_counted(query))
    )


def _reasons(store: Store) -> tuple[tuple[str, int], ...]:
    query = select(code_of(_c.pause_reason).label("reason")).where(_c.migration_paused.is_(True))
    return tuple((reason, int(count)) for reason, count in store.rows(_counted(query)))


def _by_age(store: Store) -> tuple[CountByAge, ...]:
    query = select(day_of(last_change()).label("since"), _c.state)
    return tuple(
        CountByAge(_known(since), State(state), int(count))
        for since, state, count in store.rows(_counted(query))
    )


def _by_owners(store: Store) -> tuple[CountByOwners, ...]:
    """Owners are a JSON array: the database groups by its text, which is far fewer than the jobs."""
    text = cast(_c.tbl_owners, Text)

    def counted(owners: ColumnElement[str], *condition: Selection) -> Sequence[Sequence[Any]]:
        query = select(owners.label("owners"), _c.state, _c.migration_paused).where(*condition)
        return store.rows(_counted(query))

    by_key = counted(key_of(text))
    # An empty text is no JSON.
    rows = [row for row in by_key if row[0] != ""]
    if len(rows) < len(by_key):
        rows += counted(text, func.length(text) > LONGEST_KEY)
    return tuple(
        CountByOwners(tuple(sorted(json.loads(owners or "[]") or ())), State(state), bool(paused), int(count))
        for owners, state, paused, count in rows
    )


def _by_schema(store: Store) -> tuple[CountBySchema, ...]:
    return tuple(
        CountBySchema(str(TableName((catalog, schema))), *counts)
        for catalog, schema, *counts in _sizes(store, "catalog_name", "db_name")
    )


def by_wave(store: Store) -> tuple[CountByWave, ...]:
    """Count the jobs of waves, archived ones among them."""
    return tuple(CountByWave(wave, *counts) for wave, *counts in _sizes(store, "wave") if wave is not None)


def _sizes(store: Store, *by: str) -> Iterator[tuple[Any, ...]]:
    """Count jobs, archived ones too, by some columns, state and pause, and sum up their tables' bytes."""
    for c in (jobs.c, jobs_archive.c):
        keys = [c[name] for name in (*by, "state", "migration_paused")]
        total = func.coalesce(func.sum(c.table_bytes), 0).label("bytes")
        query = select(*keys, func.count().label("jobs"), total).group_by(*keys)
        for *names, state, paused, count, size in store.rows(query):
            yield *names, State(state), bool(paused), int(count), int(size)


def _archived(store: Store) -> tuple[tuple[TargetFormat, int], ...]:
    query = _counted(select(jobs_archive.c.target_format))
    return tuple((TargetFormat(form), int(count)) for form, count in store.rows(query))


def _waiting(store: Store) -> tuple[CountByWait, ...]:
    on_probation = _c.state == State.WRITES_UNBLOCKED.value
    notified = case((on_probation, _c.comm_level2_date), else_=_c.comm_level1_date)
    # SQLite would look for `IS false` in an index, and from there into the table, which takes twice as long.
    running = _c.migration_paused.is_not(True)
    query = select(
        day_of(notified).label("notified"),
        _c.state,
        _c.desired_state,
        _c.wave,
        _c.initial_gap_days,
        _c.probation_gap_days,
    ).where(running, _c.state.not_in(_ENDS))
    return tuple(
        CountByWait(State(state), State(desired), wave, int(gap), int(probation), _day(notified), int(count))
        for notified, state, desired, wave, gap, probation, count in store.rows(_counted(query))
    )


def _moved(store: Store) -> tuple[CountByMove, ...]:
    query = select(events.c.day, events.c.was, events.c.state).where(events.c.was != events.c.state)
    return tuple(
        CountByMove(_known(day), State(was), State(state), int(count))
        for day, was, state, count in store.rows(_counted(query))
        if state not in _INNER
    )


def _runs(store: Store, now: datetime) -> tuple[Run, ...]:
    c = events.c
    paused = func.sum(case((c.paused.is_(True), 1), else_=0))
    query = (
        select(c.worker, func.max(c.at).label("last"), func.count().label("changes"), paused.label("pauses"))
        .where(c.at > now - LATELY)
        .group_by(c.worker)
    )
    return tuple(
        Run(worker, last, int(changes), int(pauses)) for worker, last, changes, pauses in store.rows(query)
    )


def _by_day_added(store: Store) -> tuple[CountByDayAdded, ...]:
    counts: list[CountByDayAdded] = []
    for table in (jobs, jobs_archive):
        # Whole schemas are added at once: of 100,000 jobs there are some hundred times, in an index.
        at = select(table.c.created_at.label("at"), func.count().label("jobs")).group_by(table.c.created_at)
        times = at.subquery()
        added = select(day_of(times.c.at).label("day"), times.c.jobs).subquery()
        query = select(added.c.day, func.sum(added.c.jobs)).group_by(added.c.day)
        counts += [CountByDayAdded(_known(day), int(count)) for day, count in store.rows(query)]
    return tuple(counts)


def _counted(query: Select[Any]) -> Select[Any]:
    """Count equal rows; through a subquery, as PostgreSQL takes no two parameters for one expression."""
    rows = query.subquery()
    return select(*rows.c, func.count().label("jobs")).group_by(*rows.c)


def _known(value: date | str) -> date:
    return value if isinstance(value, date) else date.fromisoformat(value)


def _day(value: date | str | None) -> date | None:
    """Read a day as databases give it: SQLite as text."""
    return None if value is None else _known(value)
