"""Jobs that somebody should look at: those that should move and don't, and those that wait for a person.

The rules are data: the command line asks a store by them, and the dashboard's queries are made of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, and_, case, func, null, or_, select

from tableferry.fleet.jobs.job import State, Trouble
from tableferry.fleet.queue.dialects import Utc
from tableferry.fleet.queue.schema import events, jobs, notifications
from tableferry.fleet.queue.selections import Selection, numbered, to_notify, to_shadow, waiting_for_archive
from tableferry.fleet.queue.statements import chunks, free
from tableferry.fleet.queue.store import Store

DAY = timedelta(days=1)

Ago = Callable[[timedelta], Any]
"""Gives the time that was so long ago: a value, or what a query computes when it is run."""

_c = jobs.c
_RUNNING = _c.migration_paused.is_(False)

# Between two of these no mode waits for a notification, a day or a person, and writes are blocked.
_WRITES_BLOCKED = (
    State.WRITES_BLOCKED.value,
    State.ICEBERG_READY.value,
    State.ICEBERG_PRIMARY.value,
    State.SYNC_HIVE.value,
    State.HIVE_PRIMARY.value,
)
# Here a job stays until somebody asks for more.
_AT_REST = (State.WRITES_UNBLOCKED.value, State.HIVE_DROPPED.value)


@dataclass(frozen=True)
class Rule:
    """What makes a job stuck.

    Attributes:
        words: The trouble for people; a column's name in braces stands for its value.
        applies: Which jobs are stuck by it.
    """

    trouble: Trouble
    words: str
    applies: Selection
    since: ColumnElement[datetime]


def rules(ago: Ago, rest: timedelta, changed: ColumnElement[datetime]) -> tuple[Rule, ...]:
    """Return the rules over jobs, what explains most first: a job is stuck by the first that applies.

    `rest` is how long a job may stay where it should go on; `changed` is when it last changed: `last_change`.
    """
    unclaimed = and_(_RUNNING, free(ago(timedelta(0))))
    started = case((_c.begun_at > changed, _c.begun_at), else_=changed)
    copying_broke_off = and_(
        unclaimed, to_shadow(), _c.shadow_status.is_not(None), _c.last_updated_time < ago(DAY)
    )
    never_copied = and_(to_shadow(), _c.shadow_watermark.is_(None), _c.comm_level2_date < ago(2 * DAY))
    return (
        Rule(
            Trouble.SHADOW_BEHIND,
            "the Hive copy isn't kept in step",
            or_(copying_broke_off, never_copied),
            case((_c.shadow_status.is_not(None), _c.last_updated_time), else_=_c.comm_level2_date),
        ),
        Rule(
            Trouble.CLAIM_LAPSED,
            "worker {claimed_by} claimed it and gives no sign of life",
            and_(_c.claimed_by.is_not(None), _c.lease_until < ago(timedelta(0))),
            _c.lease_until,
        ),
        Rule(
            Trouble.NOT_MOVING,
            "writes are blocked, and no run goes on with it",
            and_(unclaimed, _c.state.in_(_WRITES_BLOCKED), changed < ago(rest)),
            changed,
        ),
        Rule(
            Trouble.NOT_MOVING,
            "its migration has started, and no run goes on with it",
            # The rights of its writers may be taken already.
            and_(unclaimed, _c.state == State.READY.value, _c.in_process.is_(True), started < ago(rest)),
            started,
        ),
        Rule(
            Trouble.NOT_MOVING,
            "asked for, and no run took it up",
            # Before its run, a day is no rest.
            and_(
                unclaimed,
                _c.state.in_(_AT_REST),
                _c.state != _c.desired_state,
                ~waiting_for_archive(),
                changed < ago(max(rest, DAY)),
            ),
            changed,
        ),
    )


UNSENT_WORDS = "its notification of level {level} was recorded and not sent"
"""What's wrong, for people, with the jobs of an unsent notification: the last of the rules."""


def unsent(ago: Ago) -> Selection:
    """Notifications that were recorded a day ago and not sent.

    They are wanted as long as a job is to be notified and has them noted: an earlier migration's aren't.
    """
    return and_(notifications.c.sent_at.is_(None), notifications.c.recorded_at < ago(DAY))


def last_change() -> ColumnElement[datetime]:
    """When a job last changed state, paused or was resumed.

    A claim changes the row too, and isn't a change: whoever is to go on with it claims it at each run.
    """
    last = select(func.max(events.c.at)).where(events.c.task_id == _c.task_id).scalar_subquery()
    return func.coalesce(last, _c.created_at, type_=Utc())


@dataclass(frozen=True)
class PausedJob:
    """A job that waits for a person."""

    task_id: int
    since: datetime


@dataclass(frozen=True)
class StuckJob:
    """A job that should move and doesn't.

    Attributes:
        words: The trouble for people, as in `Rule`.
        level: The notification's, where one wasn't sent.
    """

    task_id: int
    since: datetime
    trouble: Trouble
    words: str
    level: int | None = None


def stuck_jobs(store: Store, now: datetime, rest: timedelta) -> tuple[tuple[StuckJob, ...], ...]:
    """Return the jobs that each rule applies to, in the rules' order and the longest first."""
    of_jobs = rules(lambda passed: now - passed, rest, last_change())
    # All rules at once: each asks of every job what few have.
    since = [
        case((rule.applies, rule.since), else_=null()).label(f"since_{number}")
        for number, rule in enumerate(of_jobs)
    ]
    query = select(_c.task_id, *since).where(or_(*(rule.applies for rule in of_jobs)))
    by_rule: list[list[StuckJob]] = [[] for _ in of_jobs]
    for task_id, *times in store.rows(query):
        for rule, stuck, time in zip(of_jobs, by_rule, times, strict=True):
            if time is not None:
                stuck.append(StuckJob(int(task_id), time, rule.trouble, rule.words))
    for stuck in by_rule:
        stuck.sort(key=lambda job: (job.since, job.task_id))
    return (*map(tuple, by_rule), _unsent(store, now))


def _unsent(store: Store, now: datetime) -> tuple[StuckJob, ...]:
    """Jobs of notifications that weren't sent: these are few."""
    c = notifications.c
    late = unsent(lambda passed: now - passed)
    query = select(c.message_id, c.task_ids, c.recorded_at, c.level).where(late).order_by(c.recorded_at)
    recorded = [
        (int(task_id), message_id, recorded_at, int(level))
        for message_id, task_ids, recorded_at, level in store.rows(query)
        for task_id in (json.loads(task_ids) if isinstance(task_ids, str) else task_ids)
    ]
    numbers = {task_id for task_id, *_ in recorded}
    wanted = {
        (job.task_id, message_id)
        for some in chunks(sorted(numbers))
        for job in store.jobs(numbered(some) & to_notify())
        for message_id in job.record.letters.get("left", {})
    }
    stuck: dict[int, StuckJob] = {}
    for task_id, message_id, recorded_at, level in recorded:
        if (task_id, message_id) in wanted:
            job = StuckJob(task_id, recorded_at, Trouble.NOTIFICATION_NOT_SENT, UNSENT_WORDS, level)
            stuck.setdefault(task_id, job)
    return tuple(stuck.values())


def paused_jobs(store: Store, limit: int) -> tuple[PausedJob, ...]:
    """Return paused jobs, the longest first, without those that are paused because they are reverted."""
    paused = (
        select(_c.task_id, last_change().label("since"))
        .where(_c.migration_paused.is_(True), _c.state != State.ICEBERG_DROPPED.value)
        .subquery()
    )
    query = select(paused.c.task_id, paused.c.since).order_by(paused.c.since, paused.c.task_id).limit(limit)
    return tuple(PausedJob(int(task_id), since) for task_id, since in store.rows(query))
