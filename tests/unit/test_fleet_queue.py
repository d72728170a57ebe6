"""The queue in SQLite, MariaDB and PostgreSQL."""

from __future__ import annotations

import cProfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from itertools import chain
from threading import Barrier

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, and_, delete, insert, text, update
from tests.fleet_queue import *  # noqa: F403
from tests.fleet_queue import (
    GAPS,
    NOW,
    PAIRS,
    TICK,
    WAVES,
    Queue,
    check_selections,
    emptied,
    notification_times,
)
from tests.fleet_worker import BATCH, LEASE, run
from tests.soak import amount

from tableferry.fleet.jobs.job import Job, PauseReason, State
from tableferry.fleet.queue.conditions import free
from tableferry.fleet.queue.opening import open_store
from tableferry.fleet.queue.records import NewJob, to_row
from tableferry.fleet.queue.schema import jobs
from tableferry.fleet.queue.selections import everything, in_queue, to_preprocess
from tableferry.fleet.queue.sql import SqlStore
from tableferry.fleet.queue.store import Store
from tableferry.spark.tables import TableName

WORKERS = amount(5, 8)
# Otherwise each worker would load them.
DRIVERS = (
    "sqlalchemy.dialects.mysql.pymysql",
    "sqlalchemy.dialects.postgresql.psycopg",
    "pymysql",
    "psycopg",
)


def engine_of(store: SqlStore) -> Engine:
    return store._engine


@pytest.fixture(scope="module")
def opened() -> Iterator[Callable[[str], SqlStore]]:
    """Open a queue for all tests, because the connection to a server takes longer than a test."""
    with ExitStack() as stack:

        @cache
        def opened(url: str) -> SqlStore:
            store = open_store(url)
            assert isinstance(store, SqlStore)
            stack.callback(store.close)
            store.create()
            return store

        yield opened


@pytest.fixture
def queue(url: str, opened: Callable[[str], SqlStore]) -> Iterator[Queue]:
    """An empty queue."""
    others: list[Store] = []

    def retry() -> Store:
        others.append(open_store(url))
        return others[-1]

    def put(rows: Sequence[Job]) -> None:
        with engine_of(store).begin() as connection:
            connection.execute(delete(jobs))
            if rows:
                connection.execute(insert(jobs), [to_row(job) for job in rows])

    store = opened(url)
    emptied(store)
    yield Queue(store, retry, put)
    for other in others:
        other.close()


@st.composite
def random_job(draw: st.DrawFn) -> Job:
    """A job in any state, with times near the ends of its gaps."""
    gap, probation = draw(st.sampled_from(GAPS)), draw(st.sampled_from(GAPS))
    state, desired = draw(st.sampled_from(PAIRS))
    anywhen = st.datetimes(datetime(1971, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))
    flags = [draw(st.booleans()) for _ in range(3)]
    return Job(
        0,
        "spark_catalog",
        "sales",
        "t",
        created_at=NOW,
        last_updated_time=NOW,
        to_be_processed=flags[0],
        in_process=flags[1],
        migration_paused=flags[2],
        state=state,
        desired_state=desired,
        initial_gap_days=gap,
        probation_gap_days=probation,
        comm_level1_date=draw(st.sampled_from(notification_times(gap)) | anywhen),
        comm_level2_date=draw(st.sampled_from(notification_times(probation)) | anywhen),
        comm_level3_date=draw(st.none() | anywhen),
        wave=draw(st.sampled_from(WAVES)),
    )


@settings(max_examples=amount(7, 33), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(drawn=st.lists(random_job(), max_size=20))
def test_selections_match_python_for_random_jobs(queue: Queue, drawn: list[Job]) -> None:
    check_selections(
        queue,
        [replace(job, task_id=n, tbl_name=f"t{n}") for n, job in enumerate(drawn, 1)],
    )


def test_job_is_paused_with_a_zero_byte_in_the_reason(queue: Queue) -> None:
    queue.add("t1")
    [job] = queue.claim()
    queue.store.save(job.paused(PauseReason.STEP_FAILED, "'a\0b' is no number"), NOW, release=True)
    [paused] = queue.store.jobs(everything())
    assert paused.pause_reason == "STEP_FAILED: 'a\N{REPLACEMENT CHARACTER}b' is no number"


def test_edit_of_a_job_builds_no_statement(sqlite: str, opened: Callable[[str], SqlStore]) -> None:
    """Building statements took most of the time of a pause of 1,000 jobs: 3,500 calls for each."""
    store = opened(sqlite)
    emptied(store)
    store.add([NewJob(TableName(("spark_catalog", "sales", f"t{number}"))) for number in range(21)], NOW)
    first, *others = store.jobs(everything())
    store.edit(first.paused(PauseReason.PAUSED_BY_USER), NOW)
    with cProfile.Profile() as profile:
        for job in others:
            store.edit(job.paused(PauseReason.PAUSED_BY_USER), NOW)
    calls = sum(entry.callcount for entry in profile.getstats()) / len(others)
    assert calls < 1500
    assert all(job.migration_paused for job in store.jobs(everything()))


def test_each_job_is_claimed_by_one_worker_if_workers_prefer_the_same_jobs(queue: Queue) -> None:
    added = queue.add(*(f"t{number}" for number in range(amount(150, 600))))
    # The claims of a worker that died have lapsed.
    queue.claim("dead", limit=len(added) // 3)
    stores = [queue.reopen() for _ in range(amount(4, 8))]
    start = Barrier(len(stores))

    def work(worker: int) -> list[int]:
        claimed: list[int] = []
        start.wait(timeout=60)
        while mine := stores[worker].claim(
            to_preprocess(NOW + LEASE), f"w{worker}", now=NOW + LEASE, lease=LEASE, limit=BATCH
        ):
            claimed += [job.task_id for job in mine]
        return claimed

    with ThreadPoolExecutor(len(stores)) as pool:
        claims = list(pool.map(work, range(len(stores))))
    assert sorted(chain.from_iterable(claims)) == [job.task_id for job in added]
    owners = {number: f"w{worker}" for worker, numbers in enumerate(claims) for number in numbers}
    assert {job.task_id: job.claimed_by for job in queue.store.jobs(everything())} == owners


@pytest.mark.parametrize("url", ["mariadb"], indirect=True)
def test_claim_reads_only_the_first_jobs(queue: Queue) -> None:
    """MariaDB read and sorted all jobs for each claim, which took a fifth of a second for 50,000 jobs."""
    count = 5000
    queue.store.add([NewJob(TableName(("spark_catalog", "sales", f"t{n}"))) for n in range(count)], NOW)
    assert isinstance(queue.store, SqlStore)
    engine = engine_of(queue.store)

    def read() -> int:
        with engine.begin() as connection:
            status = connection.execute(text("SHOW GLOBAL STATUS LIKE 'Handler_read_%'"))
            return sum(int(value) for name, value in status)

    before = read()
    claim = queue.store.claim(to_preprocess(NOW), "w", now=NOW, lease=LEASE, limit=100)
    assert read() - before < count / 2
    assert list(claim) == queue.store.jobs(everything(), limit=len(claim))


@pytest.mark.parametrize("url", ["mariadb", "postgresql"], indirect=True)
def test_job_that_another_transaction_renews_is_not_claimed(queue: Queue) -> None:
    first, second = queue.add("a", "b")
    queue.claim("w1", limit=1)
    assert isinstance(queue.store, SqlStore)
    now, lapsed = NOW + LEASE, [and_(in_queue(), free(NOW + LEASE))]
    with engine_of(queue.store).begin() as connection:
        renewed = jobs.c.task_id == first.task_id
        connection.execute(update(jobs).where(renewed).values(lease_until=now + LEASE))
        # The claim doesn't wait for the transaction.
        mine = queue.store.try_claim(lapsed, 2, "w2", now, LEASE)
        assert mine is not None
        assert [job.task_id for job in mine] == [second.task_id]
        # The transaction may still be rolled back.
        assert queue.store.try_claim(lapsed, 2, "w2", now, LEASE) == []
    assert queue.store.try_claim(lapsed, 2, "w2", now, LEASE) is None


def test_killed_workers_lose_and_repeat_no_job(queue: Queue, url: str) -> None:
    count = amount(60, 200)
    queue.add(*(f"t{number}" for number in range(count)))
    # Three workers die: with finished and unfinished jobs, and in a transaction.
    deaths = {0: (3, False), 1: (1, True), 2: (4, True)}
    ended = run(url, WORKERS, deaths=deaths, loaded=DRIVERS)
    assert sorted(ended) == [*[-9] * len(deaths), *[0] * (WORKERS - len(deaths))]
    left = [job for job in queue.store.jobs(everything()) if job.state is not State.READY]
    # The claimed and unsaved jobs of each, with the uncommitted one.
    assert Counter(job.claimed_by for job in left) == {"w0": 3, "w1": 5, "w2": 2}
    assert all(job.lease_until == NOW + LEASE for job in left)
    # No worker claims them before the lease ends; then a worker does.
    assert run(url, 2, now=NOW + LEASE - TICK, loaded=DRIVERS) == [0, 0]
    assert [job for job in queue.store.jobs(everything()) if job.state is not State.READY] == left
    assert run(url, WORKERS, now=NOW + LEASE, loaded=DRIVERS) == [0] * WORKERS
    done = queue.store.jobs(everything())
    assert [job.record.others for job in done] == [{"done": 1}] * count
    assert {(job.state, job.claimed_by) for job in done} == {(State.READY, None)}
    assert sorted(event.task_id for event in queue.store.events()) == [job.task_id for job in done]
