"""What a worker makes of a job that goes wrong."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.unit.fleet_jobs import NOW, job

from tableferry.errors import Refused, StateError, TableError, TableferryError
from tableferry.fleet import perform
from tableferry.fleet.job import Job, State, TargetFormat
from tableferry.fleet.job_run import JobRun, reported
from tableferry.fleet.modes.migrate import begin_or_go_on
from tableferry.fleet.queue.opening import open_store
from tableferry.fleet.queue.records import NewJob
from tableferry.fleet.queue.selections import everything
from tableferry.fleet.queue.store import ClaimLost, Store
from tableferry.fleet.reports import JobReport
from tableferry.fleet.steps import Shadow
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.shadow.changes import ShadowResult
from tableferry.heartbeat import beat, heartbeat
from tableferry.tables import TableName
from tableferry.testing import FixedClock

LEASE = timedelta(hours=1)
LATER = NOW + 2 * LEASE
ORDERS = TableName(("spark_catalog", "sales", "orders"))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = open_store(f"sqlite:///{tmp_path / 'fleet.db'}")
    store.create()
    yield store
    store.close()


@pytest.mark.parametrize("error", [TableError("a table can't be read"), Refused("a step refuses")])
def test_a_job_that_goes_wrong_when_another_worker_has_it_is_lost_and_nothing_more(
    store: Store, error: Exception
) -> None:
    store.add([NewJob(ORDERS)], NOW)
    [job] = store.claim(everything(), "slow", now=NOW, lease=LEASE, limit=1)
    [theirs] = store.claim(everything(), "quick", now=LATER, lease=LEASE, limit=1)
    nothing: Any = None
    warehouse = Warehouse(nothing, nothing)

    def go_wrong(run: JobRun) -> JobReport:
        raise error

    report = reported(JobRun(job, store, warehouse, lambda: LATER, LEASE), go_wrong)
    assert (report.outcome, report.job) == ("lost", job)
    assert list(store.jobs(everything())) == [theirs]


def test_a_folder_that_cannot_be_written_is_trouble_of_one_job_alone(store: Store) -> None:
    store.add([NewJob(ORDERS)], NOW)
    [job] = store.claim(everything(), "w", now=NOW, lease=LEASE, limit=1)
    nothing: Any = None

    def go_wrong(run: JobRun) -> JobReport:
        raise StateError("/lake/orders_sync can't be written")

    report = reported(JobRun(job, store, Warehouse(nothing, nothing), lambda: NOW, LEASE), go_wrong)
    assert (report.outcome, report.error) == ("failed", "/lake/orders_sync can't be written")


def test_a_worker_changes_nothing_when_another_one_has_its_job(store: Store) -> None:
    store.add([NewJob(ORDERS)], NOW)
    [job] = store.claim(everything(), "slow", now=NOW, lease=LEASE, limit=1)
    clock = FixedClock(NOW)
    nothing: Any = None
    job_run = JobRun(job, store, Warehouse(nothing, nothing), clock, LEASE)
    done: list[str] = []
    job_run.warehouse.effect(lambda: done.append("in time"))
    clock.turn(minutes=60)
    with pytest.raises(ClaimLost, match=r"sales\.orders\) was changed or claimed by somebody else"):
        job_run.warehouse.effect(lambda: done.append("its claim lapsed"))
    [theirs] = store.claim(everything(), "quick", now=clock(), lease=LEASE, limit=1)
    with pytest.raises(ClaimLost):
        job_run.warehouse.effect(lambda: done.append("another one has it"))
    store.save(theirs, clock(), release=True)
    with pytest.raises(ClaimLost):
        job_run.warehouse.effect(lambda: done.append("another one has done it"))
    assert done == ["in time"]


def test_a_step_of_hours_keeps_its_claim(store: Store) -> None:
    store.add([NewJob(ORDERS)], NOW)
    [job] = store.claim(everything(), "w", now=NOW, lease=LEASE, limit=1)
    clock = FixedClock(NOW)
    taken: list[Job] = []

    def wait(seconds: float) -> bool:
        taken.extend(store.claim(everything(), "other", now=clock(), lease=LEASE, limit=1))
        clock.turn(minutes=int(seconds / 60))
        return clock() > NOW + 5 * LEASE

    beat(lambda: store.renew([job.task_id], "w", clock(), LEASE), LEASE, wait)
    assert taken == []
    assert clock() - NOW > 5 * LEASE
    # Nobody renews it any more.
    clock.turn(minutes=60)
    assert len(store.claim(everything(), "other", now=clock(), lease=LEASE, limit=1)) == 1


def test_a_queue_that_cannot_be_reached_for_a_while_ends_no_heartbeat(
    caplog: pytest.LogCaptureFixture,
) -> None:
    times = iter([False, False, True])

    def fail() -> None:
        raise TableferryError("the queue can't be reached")

    beat(fail, LEASE, lambda seconds: next(times))
    assert caplog.messages == ["claims couldn't be renewed: the queue can't be reached"] * 2


def test_the_heartbeat_ends_with_its_block() -> None:
    before = threading.active_count()
    with heartbeat(lambda: None, LEASE):
        assert threading.active_count() == before + 1
    assert threading.active_count() == before


def test_a_job_that_another_worker_took_before_its_migration_began_is_lost(store: Store) -> None:
    store.add([NewJob(ORDERS)], NOW)
    [job] = store.claim(everything(), "w", now=NOW, lease=LEASE, limit=1)
    ready = replace(job, state=State.READY, desired_state=State.WRITES_BLOCKED, to_be_processed=True)
    ready = store.save(ready, NOW, lease=LEASE)
    [theirs] = store.claim(everything(), "quick", now=LATER, lease=LEASE, limit=1)
    nothing: Any = None
    report = begin_or_go_on(JobRun(ready, store, Warehouse(nothing, nothing), lambda: LATER, LEASE))
    assert (report.outcome, report.job) == ("lost", ready)
    assert list(store.jobs(everything())) == [theirs]


def test_directories_that_a_shadow_run_cant_remove_are_told_and_noted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    runs = iter([("s3://lake/t_sync/v1-a",), ("s3://lake/t_sync/v2-b", "s3://lake/t_sync/v1-a"), ()])
    monkeypatch.setattr(
        perform, "shadow", lambda *given, **how: ShadowResult("3", (), (), "", "", next(runs))
    )
    monkeypatch.setattr(perform, "following", lambda *given: nullcontext())
    nothing: Any = None
    step = Shadow(ORDERS, ORDERS, TargetFormat.DELTA)
    noted = job()
    for _ in range(3):
        noted = perform.perform(step, noted, Warehouse(nothing, nothing), nothing)
    assert noted.record["left_directories"] == ["s3://lake/t_sync/v1-a", "s3://lake/t_sync/v2-b"]
    warnings = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 2
    assert "orders: no table reads s3://lake/t_sync/v1-a any more" in warnings[0]
