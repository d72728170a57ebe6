"""Requested reverts: the jobs' states, refusals and dry runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests import conditions
from tests.unit import fleets

from tableferry.fleet.jobs.job import Job, PauseReason, State
from tableferry.fleet.jobs.transitions import BACK
from tableferry.fleet.modes import reverter as mode
from tableferry.fleet.modes.results import JobReport, ModeReport
from tableferry.fleet.modes.reverter import _prepare_revert, revert
from tableferry.fleet.modes.worker import Worker
from tableferry.fleet.operations.selection import select_jobs
from tableferry.fleet.queue.selections import everything, finished, named, numbered
from tableferry.fleet.queue.store import Store
from tableferry.fleet.settings import FleetSettings
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.spark.tables import TableName

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = fleets.NOW


@pytest.mark.parametrize("pair", BACK)
def test_paused_revert_resumes_in_same_state(pair: tuple[State, State]) -> None:
    state, desired = pair
    job = Job(
        1,
        "spark_catalog",
        "sales",
        "orders",
        created_at=NOW,
        last_updated_time=NOW,
        state=state,
        desired_state=desired,
    )
    paused = job.with_record(failures=2, last_error="x").paused(PauseReason.STEP_FAILED, "3 times")
    assert _prepare_revert(paused, NOW, from_archive=False) == job


@pytest.mark.parametrize(
    ("state", "condition"), [(State.UNDEFINED, "JOB_NOT_BEGUN"), (State.ICEBERG_DROPPED, "JOB_REVERTED")]
)
@pytest.mark.parametrize("paused", [False, True])
def test_revert_is_refused_for_job_without_migration(state: State, condition: str, *, paused: bool) -> None:
    job = Job(
        1,
        "spark_catalog",
        "sales",
        "orders",
        created_at=NOW,
        last_updated_time=NOW,
        state=state,
        desired_state=state,
        migration_paused=paused,
    )
    with conditions.raises(condition, table="spark_catalog.sales.orders"):
        _prepare_revert(job, NOW, from_archive=False)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A queue with a completed job in its archive, two tables on probation and a waiting job."""
    store = fleets.opened(tmp_path)
    fleet = fleets.Fleet(store)
    fleet.add("archived", "probation", "other", "waiting", at=fleets.days_ago(60))
    for table in ("archived", "probation", "other"):
        fleet.ready(table, fleets.days_ago(59), notified=fleets.days_ago(58))
        fleet.migrated(table, fleets.days_ago(40))
    fleet.finished("archived", fleets.days_ago(20))
    assert store.archive(finished(), LATER) == 1
    yield store
    store.close()


def worker(store: Store) -> Worker:
    nothing: Any = None
    return Worker(store, lambda: Warehouse(nothing, nothing), FleetSettings(), "w", lambda: LATER)


def name(table: str) -> TableName:
    return TableName(("spark_catalog", "sales", table))


def test_revert_changes_nothing_if_one_table_is_refused(store: Store) -> None:
    before = [*store.jobs(everything()), *store.archived(everything())]
    with conditions.raises("JOB_NOT_BEGUN", table=name("waiting")):
        revert(worker(store), [name("archived"), name("waiting")], from_archive=True)
    assert [*store.jobs(everything()), *store.archived(everything())] == before


def test_revert_starts_nothing_if_one_job_is_claimed(store: Store) -> None:
    store.claim(named([name("other")]), "shadower", now=LATER, lease=timedelta(hours=1), limit=1)
    before = store.jobs(everything())
    with conditions.raises("JOB_CLAIMED", table=name("other"), worker="shadower"):
        revert(worker(store), [name("probation"), name("other")])
    assert store.jobs(everything()) == before


def test_job_claimed_during_revert_is_reported_and_others_are_reverted(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit = store.edit

    def taken(job: Job, now: datetime, *, by: str = "") -> Job:
        if job.tbl_name == "probation":
            store.claim(numbered([job.task_id]), "shadower", now=LATER, lease=timedelta(hours=1), limit=1)
        return edit(job, now, by=by)

    monkeypatch.setattr(store, "edit", taken)
    monkeypatch.setattr(mode, "run_worker", lambda *how: ModeReport())
    report = revert(worker(store), map(name, ("probation", "other", "archived")), from_archive=True)
    assert [(job.job.tbl_name, job.outcome) for job in report.jobs] == [("probation", "failed")]
    assert "[JOB_CHANGED]" in report.jobs[0].error
    states = {job.tbl_name: job.pair for job in store.jobs(everything())}
    assert states["probation"] == (State.WRITES_UNBLOCKED, State.WRITES_UNBLOCKED)
    assert states["other"] == (State.WRITES_UNBLOCKED, State.WRITES_BLOCKED)
    assert states["archived"] == (State.HIVE_DROPPED, State.WRITES_BLOCKED)


def test_dry_run_plans_named_tables_and_reverts_in_progress(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = fleets.Fleet(store)
    fleet.change("other", LATER, desired_state=State.WRITES_BLOCKED)
    before = [*store.jobs(everything()), *store.archived(everything())]

    def planned(job: Job, *_: object, **how: object) -> JobReport:
        return JobReport(job, "planned", (str(job.desired_state),))

    def named_in(report: ModeReport) -> list[tuple[str, tuple[str, ...]]]:
        return [(job.job.tbl_name, job.actions) for job in report.jobs]

    monkeypatch.setattr(mode, "dry_run_report", planned)
    dry = replace(worker(store), dry_run=True)
    under_way = ("other", ("WritesBlocked",))
    assert named_in(revert(dry)) == [under_way]
    assert named_in(revert(dry, [name("probation")])) == [("probation", ("WritesBlocked",)), under_way]
    # A table that is also named is listed once.
    assert named_in(revert(dry, [name("other")])) == [under_way]
    assert [*store.jobs(everything()), *store.archived(everything())] == before


def test_table_that_waits_for_its_wave_after_probation_is_reverted(store: Store) -> None:
    fleet = fleets.Fleet(store)
    fleet.change("other", LATER, desired_state=State.HIVE_DROPPED)
    reverting = _prepare_revert(fleet.job("other"), LATER, from_archive=False)
    assert reverting.pair == (State.WRITES_UNBLOCKED, State.WRITES_BLOCKED)


def test_revert_event_names_its_author(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mode, "run_worker", lambda *how: ModeReport())
    revert(worker(store), [name("probation")], by="ann")
    assert store.events()[-1].worker == "ann"


def test_pattern_selects_queued_and_archived_jobs(store: Store) -> None:
    def selected(text: str) -> list[str]:
        return sorted(job.tbl_name for job in select_jobs(store, [text], archive=True))

    assert selected("sales.*") == ["archived", "other", "probation", "waiting"]
    assert selected("sales.archived") == ["archived"]
