"""The queue in Delta tables."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession
from tests import conditions, old_queue, soak
from tests.fleet_delta import empty_queue, made, put, store

# Tests of SQL that differs here; the databases' stores test decisions in Python.
from tests.fleet_queue import (  # noqa: F401
    NOW,
    Queue,
    name,
    test_claimed_job_is_claimed_by_no_other_worker,
    test_jobs_are_ordered_by_number_and_limited,
    test_notifications_are_recorded_once_and_marked_sent,
    test_saved_job_is_read_with_all_fields,
    test_store_returns_its_own_time,
    test_table_that_is_added_repeatedly_has_one_job,
)
from tests.fleet_worker import LEASE
from tests.mail_server import MailServer
from tests.spark.tables import schema_folder, tables_in

from tableferry.errors import ServiceError
from tableferry.fleet.jobs.job import Job, State
from tableferry.fleet.modes.communicator import CommunicateReport, communicate
from tableferry.fleet.queue.changes import Change, ClaimLost
from tableferry.fleet.queue.delta import DeltaStore
from tableferry.fleet.queue.delta_tables import PROPERTY, UPGRADED, DeltaTables
from tableferry.fleet.queue.records import Event, NewJob
from tableferry.fleet.queue.schema import REVISION
from tableferry.fleet.queue.selections import everything, numbered, to_preprocess
from tableferry.fleet.settings import FleetSettings, MailSettings
from tableferry.spark import session
from tableferry.spark.tables import TableName

if soak.EVERYTHING_ONCE:
    from tests.fleet_queue import (  # noqa: F401
        test_archived_job_keeps_its_fields_and_is_neither_claimed_nor_changed,
        test_archived_jobs_return_to_the_queue,
        test_assign_puts_unstarted_jobs_into_a_wave,
        test_claim_holds_until_it_lapses_or_the_job_changes,
        test_gaps_end_at_the_exact_time,
        test_loads_of_waves_match_python,
        test_names_with_special_characters_are_stored_unchanged,
        test_renewal_after_the_read_keeps_a_job_from_being_claimed_and_archived,
        test_save_all_writes_jobs_except_lost_ones,
        test_selections_match_python,
        test_wave_is_stored_and_changed_by_its_reader,
    )
if soak.SOAKING:
    from tests.fleet_queue import *  # noqa: F403


@pytest.fixture(scope="module")
def location(spark: SparkSession) -> Iterator[str]:
    """Provide a schema with the tables of a queue, which tests don't change."""
    schema = "fleet_queue"
    made(spark, schema)
    yield schema
    spark.sql(f"DROP SCHEMA {schema} CASCADE")


@pytest.fixture
def queue(spark: SparkSession, location: str) -> Iterator[Queue]:
    """Provide an empty queue in a session whose time zone is far from UTC."""
    zone = {"spark.sql.session.timeZone": "America/New_York"}
    with session.settings(spark, zone, "the test"):
        yield empty_queue(spark, location)


@soak.slow
def test_worker_with_a_fast_clock_takes_no_valid_claim(
    spark: SparkSession, location: str, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue reads the clock of its disk, which is two hours slower here than the workers' clocks."""
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
        # According to its machine's clock, two leases have expired.
        ahead = queue.reopen()
        [_] = queue.claim("right", now)
        assert list(ahead.claim(everything(), "ahead", now=ahead.now(), lease=LEASE, limit=1)) == []


@soak.only  # Only a user who writes into the tables can create such a job.
def test_archived_job_stays_archived_if_its_table_has_another_job(
    queue: Queue, spark: SparkSession, location: str
) -> None:
    [job] = queue.add("a")
    assert queue.store.archive(everything(), NOW) == 1
    queue.put([replace(job, task_id=job.task_id + 1000)])
    with conditions.raises("ARCHIVED_TABLE_HAS_JOB", jobs=job.task_id):
        queue.store.unarchive([job.task_id], NOW)
    assert list(queue.store.archived(everything())) == [replace(job, revision=1, archived_at=NOW)]


@soak.only  # Other tests cover notifications in Delta, and their delivery from any queue.
def test_notifications_of_a_delta_queue_are_sent_once(queue: Queue) -> None:
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

        # A busy mail server of a user delays only the table that the user reads.
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


@soak.only  # tests/connect tests it with processes.
def test_threads_that_claim_concurrently_share_the_jobs(queue: Queue) -> None:
    """Delta refuses one of two concurrent commits, but each job is still claimed by one worker."""
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
def test_saves_of_threads_are_one_commit_and_lost_jobs_are_reported(queue: Queue) -> None:
    store = cast(DeltaStore, queue.store)
    queue.add("a", "b", "c", "d")
    ready: dict[str, Any] = {"state": State.READY, "desired_state": State.WRITES_BLOCKED}
    mine = {job.tbl_name: job for job in store.claim(everything(), "w", now=NOW, lease=LEASE, limit=4)}
    stale = mine["b"]
    mine["b"] = store.save(replace(stale, **ready), NOW, lease=LEASE)

    def commits() -> int:
        return store._spark.sql(f"DESCRIBE HISTORY {store._tables.jobs}").count()

    before, began, wait = commits(), threading.Event(), threading.Event()
    together = store._swaps._work

    def first_waits(groups: Sequence[Sequence[Change]]) -> Sequence[Sequence[bool]]:
        began.set()
        assert wait.wait(timeout=60)
        return together(groups)

    store._swaps._work = first_waits
    with ThreadPoolExecutor(5) as pool:
        saves = [pool.submit(store.save, replace(mine["d"], **ready), NOW, lease=LEASE)]
        assert began.wait(timeout=60)
        others = (mine["a"], stale, mine["c"], mine["c"])
        saves += [pool.submit(store.save, replace(job, **ready), NOW, release=True) for job in others]
        while len(store._swaps._waiting) < 4:
            threading.Event().wait(0.001)
        wait.set()
    outcomes = [type(save.exception()) for save in saves]
    assert outcomes[:3] == [type(None), type(None), ClaimLost]
    # The first of two saves of the same job succeeds.
    assert sorted(outcomes[3:], key=str) == [type(None), ClaimLost]
    assert commits() - before == 2
    stored = {job.tbl_name: job for job in store.jobs(everything())}
    assert [stored[name].state for name in "abcd"] == [State.READY] * 4
    assert [stored[name].claimed_by for name in "abcd"] == [None, "w", None, "w"]
    assert stored["d"] == saves[0].result()
    assert stored["a"] == saves[1].result()
    assert sorted(event.task_id for event in store.events()) == [job.task_id for job in mine.values()]


@soak.slow
def test_tables_are_created_by_two_processes_concurrently(spark: SparkSession, schema: str) -> None:
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


class Killed(Exception):
    """The end of a process between two statements."""


def run_statements(spark: SparkSession, schema: str, statements: Iterable[str]) -> None:
    """Run statements that name their tables without a schema."""
    spark.sql(f"USE {schema}")
    try:
        for statement in statements:
            spark.sql(statement)
    finally:
        spark.sql("USE default")


def write_older_queue(spark: SparkSession, schema: str) -> None:
    """Write the queue of the version that had a table of archived jobs.

    Its first job is in both tables, because a process ended while it archived the job.
    """
    run_statements(spark, schema, old_queue.DELTA_STATEMENTS)
    queued = old_queue.stored_jobs("jobs")
    archived = [*old_queue.stored_jobs("jobs_archive"), replace(queued[0], archived_at=NOW)]
    put(spark, schema, queued, old_queue.stored_events())
    put(spark, schema, archived, old_queue.stored_events(), table="jobs_archive")
    for wave in old_queue.rows()["waves"]:
        names = [name for name, value in wave.items() if value is not None]
        values = ", ".join(repr(wave[name]) for name in names)
        spark.sql(f"INSERT INTO {schema}.waves ({', '.join(names)}) VALUES ({values})")


def check_upgraded_queue(spark: SparkSession, schema: str) -> None:
    queue = store(spark, schema)
    old_queue.check_jobs(queue)
    assert sorted(queue.events(), key=by_time) == sorted(old_queue.stored_events(), key=by_time)
    assert [wave.name for wave in queue.waves()] == ["first", "later"]
    assert "jobs_archive" not in tables_in(spark, schema)


def by_time(event: Event) -> tuple[datetime, int]:
    return event.at, event.task_id


@soak.slow
def test_upgrade_of_an_older_queue_continues_after_an_interruption_at_any_statement(
    spark: SparkSession, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_older_queue(spark, schema)
    execute = DeltaStore._sql
    for killed_at in (f"{PROPERTY}'", "ADD COLUMNS", "MERGE", "CREATE OR REPLACE", "DROP", f"{UPGRADED}'"):

        def die(ours: DeltaStore, text: str, *how: Any, at: str = killed_at) -> Any:
            if at in text and not text.startswith("SHOW"):
                raise Killed
            return execute(ours, text, *how)

        with monkeypatch.context() as patch:
            patch.setattr(DeltaStore, "_sql", die)
            with pytest.raises(Killed):
                store(spark, schema).create()
        with conditions.raises("QUEUE_VERSION_TOO_OLD"):
            store(spark, schema).jobs(everything())
    queue = store(spark, schema)
    queue.create()
    check_upgraded_queue(spark, schema)
    before, *_ = queue.archived(everything())
    assert queue.add([NewJob(before.name)], NOW) == 0
    [back] = queue.unarchive([before.task_id], NOW)
    expected = replace(before, archived_at=None, revision=before.revision + 1, last_updated_time=NOW)
    assert list(queue.jobs(numbered([before.task_id]))) == [back] == [expected]
    mine = queue.claim(everything(), "w", now=NOW, lease=LEASE, limit=100)
    # A worker has claimed one job, and one is reverted.
    assert len(mine) == len(old_queue.stored_jobs("jobs"))
    ready = [replace(job, state=State.READY) for job in mine]
    assert len(queue.save_all(ready, NOW, release=True)) == len(mine)


@soak.slow
def test_queue_of_the_first_version_is_upgraded(spark: SparkSession, schema: str) -> None:
    """It has no waves, and neither table has the columns of later versions."""
    later = ("ALTER TABLE", "CREATE TABLE IF NOT EXISTS `waves`")
    run_statements(spark, schema, (text for text in old_queue.DELTA_STATEMENTS if not text.startswith(later)))
    queued, archived = (
        Job(number, "spark_catalog", "sales", f"t{number}", created_at=NOW, last_updated_time=NOW)
        for number in (1, 2)
    )
    archived = replace(archived, archived_at=NOW)
    put(spark, schema, [queued])
    put(spark, schema, [archived], table="jobs_archive")
    queue = store(spark, schema)
    with conditions.raises("QUEUE_VERSION_TOO_OLD"):
        queue.claim(everything(), "w", now=NOW, lease=LEASE, limit=1)
    queue.create()
    queue.create()
    assert list(queue.jobs(everything())) == [queued]
    assert list(queue.archived(everything())) == [archived]
    assert queue.assign([1], "w1", NOW) == 1
    assert queue.archive(everything(), NOW) == 1
    assert [job.wave for job in queue.archived(everything())] == ["w1", None]


@soak.slow
def test_older_queue_is_upgraded_by_two_processes_concurrently(spark: SparkSession, schema: str) -> None:
    write_older_queue(spark, schema)
    begin = threading.Barrier(2)

    def create() -> None:
        begin.wait()
        store(spark, schema).create()

    with ThreadPoolExecutor(2) as pool:
        for future in [pool.submit(create) for _ in range(2)]:
            future.result()
    check_upgraded_queue(spark, schema)


def test_newer_queue_is_neither_read_nor_changed(spark: SparkSession, location: str, queue: Queue) -> None:
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


def test_tables_of_another_program_are_reported_in_one_line(spark: SparkSession, schema: str) -> None:
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
def test_half_created_table_of_a_killed_process_is_reported(spark: SparkSession, schema: str) -> None:
    (schema_folder(spark, schema) / "jobs" / "_delta_log" / "_staged_commits").mkdir(parents=True)
    with conditions.raises("QUEUE_TABLE_HALF_CREATED", reason=re.compile("jobs")):
        store(spark, schema).create()


def test_missing_queue_is_reported(spark: SparkSession, schema: str) -> None:
    with conditions.raises("QUEUE_NOT_FOUND", queue=f"delta:spark_catalog.{schema}"):
        store(spark, schema).jobs(everything())
