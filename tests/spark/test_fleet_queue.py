"""The queue in Delta tables."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession
from tests import conditions, soak
from tests.fleet_delta import empty_queue, made, store

# Whatever has SQL of its own here; what Python decides is tested with the databases' stores.
from tests.fleet_queue import (  # noqa: F401
    NOW,
    Queue,
    name,
    test_a_claimed_job_is_nobody_elses,
    test_a_table_has_one_job_however_often_it_is_added,
    test_everything_of_a_job_comes_back_as_it_was_saved,
    test_jobs_come_by_their_number_and_no_more_than_asked_for,
    test_notifications_are_recorded_once_and_then_sent,
    test_the_time_is_the_store_s,
)
from tests.fleet_worker import LEASE
from tests.mail_server import MailServer
from tests.spark.tables import schema_folder

from tableferry.errors import ServiceError
from tableferry.fleet.jobs.job import Job, State
from tableferry.fleet.modes.communicator import CommunicateReport, communicate
from tableferry.fleet.queue.delta import DeltaStore
from tableferry.fleet.queue.delta_tables import DeltaTables
from tableferry.fleet.queue.records import NewJob
from tableferry.fleet.queue.schema import REVISION
from tableferry.fleet.queue.selections import everything, to_preprocess
from tableferry.fleet.queue.store import ClaimLost
from tableferry.fleet.settings import FleetSettings, MailSettings
from tableferry.spark import session
from tableferry.spark.tables import TableName

if soak.EVERYTHING_ONCE:
    from tests.fleet_queue import (  # noqa: F401
        test_a_claim_holds_until_it_lapses_or_the_job_changes_and_as_long_as_it_is_renewed,
        test_a_wave_is_kept_as_it_is_and_changed_by_who_read_it,
        test_gaps_end_at_their_very_instant,
        test_jobs_that_havent_begun_are_put_into_a_wave,
        test_names_are_taken_as_they_are,
        test_selections_find_what_python_would,
        test_what_waves_are_at_is_counted_as_python_would,
    )
if soak.SOAKING:
    from tests.fleet_queue import *  # noqa: F403


@pytest.fixture(scope="module")
def location(spark: SparkSession) -> Iterator[str]:
    """A schema with a queue's tables, which a test leaves as they are."""
    schema = "fleet_queue"
    made(spark, schema)
    yield schema
    spark.sql(f"DROP SCHEMA {schema} CASCADE")


@pytest.fixture
def queue(spark: SparkSession, location: str) -> Iterator[Queue]:
    """An empty queue, in a session far from UTC."""
    zone = {"spark.sql.session.timeZone": "America/New_York"}
    with session.settings(spark, zone, "the test"):
        yield empty_queue(spark, location)


@soak.slow
def test_a_worker_whose_clock_is_two_hours_ahead_of_the_storage_takes_no_fresh_claim(
    spark: SparkSession, location: str, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine has the clock of its disk: so the disk gets another, two hours behind all workers'."""
    log = schema_folder(spark, location) / "clock" / "_delta_log"
    run, dated = DeltaStore._run, datetime.now(UTC) - timedelta(hours=2)

    def run_dated(ours: DeltaStore, text: str, *how: Any) -> None:
        run(ours, text, *how)
        if text.startswith("ALTER"):
            os.utime(max(log.glob("*.json")), (dated.timestamp(), dated.timestamp()))

    queue.add("a")
    with monkeypatch.context() as patch:
        patch.setattr(DeltaStore, "_run", run_dated)
        now = queue.store.now()
        assert abs(now - dated) < timedelta(minutes=1)
        # By the clock of its machine, two leases would be over.
        ahead = queue.reopen()
        [_] = queue.claim("right", now)
        assert list(ahead.claim(everything(), "ahead", now=ahead.now(), lease=LEASE, limit=1)) == []


class Crash(Exception):
    """A worker that dies between two statements."""


@soak.slow
def test_a_crash_between_archive_and_queue_leaves_the_job_in_the_queue(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    [job] = queue.add("a")

    def crash(*how: object) -> int:
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(queue.store, "_change", crash)
        with pytest.raises(Crash):
            queue.store.archive(everything(), NOW)
    assert list(queue.store.jobs(everything())) == [job]
    assert list(queue.store.archived(everything())) == []
    paused = queue.store.edit(replace(job, stg_format="orc"), NOW)
    assert queue.store.archive(everything(), NOW) == 1
    assert list(queue.store.archived(everything())) == [paused]
    # And when it is taken out of the archive.
    sound = queue.store._run  # type: ignore[attr-defined]

    def crash_late(text: str, *how: object) -> None:
        if text.startswith("DELETE"):
            raise Crash
        sound(text, *how)

    with monkeypatch.context() as patch:
        patch.setattr(queue.store, "_run", crash_late)
        with pytest.raises(Crash):
            queue.store.unarchive([job.task_id], NOW)
    [back] = queue.store.jobs(everything())
    assert back == replace(paused, revision=2)
    assert list(queue.store.archived(everything())) == []


@soak.only  # The stores in tests/unit have the same statement.
def test_an_archived_job_doesnt_come_back_beside_another_of_its_table(
    queue: Queue, spark: SparkSession, location: str
) -> None:
    [job] = queue.add("a")
    assert queue.store.archive(everything(), NOW) == 1
    queue.put([replace(job, task_id=job.task_id + 1000)])
    with conditions.raises("ARCHIVED_TABLE_HAS_JOB", reason=re.compile("^archived jobs ")):
        queue.store.unarchive([job.task_id], NOW)
    assert list(queue.store.archived(everything())) == [job]


@soak.only  # Other tests show notifications in Delta, and their delivery from any queue.
def test_notifications_of_a_queue_in_delta_go_out_once(queue: Queue) -> None:
    ann, ben = "ann@example.com", "ben@example.com"
    tables = [
        NewJob(name(table), tbl_owners=(ann,), downstream_users=(ben,) if table == "a" else ())
        for table in "abc"
    ]
    queue.store.add(tables, NOW)
    ready = [
        replace(table, state=State.READY, desired_state=State.WRITES_BLOCKED, to_be_processed=True)
        for table in queue.claim()
    ]
    queue.store.save_all(ready, NOW, release=True)
    with MailServer() as mail_server:
        settings = FleetSettings(mail=MailSettings(host="127.0.0.1", port=mail_server.port))

        def run() -> CommunicateReport:
            return communicate(queue.store, settings, worker="w", clock=lambda: NOW)

        # A user's server that is busy holds back the one table that the user reads.
        mail_server.rcpt = lambda to: "450 busy" if to == ben else ""
        first = run()
        assert (first.sent, first.failed, first.jobs, first.untold) == (1, 1, {1: 2}, 1)
        mail_server.rcpt = lambda to: ""
        second = run()
        assert (second.sent, second.failed, second.jobs, second.untold) == (1, 0, {1: 1}, 0)
        assert run() == CommunicateReport()
    assert [to for _, to in mail_server.delivered] == [ann, ben]
    assert {table.comm_level1_date for table in queue.store.jobs(everything())} == {NOW}
    remembered = queue.store.notifications(number for number, _ in mail_server.delivered)
    assert [table.sent_at for table in remembered.values()] == [NOW, NOW]


@soak.only  # tests/connect shows it of processes.
def test_threads_that_claim_at_once_share_the_jobs(queue: Queue) -> None:
    """Delta refuses all but one of two at once: each job still goes to one worker alone."""
    workers, batch = soak.amount((2, 2), (4, 8))
    added = queue.add(*(f"t{number}" for number in range(soak.amount(6, 24))))
    done: list[int] = []

    def work(worker: int) -> None:
        mine = queue.reopen()
        while jobs := mine.claim(
            to_preprocess(NOW),
            f"w{worker}",
            now=NOW,
            lease=LEASE,
            limit=batch,
            share=(worker, workers),
        ):
            done.extend(
                job.task_id
                for job in mine.save_all([replace(job, state=State.READY) for job in jobs], NOW, release=True)
            )

    threads = [threading.Thread(target=work, args=(number,)) for number in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == [job.task_id for job in added]
    assert [event.task_id for event in queue.store.events()] == sorted(done)


@soak.slow
def test_what_threads_save_at_once_is_one_commit_and_who_has_lost_its_job_is_told(queue: Queue) -> None:
    store = cast(DeltaStore, queue.store)
    queue.add("a", "b", "c", "d")
    ready: dict[str, Any] = {"state": State.READY, "desired_state": State.WRITES_BLOCKED}
    mine = {job.tbl_name: job for job in store.claim(everything(), "w", now=NOW, lease=LEASE, limit=4)}
    stale = mine["b"]
    mine["b"] = store.save(replace(stale, **ready), NOW, lease=LEASE)

    def commits() -> int:
        return store._spark.sql(f"DESCRIBE HISTORY {store._tables.jobs}").count()

    before, began, wait = commits(), threading.Event(), threading.Event()
    together = store._saves._work

    def first_waits(changes: Sequence[tuple[Job, Job]]) -> Sequence[bool]:
        began.set()
        assert wait.wait(timeout=60)
        return together(changes)

    store._saves._work = first_waits
    with ThreadPoolExecutor(5) as pool:
        saves = [pool.submit(store.save, replace(mine["d"], **ready), NOW, lease=LEASE)]
        assert began.wait(timeout=60)
        others = (mine["a"], stale, mine["c"], mine["c"])
        saves += [pool.submit(store.save, replace(job, **ready), NOW, release=True) for job in others]
        while len(store._saves._waiting) < 4:
            threading.Event().wait(0.001)
        wait.set()
    outcomes = [type(save.exception()) for save in saves]
    assert outcomes[:3] == [type(None), type(None), ClaimLost]
    # Of two that save the same the first one wins.
    assert sorted(outcomes[3:], key=str) == [type(None), ClaimLost]
    assert commits() - before == 2
    stored = {job.tbl_name: job for job in store.jobs(everything())}
    assert [stored[name].state for name in "abcd"] == [State.READY] * 4
    assert [stored[name].claimed_by for name in "abcd"] == [None, "w", None, "w"]
    assert stored["d"] == saves[0].result()
    assert stored["a"] == saves[1].result()
    assert sorted(event.task_id for event in store.events()) == [job.task_id for job in mine.values()]


@soak.slow
def test_tables_are_made_by_two_at_once(spark: SparkSession, schema: str) -> None:
    errors: list[Exception] = []

    def make() -> None:
        try:
            store(spark, schema).create()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=make) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert store(spark, schema).add([NewJob(name("a"))], NOW) == 1


@soak.slow
def test_a_queue_of_an_older_version_is_brought_up_to_this_one(spark: SparkSession, schema: str) -> None:
    older = DeltaTables(TableName.parse(f"spark_catalog.{schema}"))
    for statement in older.definitions():
        if "`waves`" not in statement:
            spark.sql(statement)
    micros = (NOW - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    spark.sql(
        f"INSERT INTO {schema}.jobs (catalog_name, db_name, tbl_name, data_category, to_be_processed, "
        "in_process, state, desired_state, initial_gap_days, probation_gap_days, migration_paused, "
        "pause_reason, created_at, last_updated_time, target_format, revision) VALUES ('spark_catalog', "
        "'sales', 'orders', 'UNKNOWN', false, false, 'Undefined', 'Undefined', 14, 0, false, 'None', "
        f"timestamp_micros({micros}), timestamp_micros({micros}), 'iceberg', 0)"
    )
    queue = store(spark, schema)
    with conditions.raises("QUEUE_VERSION_TOO_OLD"):
        queue.claim(everything(), "w", now=NOW, lease=LEASE, limit=1)
    queue.create()
    queue.create()
    [job] = queue.jobs(everything())
    assert job == Job(job.task_id, "spark_catalog", "sales", "orders", created_at=NOW, last_updated_time=NOW)
    assert queue.assign([job.task_id], "w1", NOW) == 1
    queue.archive(everything(), NOW)
    assert [job.wave for job in queue.archived(everything())] == ["w1"]


def test_a_newer_queue_is_neither_read_nor_changed(spark: SparkSession, location: str, queue: Queue) -> None:
    queue.add("a")
    jobs = DeltaTables(TableName.parse(location)).jobs
    revision = f"ALTER TABLE {jobs} SET TBLPROPERTIES ('tableferry.queue' = '%s')"
    spark.sql(revision % 9999)
    try:
        older = store(spark, location)
        for use in (
            older.create,
            lambda: older.jobs(everything()),
            lambda: older.claim(everything(), "w", now=NOW, lease=LEASE, limit=1),
        ):
            with conditions.raises("QUEUE_VERSION_TOO_NEW"):
                use()
    finally:
        spark.sql(revision % int(REVISION))
    [job] = store(spark, location).jobs(everything())
    assert job.claimed_by is None


def test_tables_that_are_no_queue_s_are_told_in_one_line(spark: SparkSession, schema: str) -> None:
    spark.sql(f"CREATE TABLE {schema}.jobs (task_id BIGINT) USING delta")
    with pytest.raises(ServiceError) as caught:
        store(spark, schema).jobs(everything())
    conditions.check(
        caught.value,
        "QUEUE_REQUEST_FAILED",
        queue=f"delta:spark_catalog.{schema}",
        reason=re.compile("catalog_name"),
    )
    assert "\n" not in caught.value.message


@soak.only  # It waits for as long as another process may take.
def test_a_queue_that_a_killed_process_left_half_made_says_what_to_do(
    spark: SparkSession, schema: str
) -> None:
    (schema_folder(spark, schema) / "jobs" / "_delta_log" / "_staged_commits").mkdir(parents=True)
    with conditions.raises("QUEUE_TABLE_HALF_CREATED", reason=re.compile("jobs")):
        store(spark, schema).create()


def test_a_queue_that_isnt_there_says_how_to_make_it(spark: SparkSession, schema: str) -> None:
    with conditions.raises("QUEUE_NOT_FOUND", queue=f"delta:spark_catalog.{schema}"):
        store(spark, schema).jobs(everything())
