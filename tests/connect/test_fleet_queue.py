"""The queue in Delta tables through databricks-connect: in one process, and shared by eight that may die."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from tests import conditions, soak
from tests.fleet_delta import empty_queue, made, store, url
from tests.fleet_queue import (  # noqa: F401
    NOW,
    TICK,
    Queue,
    test_everything_of_a_job_comes_back_as_it_was_saved,
)
from tests.fleet_worker import LEASE, run

from tableferry.fleet.job import State
from tableferry.fleet.queue.selections import everything, to_preprocess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

if soak.SOAKING:
    # The statements are those of tests/spark, and so is what is made of their answers.
    from tests.fleet_queue import (  # noqa: F401
        test_jobs_go_to_the_archive_and_come_back,
        test_many_are_saved_at_once_without_those_that_were_lost,
        test_notifications_are_recorded_once_and_then_sent,
    )

WORKERS = soak.amount(4, 8)
BATCH = soak.amount(3, 6)


@pytest.fixture(scope="module")
def location(spark: SparkSession) -> Iterator[str]:
    """A schema with a queue's tables, which a test leaves as they are."""
    schema = f"connect_{os.environ.get('PYTEST_XDIST_WORKER', '')}_fleet_queue"
    made(spark, schema)
    yield schema
    spark.sql(f"DROP SCHEMA {schema} CASCADE")


@pytest.fixture
def queue(spark: SparkSession, location: str) -> Queue:
    """An empty queue."""
    return empty_queue(spark, location)


def test_a_queue_that_isnt_there_says_how_to_make_it(spark: SparkSession, schema: str) -> None:
    with conditions.raises("QUEUE_NOT_FOUND", queue=re.compile("^delta:")):
        store(spark, schema).jobs(everything())


@soak.only  # tests/unit has such workers on the databases' queues, and tests/spark the rest of this one.
@soak.slow
def test_workers_that_are_killed_lose_and_double_nothing(queue: Queue, location: str) -> None:
    """Each is a process with a session of its own; Delta refuses all but one of those that write at once."""
    count = soak.amount(12, 48)
    added = queue.add(*(f"t{number}" for number in range(count)))
    # Three die: with a batch to do, with half of one, and when all of it is saved.
    half = BATCH // 2
    deaths = {0: (1, False), 1: (half + 1, False), 2: (BATCH, True)}
    how: dict[str, Any] = {"batch": BATCH, "at_once": BATCH, "loaded": ["pyspark.sql.connect.session"]}
    ended = run(url(location), WORKERS, deaths=deaths, **how)
    assert ended == [*[-9] * len(deaths), *[0] * (WORKERS - len(deaths))]
    left = [job for job in queue.store.jobs(everything()) if job.state is not State.READY]
    assert Counter(job.claimed_by for job in left) == {"w0": BATCH, "w1": BATCH - half}
    assert all(job.lease_until == NOW + LEASE for job in left)
    # Nobody takes them before the lease is over, and then somebody does.
    early = NOW + LEASE - TICK
    assert list(queue.store.claim(to_preprocess(early), "w", now=early, lease=LEASE, limit=count)) == []
    assert run(url(location), 2, now=NOW + LEASE, **how) == [0, 0]
    done = queue.store.jobs(everything())
    assert [job.task_id for job in done] == [job.task_id for job in added]
    assert [job.record for job in done] == [{"done": 1}] * count
    assert {(job.state, job.claimed_by) for job in done} == {(State.READY, None)}
    assert sorted(event.task_id for event in queue.store.events()) == [job.task_id for job in done]
