"""A queue that an older version wrote is upgraded, and each of its jobs continues."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import JSON, Boolean, Date, DateTime, Engine, MetaData, inspect, text
from tests import conditions, old_queue
from tests.old_queue import NOW

from tableferry.fleet.jobs.job import State
from tableferry.fleet.jobs.transitions import BACK, FORWARD
from tableferry.fleet.jobs.waves import WaveStatus
from tableferry.fleet.queue.opening import open_store
from tableferry.fleet.queue.records import NewJob
from tableferry.fleet.queue.schema import VERSION_TABLE, metadata
from tableferry.fleet.queue.selections import everything, finished, numbered
from tableferry.fleet.queue.sql import SqlStore
from tableferry.fleet.queue.upgrades import upgrade
from tableferry.fleet.reports.status import read_status

HOUR = timedelta(hours=1)


@pytest.fixture
def store(url: str, tmp_path: Path) -> Iterator[SqlStore]:
    """The older queue in a database, before its upgrade."""
    if url.startswith("sqlite"):
        url = f"sqlite:///{tmp_path}/fleet.db"
        connection = sqlite3.connect(tmp_path / "fleet.db")
        connection.executescript(old_queue.DUMP)
        connection.close()
    opened = open_store(url)
    assert isinstance(opened, SqlStore)
    if not url.startswith("sqlite"):
        drop(opened._engine)
        write(opened._engine)
    yield opened
    drop(opened._engine)
    opened.close()


def drop(engine: Engine) -> None:
    metadata.drop_all(engine)
    with engine.begin() as connection:
        for table in ("jobs_archive", VERSION_TABLE):
            connection.execute(text(f"DROP TABLE IF EXISTS {table}"))


def write(engine: Engine) -> None:
    """Write the rows into the tables that the older revision creates in a server's database."""
    with engine.begin() as connection:
        upgrade(connection, "0006")
    older = MetaData()
    older.reflect(engine)
    with engine.begin() as connection:
        for name, rows in old_queue.rows().items():
            table = older.tables[name]
            converted = [
                {column: convert(value, table.c[column].type) for column, value in row.items()}
                for row in rows
            ]
            connection.execute(table.insert(), converted)
        if engine.dialect.name == "postgresql":
            for name, column in (("jobs", "task_id"), ("events", "event_id")):
                connection.execute(text(f"SELECT setval(pg_get_serial_sequence('{name}', '{column}'), 1000)"))


def convert(value: Any, column_type: Any) -> Any:
    """Convert a value of SQLite; MariaDB stores JSON as text and a boolean as a number, as SQLite does."""
    match column_type:
        case JSON() if value is not None:
            return json.loads(value)
        case Boolean() if value is not None:
            return bool(value)
        case DateTime() if value is not None:
            return datetime.fromisoformat(value)
        case Date():
            return datetime.fromisoformat(value).date()
    return value


def test_jobs_of_an_older_queue_continue_in_each_state(store: SqlStore) -> None:
    with conditions.raises("QUEUE_VERSION_TOO_OLD"):
        store.jobs(everything())
    store.create()
    old_queue.check_jobs(store)
    assert not inspect(store._engine).has_table("jobs_archive")
    # Claims still hold until they lapse.
    held = {job.task_id for job in store.jobs(everything()) if job.lease_until and job.lease_until > NOW}
    mine = store.claim(everything(), "w", now=NOW, lease=HOUR, limit=100)
    assert len(held) == 1
    assert {job.task_id for job in mine} == {job.task_id for job in store.jobs(everything())} - held
    events = len(store.events())
    for job in mine:
        transition = {**BACK, **FORWARD}.get(job.pair)
        state = job.desired_state
        after = replace(job, state=state, desired_state=transition.then if transition else state)
        saved = store.save(after, NOW, release=True)
        assert list(store.jobs(numbered([job.task_id]))) == [saved]
    moved = sum(job.pair in {**BACK, **FORWARD} for job in mine)
    assert len(store.events()) == events + moved


def test_archive_of_an_older_queue_continues(store: SqlStore) -> None:
    store.create()
    archived = {job.tbl_name: job for job in store.archived(everything())}
    assert sorted(archived) == ["archived", "archived_again", "archived_closed"]
    assert {job.state for job in archived.values()} == {State.HIVE_DROPPED}
    before = archived["archived"]
    assert before.archived_at == NOW - 5 * HOUR
    assert store.add([NewJob(before.name)], NOW) == 0
    [back] = store.unarchive([before.task_id], NOW)
    expected = replace(before, archived_at=None, revision=before.revision + 1, last_updated_time=NOW)
    assert list(store.jobs(numbered([before.task_id]))) == [back] == [expected]
    # The finished jobs, and the one that returned from the archive.
    assert store.archive(finished(), NOW) == 3
    assert len(store.archived(everything())) == 5
    assert store.add([NewJob(replace(before.name, parts=("spark_catalog", "sales", "new")))], NOW) == 1
    [new] = store.jobs(numbered([job.task_id for job in store.jobs(everything())][-1:]))
    assert new.task_id > max(job.task_id for job in archived.values())


def test_waves_notifications_and_events_of_an_older_queue_are_kept(store: SqlStore) -> None:
    store.create()
    first, later = store.waves()
    assert (first.status, later.status) == (WaveStatus.RUNNING, WaveStatus.PAUSED)
    assert store.save_wave(replace(later, status=WaveStatus.RUNNING)).revision == 2
    assert store.wave_loads(NOW)["first"].tables == 1
    found = store.notifications(["<1@x>", "<2@x>", "<3@x>"])
    assert [record.sent_at is None for record in found.values()] == [False, False, True]
    store.notifications_sent(["<3@x>"], NOW)
    assert store.notifications(["<3@x>"])["<3@x>"].sent_at == NOW
    kept = [(event.task_id, event.at, str(event.was), str(event.state)) for event in store.events()]
    written = [
        (row["task_id"], datetime.fromisoformat(row["at"]).replace(tzinfo=UTC), row["was"], row["state"])
        for row in old_queue.rows()["events"]
    ]
    assert sorted(kept) == sorted(written)
    assert read_status(store, NOW).total == len(old_queue.stored_jobs("jobs")) + 3
