"""Rows in statements over the queue's Delta tables: one parameter in JSON, which `from_json` reads.

So many rows are written at once in any kind of session, through Spark Connect too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Boolean, Column, Integer

from tableferry.fleet.jobs.job import Job
from tableferry.fleet.queue.dialects import Utc
from tableferry.fleet.queue.statements import EVENT_COLUMNS

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def in_json(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return rows as JSON: a time is a number there, and what is JSON itself a text."""
    return json.dumps([{name: _value(value) for name, value in row.items()} for row in rows])


def _value(value: Any) -> Any:
    if isinstance(value, datetime):
        return (value - _EPOCH) // timedelta(microseconds=1)
    return json.dumps(value) if isinstance(value, (list, dict)) else value


def source(columns: Iterable[Column[Any]], *more: str) -> str:
    """Write the query that reads rows from the parameter ``:new``; more columns come with their types."""
    shape = ", ".join([*(f"{column.name} {_json_type(column)}" for column in columns), *more])
    return f"SELECT inline(from_json(:new, 'ARRAY<STRUCT<{shape}>>'))"


def _json_type(column: Column[Any]) -> str:
    match column.type:
        case Integer() | Utc():
            return "BIGINT"
        case Boolean():
            return "BOOLEAN"
        case _:
            return "STRING"


def read(columns: Iterable[Column[Any]], alias: str) -> dict[str, str]:
    """Write how each column is read from the rows of `source`."""
    return {
        column.name: f"timestamp_micros({alias}.{column.name})"
        if isinstance(column.type, Utc)
        else f"{alias}.{column.name}"
        for column in columns
    }


def with_event(changed: str, new: Mapping[str, str], worker: str) -> str:
    """Write a job's events with one more, if its state or pause changes."""
    values = ", ".join(f"'{name}', {new[column]}" for name, column in EVENT_COLUMNS.items())
    event = f"named_struct({values}, 'worker', {worker})"
    more = f"concat(coalesce(jobs.events, array()), array({event}))"
    return f"CASE WHEN {changed} THEN {more} ELSE jobs.events END"


def unchanged(jobs: Iterable[Job]) -> str:
    """Write the condition on rows that they are still what was read: every change counts the revision up."""
    by_revision: dict[int, list[int]] = {}
    for job in jobs:
        by_revision.setdefault(job.revision, []).append(job.task_id)
    same = (f"(revision = {int(revision)} AND {among(ids)})" for revision, ids in by_revision.items())
    return f"({' OR '.join(same)})"


def among(task_ids: Sequence[int]) -> str:
    """Write the condition on rows that they are of these jobs."""
    return f"task_id IN ({', '.join(str(int(task_id)) for task_id in task_ids)})"
