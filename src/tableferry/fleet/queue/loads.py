"""What the tables of the waves are at, counted by the queue."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Integer, Select, case, cast, func, select

from tableferry.fleet.jobs.waves import Load
from tableferry.fleet.queue.schema import jobs, waves
from tableferry.fleet.queue.selections import Selection, failed, in_queue, taken_to_move
from tableferry.fleet.queue.store import Store

_c = jobs.c


def loads(store: Store, now: datetime) -> Mapping[str, Load]:
    """Return what each wave's tables are at; a wave without any isn't among them."""
    since_start = _c.last_updated_time >= waves.c.started_at
    query: Select[Any] = (
        select(
            _c.wave.label("wave"),
            func.count().label("jobs"),
            _how_many(in_queue() & failed() & since_start).label("failed"),
            _how_many(in_queue() & taken_to_move(now)).label("taken"),
        )
        .join_from(jobs, waves, _c.wave == waves.c.name)
        .group_by(_c.wave)
    )
    return {
        str(name): Load(int(tables), int(gone), int(taken)) for name, tables, gone, taken in store.rows(query)
    }


def _how_many(condition: Selection) -> ColumnElement[Any]:
    return func.sum(cast(case((condition, 1), else_=0), Integer))
