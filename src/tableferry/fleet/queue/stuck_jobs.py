"""Jobs that somebody should look at: those that should move and don't, and those that wait for a person."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

from sqlalchemy import ColumnElement, Select, and_, case, func, null, or_, select

from tableferry.fleet.job import Job, State
from tableferry.fleet.queue.dialects import Utc
from tableferry.fleet.queue.schema import events, jobs, letters
from tableferry.fleet.queue.selections import Selection, to_shadow
from tableferry.fleet.queue.statements import free

_c = jobs.c
_RUNNING = _c.migration_paused.is_(False)

# Between two of these no mode waits for a letter, a day or a person, and writes are blocked.
_ON_THE_WALK = (
    State.WRITES_BLOCKED.value,
    State.ICEBERG_READY.value,
    State.ICEBERG_PRIMARY.value,
    State.SYNC_HIVE.value,
    State.HIVE_PRIMARY.value,
)


class Readable(Protocol):
    """The part of a store that the aggregates need."""

    def rows(self, query: Select[Any]) -> Sequence[Sequence[Any]]:
        """Answer a query over the queue's tables."""

    def jobs(self, selection: Selection, *, limit: int | None = None) -> Sequence[Job]:
        """Return jobs by their task_id."""


@dataclass(frozen=True)
class StuckJob:
    """A job that should move and doesn't.

    Attributes:
        task_id: The job.
        since: Since when.
        level: The letter's, where a letter wasn't sent.
    """

    task_id: int
    since: datetime
    level: int | None = None


def find(store: Readable, now: datetime, rest: timedelta, *, listed: int) -> dict[str, tuple[StuckJob, ...]]:
    """Return them by kind, as `Aggregates` names the kinds.

    Args:
        store: The queue.
        now: The time.
        rest: How long a job may rest on its way.
        listed: How many paused jobs, of whom there may be many.
    """
    return {
        **_stuck_jobs(store, now, rest),
        "untold": _untold(store, now),
        "paused": _to_resume(store, limit=listed),
    }


def last_change() -> ColumnElement[datetime]:
    """When a job last changed state, paused or was resumed.

    A claim changes the row too, and isn't a change: those who keep a Hive copy in step claim it every day.
    """
    last = select(func.max(events.c.at)).where(events.c.task_id == _c.task_id).scalar_subquery()
    return case(
        (_c.in_process.is_(True), func.coalesce(last, _c.created_at, type_=Utc())), else_=_c.last_updated_time
    )


def _stuck_jobs(store: Readable, now: datetime, rest: timedelta) -> dict[str, tuple[StuckJob, ...]]:
    """Look for all kinds at once: each asks of every job what few have."""
    kinds = {
        "lapsed": (_lapsed(now), _c.lease_until),
        "behind": (_behind(now), _out_of_step()),
        "resting": (_on_the_way(now), last_change()),
    }
    since = [case((which, at), else_=null()).label(kind) for kind, (which, at) in kinds.items()]
    query = select(_c.task_id, _c.state, *since).where(or_(*(which for which, _ in kinds.values())))
    found: dict[str, list[tuple[datetime, int]]] = {kind: [] for kind in kinds}
    for task_id, state, *times in store.rows(query):
        for kind, at in zip(kinds, times, strict=True):
            if at is not None and (kind != "resting" or _rests(state, at, now, rest)):
                found[kind].append((at, int(task_id)))
    return {kind: tuple(StuckJob(number, at) for at, number in sorted(few)) for kind, few in found.items()}


def _lapsed(now: datetime) -> Selection:
    return and_(_c.claimed_by.is_not(None), _c.lease_until < now)


def _on_the_way(now: datetime) -> Selection:
    """Unclaimed jobs that should be moving."""
    asked = and_(
        _c.state.in_((State.WRITES_UNBLOCKED.value, State.HIVE_DROPPED.value)),
        _c.state != _c.desired_state,
    )
    return and_(_RUNNING, free(now), or_(_c.state.in_(_ON_THE_WALK), asked))


def _rests(state: str, since: datetime, now: datetime, rest: timedelta) -> bool:
    """Tell whether a job should have gone on by now; before its run, a day is no rest."""
    return since < now - (rest if state in _ON_THE_WALK else max(rest, timedelta(days=1)))


def _behind(now: datetime) -> Selection:
    """Jobs whose copying back began and ended nowhere, or didn't begin in the first two days of probation."""
    broken = and_(_c.shadow_status.is_not(None), free(now), _c.last_updated_time < now - timedelta(days=1))
    never = and_(to_shadow(), _c.shadow_watermark.is_(None), _c.comm_level2_date < now - timedelta(days=2))
    return and_(_RUNNING, or_(broken, never))


def _out_of_step() -> ColumnElement[datetime]:
    return case((_c.shadow_status.is_not(None), _c.last_updated_time), else_=_c.comm_level2_date)


def _to_resume(store: Readable, limit: int) -> tuple[StuckJob, ...]:
    """Paused jobs, without those that are paused because they are back."""
    which = (
        select(_c.task_id, last_change().label("since"))
        .where(_c.migration_paused.is_(True), _c.state != State.ICEBERG_DROPPED.value)
        .subquery()
    )
    query = select(which.c.task_id, which.c.since).order_by(which.c.since, which.c.task_id).limit(limit)
    return tuple(StuckJob(int(task_id), at) for task_id, at in store.rows(query))


def _untold(store: Readable, now: datetime) -> tuple[StuckJob, ...]:
    """Jobs whose letter was recorded a day ago and not sent; letters that wait are few."""
    waiting = letters.c
    query = select(waiting.task_ids, waiting.recorded_at, waiting.level).where(
        waiting.sent_at.is_(None), waiting.recorded_at < now - timedelta(days=1)
    )
    found: dict[int, StuckJob] = {}
    for task_ids, recorded, level in store.rows(query.order_by(waiting.recorded_at)):
        for task_id in json.loads(task_ids) if isinstance(task_ids, str) else task_ids:
            found.setdefault(int(task_id), StuckJob(int(task_id), recorded, int(level)))
    return tuple(found.values())
