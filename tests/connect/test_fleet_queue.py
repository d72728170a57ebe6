"""The queue in Delta tables through databricks-connect, in one process and with workers that are killed."""

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
    test_saved_job_is_read_with_all_fields,
)
from tests.fleet_worker import LEASE, run

from tableferry.fleet.jobs.job import State
from tableferry.fleet.queue.selections import everything, to_preprocess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

if soak.SOAKING:
    # The statements and the code that reads their results are the same as in tests/spark.
    from tests.fleet_queue import (  # noqa: F401
        test_archived_jobs_return_to_the_queue,
        test_notifications_are_recorded_once_and_marked_sent,
        test_save_all_writes_jobs_except_lost_ones,
    )

WORKERS = soak.amount(4, 8)
BATCH = soak.amount(3, 6)


@pytest.fixture(scope="module")
def location(spark: SparkSession) -> Iterator[str]:
    """A schema with the tables of a queue, for all tests."""
    schema = f"connect_{os.environ.get('PYTEST_XDIST_WORKER', '')}_fleet_queue"
    made(spark, schema)
    yield schema
    spark.sql(f"DROP SCHEMA {schema} CASCADE")


@pytest.fixture
def queue(spark: SparkSession, location: str) -> Queue:
    """The queue, emptied."""
    return empty_queue(spark, location)


def test_missing_queue_is_reported_with_its_condition(spark: SparkSession, schema: str) -> None:
    with conditions.raises("QUEUE_NOT_FOUND", queue=re.compile("^delta:")):
        store(spark, schema).jobs(everything())


@soak.only  # tests/unit kills workers of queues in databases, and tests/spark tests the rest of this queue.
@soak.slow
def test_killed_workers_lose_and_repeat_no_job(queue: Queue, location: str) -> None:
    """Each worker is a process with a separate session; Delta refuses all but one of concurrent writes."""
    count = soak.amount(12, 48)
    added = queue.add(*(f"t{number}" for number in range(count)))
    # Three workers are killed: before a batch, after half of a batch, and after all of it is saved.
    half = BATCH // 2
    deaths = {0: (1, False), 1: (half + 1, False), 2: (BATCH, True)}
    how: dict[str, Any] = {"batch": BATCH, "at_once": BATCH, "loaded": ["pyspark.sql.connect.session"]}
    ended = run(url(location), WORKERS, deaths=deaths, **how)
    assert ended == [*[-9] * len(deaths), *[0] * (WORKERS - len(deaths))]
    left = [job for job in queue.store.jobs(everything()) if job.state is not State.READY]
    assert Counter(job.claimed_by for job in left) == {"w0": BATCH, "w1": BATCH - half}
    assert all(job.lease_until == NOW + LEASE for job in left)
    # The jobs of killed workers can be claimed only after their leases end.
    early = NOW + LEASE - TICK
    assert list(queue.store.claim(to_preprocess(early), "w", now=early, lease=LEASE, limit=count)) == []
    assert run(url(location), 2, now=NOW + LEASE, **how) == [0, 0]
    done = queue.store.jobs(everything())
    assert [job.task_id for job in done] == [job.task_id for job in added]
    assert [job.record.others for job in done] == [{"done": 1}] * count
    assert {(job.state, job.claimed_by) for job in done} == {(State.READY, None)}
    assert sorted(event.task_id for event in queue.store.events()) == [job.task_id for job in done]
