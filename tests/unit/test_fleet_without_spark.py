"""A mode asks the queue what is due before it starts Spark, and starts it whenever there is work."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, insert
from tests.fleet_queue import NOW, some_job
from tests.unit import fleets
from typer.testing import CliRunner, Result

from tableferry import cli
from tableferry import fleet as package
from tableferry.cli.fleet.options import OpenFleet
from tableferry.errors import SessionError
from tableferry.fleet.jobs.job import Job, PauseReason, State
from tableferry.fleet.jobs.waves import Wave, WaveStatus
from tableferry.fleet.modes import close, migrator, preprocessor, reverter, shadower
from tableferry.fleet.modes.claims import ListClaimable
from tableferry.fleet.modes.job_run import JobRun
from tableferry.fleet.modes.results import JobReport, ModeReport
from tableferry.fleet.modes.worker import Worker, run_worker
from tableferry.fleet.queue.opening import open_store
from tableferry.fleet.queue.records import to_row
from tableferry.fleet.queue.schema import jobs
from tableferry.fleet.queue.selections import everything
from tableferry.fleet.queue.sql import SqlStore
from tableferry.fleet.queue.store import Store
from tableferry.fleet.settings import FleetSettings
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.spark import session
from tableferry.testing import FixedClock

NOTHING: Any = None
ROOT = Path(__file__).parents[2]
LEASE = timedelta(hours=1)
STARTED = "this run asked for a session"

RUNS: dict[str, Callable[[Worker], ModeReport]] = {
    "preprocess": preprocessor.preprocess,
    "migrate": migrator.migrate,
    "shadow": shadower.shadow,
    "revert": reverter.revert,
    "close": close.close,
}
MODULES: dict[str, Any] = {
    "preprocess": preprocessor,
    "migrate": migrator,
    "shadow": shadower,
    "revert": reverter,
    "close": close,
}
DRY = pytest.mark.parametrize("dry_run", [False, True])


def call(*arguments: str, status: int = 0) -> Result:
    result = CliRunner().invoke(cli.app, ["fleet", *arguments, "--store", "sqlite:///fleet.db"])
    assert result.exit_code == status, result.output
    return result


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse whoever asks for a session."""

    def resolve(*_: object, **__: object) -> Any:
        raise SessionError(STARTED)

    monkeypatch.setattr(session, "resolve", resolve)


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[fleets.Fleet]:
    """A queue in the folder where commands are typed."""
    monkeypatch.chdir(tmp_path)
    fleet = fleets.Fleet(fleets.opened(tmp_path))
    yield fleet
    fleet.store.close()


def wait_for_everything(fleet: fleets.Fleet) -> None:
    """Add jobs that all wait for something: their gap, their wave, a person, or the archive."""
    now = fleet.store.now()
    fleet.store.save_wave(Wave("later"))
    fleet.add("announced", "planned", "probation", "closed", "paused", "reverted", at=now)
    fleet.ready("announced", now, notified=now)
    fleet.ready("planned", now, notified=now - timedelta(days=60))
    fleet.store.assign([fleet.job("planned").task_id], "later", now)
    for table in ("probation", "closed", "reverted"):
        fleet.ready(table, now, notified=now)
        fleet.migrated(table, now)
    # Without a gap, no Hive copy is kept in step.
    fleet.change("probation", now, probation_gap_days=0, comm_level2_date=None)
    fleet.finished("closed", now - timedelta(days=30))
    fleet.reverted("reverted", now)
    job = fleet.job("paused").paused(PauseReason.PAUSED_BY_USER)
    fleet.change("paused", now, migration_paused=True, pause_reason=job.pause_reason)


@DRY
@pytest.mark.parametrize("mode", [*RUNS, "communicate"])
def test_mode_with_nothing_due_prints_what_it_did_with_spark(
    fleet: fleets.Fleet,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
    dry_run: bool,
    no_spark: None,
) -> None:
    wait_for_everything(fleet)
    if mode == "communicate":
        fleet.change("probation", fleet.store.now(), comm_level2_date=fleet.store.now())
    before = fleet.store.jobs(everything())
    arguments = [mode, *(["--dry-run"] if dry_run else [])]
    without = call(*arguments), call(*arguments, "--output", "json")
    monkeypatch.setattr(OpenFleet, "warehouse_opener", lambda _: lambda: Warehouse(NOTHING, NOTHING))
    open_first(monkeypatch)
    with_spark = call(*arguments), call(*arguments, "--output", "json")
    assert [result.stdout for result in without] == [result.stdout for result in with_spark]
    if mode != "communicate":
        assert without[0].stdout == (
            "No job is due; tableferry fleet list shows the next step of each job.\n"
        )
        assert json.loads(without[1].stdout) == {"mode": mode, "dryRun": dry_run, "jobs": []}
    assert fleet.store.jobs(everything()) == before


def open_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each mode open its warehouse and ask the queue then, as all did before."""
    monkeypatch.setattr(package, "report_nothing_due", lambda *_, **__: None, raising=False)
    for module in MODULES.values():

        def opened_first(worker: Worker, *how: Any) -> ModeReport:
            worker.open_warehouse()
            return run_worker(worker, *how)

        monkeypatch.setattr(module, "run_worker", opened_first)


@DRY
@pytest.mark.parametrize("mode", RUNS)
def test_mode_with_a_job_that_is_due_starts_spark_before_it_claims(
    fleet: fleets.Fleet, mode: str, dry_run: bool, no_spark: None
) -> None:
    make_due(fleet, mode)
    before = fleet.store.jobs(everything())
    assert STARTED in call(mode, *(["--dry-run"] if dry_run else []), status=1).stderr
    assert fleet.store.jobs(everything()) == before


def test_process_of_a_mode_with_nothing_due_loads_no_spark(fleet: fleets.Fleet, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/fleet.db"
    program = (
        "import sys; from tableferry.cli import app\n"
        "try: app(['fleet', 'migrate', '--store', sys.argv[1]])\n"
        "finally: print([name for name in ('pyspark', 'py4j') if name in sys.modules])"
    )
    command = [sys.executable, "-c", program, store]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[1:] == ["[]"]


def make_due(fleet: fleets.Fleet, mode: str) -> None:
    """Add a job that is due for a mode."""
    now = fleet.store.now()
    fleet.add("orders", at=now, gap=0)
    if mode == "preprocess":
        return
    fleet.ready("orders", now, notified=now - timedelta(days=1))
    if mode == "migrate":
        return
    fleet.migrated("orders", now)
    match mode:
        case "revert":
            fleet.change("orders", now, desired_state=State.WRITES_BLOCKED)
        case "close":
            fleet.finished("orders", now)
            fleet.change("orders", now, close_at=now - timedelta(days=1))


@pytest.mark.parametrize("archive", [(), ("--from-archive",)])
def test_revert_of_a_table_without_a_job_is_refused_before_spark_starts(
    fleet: fleets.Fleet, archive: Sequence[str], no_spark: None
) -> None:
    make_due(fleet, "revert")
    found = call("revert", "sales.order", *archive, status=1).stderr
    assert f"[{'JOB_NOT_FOUND' if archive else 'JOB_NOT_IN_QUEUE'}] 'sales.order' " in found


def test_revert_of_a_table_that_cannot_be_reverted_is_refused_before_spark_starts(
    fleet: fleets.Fleet, no_spark: None
) -> None:
    make_due(fleet, "preprocess")
    assert "[JOB_NOT_BEGUN]" in call("revert", "sales.orders", status=1).stderr


def test_revert_of_a_table_starts_spark_before_the_queue_is_changed(
    fleet: fleets.Fleet, no_spark: None
) -> None:
    make_due(fleet, "shadow")
    before = fleet.store.jobs(everything())
    assert STARTED in call("revert", "sales.orders", status=1).stderr
    assert fleet.store.jobs(everything()) == before


def test_preflight_of_a_name_without_a_schema_is_refused_before_spark_starts(
    fleet: fleets.Fleet, no_spark: None
) -> None:
    assert "[TABLE_NAME_WITHOUT_SCHEMA] 'TYPO' " in call("preflight", "TYPO", status=1).stderr
    # A table without a job is one that may be added: only the catalog knows whether it exists.
    assert STARTED in call("preflight", "sales.typo", status=1).stderr


def test_users_file_that_is_wrong_is_reported_also_where_nothing_is_due(
    fleet: fleets.Fleet, tmp_path: Path, no_spark: None
) -> None:
    (tmp_path / "users.csv").write_text("who,what\n")
    assert "users.csv" in call("migrate", "--set", "users_file=users.csv", status=1).stderr


# Every kind of job.


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A queue that has waves and no job."""
    folder = tmp_path_factory.mktemp("queue")
    store = fleets.opened(folder)
    for status in WaveStatus:
        store.save_wave(Wave(status.value, status))
    store.close()
    return folder / "fleet.db"


def put(store: Store, some: Sequence[Job]) -> None:
    """Write jobs as they are, past the store."""
    assert isinstance(store, SqlStore)
    with store._engine.begin() as connection:
        connection.execute(delete(jobs))
        connection.execute(insert(jobs), [to_row(job) for job in some])


def random_jobs(chance: random.Random, count: int) -> list[Job]:
    """Make some jobs in any state: claimed, with a claim that lapsed, or free."""
    made = [some_job(number + 1, chance) for number in range(count)]
    claims: tuple[dict[str, Any], ...] = (
        {},
        {"claimed_by": "dead", "lease_until": NOW - LEASE},
        {"claimed_by": "alive", "lease_until": NOW + LEASE},
    )
    here = {"target_catalog": None, "target_schema": None}
    return [replace(job, **here, **chance.choice(claims)) for job in made]  # type: ignore[arg-type]


@DRY
@pytest.mark.parametrize("mode", RUNS)
def test_spark_is_started_whenever_a_mode_has_work(
    empty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, dry_run: bool
) -> None:
    """The same queue is given to a run that may open its warehouse, and that opens it first."""
    opened: list[Warehouse] = []
    first = False

    def open_warehouse() -> Warehouse:
        opened.append(Warehouse(NOTHING, NOTHING))
        return opened[-1]

    def only_released(run: JobRun) -> JobReport:
        run.release(run.job)
        return JobReport(run.job, "done")

    def without_tables(worker: Worker, mode: str, takes: ListClaimable, *_: Any) -> ModeReport:
        if first:
            worker.open_warehouse()
        return run_worker(worker, mode, takes, only_released, lambda job, _: JobReport(job, "planned"))

    monkeypatch.setattr(MODULES[mode], "run_worker", without_tables)
    chance = random.Random(f"{mode} {dry_run}")
    kinds = set()
    for number in range(8):
        # Few jobs are due to be closed.
        queue = random_jobs(chance, chance.choice((1, 80 if mode == "close" else 12)))
        share = (chance.randrange(3), 3)
        batch_size = chance.choice((1, 2, 100))
        reports = []
        for first in (True, False):
            opened.clear()
            file = shutil.copyfile(empty, tmp_path / f"{number}_{first}.db")
            store = open_store(f"sqlite:///{file}")
            put(store, queue)
            worker = Worker(
                store, open_warehouse, FleetSettings(tables_at_once=1), "w", FixedClock(NOW),
                batch_size=batch_size, share=share, dry_run=dry_run,
            )  # fmt: skip
            reports.append([report.job.task_id for report in RUNS[mode](worker).jobs])
            store.close()
        assert reports[0] == reports[1]
        assert bool(opened) >= bool(reports[1])
        kinds.add((bool(opened), bool(reports[1])))
    # Both were tried.
    assert {(False, False), (True, True)} <= kinds
