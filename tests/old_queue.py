"""A queue that revision 0006 wrote, before archived jobs moved into the table of jobs.

The code of that revision (commit 8f8bfd17) wrote the files in tests/queues: a dump of a SQLite file with jobs
in each state, the jobs that selections found in it, and the statements that created the Delta tables.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from sqlalchemy import JSON, Boolean, Table

from tableferry.fleet.jobs.job import Job
from tableferry.fleet.queue import selections
from tableferry.fleet.queue.dialects import Utc
from tableferry.fleet.queue.records import Event, from_row
from tableferry.fleet.queue.schema import events, jobs
from tableferry.fleet.queue.store import Store

QUEUES = Path(__file__).parent / "queues"
DUMP = (QUEUES / "0006.sqlite.sql").read_text(encoding="utf-8")
DELTA_STATEMENTS = (QUEUES / "0006.delta.sql").read_text(encoding="utf-8").split(";\n")[:-1]

# When the queue was written.
NOW = datetime(2026, 3, 1, 9, 30, 15, 123457, tzinfo=UTC)


# These selections need the time.
TIMED = ("to_preprocess", "to_migrate", "archived_lately")


@cache
def rows() -> Mapping[str, list[dict[str, Any]]]:
    """Return the rows of each table as SQLite stores them."""
    connection = sqlite3.connect(":memory:")
    connection.executescript(DUMP)
    connection.row_factory = sqlite3.Row
    tables = ("jobs", "jobs_archive", "letters", "waves", "events")
    return {table: [dict(row) for row in connection.execute(f"SELECT * FROM {table}")] for table in tables}


def stored_jobs(table: str) -> list[Job]:
    """Return the jobs in ``jobs`` or ``jobs_archive``."""
    return [from_row(Job, _values(row, jobs)) for row in rows()[table]]


def stored_events() -> list[Event]:
    """Return the events."""
    return [from_row(Event, _values(row, events)) for row in rows()["events"]]


def _values(row: Mapping[str, Any], table: Table) -> dict[str, Any]:
    """Return a row's values as a store reads them."""
    values: dict[str, Any] = {"archived_at": None, **row}
    for column in table.c:
        value = values[column.name]
        if value is None:
            continue
        match column.type:
            case JSON():
                values[column.name] = json.loads(value)
            case Utc():
                values[column.name] = datetime.fromisoformat(value).replace(tzinfo=UTC)
            case Boolean():
                values[column.name] = bool(value)
    return values


def check_jobs(store: Store) -> None:
    """Check that each job has the fields that it had, and that selections find the jobs that they found."""
    assert list(store.jobs(selections.everything())) == stored_jobs("jobs")
    assert list(store.archived(selections.everything())) == stored_jobs("jobs_archive")
    found = json.loads((QUEUES / "0006.json").read_text(encoding="utf-8"))
    for name, numbers in found.items():
        selection = getattr(selections, name)
        condition = selection(NOW) if name in TIMED else selection()
        assert [job.task_id for job in store.jobs(condition)] == numbers, name
