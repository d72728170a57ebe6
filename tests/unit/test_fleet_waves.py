"""Waves: their hours and limits, and the start of tables within these."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import conditions
from tests.unit.fleets import LEASE, NOW, opened

from tableferry.errors import Busy
from tableferry.fleet.jobs.job import Job, PauseReason, State
from tableferry.fleet.jobs.waves import (
    Hours,
    Load,
    Wave,
    WaveStatus,
    checked,
    room,
    too_many_failed,
    why_none_begins,
)
from tableferry.fleet.modes import migrator as mode
from tableferry.fleet.modes.claims import Claims
from tableferry.fleet.modes.job_run import JobRun
from tableferry.fleet.modes.migrator import start_or_resume
from tableferry.fleet.modes.results import JobReport, ModeReport
from tableferry.fleet.modes.wave_gate import WaveGate
from tableferry.fleet.modes.worker import Worker, run_worker
from tableferry.fleet.operations.wave_commands import pause_wave, start_wave
from tableferry.fleet.queue.opening import open_store
from tableferry.fleet.queue.records import NewJob
from tableferry.fleet.queue.selections import everything, named, to_notify
from tableferry.fleet.queue.store import Store
from tableferry.fleet.settings import FleetSettings
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.spark import session
from tableferry.spark.tables import TableName
from tableferry.testing import FixedClock

NOTHING: Any = None
RUNNING = Wave("w1", WaveStatus.RUNNING, started_at=NOW)


# Limits of a wave.


@pytest.mark.parametrize(
    ("hours", "zone", "inside", "outside"),
    [
        ("09:00-17:00", "UTC", ["09:00", "16:59"], ["08:59", "17:00", "00:00"]),
        ("22:00-06:00", "UTC", ["22:00", "23:59", "00:00", "05:59"], ["06:00", "21:59"]),
        # In winter, Berlin is one hour ahead of UTC.
        ("22:00-06:00", "Europe/Berlin", ["21:00", "04:59"], ["20:59", "05:00"]),
    ],
)
def test_hours_may_cross_midnight_and_exclude_their_end(
    hours: str, zone: str, inside: list[str], outside: list[str]
) -> None:
    read = Hours.parse(hours, zone)
    for text in (*inside, *outside):
        moment = datetime.fromisoformat(f"2026-01-15T{text}:00+00:00")
        assert read.contain(moment) is (text in inside), text


def test_hours_follow_daylight_saving_time() -> None:
    read = Hours.parse("22:00-06:00", "Europe/Berlin")
    summer = datetime(2026, 7, 15, 20, 0, tzinfo=UTC)
    assert read.contain(summer)
    assert not read.contain(summer - timedelta(minutes=1))


@pytest.mark.parametrize(
    "hours", ["22-6", "22:00", "24:00-06:00", "22:61-06:00", "06:00-06:00", "٢٢:00-06:00", "a"]
)
def test_invalid_hours_are_refused(hours: str) -> None:
    with conditions.raises("WAVE_HOURS_INVALID", text=hours):
        checked(replace(RUNNING, hours=hours))


@pytest.mark.parametrize("zone", ["Berlin", "", "../etc/passwd", "/etc/passwd"])
def test_unknown_time_zone_is_refused(zone: str) -> None:
    with conditions.raises("TIME_ZONE_UNKNOWN", zone=zone):
        checked(replace(RUNNING, hours="22:00-06:00", time_zone=zone))


def test_too_long_time_zone_is_refused() -> None:
    with conditions.raises("TIME_ZONE_NAME_TOO_LONG", longest=30):
        checked(replace(RUNNING, hours="22:00-06:00", time_zone="America/Argentina/ComodRivadavia"))


@pytest.mark.parametrize("name", ["", "a b", "w;drop", "ü" * 101, "a/b"])
def test_invalid_wave_name_is_refused(name: str) -> None:
    with conditions.raises("WAVE_NAME_INVALID", wave=name):
        checked(Wave(name))


@given(begin=st.times(), end=st.times(), moment=st.datetimes(datetime(2025, 1, 1), datetime(2027, 1, 1)))
def test_each_minute_is_in_hours_or_in_their_complement(begin: Any, end: Any, moment: datetime) -> None:
    first, last = begin.strftime("%H:%M"), end.strftime("%H:%M")
    if first == last:
        return
    moment = moment.replace(tzinfo=UTC)
    day, night = (
        Hours.parse(f"{first}-{last}", "Asia/Kolkata"),
        Hours.parse(f"{last}-{first}", "Asia/Kolkata"),
    )
    assert day.contain(moment) is not night.contain(moment)


@pytest.mark.parametrize(
    ("wave", "why"),
    [
        (RUNNING, ""),
        (Wave("w1"), "the wave w1 is planned"),
        (replace(RUNNING, status=WaveStatus.PAUSED), "the wave w1 is paused"),
        (replace(RUNNING, hours="12:01-11:59"), "starts tables from 12:01-11:59 (UTC) alone"),
        (replace(RUNNING, hours="12:00-12:01"), ""),
    ],
)
def test_why_none_begins(wave: Wave, why: str) -> None:
    reason = why_none_begins(wave, NOW)
    assert why in reason
    assert bool(reason) is bool(why)


@pytest.mark.parametrize(
    ("percent", "tables", "failed", "pauses"),
    [(10, 100, 10, False), (10, 100, 11, True), (10, 3, 1, True), (0, 1000, 1, True), (100, 1, 1, False)],
)
def test_too_many_failed_tables_pause_wave(percent: int, tables: int, failed: int, pauses: bool) -> None:
    reason = too_many_failed(replace(RUNNING, stop_percent=percent), Load(tables, failed))
    assert bool(reason) is pauses
    if pauses:
        assert reason.startswith(f"{failed:,} of {tables:,} table")


def test_room_is_limit_minus_claimed_tables() -> None:
    assert room(RUNNING, Load(taken=7)) is None
    assert [room(replace(RUNNING, tables_at_once=2), Load(taken=taken)) for taken in range(4)] == [2, 1, 0, 0]


# Waves in a queue.


class Waves:
    """A queue whose announced tables are due; a migrated table's job is on probation."""

    def __init__(self, folder: Path) -> None:
        self.store, self.url = opened(folder), f"sqlite:///{folder}/fleet.db"
        self.clock = FixedClock(NOW)
        self.moved: list[str] = []
        self.works: dict[str, Callable[[JobRun], object]] = {}

    def add(self, *tables: str, wave: str | None = "w1", size: int = 1) -> None:
        """Add announced tables."""
        names = [TableName(("spark_catalog", "sales", table)) for table in tables]
        self.store.add([NewJob(name, initial_gap_days=1, wave=wave) for name in names], NOW)
        claimed = self.store.claim(named(names), "w", now=NOW, lease=LEASE, limit=len(names))
        for job in claimed:
            ready = replace(
                job, state=State.READY, desired_state=State.WRITES_BLOCKED, to_be_processed=True,
                comm_level1_date=NOW - timedelta(days=2), table_bytes=size,
            )  # fmt: skip
            self.store.save(ready, NOW, release=True)

    def begin(self, *tables: str, **values: Any) -> None:
        """Leave tables in the state of a worker that started them and died."""
        chosen = named([TableName(("spark_catalog", "sales", table)) for table in tables])
        for job in self.store.claim(chosen, "dead", now=NOW, lease=LEASE, limit=len(tables)):
            self.store.save(replace(job, in_process=True, to_be_processed=False, **values), NOW, release=True)

    def end_probations(self) -> None:
        over: dict[str, Any] = {"state": State.WRITES_UNBLOCKED, "desired_state": State.HIVE_DROPPED}
        for job in self.store.claim(everything(), "x", now=NOW, lease=LEASE, limit=100):
            archiving = replace(job, **over, in_process=True, to_be_processed=False)
            self.store.save(archiving, NOW, release=True)

    def wave(self, name: str = "w1", status: WaveStatus = WaveStatus.RUNNING, **limits: Any) -> Wave:
        return self.store.save_wave(Wave(name, status, started_at=NOW, **limits))

    def change(self, name: str = "w1", **values: Any) -> None:
        (wave,) = (wave for wave in self.store.waves() if wave.name == name)
        self.store.save_wave(replace(wave, **values))

    def worker(self, name: str = "w", store: Store | None = None, **how: Any) -> Worker:
        settings = FleetSettings(tables_at_once=1)
        return Worker(
            store or self.store, lambda: Warehouse(NOTHING, NOTHING), settings, name, self.clock, **how
        )

    def run(
        self, work: Callable[[JobRun], object] = lambda run: None, worker: Worker | None = None
    ) -> ModeReport:
        """Migrate as the mode does, with `work` instead of changes of tables."""
        worker = worker or self.worker()
        gate = WaveGate(worker.store, worker.clock, worker.dry_run)

        def do(run: JobRun) -> JobReport:
            self.works[run.job.claimed_by or ""] = work
            return start_or_resume(run, gate)

        return run_worker(worker, "try", gate.list_claimable, do, lambda job, _: JobReport(job, "planned"))

    def advance(self, run: JobRun, transitions: object) -> JobReport:
        """Migrate a table, unless its work fails or pauses it."""
        self.moved.append(run.job.tbl_name)
        if self.works[run.job.claimed_by or ""](run) == "failed":
            run.release(run.job)
            return JobReport(run.job, "failed")
        if run.job.migration_paused:
            run.release(run.job)
            return JobReport(run.job, "paused")
        on_probation = {"state": State.WRITES_UNBLOCKED, "desired_state": State.WRITES_UNBLOCKED}
        run.release(replace(run.job, **on_probation))  # type: ignore[arg-type]
        return JobReport(run.job, "done")

    def jobs(self) -> dict[str, Job]:
        return {job.tbl_name: job for job in self.store.jobs(everything())}


@pytest.fixture
def waves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Waves]:
    waves = Waves(tmp_path)
    monkeypatch.setattr(mode, "advance", waves.advance)
    yield waves
    waves.store.close()


@pytest.mark.parametrize("status", [WaveStatus.PLANNED, WaveStatus.PAUSED])
def test_tables_of_stopped_wave_do_not_start(waves: Waves, status: WaveStatus) -> None:
    waves.add("a", "b")
    waves.add("free", wave=None)
    waves.wave(status=status)
    before = waves.jobs()
    waves.run()
    assert waves.moved == ["free"]
    assert {name: waves.jobs()[name] for name in "ab"} == {name: before[name] for name in "ab"}
    waves.change(status=WaveStatus.RUNNING)
    waves.run()
    assert waves.moved == ["free", "a", "b"]
    assert {job.begun_at for job in waves.jobs().values()} == {NOW}


def test_tables_of_missing_wave_wait(waves: Waves) -> None:
    waves.add("a", wave="none")
    waves.wave()
    assert waves.run().jobs == ()


def test_notifications_wait_for_start_of_wave(waves: Waves) -> None:
    waves.store.add([NewJob(TableName(("spark_catalog", "sales", "a")), wave="w1")], NOW)
    waves.wave(status=WaveStatus.PLANNED)
    [job] = waves.store.claim(everything(), "w", now=NOW, lease=LEASE, limit=1)
    ready = replace(job, state=State.READY, desired_state=State.WRITES_BLOCKED, to_be_processed=True)
    waves.store.save(ready, NOW, release=True)
    assert list(waves.store.jobs(to_notify())) == []
    waves.change(status=WaveStatus.RUNNING)
    assert len(waves.store.jobs(to_notify())) == 1


def test_started_table_is_resumed_in_paused_wave(waves: Waves) -> None:
    waves.add("a", "b")
    waves.wave(status=WaveStatus.PAUSED)
    [job] = waves.store.claim(
        named([TableName(("spark_catalog", "sales", "a"))]), "x", now=NOW, lease=LEASE, limit=1
    )
    begun = replace(job, in_process=True, to_be_processed=False, state=State.WRITES_BLOCKED,
                    desired_state=State.ICEBERG_READY)  # fmt: skip
    waves.store.save(begun, NOW, release=True)
    waves.run()
    assert waves.moved == ["a"]


def test_claimed_tables_do_not_start_after_wave_was_paused(waves: Waves) -> None:
    waves.add("a", "b", "c")
    waves.wave()
    report = waves.run(lambda run: waves.change(status=WaveStatus.PAUSED))
    assert waves.moved == ["a"]
    outcomes = [(job.outcome, job.error) for job in report.jobs]
    assert outcomes == [("done", ""), *[("waiting", "the wave w1 is paused")] * 2]
    assert {job.claimed_by for job in waves.jobs().values()} == {None}
    assert waves.jobs()["b"].to_be_processed


@pytest.mark.parametrize("status", WaveStatus)
def test_tables_of_stopped_wave_are_not_archived(waves: Waves, status: WaveStatus) -> None:
    waves.add("a")
    waves.end_probations()
    waves.wave(status=status)
    waves.run()
    assert waves.moved == (["a"] if status is WaveStatus.RUNNING else [])


def test_claimed_tables_are_not_archived_after_wave_was_paused(waves: Waves) -> None:
    waves.add("a", "b")
    waves.end_probations()
    # The wave's hours limit only the start of tables.
    waves.wave(hours="00:00-01:00")
    report = waves.run(lambda run: waves.change(status=WaveStatus.PAUSED))
    assert waves.moved == ["a"]
    outcomes = [(job.outcome, job.error) for job in report.jobs]
    assert outcomes == [("done", ""), ("waiting", "the wave w1 is paused")]


def test_tables_start_only_in_hours_of_their_wave(waves: Waves) -> None:
    waves.add("a", "b")
    waves.wave(hours="13:00-14:00")
    waves.run()
    assert waves.moved == []
    waves.clock.turn(minutes=60)
    waves.run(lambda run: waves.clock.turn(minutes=60))
    assert waves.moved == ["a"]
    waves.clock.turn(days=1)
    waves.clock.turn(minutes=-60)
    waves.run()
    assert waves.moved == ["a", "b"]


def test_unknown_time_zone_stops_only_its_wave(waves: Waves, caplog: pytest.LogCaptureFixture) -> None:
    waves.add("a", "b", "c")
    waves.begin("a")
    waves.add("free", wave=None)
    waves.wave(hours="22:00-06:00", time_zone="Europe/Newtown")
    waves.run()
    assert waves.moved == ["a", "free"]
    assert waves.jobs()["b"].to_be_processed
    [warning] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "no table of the wave w1 starts here: [TIME_ZONE_UNKNOWN] " in warning
    assert "'Europe/Newtown'" in warning


def test_wave_is_paused_after_too_many_failures(waves: Waves, caplog: pytest.LogCaptureFixture) -> None:
    waves.add(*(f"t{number:02}" for number in range(20)))
    waves.add("free", wave=None)
    waves.wave(stop_percent=10, tables_at_once=1)

    def fail(run: JobRun) -> None:
        if run.job.wave and run.job.tbl_name != "t01":
            run.job = run.job.paused(PauseReason.ROWS_DIFFER, "1 of 2")

    waves.run(fail)
    # More than 10 % of 20 are 3.
    assert sorted(waves.moved) == ["free", "t00", "t01", "t02", "t03"]
    [wave] = waves.store.waves()
    assert (wave.status, wave.reason) == (WaveStatus.PAUSED, "3 of 20 tables failed, more than 10 %")
    assert "the wave w1 is paused: 3 of 20 tables failed, more than 10 %. List them" in caplog.text
    # A new start resets the count of failures.
    waves.clock.turn(minutes=1)
    waves.change(status=WaveStatus.RUNNING, started_at=waves.clock(), reason="")
    waves.run()
    assert len(waves.moved) == 21


def test_wave_changed_during_pause_is_checked_again(waves: Waves, monkeypatch: pytest.MonkeyPatch) -> None:
    waves.add("a", "b")
    waves.wave(stop_percent=0)

    def fail(run: JobRun) -> None:
        run.job = run.job.paused(PauseReason.STEP_FAILED)

    def refuse(wave: Wave) -> Wave:
        raise Busy("another process was faster")

    with monkeypatch.context() as patch:
        patch.setattr(waves.store, "save_wave", refuse)
        waves.run(fail, waves.worker(batch_size=1))
        waves.run()
    # The wave counts as paused even if another process changed it.
    assert waves.moved == ["a"]
    waves.run()
    assert [wave.status for wave in waves.store.waves()] == [WaveStatus.PAUSED]


@pytest.mark.parametrize("limits", [{}, {"tables_at_once": 2}])
def test_wave_is_paused_as_soon_as_share_of_failures_is_exceeded(
    waves: Waves, limits: dict[str, Any]
) -> None:
    waves.add(*(f"t{number}" for number in range(10)))
    waves.wave(stop_percent=10, **limits)
    report = waves.run(lambda run: setattr(run, "job", run.job.paused(PauseReason.ROWS_DIFFER)))
    # More than 10 % of 10 are 2.
    assert waves.moved == ["t0", "t1"]
    [wave] = waves.store.waves()
    assert (wave.status, wave.reason) == (WaveStatus.PAUSED, "2 of 10 tables failed, more than 10 %")
    assert {job.error for job in report.jobs if job.outcome == "waiting"} <= {"the wave w1 is paused"}


def test_dry_run_pauses_no_wave(waves: Waves) -> None:
    waves.add("a", "b")
    waves.wave(stop_percent=0)
    a = named([TableName(("spark_catalog", "sales", "a"))])
    [job] = waves.store.claim(a, "x", now=NOW, lease=LEASE, limit=1)
    waves.store.save(replace(job.paused(PauseReason.STEP_FAILED), in_process=True), NOW, release=True)
    before = waves.store.waves()
    assert mode.migrate(waves.worker(dry_run=True)).jobs == ()
    assert waves.store.waves() == before
    assert mode.migrate(waves.worker()).jobs == ()
    assert [wave.status for wave in waves.store.waves()] == [WaveStatus.PAUSED]


def test_failing_table_is_tried_once_in_limited_wave(waves: Waves) -> None:
    waves.add("a", "b", "c")
    waves.wave(tables_at_once=1)
    report = waves.run(lambda run: "failed")
    assert [job.job.tbl_name for job in report.jobs] == ["a", "b", "c"]
    assert {job.claimed_by for job in waves.jobs().values()} == {None}
    # They have started, so the next run resumes them.
    waves.run()
    assert waves.moved == [*"abc", *"abc"]


def test_run_claims_place_that_another_worker_released(waves: Waves) -> None:
    waves.add("free", wave=None)
    waves.add("other", "a", "b")
    waves.wave(tables_at_once=1)
    other = named([TableName(("spark_catalog", "sales", "other"))])
    [theirs] = waves.store.claim(other, "other", now=NOW, lease=LEASE, limit=1)
    gate = WaveGate(waves.store, waves.clock)
    claims = Claims(waves.store, "w", waves.clock, LEASE, (0, 1), 100, gate.list_claimable, threads=2)
    assert [job.tbl_name for job in claims.claim_more()] == ["free"]
    assert claims.claim_more() == []
    done: dict[str, Any] = {"state": State.WRITES_UNBLOCKED, "desired_state": State.WRITES_UNBLOCKED}
    waves.store.save(replace(theirs, **done), NOW, release=True)
    assert [job.tbl_name for job in claims.claim_more()] == ["a"]
    assert claims.claim_more() == []


def test_limited_wave_is_claimed_after_started_jobs_and_before_others(
    waves: Waves,
) -> None:
    waves.add(*(f"t{number}" for number in range(12)), wave=None)
    waves.add("began", wave=None)
    waves.add("a", "b")
    waves.wave(tables_at_once=1)
    waves.begin("began")
    waves.run()
    assert waves.moved[:2] == ["began", "a"]
    # Each claim of the run includes a job of the wave.
    assert waves.moved.index("b") < 12
    assert len(waves.moved) == 15


def test_limited_wave_is_claimed_before_tables_after_probation(waves: Waves) -> None:
    over = [f"t{number:02}" for number in range(20)]
    waves.add(*over, wave=None)
    # Writes to these tables aren't blocked.
    waves.begin(*over, state=State.WRITES_UNBLOCKED, desired_state=State.HIVE_DROPPED)
    waves.add("a", "b")
    waves.wave(tables_at_once=1)
    waves.run()
    assert waves.moved[0] == "a"
    assert waves.moved.index("b") < 12
    assert len(waves.moved) == 22


def test_long_started_table_leaves_other_threads_to_wave(
    waves: Waves, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "beside", lambda spark: object())
    waves.add("long", wave=None)
    waves.begin("long")
    waves.add("a")
    waves.wave(tables_at_once=1)
    moved, together = threading.Event(), []

    def move(run: JobRun) -> None:
        if run.job.tbl_name == "long":
            together.append(moved.wait(timeout=30))
        else:
            moved.set()

    waves.run(move, replace(waves.worker(), settings=FleetSettings(tables_at_once=2)))
    assert together == [True]


def test_failing_started_tables_do_not_end_run(waves: Waves) -> None:
    failing = [f"t{number:02}" for number in range(41)]
    waves.add(*failing, wave=None)
    waves.begin(*failing)
    waves.add("free", wave=None)
    waves.wave(tables_at_once=1)
    waves.run(lambda run: None if run.job.tbl_name == "free" else "failed")
    assert waves.moved == [*failing, "free"]


def test_many_limited_waves_leave_claims_to_other_tables(waves: Waves) -> None:
    for number in range(4):
        waves.add(*(f"t{number}{table}" for table in range(8)), wave=f"w{number}")
        waves.wave(f"w{number}", tables_at_once=4)
    waves.add("free", wave=None)
    gate = WaveGate(waves.store, waves.clock)
    claims = Claims(waves.store, "w", waves.clock, LEASE, (0, 1), 100, gate.list_claimable, threads=4)
    claimed = [job.tbl_name for job in claims.claim_more()]
    assert {name[:2] for name in claimed} == {"t0", "t1", "t2", "t3", "fr"}
    few = Claims(waves.store, "x", waves.clock, LEASE, (0, 1), 2, gate.list_claimable, threads=4)
    assert len(few.claim_more()) == 2


def test_worker_claims_no_more_tables_of_limited_wave_than_threads(waves: Waves) -> None:
    waves.add(*(f"t{number}" for number in range(20)))
    waves.wave(tables_at_once=8)
    gate = WaveGate(waves.store, waves.clock)
    first, second = (
        Claims(waves.store, name, waves.clock, LEASE, (0, 1), 100, gate.list_claimable, threads=4)
        for name in ("first", "second")
    )
    mine = first.claim_more()
    assert len(mine) == 4
    assert first.claim_more() == []
    assert len(second.claim_more()) == 4
    # A free thread allows one more claim.
    waves.store.save(replace(mine[0], state=State.WRITES_UNBLOCKED), NOW, release=True)
    first.stop_renewing(mine[0].task_id)
    assert len(first.claim_more()) == 1


def test_wave_is_paused_after_its_last_table_failed(waves: Waves) -> None:
    waves.add("a")
    waves.wave()
    waves.run(lambda run: setattr(run, "job", run.job.paused(PauseReason.STEP_FAILED)))
    [wave] = waves.store.waves()
    assert (wave.status, wave.reason) == (WaveStatus.PAUSED, "1 of 1 table failed, more than 10 %")


def test_limits_apply_to_each_wave_separately(waves: Waves) -> None:
    waves.add("a1", "a2", wave="a")
    waves.add("b1", "b2", wave="b")
    waves.add("c1", wave="c")
    waves.add("n1", wave=None)
    waves.wave("a", tables_at_once=1)
    waves.wave("b", tables_at_once=5)
    waves.wave("c", hours="00:00-01:00")
    waves.run()
    assert sorted(waves.moved) == ["a1", "a2", "b1", "b2", "n1"]


def test_concurrent_workers_respect_limit_of_wave(waves: Waves) -> None:
    """Three workers with separate connections to the queue; the test counts concurrent tables."""
    waves.add(*(f"t{number:02}" for number in range(24)))
    waves.wave(tables_at_once=2)
    lock, under_way, most = threading.Lock(), 0, 0

    def move(run: JobRun) -> None:
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        # Give the other workers time to claim jobs.
        for _ in range(20):
            waves.store.waves()
        with lock:
            under_way -= 1

    def work(name: str) -> None:
        store = open_store(waves.url)
        while any(job.to_be_processed for job in store.jobs(everything())):
            waves.run(move, waves.worker(name, store))
        store.close()

    threads = [threading.Thread(target=work, args=(f"w{number}",)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert sorted(waves.moved) == [f"t{number:02}" for number in range(24)]
    assert most <= 2
    assert {job.state for job in waves.jobs().values()} == {State.WRITES_UNBLOCKED}


def test_pause_without_reason_keeps_reason(waves: Waves) -> None:
    waves.wave()
    assert pause_wave(waves.store, "w1", "3 of 20 tables failed").reason == "3 of 20 tables failed"
    assert pause_wave(waves.store, "w1").reason == "3 of 20 tables failed"
    assert pause_wave(waves.store, "w1", "the month's end").reason == "the month's end"
    start_wave(waves.store, "w1", NOW)
    assert pause_wave(waves.store, "w1").reason == ""


def test_long_reason_of_wave_is_truncated(waves: Waves) -> None:
    waves.wave()
    assert pause_wave(waves.store, "w1", "x" * 1000).reason == "x" * 512
