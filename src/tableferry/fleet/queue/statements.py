"""Conditions and statements that every store shares."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

from sqlalchemy import (
    JSON,
    BindParameter,
    ColumnElement,
    Select,
    Table,
    Text,
    and_,
    cast,
    func,
    or_,
    select,
    true,
)
from sqlalchemy.sql.visitors import replacement_traverse

from tableferry.errors import Busy
from tableferry.fleet.jobs.job import Job
from tableferry.fleet.jobs.waves import Wave
from tableferry.fleet.queue.dialects import code_of
from tableferry.fleet.queue.records import NewJob
from tableferry.fleet.queue.rows import to_row
from tableferry.fleet.queue.schema import jobs
from tableferry.fleet.queue.selections import Selection, address
from tableferry.fleet.queue.store import ClaimLost

T = TypeVar("T")

# Databases take so many parameters in a statement, and more.
CHUNK = 1000

EVENT_COLUMNS = {
    "at": "last_updated_time",
    "state": "state",
    "desired_state": "desired_state",
    "paused": "migration_paused",
    "pause_reason": "pause_reason",
}
"""What an event holds of the job as it is after a change, by the job's columns."""

RECORDED = ("state", "desired_state", "migration_paused", "pause_reason")
"""A change of any of these columns makes an event."""

_c = jobs.c


def free(now: datetime | BindParameter[datetime]) -> Selection:
    """Jobs that nobody has, or whose claim has lapsed."""
    return or_(_c.claimed_by.is_(None), _c.lease_until <= now)


def shares(share: tuple[int, int]) -> Sequence[Selection]:
    """Return where to look for jobs to claim, in this order: a worker's own share, and then others'."""
    worker, workers = share
    if workers <= 1:
        return [true()]
    return [_c.task_id % workers == worker % workers, _c.task_id % workers != worker % workers]


def read_as(job: Job) -> Selection:
    """The job's row, as long as it is what was read."""
    return and_(_c.task_id == job.task_id, _c.revision == job.revision)


def still(job: Job, now: datetime) -> Selection:
    """The job's row, as long as it is what was read, and its claim holds."""
    return and_(read_as(job), _c.claimed_by == job.claimed_by, _c.lease_until > now)


def differs(new: Mapping[str, Any]) -> Selection:
    """Rows whose state or pause isn't the new one; the values may be columns of another table."""
    return or_(*(_c[name] != new[name] for name in RECORDED))


def changes(before: Job, after: Job) -> bool:
    """Say whether the state or the pause changes."""
    return any(getattr(before, name) != getattr(after, name) for name in RECORDED)


def claimed(job: Job, worker: str, now: datetime, lease: timedelta) -> Job:
    """Return the job as a worker has it that claims it now."""
    return replace(_changed(job, now), claimed_by=worker, lease_until=now + lease)


def unclaimed(job: Job, now: datetime) -> Job:
    """Return the job as it is when a person has edited it, or it has come out of the archive."""
    return replace(_changed(job, now), claimed_by=None, lease_until=None)


def held(job: Job, now: datetime, lease: timedelta | None, release: bool) -> Job:
    """Return the job as it is to be saved by whoever claimed it."""
    if job.claimed_by is None:
        raise lost(job)
    if release:
        return unclaimed(job, now)
    return claimed(job, job.claimed_by, now, lease) if lease is not None else _changed(job, now)


def _changed(job: Job, now: datetime) -> Job:
    return replace(job, revision=job.revision + 1, last_updated_time=now)


def lost(job: Job) -> ClaimLost:
    """Return the error of a job that changed since it was read."""
    return ClaimLost("JOB_CHANGED", table=job.name, job=job.task_id)


def wave_changed(wave: Wave) -> Busy:
    """Return the error of a wave that changed since it was read."""
    return Busy("WAVE_CHANGED", wave=wave.name)


def elsewhere(condition: Selection, table: Table) -> Selection:
    """Return a condition on jobs as one on another table with their columns."""

    def column_there(element: Any, **how: Any) -> Any:
        return table.c[element.name] if getattr(element, "table", None) is jobs else None

    return replacement_traverse(condition, {}, column_there)


def new_jobs(added: Iterable[NewJob], now: datetime) -> dict[tuple[str, str, str], dict[str, Any]]:
    """Return the rows of new jobs, by their names: of two for one table the first."""
    rows: dict[tuple[str, str, str], dict[str, Any]] = {}
    for new in added:
        name = address(new.name)
        if name not in rows:
            given = {field: value for field, value in vars(new).items() if field != "name"}
            rows[name] = to_row(Job(0, *name, created_at=now, last_updated_time=now, **given))
            del rows[name]["task_id"]
    return rows


def counting(selection: Selection, by: Sequence[str]) -> Select[Any]:
    """Count jobs by the values of some columns."""
    keys = [_key(name).label(name) for name in by]
    times = _c.last_updated_time
    return (
        select(
            *keys,
            func.count().label("jobs"),
            func.min(times).label("oldest"),
            func.max(times).label("newest"),
        )
        .where(selection)
        .group_by(*(_key(name) for name in by))
        .order_by(*(_key(name) for name in by))
    )


def counted(row: Mapping[str, Any], by: Sequence[str]) -> Mapping[str, Any]:
    """Return a group as whoever asked for it wants it."""
    lists = {name: tuple(json.loads(row[name] or "[]")) for name in by if isinstance(_c[name].type, JSON)}
    return {**row, **lists}


def _key(name: str) -> ColumnElement[Any]:
    column = _c[name]
    if name == "pause_reason":
        return code_of(column)
    return cast(column, Text) if isinstance(column.type, JSON) else column


def chunks(values: Iterable[T], size: int = CHUNK) -> Iterator[list[T]]:
    """Return the values in lists of at most so many."""
    every = list(values)
    return (every[start : start + size] for start in range(0, len(every), size))
