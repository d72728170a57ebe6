"""A job restarts at the block after a write during the block; the next worker resumes it if one dies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.fleet_steps import step_run
from tests.unit.fleet_jobs import NOW

from tableferry.errors import Refused
from tableferry.fleet.access.fence import WrittenDuringBlock
from tableferry.fleet.jobs.job import Job, OldName, State, TargetFormat
from tableferry.fleet.jobs.names import Names
from tableferry.fleet.jobs.step_plan import Kind
from tableferry.fleet.jobs.steps import (
    BlockWrites,
    CheckFence,
    CopyDefinition,
    DropView,
    MakeTarget,
    MakeView,
    PrepareCopy,
    Rename,
    Step,
    UnblockWrites,
    Verify,
)
from tableferry.fleet.jobs.transitions import FORWARD
from tableferry.fleet.modes import job_run
from tableferry.fleet.modes.job_run import JobRun, run_job
from tableferry.fleet.modes.results import JobReport
from tableferry.fleet.queue.opening import open_store
from tableferry.fleet.queue.records import NewJob
from tableferry.fleet.queue.selections import everything
from tableferry.fleet.queue.store import Store
from tableferry.fleet.warehouse import job_tables, old_name_view, target_versions
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.spark.tables import TableName
from tableferry.testing import FixedClock

LEASE = timedelta(hours=1)
ORDERS = TableName(("spark_catalog", "sales", "orders"))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = open_store(f"sqlite:///{tmp_path / 'fleet.db'}")
    store.create()
    yield store
    store.close()


class Dead(BaseException):
    """The process dies."""


@dataclass
class Tables:
    """The tables of one job, whose rows are words, and a worker that dies after a number of steps.

    Attributes:
        kinds: The kind of table of each name.
        hive: The Hive table's rows.
        copy: The new table's rows.
        fenced: The Hive table's rows at the block.
        foreign: Whether the old name is a view that another process created.
        late: A row that is written to the Hive table right before the first check of the fence.
        dies_after: The number of steps between the restart and the worker's death; None if it survives.
    """

    names: Names
    kinds: dict[TableName, Kind]
    hive: set[str] = field(default_factory=lambda: {"first"})
    copy: set[str] = field(default_factory=set)
    fenced: set[str] = field(default_factory=set)
    foreign: bool = False
    late: str | None = "late"
    dies_after: int | None = None
    steps: list[Step] = field(default_factory=list)
    _left: int | None = None

    def current(self, warehouse: Warehouse, name: TableName, form: TargetFormat) -> str:
        assert self.kinds[name] in (Kind.ICEBERG, Kind.DELTA)
        return ",".join(sorted(self.copy))

    def perform(self, step: Step, job: Job, *_: object) -> Job:
        if self._left == 0:
            self._left = self.dies_after = None
            raise Dead
        self.steps.append(step)
        job = self._do(step, job)
        if self._left is not None:
            self._left -= 1
        return job

    def _do(self, step: Step, job: Job) -> Job:
        match step:
            case BlockWrites(table):
                assert self.kinds[table] is Kind.HIVE
                self.fenced = set(self.hive)
            case PrepareCopy(source, target) | MakeTarget(source, target, _):
                assert self.kinds[source] is Kind.HIVE
                # The copy has no other writers yet, so it's recreated.
                self.copy = set(self.hive)
                self.kinds[target] = Kind.DELTA if job.target_format is TargetFormat.DELTA else Kind.ICEBERG
            case CopyDefinition():
                return replace(job, shadow_watermark=",".join(sorted(self.copy)))
            case Verify(source, target):
                assert self.kinds[source] is Kind.HIVE
                assert target in self.kinds
                assert self.copy == self.hive
            case Rename(table, to):
                assert to not in self.kinds, f"{to} would be overwritten"
                self.kinds[to] = self.kinds.pop(table)
            case MakeView(table, target):
                assert target in self.kinds
                self._demand_ours(table)
                self.kinds[table] = Kind.VIEW
            case DropView(table, _):
                self._demand_ours(table)
                self.kinds.pop(table, None)
            case CheckFence(table):
                assert self.kinds[table] is Kind.HIVE
                if self.late and self.names.target in self.kinds and self.names.copy not in self.kinds:
                    self.hive.add(self.late)
                    self.late, self._left = None, self.dies_after
                if self.hive != self.fenced:
                    raise WrittenDuringBlock(f"{table} was written to")
        return job

    def _demand_ours(self, name: TableName) -> None:
        if self.foreign and name in self.kinds:
            raise Refused(f"{name} is a view of another process")


def start(store: Store, form: TargetFormat, old: OldName | None) -> Tables:
    """Add a job in the state Ready to the queue."""
    schema = "lake" if old else None
    store.add([NewJob(ORDERS, form, target_schema=schema, old_name=old)], NOW)
    [job] = store.claim(everything(), "first", now=NOW, lease=LEASE, limit=1)
    ready = replace(job, state=State.READY, desired_state=State.WRITES_BLOCKED, in_process=True)
    store.save(ready, NOW, release=True)
    return Tables(Names.of(job), {ORDERS: Kind.HIVE})


def work(store: Store, tables: Tables, clock: FixedClock, monkeypatch: pytest.MonkeyPatch) -> JobReport:
    """Run the job with a worker until it stops."""
    monkeypatch.setattr(job_run, "perform", tables.perform)
    monkeypatch.setattr(job_tables, "list_job_tables", lambda *_: dict(tables.kinds))
    monkeypatch.setattr(target_versions, "current_version", tables.current)
    nothing: Any = None
    spark: Any = SimpleNamespace(conf=SimpleNamespace(get=lambda *_: None))
    [job] = store.claim(everything(), f"at {clock()}", now=clock(), lease=LEASE, limit=1)
    return run_job(JobRun(job, store, Warehouse(spark, nothing), clock, LEASE), FORWARD)


@pytest.mark.parametrize(
    ("old", "taken"),
    [(None, "hive"), (OldName.VIEW, "hive"), (OldName.VIEW, "target"), (OldName.TABLE, "target")],
)
def test_writes_are_unblocked_if_table_name_is_taken_during_block(
    store: Store, old: OldName | None, taken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables, blocked = start(store, TargetFormat.ICEBERG, old), list[bool]()
    name = getattr(tables.names, taken)
    tables.kinds[name] = Kind.HIVE if taken == "hive" else Kind.OTHER
    do = tables._do

    def blocking(step: Step, job: Job) -> Job:
        if isinstance(step, BlockWrites | UnblockWrites):
            blocked.append(isinstance(step, BlockWrites))
        return do(step, job)

    monkeypatch.setattr(tables, "_do", blocking)
    report = work(store, tables, FixedClock(NOW), monkeypatch)
    assert (report.outcome, report.job.state, blocked) == ("paused", State.READY, [True, False])
    assert f"[TABLE_NAME_TAKEN] {name} " in report.error
    assert tables.kinds[ORDERS] is Kind.HIVE


def at_the_end(tables: Tables, form: TargetFormat) -> dict[TableName, Kind]:
    names = tables.names
    view = {names.main: Kind.VIEW} if names.elsewhere and names.hive != names.main else {}
    new = Kind.DELTA if form is TargetFormat.DELTA else Kind.ICEBERG
    return {**view, names.target: new, names.hive: Kind.HIVE}


@pytest.mark.parametrize("old", [None, *OldName])
@pytest.mark.parametrize("form", TargetFormat)
@pytest.mark.parametrize("dies_after", [None, 0, 1, 2, 3])
def test_no_row_is_lost_if_worker_dies_during_restart(
    store: Store,
    form: TargetFormat,
    old: OldName | None,
    dies_after: int | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tables, clock = start(store, form, old), FixedClock(NOW)
    tables.dies_after = dies_after
    try:
        report = work(store, tables, clock, monkeypatch)
        assert dies_after is None
    except Dead:
        clock.turn(minutes=61)
        report = work(store, tables, clock, monkeypatch)
    assert (report.outcome, report.error) == ("done", "")
    assert report.job.pair == (State.WRITES_UNBLOCKED, State.WRITES_UNBLOCKED)
    assert tables.kinds == at_the_end(tables, form)
    assert tables.copy == tables.hive == {"first", "late"}


@pytest.mark.parametrize(
    # In place, the names are swapped back after two steps. Then the Iceberg table's old name is missing, and
    # a Delta table with new rows isn't recreated.
    ("old", "dies_after"),
    [(None, 1), (OldName.VIEW, 1), (OldName.VIEW, 2)],
)
@pytest.mark.parametrize("form", TargetFormat)
def test_rows_written_to_new_table_before_worker_died_are_kept(
    store: Store,
    form: TargetFormat,
    old: OldName | None,
    dies_after: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A writer that opened the new table before the rename may still commit to it."""
    tables, clock = start(store, form, old), FixedClock(NOW)
    tables.dies_after = dies_after
    with pytest.raises(Dead):
        work(store, tables, clock, monkeypatch)
    tables.copy.add("new")
    clock.turn(minutes=61)
    report = work(store, tables, clock, monkeypatch)
    assert "new" in tables.copy
    assert (report.outcome, report.error) == ("done", "")
    assert tables.kinds == at_the_end(tables, form)


@pytest.mark.parametrize("old", [None, *OldName])
def test_rows_committed_right_before_names_are_swapped_back_are_kept(
    store: Store, old: OldName | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables, clock = start(store, TargetFormat.ICEBERG, old), FixedClock(NOW)
    do, names = tables._do, tables.names

    def rename_late(step: Step, job: Job) -> Job:
        if step == Rename(names.target, names.copy):
            tables.copy.add("new")
        return do(step, job)

    monkeypatch.setattr(tables, "_do", rename_late)
    report = work(store, tables, clock, monkeypatch)
    assert (report.outcome, report.error) == ("done", "")
    assert tables.kinds == at_the_end(tables, TargetFormat.ICEBERG)
    assert "new" in tables.copy


@pytest.mark.parametrize("dies_after", [1, 2])
def test_view_of_another_process_is_never_dropped(
    store: Store, dies_after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables, clock = start(store, TargetFormat.ICEBERG, OldName.VIEW), FixedClock(NOW)
    tables.dies_after = dies_after
    with pytest.raises(Dead):
        work(store, tables, clock, monkeypatch)
    tables.kinds[ORDERS], tables.foreign = Kind.VIEW, True
    clock.turn(minutes=61)
    report = work(store, tables, clock, monkeypatch)
    assert (report.outcome, report.error) == ("paused", f"{ORDERS} is a view of another process")
    assert tables.kinds[ORDERS] is Kind.VIEW
    # A person drops it and resumes the job.
    del tables.kinds[ORDERS]
    tables.foreign = False
    [paused] = store.jobs(everything())
    store.edit(replace(paused, migration_paused=False, pause_reason="None"), clock())
    clock.turn(minutes=61)
    assert work(store, tables, clock, monkeypatch).outcome == "done"
    assert tables.kinds == at_the_end(tables, TargetFormat.ICEBERG)
    assert tables.copy == tables.hive == {"first", "late"}


@pytest.mark.parametrize(
    ("text", "ours"),
    [
        ("SELECT * FROM `spark_catalog`.`lake`.`orders`", True),
        ("SELECT * FROM `ice`.`lake`.`orders`", True),
        ("SELECT id FROM `ice`.`lake`.`orders`", False),
        ("SELECT * FROM `ice`.`other`.`orders`", False),
    ],
)
def test_view_is_identified_by_its_text_after_its_table_was_renamed(
    text: str, ours: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    dropped: list[tuple[TableName, ...]] = []
    monkeypatch.setattr(old_name_view, "kinds", lambda *_: {ORDERS: Kind.VIEW})
    monkeypatch.setattr(old_name_view, "describe", lambda *_: {"view_text": text})
    monkeypatch.setattr(
        old_name_view, "change_if_unchanged", lambda _, names, *work, **how: dropped.append(names)
    )
    nothing: Any = None
    target = TableName(("spark_catalog", "lake", "orders"))
    with nullcontext() if ours else pytest.raises(Refused, match="is a view, and the view of"):
        old_name_view.drop_view(DropView(ORDERS, target), step_run(Warehouse(nothing, nothing)))
    assert dropped == ([(ORDERS,)] if ours else [])
