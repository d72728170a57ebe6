"""What a worker makes of a job that goes wrong."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests import conditions
from tests.unit.fleet_jobs import NOW, job

from tableferry.errors import Refused, ServiceError, StateError, TableError
from tableferry.fleet.access import fence
from tableferry.fleet.hive_copy.changes import ShadowResult
from tableferry.fleet.jobs.job import Job, OldName, State, TargetFormat
from tableferry.fleet.jobs.names import Names
from tableferry.fleet.jobs.plan import Kind
from tableferry.fleet.jobs.record import JobRecord
from tableferry.fleet.jobs.steps import (
    BlockWrites,
    CheckLate,
    CheckViews,
    Shadow,
    ShadowWritten,
    Step,
    UnblockWrites,
    WarnOfSharedFiles,
    WriteCheckpoint,
)
from tableferry.fleet.jobs.transitions import FORWARD, Action
from tableferry.fleet.modes import job_run, performer
from tableferry.fleet.modes.job_run import ATTEMPTS, JobRun, advance, reported, run_job
from tableferry.fleet.modes.migrator import begin_or_go_on
from tableferry.fleet.modes.results import JobReport
from tableferry.fleet.modes.wave_gate import Gate
from tableferry.fleet.queue.changes import ClaimLost
from tableferry.fleet.queue.opening import open_store
from tableferry.fleet.queue.records import NewJob
from tableferry.fleet.queue.selections import everything
from tableferry.fleet.queue.store import Store
from tableferry.fleet.warehouse import job_tables, target_versions
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.heartbeat import beat, heartbeat
from tableferry.spark.tables import TableName
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


def test_failures_before_a_success_are_forgotten(store: Store) -> None:
    store.add([NewJob(ORDERS)], NOW)
    nothing: Any = None

    def fail(run: JobRun) -> JobReport:
        run.save(replace(run.job, shadow_status="Shadowing"))
        raise TableError("the storage didn't answer")

    def succeed(run: JobRun) -> JobReport:
        run.end(run.job)
        return JobReport(run.job, "done")

    def outcome(work: Callable[[JobRun], JobReport]) -> str:
        [job] = store.claim(everything(), "w", now=NOW, lease=LEASE, limit=1)
        report = reported(JobRun(job, store, Warehouse(nothing, nothing), lambda: NOW, LEASE), work)
        # Nobody copies anything any more, whatever became of it.
        assert report.job.shadow_status is None
        return report.outcome

    for _ in range(ATTEMPTS):
        assert [outcome(fail), outcome(fail), outcome(succeed)] == ["failed", "failed", "done"]
        assert store.jobs(everything())[0].record == JobRecord()
    assert [outcome(fail), outcome(fail), outcome(fail)] == ["failed", "failed", "paused"]


def test_a_run_that_reaches_another_state_leaves_no_shadow_run_behind() -> None:
    stopped = job(state=State.WRITES_UNBLOCKED, desired_state=State.HIVE_DROPPED, shadow_status="Shadowing")
    assert job_run._arrived(stopped, FORWARD[stopped.pair]).shadow_status is None


METASTORE_GONE = TableError("PATTERN_MATCHES_NO_TABLE", pattern="sales.*")


class NoMetastore:
    """A session whose metastore doesn't answer."""

    def sql(self, statement: str) -> Any:
        raise METASTORE_GONE


@pytest.mark.parametrize("state", [State.READY, State.WRITES_BLOCKED])
def test_a_job_whose_writers_cannot_be_let_in_is_paused_all_the_same(store: Store, state: State) -> None:
    store.add([NewJob(ORDERS)], NOW)
    [job] = store.claim(everything(), "w", now=NOW, lease=LEASE, limit=1)
    [desired] = [desired for at, desired in FORWARD if at is state]
    failed = replace(job, state=state, desired_state=desired, record=JobRecord(failures=ATTEMPTS - 1))
    job = store.save(failed, NOW, lease=LEASE)
    spark: Any = NoMetastore()
    nothing: Any = None

    failure = TableError("FOLDER_NOT_LISTABLE", folder="/data/orders", reason="Permission denied")

    def go_wrong(run: JobRun) -> JobReport:
        raise failure

    report = reported(JobRun(job, store, Warehouse(spark, nothing), lambda: NOW, LEASE), go_wrong)
    assert report.outcome == "paused"
    [paused] = store.jobs(everything())
    # Where it was: resumed, it goes on from there.
    assert (paused.pair, paused.claimed_by) == ((state, desired), None)
    assert paused.pause_reason == (
        f"STEP_FAILED: {failure.one_line.removesuffix('.')}, 3 times; and the writers of {ORDERS} "
        f"couldn't be let in ({METASTORE_GONE.one_line})"
    )


RIGHT = {"grants": {"etl": ["MODIFY"]}}


@dataclass
class Grants:
    """A catalog in which writers need a right."""

    granted: bool = True
    before_take: Callable[[], None] = lambda: None
    after_return: Callable[[], None] = lambda: None

    def rights_to_write(self, table: TableName) -> Mapping[str, Any]:
        return RIGHT if self.granted else {}

    def take(self, table: TableName, rights: Mapping[str, Any]) -> None:
        assert rights == RIGHT
        hook, self.before_take = self.before_take, lambda: None
        hook()
        self.granted = False

    def give_back(self, table: TableName, rights: Mapping[str, Any]) -> None:
        assert rights == RIGHT
        self.granted = True
        hook, self.after_return = self.after_return, lambda: None
        hook()


@pytest.mark.parametrize("unblocks", [False, True])
def test_a_worker_that_slept_before_it_blocked_writes_keeps_nobody_out(
    store: Store, unblocks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fence, "mark", lambda warehouse, table: {})
    store.add([NewJob(ORDERS)], NOW)
    [job] = store.claim(everything(), "slow", now=NOW, lease=LEASE, limit=1)
    nothing: Any = None
    access: Any = Grants()
    warehouse, clock = Warehouse(nothing, access), FixedClock(NOW)

    def go_on() -> None:
        clock.turn(minutes=61)
        [claimed] = store.claim(everything(), "quick", now=clock(), lease=LEASE, limit=1)
        quick = JobRun(claimed, store, warehouse, clock, LEASE)
        quick.perform(BlockWrites(ORDERS))
        quick.save(quick.job)
        if unblocks:
            quick.perform(UnblockWrites(ORDERS))
            quick.release(quick.job)

    access.before_take = go_on
    slow = JobRun(job, store, warehouse, clock, LEASE)
    with pytest.raises(ClaimLost):
        slow.perform(BlockWrites(ORDERS))
    assert access.granted is unblocks


def test_rights_that_are_taken_while_writers_are_let_in_are_given_back(store: Store) -> None:
    store.add([NewJob(ORDERS)], NOW)
    [job] = store.claim(everything(), "w", now=NOW, lease=LEASE, limit=1)
    job = store.save(job.with_record(rights=(RIGHT,)), NOW, lease=LEASE)
    access: Any = Grants(granted=False)
    nothing: Any = None

    def take() -> None:
        access.granted = False

    access.after_return = take
    run = JobRun(job, store, Warehouse(nothing, access), lambda: NOW, LEASE)
    run.perform(UnblockWrites(ORDERS))
    assert access.granted
    assert not run.job.record.rights


def test_writers_do_not_wait_for_what_is_done_when_they_are_in_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.add([NewJob(ORDERS, TargetFormat.DELTA)], NOW)
    [job] = store.claim(everything(), "w", now=NOW, lease=LEASE, limit=1)
    [pair] = [pair for pair, transition in FORWARD.items() if transition.action is Action.UNBLOCK]
    job = replace(job, state=pair[0], desired_state=pair[1])
    job = job.with_record(blocked={"since": NOW.timestamp(), "files": 7, "bytes": 8})
    nothing: Any = None
    clock, done = FixedClock(NOW), []

    def slowly(step: Step, job: Job, *_: object) -> Job:
        done.append(type(step))
        clock.turn(minutes=2 if isinstance(step, UnblockWrites) else 5)
        return job

    monkeypatch.setattr(job_run, "perform", slowly)
    monkeypatch.setattr(job_tables, "list_job_tables", lambda *_: {ORDERS: Kind.DELTA})
    run = JobRun(store.save(job, NOW, lease=LEASE), store, Warehouse(nothing, nothing), clock, LEASE)
    advance(run, {pair: FORWARD[pair]})
    assert done == [UnblockWrites, CheckViews, WriteCheckpoint, WarnOfSharedFiles]
    assert run.job.record.moved is not None
    assert run.job.record.moved["seconds"] == 120


def test_a_job_whose_late_files_cannot_be_known_says_so(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store.add([NewJob(ORDERS)], NOW)
    [job] = store.claim(everything(), "w", now=NOW, lease=LEASE, limit=1)
    nothing: Any = None
    run = JobRun(job, store, Warehouse(nothing, nothing), lambda: NOW, LEASE)
    names = Names.of(job)
    step = CheckLate(names.main, names.hive, job.target_format)
    looked = [False, True]
    monkeypatch.setattr("tableferry.fleet.modes.performer.check", lambda *given, **how: looked.pop(0))
    run.perform(step)
    [_, sentence] = run.did
    assert sentence.startswith(f"files that came late aren't looked for: {names.hive} has no record")
    assert run.job.record.late_files_not_looked_for == sentence
    assert any(sentence in message for message in caplog.messages)
    run.perform(step)
    assert not run.job.record.late_files_not_looked_for
    assert run.did[2:] == [str(step)]


def test_a_worker_changes_nothing_when_another_one_has_its_job(store: Store) -> None:
    store.add([NewJob(ORDERS)], NOW)
    [job] = store.claim(everything(), "slow", now=NOW, lease=LEASE, limit=1)
    clock = FixedClock(NOW)
    nothing: Any = None
    job_run = JobRun(job, store, Warehouse(nothing, nothing), clock, LEASE)
    done: list[str] = []
    job_run.warehouse.effect(lambda: done.append("in time"))
    clock.turn(minutes=60)
    with conditions.raises("JOB_CHANGED", table=ORDERS, job=job.task_id):
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
        raise unreachable

    unreachable = ServiceError("QUEUE_UNREACHABLE", queue="sqlite:///fleet.db", reason="no route")
    beat(fail, LEASE, lambda seconds: next(times))
    assert caplog.messages == [f"claims couldn't be renewed: {unreachable.one_line}"] * 2


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
    run = JobRun(ready, store, Warehouse(nothing, nothing), lambda: LATER, LEASE)
    report = begin_or_go_on(run, Gate(store, lambda: LATER))
    assert (report.outcome, report.job) == ("lost", ready)
    assert list(store.jobs(everything())) == [theirs]


def test_a_table_that_took_the_new_one_s_place_is_not_copied_to_hive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A Hive copy may be the last one that has the rows."""
    monkeypatch.setattr(performer, "shadow", lambda *given, **how: pytest.fail("it is copied"))
    monkeypatch.setattr(performer, "track_jobs", lambda *given: nullcontext())
    monkeypatch.setattr(job_tables, "list_job_tables", lambda *_: {ORDERS: Kind.OTHER})
    monkeypatch.setattr(job_tables, "qualified", lambda _, name: name)
    nothing: Any = None
    step = Shadow(ORDERS, Names.of(job()).hive, TargetFormat.ICEBERG)
    statement = re.compile(r"'tableferry\.source' = 'sales\.orders'")
    with conditions.raises("NEW_TABLE_OF_OTHER_SOURCE", table=ORDERS, statement=statement):
        performer.perform(step, job(), Warehouse(nothing, nothing), nothing)


def test_a_copy_that_nobody_wrote_to_is_not_copied_to_hive(monkeypatch: pytest.MonkeyPatch) -> None:
    shadowed: list[object] = []
    versions_now = iter(["7", "8"])

    def shadow(*given: object, **how: object) -> ShadowResult:
        shadowed.append(given)
        return ShadowResult("8", (), (), "", "", ())

    monkeypatch.setattr(performer, "shadow", shadow)
    monkeypatch.setattr(performer, "track_jobs", lambda *given: nullcontext())
    monkeypatch.setattr(job_tables, "list_job_tables", lambda *_: {})
    monkeypatch.setattr(target_versions, "current_version", lambda *_: next(versions_now))
    nothing: Any = None
    names, ready = Names.of(job()), job(state=State.ICEBERG_READY, shadow_watermark="7")
    step = ShadowWritten(names.copy, names.main, TargetFormat.ICEBERG)
    assert performer.perform(step, ready, Warehouse(nothing, nothing), nothing) == ready
    assert shadowed == []
    assert performer.perform(step, ready, Warehouse(nothing, nothing), nothing).shadow_watermark == "8"
    assert len(shadowed) == 1


def test_directories_that_a_shadow_run_cant_remove_are_told_and_noted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    runs = iter([("s3://lake/t_sync/v1-a",), ("s3://lake/t_sync/v2-b", "s3://lake/t_sync/v1-a"), ()])
    monkeypatch.setattr(
        performer, "shadow", lambda *given, **how: ShadowResult("3", (), (), "", "", next(runs))
    )
    monkeypatch.setattr(performer, "track_jobs", lambda *given: nullcontext())
    monkeypatch.setattr(job_tables, "list_job_tables", lambda *_: {ORDERS: Kind.DELTA})
    nothing: Any = None
    step = Shadow(ORDERS, ORDERS, TargetFormat.DELTA)
    noted = job()
    for _ in range(3):
        noted = performer.perform(step, noted, Warehouse(nothing, nothing), nothing)
    assert noted.record.left_directories == ("s3://lake/t_sync/v1-a", "s3://lake/t_sync/v2-b")
    warnings = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 2
    assert "orders: no table reads s3://lake/t_sync/v1-a any more" in warnings[0]


@pytest.mark.parametrize(
    ("state", "desired"),
    [(State.ICEBERG_PRIMARY, State.WRITES_UNBLOCKED), (State.WRITES_UNBLOCKED, State.HIVE_DROPPED)],
)
def test_a_hive_table_that_keeps_its_name_is_not_migrated_anew_behind_the_switch(
    store: Store, monkeypatch: pytest.MonkeyPatch, state: State, desired: State
) -> None:
    """Its writers would write past the new table, which somebody has renamed."""
    monkeypatch.setattr(job_tables, "list_job_tables", lambda *_: {ORDERS: Kind.HIVE})
    store.add([NewJob(ORDERS, target_schema="lake", old_name=OldName.TABLE)], NOW)
    [job] = store.claim(everything(), "w", now=NOW, lease=LEASE, limit=1)
    rights = JobRecord(rights=(RIGHT,))
    job = store.save(replace(job, state=state, desired_state=desired, record=rights), NOW, lease=LEASE)
    access, spark = Grants(granted=False), SimpleNamespace(conf=SimpleNamespace(get=lambda *_: None))
    warehouse: Any = Warehouse(spark, access)  # type: ignore[arg-type]

    report = run_job(JobRun(job, store, warehouse, lambda: NOW, LEASE), FORWARD)

    assert report.outcome == "paused"
    assert "lake.orders doesn't exist" in report.error
    assert "; writes to spark_catalog.lake.orders stay blocked" in report.error
    [paused] = store.jobs(everything())
    assert (paused.pair, paused.record.rights, access.granted) == ((state, desired), (RIGHT,), False)


def test_pause_after_the_switch_leaves_a_hive_table_in_the_new_tables_place_alone(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for read in ("list_job_tables", "kinds"):
        monkeypatch.setattr(job_tables, read, lambda *_: {ORDERS: Kind.HIVE})
    store.add([NewJob(ORDERS)], NOW)
    [job] = store.claim(everything(), "w", now=NOW, lease=LEASE, limit=1)
    pair = (State.WRITES_UNBLOCKED, State.HIVE_DROPPED)
    rights = JobRecord(rights=(RIGHT,))
    job = store.save(replace(job, state=pair[0], desired_state=pair[1], record=rights), NOW, lease=LEASE)
    access: Any = Grants(granted=False)
    spark: Any = SimpleNamespace(conf=SimpleNamespace(get=lambda *_: None))
    report = run_job(JobRun(job, store, Warehouse(spark, access), lambda: NOW, LEASE), FORWARD)
    assert "[NEW_TABLE_NAME_TAKEN" in report.error
    [paused] = store.jobs(everything())
    assert (paused.pair, access.granted) == (pair, False)
