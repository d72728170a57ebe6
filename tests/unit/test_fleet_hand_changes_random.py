"""Random changes by hand between and within the modes: the named commands end each job, and no row is lost.

The queue, the modes, the plans and the findings are real. The tables are sets of rows in this process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests import soak
from tests.unit import fleets

from tableferry.errors import Refused, TableError
from tableferry.fleet.jobs.hand_changes import Phase, phase_of
from tableferry.fleet.jobs.job import Job, PauseReason, State, TargetFormat
from tableferry.fleet.jobs.names import Names
from tableferry.fleet.jobs.pauses import reason, resume_command, resumed
from tableferry.fleet.jobs.step_plan import Kind, target_kind
from tableferry.fleet.jobs.steps import (
    AdoptTable,
    BlockWrites,
    CopyAccess,
    DropCopy,
    DropEntry,
    Rename,
    RestoreEntry,
    RestoreHiveCopy,
    Shadow,
    Step,
    UnblockWrites,
    VerifyShadow,
)
from tableferry.fleet.jobs.transitions import FORWARD
from tableferry.fleet.modes import hand_change_pauses, job_run
from tableferry.fleet.modes import shadower as shadow_mode
from tableferry.fleet.modes.job_run import JobRun, run_job
from tableferry.fleet.modes.results import ModeReport
from tableferry.fleet.modes.reverter import revert
from tableferry.fleet.modes.shadower import shadow
from tableferry.fleet.modes.worker import Worker
from tableferry.fleet.queue.selections import everything
from tableferry.fleet.queue.store import Store
from tableferry.fleet.settings import FleetSettings
from tableferry.fleet.warehouse import job_tables
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.job_tables import Entry
from tableferry.spark.tables import TableName
from tableferry.testing import FixedClock

CREATED = "Sat Nov 28 22:15:16 UTC 2026"


class Death(BaseException):
    """The crash of a worker."""


@dataclass
class Table:
    """A table with a name in the catalog.

    Attributes:
        kind: Its format.
        rows: Its rows.
        ours: Whether the migration made it, or had it at its start.
        unreadable: Whether its metadata files are gone.
        writable: Whether people may write to it.
    """

    kind: Kind
    rows: set[int] = field(default_factory=set)
    ours: bool = True
    unreadable: bool = False
    writable: bool = True


@dataclass
class World:
    """The tables of one job, and the rows that must remain.

    Attributes:
        store: The queue.
        tables: The tables by name.
        removed: The new table as it was before people dropped it or removed its metadata, to restore it.
        written: All rows that people wrote.
        kept: The rows of these that some table, or a Delta log, still has.
        effects: How many steps the worker performs before it dies; None if it doesn't die.
    """

    store: Store
    tables: dict[TableName, Table] = field(default_factory=dict)
    removed: Table | None = None
    written: set[int] = field(default_factory=set)
    kept: set[int] = field(default_factory=set)
    effects: int | None = None
    clock: FixedClock = field(default_factory=lambda: FixedClock(fleets.NOW))
    numbers: Iterator[int] = field(default_factory=count)
    log: list[str] = field(default_factory=list)

    @property
    def job(self) -> Job:
        [job] = self.store.jobs(everything())
        return job

    @property
    def names(self) -> Names:
        return Names.of(self.job)

    @property
    def hive(self) -> TableName:
        """The Hive copy's name in the job's state."""
        names = self.names
        return names.archived if names.archived in self.tables else names.hive

    @property
    def new(self) -> Table | None:
        """The new table, if it has its name and can be read."""
        table = self.tables.get(self.names.target)
        kind = target_kind(self.job)
        return table if table and table.kind is kind and not table.unreadable else None

    def worker(self) -> Worker:
        nothing: Any = None
        warehouse = Warehouse(nothing, nothing)
        return Worker(self.store, lambda: warehouse, FleetSettings(tables_at_once=1), "w", self.clock)

    # The catalog, as the fleet reads it.

    def list_job_tables(self, _: Warehouse, names: Names) -> Mapping[TableName, Kind]:
        actual = {name: table.kind for name, table in self.tables.items()}
        new = self.tables.get(names.target)
        if new and not new.ours and new.kind in (Kind.ICEBERG, Kind.DELTA):
            actual[names.target] = Kind.OTHER
        return actual

    def kinds(self, *_: Any) -> Mapping[TableName, Kind]:
        return {name: table.kind for name, table in self.tables.items()}

    def entries(self, *_: Any, **how: Any) -> Mapping[TableName, Entry]:
        return {
            name: Entry(
                table.kind,
                False,
                "file:/w/t",
                CREATED if table.ours else CREATED.replace(":16", ":17"),
                "",
                "",
                "",
                "",
                "",
            )
            for name, table in self.tables.items()
        }

    def has_lost_metadata(self, _: Warehouse, job: Job) -> bool:
        table = self.tables.get(Names.of(job).target)
        return table is not None and table.unreadable

    def rename_statements(self, *_: Any) -> Mapping[TableName, str]:
        return {name: f"ALTER TABLE {name.sql} RENAME TO {name.sql}_by_hand" for name in self.tables}

    def perform(self, step: Step, job: Job, *_: Any) -> Job:
        """Perform a step on the rows; the worker may die before or after it."""
        self._effect()
        job = self._performed(step, job)
        self._effect()
        return job

    def _effect(self) -> None:
        if self.effects is not None:
            self.effects -= 1
            if self.effects < 0:
                raise Death

    def _performed(self, step: Step, job: Job) -> Job:
        self.log.append(f"  {step}")
        match step:
            case Rename(table, to):
                assert to not in self.tables, f"{to} would be overwritten"
                self.tables[to] = self.tables.pop(table)
            case Shadow(target, hive, _):
                self._read(target)
                assert self.tables[hive].ours, "another process's table would be overwritten"
                self.tables[hive].rows = set(self.tables[target].rows)
                job = replace(job, shadow_watermark=str(len(self.tables[target].rows)))
            case VerifyShadow(target, hive):
                self._read(target)
                if self.tables[hive].rows != self.tables[target].rows:
                    raise Refused("the rows differ")
            case CopyAccess(target, hive):
                assert {target, hive} <= self.tables.keys()
            case DropCopy(table, main, _) if table in self.tables:
                copy = self.tables.pop(table)
                assert copy.unreadable or copy.rows <= self.tables[main].rows, "rows would be lost"
            case RestoreEntry(target, _, TargetFormat.DELTA):
                if self.removed and not self.removed.unreadable and target not in self.tables:
                    self.tables[target] = self.removed
            case RestoreHiveCopy(target, hive, _):
                assert hive not in self.tables
                self._read(target)
                self.tables[hive] = Table(Kind.HIVE, set(self.tables[target].rows))
            case AdoptTable(target, _, _):
                self.tables[target].ours = True
            case DropEntry(table):
                assert self.tables[table].unreadable
                del self.tables[table]
            case BlockWrites(table):
                self._read(table)
                self.tables[table].writable = False
            case UnblockWrites(table):
                self.tables[table].writable = True
        return job

    def _read(self, name: TableName) -> None:
        if self.tables[name].unreadable:
            raise TableError(f"{name} has no metadata")

    # Changes by users.

    def write(self) -> None:
        """Write a row to the table with the job's name, if writes aren't blocked."""
        table = self.tables.get(self.names.main)
        if table and table.ours and table.writable and not table.unreadable:
            number = next(self.numbers)
            table.rows.add(number)
            self.written.add(number)
            self.kept.add(number)

    def change_by_hand(self, change: str) -> None:
        """Drop, replace or damage a table while the job has both of them."""
        phase, names, form = phase_of(self.job), self.names, self.job.target_format
        if phase is None or names.copy in self.tables:
            return
        new, copy = self.new, self.tables.get(self.hive)
        sound_copy = copy is not None and copy.ours
        match change:
            case "drop the new table" | "take its name" | "remove its metadata" if new:
                self.removed = replace(new, writable=True)
                keeps_log = form is TargetFormat.DELTA and change != "remove its metadata"
                if sound_copy and not keeps_log:
                    assert copy
                    self.kept = set(copy.rows)
                if change == "remove its metadata":
                    self.removed.unreadable = new.unreadable = True
                else:
                    del self.tables[names.target]
                if change == "take its name":
                    self.tables[names.target] = Table(Kind.HIVE, {-1}, ours=False)
            case "replace the new table" if new:
                self.tables[names.target] = Table(new.kind, set(new.rows), ours=False)
            case "drop the copy" if copy:
                del self.tables[self.hive]
            case "replace the copy" if copy and self.hive != names.target:
                self.tables[self.hive] = Table(Kind.HIVE, {-2}, ours=False)
            case _:
                return
        self.log.append(f"by hand: {change}")

    def obey(self) -> None:
        """Follow the remedy of a paused job, and run its command."""
        job, names = self.job, self.names
        if not job.migration_paused or reason(job) is PauseReason.REVERTED:
            return
        command, why, phase = resume_command(job), reason(job), phase_of(job)
        self.log.append(f"{job.pause_reason}\n  -> {command}")
        if why is PauseReason.NAME_TAKEN:
            self.tables.pop(names.target, None)
        if "no table has the rows" in job.pause_reason or (
            why is PauseReason.NAME_TAKEN and "over its files" in job.pause_reason
        ):
            assert self.removed
            self.tables[names.target] = replace(self.removed, unreadable=False)
            self.kept |= self.removed.rows
        if why is PauseReason.HIVE_COPY_REPLACED and phase is Phase.REVERTING:
            self.tables.pop(self.hive, None)
        match command.removeprefix("tableferry fleet ").split()[:2]:
            case ["revert", option]:
                self.start_revert(from_archive=option == "--from-archive")
            case ["resume", option]:
                self.store.edit(resumed(job, accept=option == "--accept"), self.clock())

    # The modes of the fleet.

    def start_revert(self, *, from_archive: bool) -> None:
        try:
            self._check(revert(self.worker(), [self.names.main], from_archive=from_archive))
        except Refused as error:
            self.log.append(f"refused: {error}")

    def run(self, mode: str) -> None:
        """Run a mode; if the worker dies, its lease expires."""
        self.log.append(f"{mode}, {self.effects} effects")
        try:
            match mode:
                case "archive":
                    job = self.job
                    if (
                        job.pair == (State.WRITES_UNBLOCKED, State.WRITES_UNBLOCKED)
                        and not job.migration_paused
                    ):
                        self.store.edit(replace(job, desired_state=State.HIVE_DROPPED), self.clock())
                    self._run_forward()
                case "shadow":
                    self._check(shadow(self.worker()))
                case "continue revert":
                    self._check(revert(self.worker()))
                case "revert":
                    self.start_revert(from_archive=self.job.state is State.HIVE_DROPPED)
        except Death:
            self.clock.turn(minutes=120)
        self.effects = None

    def _check(self, report: ModeReport) -> None:
        """Check that each change by hand pauses the job with a remedy, instead of failing its run."""
        assert [job.error for job in report.jobs if job.outcome == "failed"] == []

    def _run_forward(self) -> None:
        job = self.job
        if job.pair not in FORWARD or job.migration_paused:
            return
        lease = timedelta(hours=1)
        [job] = self.store.claim(everything(), "w", now=self.clock(), lease=lease, limit=1)
        nothing: Any = None
        run = JobRun(job, self.store, Warehouse(nothing, nothing), self.clock, lease)
        run_job(run, FORWARD)

    def end(self) -> None:
        """Run all modes and follow each remedy until the job rests."""
        for _ in range(12):
            self.obey()
            for mode in ("continue revert", "shadow"):
                self.run(mode)
            self._run_forward()
            job = self.job
            if reason(job) is PauseReason.REVERTED or (
                not job.migration_paused and job.state in (job.desired_state, State.WRITES_UNBLOCKED)
            ):
                return
        raise AssertionError("the job is stuck: " + self.job.pause_reason)


@contextmanager
def world(form: TargetFormat) -> Iterator[World]:
    """Provide a job on probation whose Hive copy has the new table's three rows."""
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        store = fleets.opened(Path(folder))
        fleet = fleets.Fleet(store)
        fleet.add("orders", at=fleets.days_ago(40), target=form)
        fleet.ready("orders", fleets.days_ago(39), notified=fleets.days_ago(38))
        fleet.migrated("orders", fleets.days_ago(20))
        record = {"checked": {"location": "file:/w/t", "created": CREATED}}
        fleet.change("orders", fleets.days_ago(20), record=record)
        made = World(store)
        rows = {next(made.numbers) for _ in range(3)}
        made.written, made.kept = set(rows), set(rows)
        made.tables = {
            made.names.target: Table(target_kind(made.job), set(rows)),
            made.names.hive: Table(Kind.HIVE, set(rows)),
        }
        for name in ("list_job_tables", "kinds", "entries"):
            patch.setattr(job_tables, name, getattr(made, name))
        patch.setattr(hand_change_pauses, "has_lost_metadata", made.has_lost_metadata)
        patch.setattr(hand_change_pauses, "rename_statements", made.rename_statements)
        for module in (job_run, shadow_mode):
            patch.setattr(module, "perform", made.perform)
        yield made
        store.close()


BY_HAND = (
    "drop the new table",
    "take its name",
    "remove its metadata",
    "replace the new table",
    "drop the copy",
    "replace the copy",
)
MODES = ("shadow", "archive", "revert", "continue revert")
EVENTS = st.one_of(
    st.tuples(st.sampled_from(BY_HAND), st.none()),
    st.tuples(st.sampled_from(BY_HAND), st.none()),
    st.tuples(st.sampled_from(MODES), st.none() | st.integers(0, 9)),
    st.tuples(st.sampled_from(("write", "obey")), st.none()),
)


@settings(max_examples=soak.amount(20, 400), deadline=None)
@example(TargetFormat.ICEBERG, [("drop the new table", None), ("drop the copy", None)])
@example(TargetFormat.ICEBERG, [("drop the copy", None), ("shadow", None), ("revert", 3)])
@example(TargetFormat.DELTA, [("write", None), ("drop the new table", None), ("revert", 2)])
@example(TargetFormat.ICEBERG, [("archive", None), ("remove its metadata", None), ("replace the copy", None)])
@example(TargetFormat.ICEBERG, [("drop the copy", None), ("remove its metadata", None), ("revert", None)])
@example(TargetFormat.ICEBERG, [("revert", 4), ("revert", 6), ("take its name", None)])
@example(TargetFormat.ICEBERG, [("archive", 7), ("revert", None)])
@example(TargetFormat.DELTA, [("drop the copy", None), ("shadow", None), ("remove its metadata", None)])
@example(TargetFormat.DELTA, [("revert", 1), ("drop the copy", None), ("remove its metadata", None)])
@given(st.sampled_from(TargetFormat), st.lists(EVENTS, min_size=2, max_size=10))
def test_named_commands_end_every_job_without_loss_of_rows(
    form: TargetFormat, events: list[tuple[str, int | None]]
) -> None:
    with world(form) as made:
        for kind, value in events:
            match kind:
                case "write":
                    made.write()
                case "obey":
                    made.obey()
                case _ if kind in BY_HAND:
                    made.change_by_hand(kind)
                case _:
                    made.effects = value
                    made.run(kind)
        made.effects = None
        try:
            made.end()
            live = made.tables[made.names.main]
            assert made.kept <= live.rows <= made.written
            # Of an archived job, no mode reads the new table.
            assert not live.unreadable or made.job.state is State.HIVE_DROPPED
        except AssertionError as error:
            error.add_note("\n".join(made.log))
            raise


@pytest.mark.parametrize("form", TargetFormat)
def test_archive_that_stopped_after_its_rename_is_resumed_without_a_finding(form: TargetFormat) -> None:
    with world(form) as made:
        for effects in count():
            made.effects = effects
            made.run("archive")
            if made.names.archived in made.tables:
                break
        assert made.job.state is State.WRITES_UNBLOCKED
        made.run("archive")
        assert (made.job.state, made.job.migration_paused) == (State.HIVE_DROPPED, False)
