"""Conditions on the table of jobs: the jobs of each mode, wave, name and state."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from sqlalchemy import ColumnElement, and_, false, not_, or_, select, true

from tableferry.errors import TableError
from tableferry.fleet.jobs.job import LONGEST_NAME, PauseReason, State
from tableferry.fleet.jobs.transitions import BACK, FORWARD
from tableferry.fleet.jobs.waves import WaveStatus
from tableferry.fleet.queue.dialects import code_of, days_after
from tableferry.fleet.queue.schema import jobs, waves
from tableferry.spark.tables import TableName

if TYPE_CHECKING:
    from tableferry.fleet.queue.store import Store

Selection = ColumnElement[bool]
"""A condition on the columns of `schema.jobs`."""

_c = jobs.c
_RUNNING = _c.migration_paused.is_(False)
# The job has no wave, or its wave is running.
_IN_TURN = or_(
    _c.wave.is_(None), _c.wave.in_(select(waves.c.name).where(waves.c.status == WaveStatus.RUNNING.value))
)

DAYS_AFTER_ARCHIVE = timedelta(days=7)
"""The time after the third notification in which jobs of the queue are checked for late files."""


def everything() -> Selection:
    """All jobs."""
    return true()


def in_queue() -> Selection:
    """The jobs that aren't archived."""
    return _c.archived_at.is_(None)


def in_archive() -> Selection:
    """The archived jobs."""
    return _c.archived_at.is_not(None)


def any_of(selections: Iterable[Selection]) -> Selection:
    """The jobs of any of these selections."""
    return or_(false(), *selections)


def named(tables: Iterable[TableName]) -> Selection:
    """The jobs of these tables, each with catalog and schema."""
    names: dict[tuple[str, str], list[str]] = {}
    for catalog, schema, name in map(address, tables):
        names.setdefault((catalog, schema), []).append(name)
    return or_(
        false(),
        *(
            and_(_c.catalog_name == catalog, _c.db_name == schema, _c.tbl_name.in_(some))
            for (catalog, schema), some in names.items()
        ),
    )


def address(table: TableName) -> tuple[str, str, str]:
    """Return catalog, schema and table in lower case, as Hive and Unity Catalog store them.

    Raises:
        TableError: The name has no catalog or schema, or a part is too long.
    """
    if len(table.parts) != 3:
        raise TableError("JOB_NAME_INCOMPLETE", table=table)
    if any(len(part) > LONGEST_NAME for part in table.parts):
        raise TableError("TABLE_NAME_PART_TOO_LONG", table=table, longest=LONGEST_NAME)
    catalog, schema, name = (part.lower() for part in table.parts)
    return catalog, schema, name


def numbered(task_ids: Iterable[int]) -> Selection:
    """The jobs with these numbers."""
    return _c.task_id.in_(list(task_ids))


def numbered_after(task_ids: Iterable[int], share: tuple[int, int] = (0, 1)) -> Selection:
    """The jobs that follow these, if jobs are claimed by their number, first those of the worker's share.

    The condition has two numbers for any number of jobs, because databases limit the length of a statement.
    """
    worker, workers = share
    last = {True: 0, False: 0}
    for number in task_ids:
        own = number % workers == worker % workers
        last[own] = max(last[own], number)
    own_share = _c.task_id % workers == worker % workers
    return or_(own_share & (_c.task_id > last[True]), not_(own_share) & (_c.task_id > last[False]))


def least_recent(store: Store, due: Selection, count: int) -> Selection:
    """The first `count` of the due jobs, by the time of their last change."""
    order = (_c.last_updated_time, _c.task_id)
    found = store.rows(select(*order).where(in_queue(), due).order_by(*order).limit(count))
    if not found:
        return true()
    time, number = found[-1]
    return or_(_c.last_updated_time < time, (_c.last_updated_time == time) & (_c.task_id <= number))


def to_preprocess(now: datetime) -> Selection:
    """New jobs, jobs whose probation is over, unless their wave is paused, and jobs that are completed."""
    return _RUNNING & or_(
        _c.to_be_processed.is_(False) & _c.in_process.is_(False) & _at(State.UNDEFINED),
        _c.in_process.is_(True)
        & _at(State.WRITES_UNBLOCKED)
        & (days_after(_c.comm_level2_date, _c.probation_gap_days) <= now)
        & _IN_TURN,
        _c.in_process.is_(True) & _at(State.HIVE_DROPPED),
    )


def to_notify() -> Selection:
    """Jobs whose owners and readers get a notification of level 1 (if their wave is running), 2 or 3."""
    return _RUNNING & or_(
        _c.to_be_processed.is_(True)
        & _pair(State.READY, State.WRITES_BLOCKED)
        & _c.comm_level1_date.is_(None)
        & _IN_TURN,
        _c.in_process.is_(True) & _at(State.WRITES_UNBLOCKED) & _c.comm_level2_date.is_(None),
        _c.in_process.is_(False) & _at(State.HIVE_DROPPED) & _c.comm_level3_date.is_(None),
    )


def to_migrate(now: datetime) -> Selection:
    """Announced jobs whose gap is over, and jobs whose migration has started."""
    return to_start(now) | to_continue()


def to_start(now: datetime) -> Selection:
    """Announced jobs whose gap is over, without a wave or with a running one."""
    return (
        _RUNNING
        & _c.to_be_processed.is_(True)
        & _pair(State.READY, State.WRITES_BLOCKED)
        & (days_after(_c.comm_level1_date, _c.initial_gap_days) <= now)
        & _IN_TURN
    )


def to_continue() -> Selection:
    """Jobs whose migration has started, with any status of their wave; an archive needs a running wave."""
    forward = or_(*(_pair(*pair) for pair in FORWARD))
    return _RUNNING & _c.in_process.is_(True) & forward & ~waiting_for_archive()


def to_archive() -> Selection:
    """Jobs whose Hive table is archived, or will be next."""
    return _c.desired_state == State.HIVE_DROPPED.value


def waiting_for_archive() -> Selection:
    """Jobs whose archive waits for their wave."""
    return and_(to_archive(), not_(_IN_TURN))


def in_wave(name: str) -> Selection:
    """The jobs of a wave."""
    return _c.wave == name


def in_other_waves(names: Iterable[str]) -> Selection:
    """The jobs of none of these waves."""
    return or_(_c.wave.is_(None), _c.wave.not_in(list(names)))


def taken_to_move(now: datetime) -> Selection:
    """Jobs that a worker has claimed to migrate, before probation."""
    moving = or_(*(_pair(*pair) for pair in FORWARD if pair[1] is not State.HIVE_DROPPED))
    announced = _c.in_process.is_(True) | _c.comm_level1_date.is_not(None)
    return _RUNNING & moving & announced & _c.claimed_by.is_not(None) & (_c.lease_until > now)


def failed() -> Selection:
    """Jobs that have started and are paused, but not by a user, and reverted jobs."""
    code = code_of(_c.pause_reason)
    reverted = code == PauseReason.REVERTED.value
    return (
        _c.migration_paused.is_(True)
        & (_c.in_process.is_(True) | reverted)
        & (code != PauseReason.PAUSED_BY_USER.value)
    )


def to_shadow() -> Selection:
    """Jobs on probation whose Hive copy gets the changes of the new table."""
    return _RUNNING & _c.in_process.is_(True) & _at(State.WRITES_UNBLOCKED) & (_c.probation_gap_days > 0)


def archived_lately(now: datetime) -> Selection:
    """Jobs whose Hive table was archived recently, so that they are checked for late files."""
    since = _c.comm_level3_date.is_(None) | (_c.comm_level3_date > now - DAYS_AFTER_ARCHIVE)
    return _RUNNING & _at(State.HIVE_DROPPED) & since


def to_revert() -> Selection:
    """Jobs that are being reverted."""
    return _RUNNING & or_(*(_pair(*pair) for pair in BACK))


def completed() -> Selection:
    """Completed jobs whose last notification is sent and that aren't paused."""
    return _RUNNING & _c.in_process.is_(False) & _at(State.HIVE_DROPPED) & _c.comm_level3_date.is_not(None)


def finished() -> Selection:
    """Completed jobs that don't wait for their close."""
    return completed() & _c.close_at.is_(None)


def to_close(now: datetime) -> Selection:
    """Completed jobs for which the time to cancel the close is over."""
    return completed() & (_c.close_at <= now)


def not_started() -> Selection:
    """Jobs whose table wasn't changed yet."""
    return _at(State.UNDEFINED) | _pair(State.READY, State.WRITES_BLOCKED)


def may_be_assigned(wave: str | None) -> Selection:
    """Jobs that haven't started, in other waves than this one or without a wave."""
    elsewhere = _c.wave.is_not(None) if wave is None else in_other_waves([wave])
    return not_started() & _c.in_process.is_(False) & elsewhere


def moved() -> Selection:
    """Jobs whose table has its new format."""
    return _at(State.WRITES_UNBLOCKED) | _at(State.HIVE_DROPPED)


def moved_elsewhere() -> Selection:
    """Jobs whose new table is in another schema or catalog than the Hive table."""
    return _c.state.in_([State.WRITES_UNBLOCKED.value, State.HIVE_DROPPED.value]) & or_(
        _c.target_catalog.is_not(None), _c.target_schema.is_not(None)
    )


def of_schemas(schemas: Iterable[TableName]) -> Selection:
    """The jobs of all tables of some schemas, each with its catalog."""
    return or_(
        false(),
        *(and_(_c.catalog_name == schema.parts[0], _c.db_name == schema.parts[1]) for schema in schemas),
    )


def _at(state: State) -> Selection:
    return _pair(state, state)


def _pair(state: State, desired: State) -> Selection:
    return and_(_c.state == state.value, _c.desired_state == desired.value)
