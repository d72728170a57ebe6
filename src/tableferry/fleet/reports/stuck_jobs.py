"""The rules by which a job is stuck: it should move and doesn't. The figures are selected by them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    CTE,
    Column,
    ColumnElement,
    Integer,
    Select,
    Text,
    and_,
    case,
    cast,
    column,
    func,
    or_,
    select,
    true,
)
from sqlalchemy.sql.util import ClauseAdapter
from sqlalchemy.sql.visitors import iterate

from tableferry.fleet.jobs.job import State, Trouble
from tableferry.fleet.queue.conditions import free
from tableferry.fleet.queue.dialects import Utc, elements_of, text_before
from tableferry.fleet.queue.schema import jobs, notifications
from tableferry.fleet.queue.selections import Selection, in_queue, to_notify, to_shadow, waiting_for_archive
from tableferry.fleet.reports.figure_queries import IN_QUEUE, last_change

DAY = timedelta(days=1)

Ago = Callable[[timedelta], Any]
"""Return the time before a duration: a value, or an expression that the query computes."""

_c = jobs.c
_RUNNING = _c.migration_paused.is_(False)

# Between two of these states no mode waits for a notification, a day or a person, and writes are blocked.
_WRITES_BLOCKED = (
    State.WRITES_BLOCKED.value,
    State.ICEBERG_READY.value,
    State.ICEBERG_PRIMARY.value,
    State.SYNC_HIVE.value,
    State.HIVE_PRIMARY.value,
)
# A job stays in these states until a user asks for more.
_AT_REST = (State.WRITES_UNBLOCKED.value, State.HIVE_DROPPED.value)

# The columns of the query that the rules read.
_CHANGED_AT = column("changed_at", Utc())
_LEVEL, _RECORDED_AT = column("level", Integer()), column("recorded_at", Utc())


@dataclass(frozen=True)
class Rule:
    """A way of being stuck.

    Attributes:
        words: The trouble for people; a column's name in braces is replaced by its value.
        applies: The jobs that are stuck by the rule.
        since: The time since when.
    """

    trouble: Trouble
    words: str
    applies: Selection
    since: ColumnElement[datetime]


def rules(ago: Ago, rest: timedelta) -> tuple[Rule, ...]:
    """Return the rules, the best explanation first: a job is stuck by the first that applies.

    `rest` is how long a job may stay where a run should continue it.
    """
    unclaimed = and_(_RUNNING, free(ago(timedelta(0))))
    started = case((_c.begun_at > _CHANGED_AT, _c.begun_at), else_=_CHANGED_AT)
    copying_broke_off = and_(
        unclaimed, to_shadow(), _c.shadow_status.is_not(None), _c.last_updated_time < ago(DAY)
    )
    never_copied = and_(to_shadow(), _c.shadow_watermark.is_(None), _c.comm_level2_date < ago(2 * DAY))
    return (
        Rule(
            Trouble.SHADOW_DELAYED,
            "the Hive copy isn't up to date",
            or_(copying_broke_off, never_copied),
            case((_c.shadow_status.is_not(None), _c.last_updated_time), else_=_c.comm_level2_date),
        ),
        Rule(
            Trouble.CLAIM_LAPSED,
            "the claim of worker {claimed_by} has lapsed",
            and_(_c.claimed_by.is_not(None), _c.lease_until < ago(timedelta(0))),
            _c.lease_until,
        ),
        Rule(
            Trouble.NOT_MOVING,
            "writes are blocked, and no run continues it",
            and_(unclaimed, _c.state.in_(_WRITES_BLOCKED), ago(rest) > _CHANGED_AT),
            _CHANGED_AT,
        ),
        Rule(
            Trouble.NOT_MOVING,
            "its migration has started, and no run continues it",
            # The rights of its writers may be taken already.
            and_(unclaimed, _c.state == State.READY.value, _c.in_process.is_(True), started < ago(rest)),
            started,
        ),
        Rule(
            Trouble.NOT_MOVING,
            "an archive or a revert is requested, and no run performs it",
            # Modes may run once a day.
            and_(
                unclaimed,
                _c.state.in_(_AT_REST),
                _c.state != _c.desired_state,
                ~waiting_for_archive(),
                ago(max(rest, DAY)) > _CHANGED_AT,
            ),
            _CHANGED_AT,
        ),
        Rule(
            Trouble.NOTIFICATION_NOT_SENT,
            "its notification of level {level} was recorded and not sent",
            _LEVEL.is_not(None),
            _RECORDED_AT,
        ),
    )


def stuck_jobs(ago: Ago, rest: timedelta) -> Select[Any]:
    """Select the stuck jobs, in no order: task_id, rule, since, changed_at, level.

    ``rule`` is the index, from 0, of the first of the `rules` that applies; the arguments are theirs too.
    ``level`` is that of the job's earliest late notification, with any rule; null if none is late.
    """
    by_rule = rules(ago, rest)
    columns = _columns_of(rule.applies for rule in by_rule) | _columns_of(rule.since for rule in by_rule)
    changed = (
        select(*sorted({_c.task_id, *columns}, key=str), last_change().label("changed_at"))
        .where(IN_QUEUE)
        .cte("changed")
    )
    unsent = _unsent(ago)
    in_changed = ClauseAdapter(changed)
    rule_number = case(*((in_changed.traverse(rule.applies), place) for place, rule in enumerate(by_rule)))
    examined = (
        select(*changed.c, unsent.c.level, unsent.c.recorded_at, rule_number.label("rule"))
        .select_from(changed.outerjoin(unsent, unsent.c.task_id == changed.c.task_id))
        .cte("examined")
        # Else PostgreSQL finds the rule again for each column, and compiles these copies for a second.
        .prefix_with("MATERIALIZED", dialect="postgresql")
    )
    in_examined = ClauseAdapter(examined)
    c = examined.c
    since = case(
        {place: in_examined.traverse(rule.since) for place, rule in enumerate(by_rule)}, value=c.rule
    )
    return select(c.task_id, c.rule, since.label("since"), c.changed_at, c.level).where(c.rule.is_not(None))


def _columns_of(clauses: Iterable[ColumnElement[Any]]) -> set[Column[Any]]:
    """Return the columns of jobs that conditions read."""
    elements = (element for clause in clauses for element in iterate(clause))
    return {each for each in elements if isinstance(each, Column) and each.table is jobs}


def _unsent(ago: Ago) -> CTE:
    """Select the earliest notification about each job that was recorded a day ago and isn't sent.

    A notification of an earlier migration isn't sent any more: the job's record doesn't name it.
    """
    c = notifications.c
    about = elements_of(c.task_ids).table_valued("value", name="about")
    # Up to the domain, whose characters JSON may escape.
    named = cast(_c.record, Text).contains(text_before(c.message_id, "@"))
    place = func.row_number().over(partition_by=_c.task_id, order_by=(c.recorded_at, c.message_id))
    late = (
        select(_c.task_id, c.level, c.recorded_at, place.label("place"))
        .select_from(notifications.join(about, true()).join(jobs, _c.task_id == cast(about.c.value, Integer)))
        .where(c.sent_at.is_(None), c.recorded_at < ago(DAY), in_queue(), to_notify(), named)
        .cte("late")
    )
    return select(late.c.task_id, late.c.level, late.c.recorded_at).where(late.c.place == 1).cte("unsent")


def paused_jobs(limit: int) -> Select[Any]:
    """Select the jobs that have been paused longest: task_id, since; not those paused by their revert."""
    paused = (
        select(_c.task_id, last_change().label("since"))
        .where(in_queue(), _c.migration_paused.is_(True), _c.state != State.ICEBERG_DROPPED.value)
        .subquery()
    )
    return select(paused.c.task_id, paused.c.since).order_by(paused.c.since, paused.c.task_id).limit(limit)
