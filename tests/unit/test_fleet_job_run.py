"""A worker's run of one job: errors, lost claims and records."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests import conditions
from tests.fleet_steps import step_run
from tests.unit.fleet_jobs import NOW, job

from tableferry.errors import Refused, ServiceError, StateError, TableError
from tableferry.fleet.access import fence
from tableferry.fleet.hive_copy.table import HiveCopy
from tableferry.fleet.hive_copy.update_plan import ShadowResult
from tableferry.fleet.jobs.job import Job, OldName, State, TargetFormat
from tableferry.fleet.jobs.names import Names
from tableferry.fleet.jobs.record import JobRecord
from tableferry.fleet.jobs.step_plan import Kind
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
from tableferry.fleet.late_files import settlement
from tableferry.fleet.late_files.file_record import FileRecord
from tableferry.fleet.late_files.settlement import Settlement
from tableferry.fleet.modes import job_run
from tableferry.fleet.modes.job_run import ATTEMPTS, JobRun, advance, run_and_report, run_job
from tableferry.fleet.modes.migrator import start_or_resume
from tableferry.fleet.modes.results import JobReport
from tableferry.fleet.modes.wave_gate import WaveGate
from tableferry.fleet.queue.changes import ClaimLost
from tableferry.fleet.queue.opening import open_store
from tableferry.fleet.queue.records import NewJob
from tableferry.fleet.queue.selections import everything
from tableferry.fleet.queue.store import Store
from tableferry.fleet.shadow_runs import update_hive_copy as shadow_run
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
def test_failing_job_is_lost_if_another_worker_has_claimed_it(store: Store, error: Exception) -> None:
    store.add([NewJob(ORDERS)], NOW)
    [job] = store.claim(everything(), "slow", now=NOW, lease=LEASE, limit=1)
    [theirs] = store.claim(everything(), "quick", now=LATER, lease=LEASE, limit=1)
    nothing: Any = None
    warehouse = Warehouse(nothing, nothing)

    def go_wrong(run: JobRun) -> JobReport:
        raise error

    report = run_and_report(JobRun(job, store, warehouse, lambda: LATER, LEASE), go_wrong)
    assert (report.outcome, report.job) == ("lost", job)
    assert list(store.jobs(everything())) == [theirs]


def test_unwritable_folder_fails_one_job(store: Store) -> None:
    store.add([NewJob(ORDERS)], NOW)
    [job] = store.claim(everything(), "w", now=NOW, lease=LEASE, limit=1)
    nothing: Any = None

    def go_wrong(run: JobRun) -> JobReport:
        raise StateError("/lake/orders_sync can't be written")

    report = run_and_report(JobRun(job, store, Warehouse(nothing, nothing), lambda: NOW, LEASE), go_wrong)
    assert (report.outcome, report.error) == ("failed", "/lake/orders_sync can't be written")


def test_success_resets_failure_count(store: Store) -> None:
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
        report = run_and_report(JobRun(job, store, Warehouse(nothing, nothing), lambda: NOW, LEASE), work)
        # The shadow status is reset after each outcome.
        assert report.job.shadow_status is None
        return report.outcome

    for _ in range(ATTEMPTS):
        assert [outcome(fail), outcome(fail), outcome(succeed)] == ["failed", "failed", "done"]
        assert store.jobs(everything())[0].record == JobRecord()
    assert [outcome(fail), outcome(fail), outcome(fail)] == ["failed", "failed", "paused"]


def test_state_change_resets_shadow_status() -> None:
    stopped = job(state=State.WRITES_UNBLOCKED, desired_state=State.HIVE_DROPPED, shadow_status="Shadowing")
    assert job_run._reached(stopped, FORWARD[stopped.pair]).shadow_status is None


METASTORE_GONE = TableError("PATTERN_MATCHES_NO_TABLE", pattern="sales.*")


class NoMetastore:
    """A session whose metastore doesn't answer."""

    def sql(self, statement: str) -> Any:
        raise METASTORE_GONE


@pytest.mark.parametrize("state", [State.READY, State.WRITES_BLOCKED])
def test_job_is_paused_if_writes_cannot_be_unblocked(store: Store, state: State) -> None:
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

    report = run_and_report(JobRun(job, store, Warehouse(spark, nothing), lambda: NOW, LEASE), go_wrong)
    assert report.outcome == "paused"
    [paused] = store.jobs(everything())
    # The job resumes from the same state.
    assert (paused.pair, paused.claimed_by) == ((state, desired), None)
    assert paused.pause_reason == (
        f"STEP_FAILED: {failure.one_line.removesuffix('.')}, 3 times; and writes to {ORDERS} "
        f"couldn't be unblocked ({METASTORE_GONE.one_line})"
    )


RIGHT = {"grants": {"etl": ["MODIFY"]}}


@dataclass
class Grants:
    """A catalog with one right that writers need."""

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
def test_suspended_worker_gives_back_rights_it_took_after_losing_claim(
    store: Store, unblocks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fence, "mark", lambda warehouse, table: {})
    store.add([NewJob(ORDERS)], NOW)
    [job] = store.claim(everything(), "slow", now=NOW, lease=LEASE, limit=1)
    nothing: Any = None
    access: Any = Grants()
    warehouse, clock = Warehouse(nothing, access), FixedClock(NOW)

    def resume_with_other_worker() -> None:
        clock.turn(minutes=61)
        [claimed] = store.claim(everything(), "quick", now=clock(), lease=LEASE, limit=1)
        quick = JobRun(claimed, store, warehouse, clock, LEASE)
        quick.perform(BlockWrites(ORDERS))
        quick.save(quick.job)
        if unblocks:
            quick.perform(UnblockWrites(ORDERS))
            quick.release(quick.job)

    access.before_take = resume_with_other_worker
    slow = JobRun(job, store, warehouse, clock, LEASE)
    with pytest.raises(ClaimLost):
        slow.perform(BlockWrites(ORDERS))
    assert access.granted is unblocks


def test_rights_taken_during_unblock_are_given_back(store: Store) -> None:
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


def test_steps_after_unblock_do_not_count_as_blocked_time(
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


def test_job_without_file_record_reports_that_late_files_are_unknown(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store.add([NewJob(ORDERS)], NOW)
    [job] = store.claim(everything(), "w", now=NOW, lease=LEASE, limit=1)
    nothing: Any = None
    run = JobRun(job, store, Warehouse(nothing, nothing), lambda: NOW, LEASE)
    names = Names.of(job)
    step = CheckLate(names.main, names.hive, job.target_format)
    record = FileRecord(run.warehouse, "file:/w/orders_sync/known", "file:/w/orders")
    results = [Settlement(), Settlement(record=record)]
    monkeypatch.setattr(HiveCopy, "read", lambda *_: None)
    for name in ("read_target", "read_marks"):
        monkeypatch.setattr(settlement, name, lambda *_: None)
    monkeypatch.setattr(settlement, "settle_late_files", lambda *given, **how: results.pop(0))
    run.perform(step)
    [_, sentence] = run.actions
    assert sentence.startswith(f"late files can't be determined: {names.hive} has no record")
    assert run.job.record.late_files_not_looked_for == sentence
    assert any(sentence in message for message in caplog.messages)
    run.perform(step)
    assert not run.job.record.late_files_not_looked_for
    assert run.actions[2:] == [str(step)]


def test_worker_without_claim_changes_nothing(store: Store) -> None:
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


def test_heartbeat_renews_claim_during_long_step(store: Store) -> None:
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
    # The heartbeat has ended, so the claim expires.
    clock.turn(minutes=60)
    assert len(store.claim(everything(), "other", now=clock(), lease=LEASE, limit=1)) == 1


def test_heartbeat_continues_while_queue_is_unreachable(
    caplog: pytest.LogCaptureFixture,
) -> None:
    times = iter([False, False, True])

    def fail() -> None:
        raise unreachable

    unreachable = ServiceError("QUEUE_UNREACHABLE", queue="sqlite:///fleet.db", reason="no route")
    beat(fail, LEASE, lambda seconds: next(times))
    assert caplog.messages == [f"claims couldn't be renewed: {unreachable.one_line}"] * 2


def test_heartbeat_ends_with_its_block() -> None:
    before = threading.active_count()
    with heartbeat(lambda: None, LEASE):
        assert threading.active_count() == before + 1
    assert threading.active_count() == before


def test_job_claimed_by_another_worker_before_migration_is_lost(store: Store) -> None:
    store.add([NewJob(ORDERS)], NOW)
    [job] = store.claim(everything(), "w", now=NOW, lease=LEASE, limit=1)
    ready = replace(job, state=State.READY, desired_state=State.WRITES_BLOCKED, to_be_processed=True)
    ready = store.save(ready, NOW, lease=LEASE)
    [theirs] = store.claim(everything(), "quick", now=LATER, lease=LEASE, limit=1)
    nothing: Any = None
    run = JobRun(ready, store, Warehouse(nothing, nothing), lambda: LATER, LEASE)
    report = start_or_resume(run, WaveGate(store, lambda: LATER))
    assert (report.outcome, report.job) == ("lost", ready)
    assert list(store.jobs(everything())) == [theirs]


def test_table_that_replaced_new_table_is_not_copied_to_hive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The Hive copy may be the only table with the rows."""
    monkeypatch.setattr(shadow_run, "shadow", lambda *given, **how: pytest.fail("it is copied"))
    monkeypatch.setattr(job_tables, "list_job_tables", lambda *_: {ORDERS: Kind.OTHER})
    monkeypatch.setattr(job_tables, "qualified", lambda _, name: name)
    nothing: Any = None
    step = Shadow(ORDERS, Names.of(job()).hive, TargetFormat.ICEBERG)
    statement = re.compile(r"'tableferry\.source' = 'sales\.orders'")
    with conditions.raises("NEW_TABLE_OF_OTHER_SOURCE", table=ORDERS, statement=statement):
        shadow_run.copy_changes(step, step_run(Warehouse(nothing, nothing)))


def test_unchanged_copy_is_not_copied_to_hive(monkeypatch: pytest.MonkeyPatch) -> None:
    shadowed: list[object] = []
    versions_now = iter(["7", "8"])

    def shadow(*given: object, **how: object) -> ShadowResult:
        shadowed.append(given)
        return ShadowResult("8", (), (), "", "", ())

    monkeypatch.setattr(shadow_run, "shadow", shadow)
    monkeypatch.setattr(job_tables, "list_job_tables", lambda *_: {})
    monkeypatch.setattr(target_versions, "current_version", lambda *_: next(versions_now))
    nothing: Any = None
    names, ready = Names.of(job()), job(state=State.ICEBERG_READY, shadow_watermark="7")
    step = ShadowWritten(names.copy, names.main, TargetFormat.ICEBERG)
    run = step_run(Warehouse(nothing, nothing), ready)
    assert shadow_run.copy_changes_if_written(step, run) == ready
    assert shadowed == []
    assert shadow_run.copy_changes_if_written(step, run).shadow_watermark == "8"
    assert len(shadowed) == 1


def test_directories_that_shadow_run_cannot_remove_are_logged_and_recorded(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    runs = iter([("s3://lake/t_sync/v1-a",), ("s3://lake/t_sync/v2-b", "s3://lake/t_sync/v1-a"), ()])
    monkeypatch.setattr(
        shadow_run, "shadow", lambda *given, **how: ShadowResult("3", (), (), "", "", next(runs))
    )
    monkeypatch.setattr(job_tables, "list_job_tables", lambda *_: {ORDERS: Kind.DELTA})
    nothing: Any = None
    step = Shadow(ORDERS, ORDERS, TargetFormat.DELTA)
    noted = job()
    for _ in range(3):
        noted = shadow_run.copy_changes(step, step_run(Warehouse(nothing, nothing), noted))
    assert noted.record.left_directories == ("s3://lake/t_sync/v1-a", "s3://lake/t_sync/v2-b")
    warnings = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 2
    assert "orders: no table reads s3://lake/t_sync/v1-a any more" in warnings[0]


@pytest.mark.parametrize(
    ("state", "desired"),
    [(State.ICEBERG_PRIMARY, State.WRITES_UNBLOCKED), (State.WRITES_UNBLOCKED, State.HIVE_DROPPED)],
)
def test_hive_table_that_keeps_its_name_stays_blocked_after_switch(
    store: Store, monkeypatch: pytest.MonkeyPatch, state: State, desired: State
) -> None:
    """Its writers would bypass the new table, which a person renamed."""
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


def test_pause_after_switch_keeps_writes_to_recreated_hive_table_blocked(
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
