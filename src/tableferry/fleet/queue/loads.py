"""What the tables of the waves are at, counted by the queue."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Integer, Select, case, cast, func, select

from tableferry.fleet.jobs.waves import Load
from tableferry.fleet.queue.schema import jobs, jobs_archive, waves
from tableferry.fleet.queue.selections import Selection, failed, taken_to_move
from tableferry.fleet.queue.store import Store

_c = jobs.c


def loads(store: Store, now: datetime) -> Mapping[str, Load]:
    """Return what each wave's tables are at; a wave without any isn't among them."""
    archived_name = jobs_archive.c.wave.label("wave")
    archived_query = select(archived_name, func.count().label("jobs")).where(jobs_archive.c.wave.is_not(None))
    archived = {
        str(name): int(count)
        for name, count in store.rows(archived_query.group_by(jobs_archive.c.wave))
        if name is not None
    }
    since_start = _c.last_updated_time >= waves.c.started_at
    # By the clock: of the last 60 minutes, an hourly run would find its limit used up by the one before.
    this_hour = now.replace(minute=0, second=0, microsecond=0)
    began = case((_c.begun_at >= this_hour, func.coalesce(_c.table_bytes, 0)), else_=0)
    query: Select[Any] = (
        select(
            _c.wave.label("wave"),
            func.count().label("jobs"),
            _how_many(failed() & since_start).label("failed"),
            _how_many(taken_to_move(now)).label("taken"),
            func.sum(began).label("bytes"),
        )
        .join_from(jobs, waves, _c.wave == waves.c.name)
        .group_by(_c.wave)
    )
    queued = {
        str(name): Load(int(tables) + archived.get(str(name), 0), int(gone), int(taken), int(size))
        for name, tables, gone, taken, size in store.rows(query)
    }
    return {name: Load(count) for name, count in archived.items()} | queued


def _how_many(condition: Selection) -> ColumnElement[Any]:
    return func.sum(cast(case((condition, 1), else_=0), Integer))
