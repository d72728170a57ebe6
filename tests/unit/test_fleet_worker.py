"""A worker runs several tables concurrently, each once a run, in separate sessions."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tests.unit.fleets import LEASE, NOW, Fleet, opened

from tableferry.cli import logs
from tableferry.errors import Refused
from tableferry.fleet.jobs.steps import MakeManaged
from tableferry.fleet.modes import worker as worker_module
from tableferry.fleet.modes.claims import ClaimableJobs
from tableferry.fleet.modes.job_run import JobRun, run_and_report
from tableferry.fleet.modes.results import JobReport, ModeReport
from tableferry.fleet.modes.worker import Worker, run_worker
from tableferry.fleet.queue.selections import everything
from tableferry.fleet.queue.store import Store
from tableferry.fleet.settings import FleetSettings
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.spark import session
from tableferry.testing import FixedClock

NOTHING: Any = None


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(opened(tmp_path))
    yield fleet
    fleet.store.close()


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The sessions that were created for threads, as numbers."""
    made: list[Any] = []
    numbers = count(1)

    def beside(spark: Any) -> Any:
        made.append(next(numbers))
        return made[-1]

    monkeypatch.setattr(session, "beside", beside)
    return made


def worker(fleet: Fleet, concurrency: int = 3, **how: Any) -> Worker:
    settings = FleetSettings(tables_at_once=concurrency)
    return Worker(
        fleet.store,
        lambda: Warehouse(NOTHING, NOTHING),
        settings,
        "w",
        FixedClock(NOW + LEASE),
        **how,
    )


def add(fleet: Fleet, tables: Iterable[str]) -> None:
    fleet.add(*tables, at=NOW)


def run(worker: Worker, do: Callable[[JobRun], JobReport]) -> ModeReport:
    return run_worker(
        worker, "try", lambda: [ClaimableJobs(everything())], do, lambda job, _: JobReport(job, "planned")
    )


def release(run: JobRun) -> JobReport:
    run.release(replace(run.job, data_category="moved"))
    return JobReport(run.job, "done")


def test_run_processes_tables_concurrently_in_separate_sessions(fleet: Fleet, sessions: list[Any]) -> None:
    add(fleet, "abcdefgh")
    together = threading.Barrier(3)
    meet = set("abc")
    by_thread: dict[int, set[Any]] = {}

    def move(run: JobRun) -> JobReport:
        by_thread.setdefault(threading.get_ident(), set()).add(run.warehouse.spark)
        if run.job.tbl_name in meet:
            # Three jobs must reach this line before one continues.
            together.wait(timeout=60)
        return release(run)

    report = run(worker(fleet), move)
    assert sorted(job.job.tbl_name for job in report.jobs) == list("abcdefgh")
    assert sessions == [1, 2, 3]
    assert set.union(*by_thread.values()) == {1, 2, 3}
    assert all(job.claimed_by is None for job in fleet.store.jobs(everything()))


@pytest.mark.parametrize("concurrency", [1, 3])
def test_run_writes_one_line_for_each_table_and_its_steps_with_verbose(
    fleet: Fleet, sessions: list[Any], capsys: pytest.CaptureFixture[str], concurrency: int
) -> None:
    add(fleet, "abcd")

    def move(run: JobRun) -> JobReport:
        run.perform(MakeManaged(run.job.name))
        run.perform(MakeManaged(run.job.name))
        if run.job.tbl_name == "c":
            raise Refused("the schema is gone")
        return release(run)

    lines = {}
    for verbose in (False, True):
        with logs.show_logs(verbose=verbose, log_format=logs.LogFormat.TEXT):
            run(worker(fleet, concurrency=concurrency), partial(run_and_report, work=move))
        lines[verbose] = [line.partition(" ")[2] for line in capsys.readouterr().err.splitlines()]
    first, *tables, last = lines[False]
    assert first == "try: started (w)"
    assert re.fullmatch(r"try: done in 0\.\d s, 4 of 4 tables \(w\)", last)
    name, seconds = r"spark_catalog\.sales\.", r"0\.\d s"
    assert len(tables) == 4
    for number, line in enumerate(tables, 1):
        what = "paused" if ".c:" in line else "done"
        assert re.fullmatch(rf"{name}[a-d]: {what} at Undefined in {seconds}, {number} of 4 tables", line)
    # The start and the end of two steps of each table.
    assert sum("make" in line for line in lines[True]) == 4 * 2 * 2


def test_paused_table_is_written_even_if_the_run_is_quiet(
    fleet: Fleet, capsys: pytest.CaptureFixture[str]
) -> None:
    add(fleet, "ab")

    def move(run: JobRun) -> JobReport:
        if run.job.tbl_name == "b":
            raise Refused("the schema is gone")
        return release(run)

    with logs.show_logs(quiet=True, log_format=logs.LogFormat.TEXT):
        run(worker(fleet, concurrency=1), partial(run_and_report, work=move))
    [line] = capsys.readouterr().err.splitlines()
    assert "spark_catalog.sales.b: paused at Undefined" in line


def test_session_is_used_by_one_table_at_a_time(fleet: Fleet, sessions: list[Any]) -> None:
    add(fleet, (f"t{number}" for number in range(30)))
    busy: set[Any] = set()

    def move(run: JobRun) -> JobReport:
        assert run.warehouse.spark not in busy
        busy.add(run.warehouse.spark)
        report = release(run)
        busy.discard(run.warehouse.spark)
        return report

    assert len(run(worker(fleet), move).jobs) == 30


@pytest.mark.parametrize(("concurrency", "tables"), [(1, "abc"), (4, "a")])
def test_sequential_run_uses_worker_s_thread_and_session(
    fleet: Fleet, sessions: list[Any], concurrency: int, tables: str
) -> None:
    add(fleet, tables)
    threads = set()

    def move(run: JobRun) -> JobReport:
        threads.add(threading.get_ident())
        assert run.warehouse.spark is NOTHING
        return release(run)

    assert len(run(worker(fleet, concurrency), move).jobs) == len(tables)
    assert (threads, sessions) == ({threading.get_ident()}, [])


def test_run_is_sequential_without_more_sessions(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "beside", lambda spark: None)
    add(fleet, "abc")
    threads = set()

    def move(run: JobRun) -> JobReport:
        threads.add(threading.get_ident())
        return release(run)

    assert len(run(worker(fleet), move).jobs) == 3
    assert threads == {threading.get_ident()}


@pytest.mark.parametrize("concurrency", [1, 3])
def test_failing_table_is_tried_once_in_a_run(fleet: Fleet, sessions: list[Any], concurrency: int) -> None:
    add(fleet, (f"t{number}" for number in range(25)))

    def fail(run: JobRun) -> JobReport:
        run.release(run.job)
        return JobReport(run.job, "failed", error="no")

    names = [job.job.tbl_name for job in run(worker(fleet, concurrency), fail).jobs]
    assert len(names) == len(set(names)) == 25


@pytest.mark.parametrize("concurrency", [1, 3])
def test_run_processes_at_most_batch_size_tables(fleet: Fleet, sessions: list[Any], concurrency: int) -> None:
    add(fleet, (f"t{number}" for number in range(25)))
    assert len(run(worker(fleet, concurrency, batch_size=13), release).jobs) == 13
    assert sum(job.data_category == "moved" for job in fleet.store.jobs(everything())) == 13


def test_limited_runs_process_longest_waiting_tables_first(fleet: Fleet) -> None:
    """Jobs on probation are due again in every run."""
    add(fleet, "abcdefg")
    done: list[str] = []

    def move(run: JobRun) -> JobReport:
        done.append(run.job.tbl_name)
        return release(run)

    clock = FixedClock(NOW + LEASE)
    some = replace(worker(fleet, concurrency=1, batch_size=3), clock=clock)
    for _ in range(3):
        clock.turn(minutes=10)
        run_worker(
            some, "try", lambda: [ClaimableJobs(everything())], move, lambda job, _: JobReport(job, "planned")
        )
    assert (done[:3], done[3:6]) == (list("abc"), list("def"))
    assert done[6:] == ["a", "b", "g"]
    # A dry run reports the tables of the next run.
    clock.turn(minutes=10)
    planned = run(replace(some, dry_run=True), move)
    assert [report.job.tbl_name for report in planned.jobs][:3] == list("cde")


def test_error_that_ends_run_waits_for_running_tables_and_starts_no_others(
    fleet: Fleet, sessions: list[Any]
) -> None:
    add(fleet, (f"t{number:02}" for number in range(25)))
    broken, lock = threading.Event(), threading.Lock()
    began: list[str] = []

    def move(run: JobRun) -> JobReport:
        with lock:
            began.append(run.job.tbl_name)
            third = len(began) == 3
        if third:
            broken.set()
            raise RuntimeError("the driver is gone")
        assert broken.wait(timeout=60)
        return release(run)

    with pytest.raises(RuntimeError, match="the driver is gone"):
        run(worker(fleet), move)
    moved = [job.tbl_name for job in fleet.store.jobs(everything()) if job.data_category == "moved"]
    assert len(began) < 10
    assert sorted([*moved, began[2]]) == sorted(began)
    # Another run claims the jobs that weren't started, after the lease has expired.
    later = replace(worker(fleet), clock=FixedClock(NOW + 3 * LEASE))
    left = run(later, release).jobs
    assert {job.job.tbl_name for job in left} >= {f"t{number:02}" for number in range(25)} - set(moved)


class Renewing:
    """A queue that records the renewed claims."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.renewed: list[tuple[int, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def renew(self, task_ids: Iterable[int], *how: Any) -> None:
        self.renewed.append(tuple(task_ids))


def test_claim_is_renewed_until_job_ends(
    fleet: Fleet, sessions: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    add(fleet, "abcdef")
    queue: Any = Renewing(fleet.store)
    beats: list[Callable[[], None]] = []
    lock = threading.Lock()

    def heartbeat(renew: Callable[[], None], lease: timedelta) -> AbstractContextManager[None]:
        beats.append(renew)
        return nullcontext()

    def move(run: JobRun) -> JobReport:
        with lock:
            beats[0]()
            assert run.job.task_id in queue.renewed[-1]
        return release(run)

    monkeypatch.setattr(worker_module, "heartbeat", heartbeat)
    run(replace(worker(fleet), store=queue), move)
    assert len(queue.renewed) == 6
    beats[0]()
    assert len(queue.renewed) == 6, "no claim is left"
