"""The figures of a fleet as SQLAlchemy selects, each once.

`status` runs them in the queue's own SQL; `datasets` writes them as Spark SQL for the dashboard.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import date, datetime, timedelta
from itertools import pairwise
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Integer,
    Select,
    String,
    case,
    func,
    literal_column,
    select,
    true,
    union_all,
)

from tableferry.fleet.jobs.job import State
from tableferry.fleet.queue.dialects import Utc, code_of, day_of, elements_of, json_text
from tableferry.fleet.queue.schema import events, jobs
from tableferry.fleet.queue.selections import in_archive, in_queue
from tableferry.fleet.reports.figure_types import (
    AGES,
    PHASES,
    TO_DO,
    FormatCount,
    Milestone,
    OwnerCount,
    Phase,
    SchemaCount,
    StateCount,
    WaveCount,
)

Condition = ColumnElement[bool]

_c = jobs.c
_ENDS = (State.HIVE_DROPPED.value, State.ICEBERG_DROPPED.value)

# For `archived_at IS NULL`, and for `IS false`, SQLite would read most rows through an index: twice as long.
IN_QUEUE = in_archive().is_not(True)
_RUNNING = _c.migration_paused.is_not(True)


def case_of(state: ColumnElement[str], values: Mapping[State, str]) -> ColumnElement[str]:
    """Return the value of each state."""
    return case({key.value: value for key, value in values.items()}, value=state)


def in_phases(*phases: Phase) -> Condition:
    """Return the condition that a job is in one of these phases."""
    return _c.state.in_([state.value for state, phase in PHASES.items() if phase in phases])


def number_of(condition: Condition) -> ColumnElement[int]:
    """Count the rows that meet a condition."""
    return func.count(case((condition, 1)))


_MOVED = in_phases(Phase.PROBATION, Phase.COMPLETED)
COUNTS: Mapping[str, ColumnElement[int]] = {
    "jobs": func.count(),
    "to_do": number_of(in_phases(*TO_DO)),
    "probation": number_of(in_phases(Phase.PROBATION)),
    "completed": number_of(in_phases(Phase.COMPLETED)),
    "reverted": number_of(in_phases(Phase.GOING_BACK, Phase.REVERTED)),
    "paused": number_of(_c.migration_paused.is_(True)),
    "bytes": func.coalesce(func.sum(_c.table_bytes), 0),
    "bytes_moved": func.coalesce(func.sum(case((_MOVED, _c.table_bytes))), 0),
}
"""The counts of a group of jobs, with archived ones, by the fields of the figures."""


def counts(names: Iterable[str], *keys: ColumnElement[Any]) -> Select[Any]:
    """Count jobs by some columns."""
    return select(*keys, *(COUNTS[name].label(name) for name in names)).group_by(*keys)


def columns_of(figure: type) -> Sequence[str]:
    """Return the names of a figure's counts."""
    return [field.name for field in fields(figure) if field.name in COUNTS]


def states() -> Select[Any]:
    """Count jobs by state: state, jobs, paused."""
    return counts(columns_of(StateCount), _c.state)


def formats() -> Select[Any]:
    """Count jobs by target format: format, jobs, completed."""
    return counts(columns_of(FormatCount), _c.target_format)


def schemas() -> Select[Any]:
    """Count jobs by schema: catalog, schema, the counts of `SchemaCount`."""
    return counts(columns_of(SchemaCount), _c.catalog_name, _c.db_name)


def waves() -> Select[Any]:
    """Count jobs by wave: wave, the counts of `WaveCount`; a wave without jobs is missing."""
    return counts(columns_of(WaveCount), _c.wave).where(_c.wave.is_not(None))


def owners() -> Select[Any]:
    """Count jobs by owner: owner (NULL for none), the counts of `OwnerCount`."""
    names = columns_of(OwnerCount)
    # Many jobs have the same owners.
    together = counts(names, json_text(_c.tbl_owners).label("owners")).subquery("together")
    each = elements_of(together.c.owners).table_valued("value", name="each_owner")
    sums = [func.sum(together.c[name]).label(name) for name in names]
    return (
        select(each.c.value.label("owner"), *sums)
        .select_from(together.outerjoin(each, true()))
        .group_by(each.c.value)
    )


def last_change() -> ColumnElement[datetime]:
    """Return when a job last changed state, was paused or was resumed.

    A claim changes the row too, and isn't a change: each run that finds the job claims it.
    """
    last = select(func.max(events.c.at)).where(events.c.task_id == _c.task_id).scalar_subquery()
    return func.coalesce(last, _c.created_at, type_=Utc())


def archived() -> Select[Any]:
    """Count archived jobs."""
    return select(func.count().label("jobs")).where(in_archive())


def pauses() -> Select[Any]:
    """Count paused jobs by the code of their reason: reason, jobs."""
    reason = code_of(_c.pause_reason).label("reason")
    return counts(["jobs"], reason).where(in_queue(), _c.migration_paused.is_(True))


def ages(today: date) -> Select[Any]:
    """Return the query that counts jobs in the queue by state and age of their last change.

    A row has the state, and then a column for each age of `AgeCount`. States without jobs have no row. The
    day `today` is a day in UTC.
    """
    rows = select(_c.state, day_of(last_change()).label("since")).where(IN_QUEUE).subquery()
    # Grouped first, because databases would find the last change again for each column. If the groups began
    # with the state, SQLite would read each row through the index of states.
    by_day = (
        select(rows.c.state, rows.c.since, func.count().label("jobs")).group_by(rows.c.since, rows.c.state)
    ).subquery()
    since = by_day.c.since
    limits = [None, *(today - timedelta(days=days) for days in AGES), None]
    groups = [
        func.sum(
            case(
                (
                    (true() if last is None else since <= last)
                    & (true() if first is None else since > first),
                    by_day.c.jobs,
                ),
                else_=0,
            )
        )
        for last, first in pairwise(limits)
    ]
    return select(by_day.c.state, *groups).group_by(by_day.c.state)


def waiting() -> Select[Any]:
    """Count running jobs that aren't at an end, by the columns of `WaitingJobs`."""
    on_probation = _c.state == State.WRITES_UNBLOCKED.value
    notified = case((on_probation, _c.comm_level2_date), else_=_c.comm_level1_date)
    rows = (
        select(
            _c.state,
            _c.desired_state,
            _c.wave,
            _c.initial_gap_days,
            _c.probation_gap_days,
            day_of(notified).label("notified"),
        )
        .where(_RUNNING, _c.state.not_in(_ENDS), IN_QUEUE)
        .subquery()
    )
    # PostgreSQL takes no two parameters for one expression, so that the groups are those of a subquery.
    # With state last, as in `ages`.
    return select(*rows.c, func.count().label("jobs")).group_by(*reversed(list(rows.c)))


def _moves() -> Select[Any]:
    """Count changes of state by day: day, was, state, jobs."""
    c = events.c
    return (
        select(c.day, c.was, c.state, func.count().label("jobs"))
        .where(c.was != c.state)
        .group_by(c.day, c.was, c.state)
    )


def milestones(names: Mapping[Milestone, str], since: date | None = None) -> Select[Any]:
    """Count jobs that reached milestones by day: day, the milestone's name, jobs."""
    moves = (_moves() if since is None else _moves().where(events.c.day >= since)).subquery("moves")
    conditions = {
        (moves.c.state == milestone.state.value)
        & (true() if milestone.was is None else moves.c.was == milestone.was.value): name
        for milestone, name in names.items()
    }
    rows = select(moves.c.day, case(*conditions.items()).label("what"), moves.c.jobs).subquery("reached")
    return (
        select(rows.c.day, rows.c.what, func.sum(rows.c.jobs).label("jobs"))
        .where(rows.c.what.is_not(None))
        .group_by(rows.c.day, rows.c.what)
    )


def changes(names: Mapping[Phase, str]) -> Select[Any]:
    """Count jobs that entered a phase, less those that left it, by day: day, the phase's name, jobs."""
    # Whole schemas are added together: 100,000 jobs have some hundred times, in an index.
    times = select(_c.created_at.label("at"), func.count().label("jobs")).group_by(_c.created_at).subquery()
    # Each move adds its jobs to the state after it, and takes them from the state before.
    signs = union_all(
        select(literal_column("1", Integer()).label("sign")), select(literal_column("-1", Integer()))
    ).subquery("signs")
    moves = _moves().subquery("moves")
    state = case((signs.c.sign > 0, moves.c.state), else_=moves.c.was)
    phases = {state: names[phase] for state, phase in PHASES.items()}
    new = literal_column(f"'{names[Phase.NEW]}'", String()).label("phase")
    steps = union_all(
        select(day_of(times.c.at).label("day"), new, times.c.jobs),
        select(moves.c.day, case_of(state, phases), signs.c.sign * moves.c.jobs).select_from(
            moves.join(signs, true())
        ),
    ).subquery("steps")
    return select(steps.c.day, steps.c.phase, func.sum(steps.c.jobs).label("jobs")).group_by(
        steps.c.day, steps.c.phase
    )


def runs(since: datetime) -> Select[Any]:
    """Count changes of jobs by worker since a time: the columns of `Run`."""
    c = events.c
    return (
        select(
            c.worker,
            func.max(c.at).label("last"),
            func.count().label("changes"),
            number_of(c.paused.is_(True)).label("pauses"),
        )
        .where(c.at > since)
        .group_by(c.worker)
    )
