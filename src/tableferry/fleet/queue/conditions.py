"""Conditions of claims and saves, and counts, which all stores of the queue share."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import (
    JSON,
    ColumnElement,
    Integer,
    Select,
    Text,
    and_,
    case,
    cast,
    false,
    func,
    or_,
    select,
    true,
)

from tableferry.fleet.jobs.job import Job
from tableferry.fleet.queue.dialects import code_of
from tableferry.fleet.queue.schema import jobs, waves
from tableferry.fleet.queue.selections import Selection, failed, in_queue, numbered, taken_to_move

T = TypeVar("T")

# A database limits the number of parameters in a statement; none limits it below this.
CHUNK = 1000

EVENT_COLUMNS = {
    "at": "last_updated_time",
    "state": "state",
    "desired_state": "desired_state",
    "paused": "migration_paused",
    "pause_reason": "pause_reason",
}
"""The columns of an event that a job has too, with the names of the job's columns."""

RECORDED = ("state", "desired_state", "migration_paused", "pause_reason")
"""A change of any of these columns makes an event."""

_c = jobs.c


def free(now: datetime) -> Selection:
    """Jobs without a claim, or whose claim has lapsed."""
    return or_(_c.claimed_by.is_(None), _c.lease_until <= now)


def shares(share: tuple[int, int]) -> Sequence[Selection]:
    """Return the conditions on jobs to claim, in this order: the worker's share, and then the rest."""
    worker, workers = share
    if workers <= 1:
        return [true()]
    return [_c.task_id % workers == worker % workers, _c.task_id % workers != worker % workers]


def unchanged(read: Iterable[Job]) -> Selection:
    """The jobs whose rows are those that were read: each change but a renewal increments the revision."""
    by_revision: dict[int, list[int]] = {}
    for job in read:
        by_revision.setdefault(job.revision, []).append(job.task_id)
    same = (and_(_c.revision == revision, numbered(ids)) for revision, ids in by_revision.items())
    return or_(false(), *same)


def still_claimed(job: Job, now: datetime) -> Selection:
    """The job's row, if it is the one that was read and its claim hasn't lapsed."""
    return and_(unchanged([job]), _c.claimed_by == job.claimed_by, _c.lease_until > now)


def count_query(selection: Selection, by: Sequence[str]) -> Select[Any]:
    """Count jobs of the queue by the values of some columns."""
    keys = [_key(name).label(name) for name in by]
    times = _c.last_updated_time
    return (
        select(
            *keys,
            func.count().label("jobs"),
            func.min(times).label("oldest"),
            func.max(times).label("newest"),
        )
        .where(in_queue(), selection)
        .group_by(*(_key(name) for name in by))
        .order_by(*(_key(name) for name in by))
    )


def count_row(row: Mapping[str, Any], by: Sequence[str]) -> Mapping[str, Any]:
    """Return a group that `count_query` found, with lists instead of their texts."""
    lists = {name: tuple(json.loads(row[name] or "[]")) for name in by if isinstance(_c[name].type, JSON)}
    return {**row, **lists}


def _key(name: str) -> ColumnElement[Any]:
    column = _c[name]
    if name == "pause_reason":
        return code_of(column)
    return cast(column, Text) if isinstance(column.type, JSON) else column


def wave_loads(now: datetime) -> Select[Any]:
    """Count the tables of each wave: all of them, the failed ones, and those that workers have claimed."""
    since_start = _c.last_updated_time >= waves.c.started_at
    return (
        select(
            _c.wave.label("wave"),
            func.count().label("jobs"),
            _count_if(in_queue() & failed() & since_start).label("failed"),
            _count_if(in_queue() & taken_to_move(now)).label("taken"),
        )
        .join_from(jobs, waves, _c.wave == waves.c.name)
        .group_by(_c.wave)
    )


def _count_if(condition: Selection) -> ColumnElement[Any]:
    return func.sum(cast(case((condition, 1), else_=0), Integer))


def chunks(values: Iterable[T], size: int = CHUNK) -> Iterator[list[T]]:
    """Return the values in lists of at most n."""
    every = list(values)
    return (every[start : start + size] for start in range(0, len(every), size))
