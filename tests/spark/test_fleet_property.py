"""Random scenarios of a table with writes, modes, dying workers and reverts; no row is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from tests import soak
from tests.spark.fleets import Fleet, errors, fleet

from tableferry.errors import Refused
from tableferry.fleet.jobs.job import Job, OldName, PauseReason, State, TargetFormat
from tableferry.fleet.jobs.names import Names
from tableferry.fleet.jobs.pauses import resumed
from tableferry.fleet.jobs.step_plan import Kind
from tableferry.fleet.jobs.steps import Step
from tableferry.fleet.modes import job_run
from tableferry.fleet.modes.performer import perform
from tableferry.fleet.modes.results import ModeReport
from tableferry.fleet.settings import LateFiles
from tableferry.fleet.warehouse import job_tables
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.step_run import Save
from tableferry.formats.hive.partitions import NULL
from tableferry.spark import session
from tableferry.spark.tables import TableName

_numbers = count(1)
DAYS = ("a", "b", "c", None)


class Death(BaseException):
    """A worker dies."""


@dataclass
class TableModel:
    """One table, with a model of the rows that it must contain.

    Attributes:
        fleet: The queue, the clock and the session.
        directory: The Hive table's directory.
        stored: The format of its files; text files are rewritten.
        rows: The rows that were written and not deleted: id, amount and day.
        effects: The number of effects after which the run dies; None if it doesn't die.
    """

    fleet: Fleet
    directory: Path
    stored: str = "PARQUET"
    rows: set[tuple[int, int, str | None]] = field(default_factory=set)
    effects: int | None = None

    def effect(self) -> None:
        if self.effects is not None:
            self.effects -= 1
            if self.effects < 0:
                raise Death

    @property
    def name(self) -> TableName:
        """The table to write to: the new table from the switch on."""
        return self.fleet.live("t")

    @property
    def kind(self) -> Kind | None:
        return job_tables.kinds(self.fleet.warehouse, (self.name,)).get(self.name)

    def read(self, name: TableName) -> list[tuple[Any, ...]]:
        """Return a table's sorted rows; Hive's readers return the directory's name for a null partition."""
        rows = (tuple(None if value == NULL else value for value in row) for row in self.fleet.rows(name))
        return sorted(rows, key=repr)

    def insert(self, day: str | None) -> None:
        """Write a row to the table, unless its name is missing or a view."""
        kind, number = self.kind, len(self.rows) + 1_000 * next(_numbers)
        if kind in (None, Kind.VIEW):
            return
        value = "NULL" if day is None else f"'{day}'"
        name = self.name
        target = self.fleet.warehouse.iceberg(name) if kind is Kind.ICEBERG else name
        self.fleet.spark.sql(f"INSERT INTO {target.sql} SELECT {number}, 1, {value}")
        self.rows.add((number, 1, day))

    def change(self, statement: str, day: str) -> None:
        """Delete or update the rows of a day in Iceberg or Delta."""
        if self.kind not in (Kind.ICEBERG, Kind.DELTA):
            return
        # The statement doesn't see late rows that aren't appended yet.
        touched = {row for row in self.rows & set(self.fleet.rows(self.name)) if row[2] == day}
        self.fleet.write("t", f"{statement} WHERE day = '{day}'")
        self.rows -= touched
        if statement.startswith("UPDATE"):
            self.rows |= {(number, amount + 1, day) for number, amount, day in touched}

    def overwrite(self, day: str | None) -> None:
        """Replace all rows with one row by a static INSERT OVERWRITE."""
        if self.kind not in (Kind.ICEBERG, Kind.DELTA):
            return
        number = len(self.rows) + 1_000 * next(_numbers)
        replaced = set(self.fleet.rows(self.name))
        value = "NULL" if day is None else f"'{day}'"
        self.fleet.write("t", f"INSERT OVERWRITE {{t}} SELECT {number}, 1, {value}")
        self.rows = (self.rows - replaced) | {(number, 1, day)}

    def share(self) -> None:
        """Create a table over the same directory before the migration, and assert that it doesn't start."""
        job = self.fleet.job("t")
        if self.kind is not Kind.HIVE or job.state is not State.READY or job.migration_paused:
            return
        other = self.fleet.name("other")
        self.fleet.spark.sql(
            f"CREATE EXTERNAL TABLE {other.sql} (id INT, amount INT) STORED AS {self.stored} "
            f"LOCATION '{self.directory}'"
        )
        report = self.fleet.migrate()
        self.fleet.spark.sql(f"DROP TABLE {other.sql}")
        for result in report.jobs:
            assert (result.outcome, result.job.state) == ("paused", State.READY), errors(report)
            assert result.job.pause_reason.startswith(PauseReason.SHARED_DIRECTORY.value)
            self.fleet.store.edit(resumed(result.job), self.fleet.clock())

    def resume(self) -> None:
        """Resume a reverted table, and prepare it until its second migration is due."""
        ours, job = self.fleet, self.fleet.job("t")
        if job.state is not State.ICEBERG_DROPPED:
            return
        ours.store.edit(resumed(job), ours.clock())
        for reason in errors(ours.preprocess()):
            # A Delta log can't list partitions that shadow runs rewrote outside the directory.
            assert reason.startswith(PauseReason.UNSUPPORTED_LAYOUT.value), reason
            assert job.target_format is TargetFormat.DELTA
        ours.notify()
        ours.clock.turn(days=14)

    def write_late(self, day: str | None) -> None:
        """Write a file into the original directories, like a job that started before the switch."""
        copy = Names.of(self.fleet.job("t")).hive
        if self.kind not in (Kind.ICEBERG, Kind.DELTA) or not self.fleet.spark.catalog.tableExists(copy.sql):
            return
        number = len(self.rows) + 1_000 * next(_numbers)
        folder = self.directory / f"day={NULL if day is None else day}"
        folder.mkdir(exist_ok=True)
        file = folder / f"{number:06}_0"
        if self.stored == "PARQUET":
            row = {name: pa.array([value], pa.int32()) for name, value in (("id", number), ("amount", 1))}
            pq.write_table(pa.table(row), file)
        else:
            file.write_text(f"{number}\x011\n", encoding="utf-8")
        self.rows.add((number, 1, day))

    @property
    def modes(self) -> dict[str, Callable[[], ModeReport]]:
        ours = self.fleet
        return {
            "preprocess": ours.preprocess,
            "migrate": ours.migrate,
            "shadow": ours.shadow,
            "revert": partial(ours.revert, "t"),
            "continue revert": ours.revert,
        }

    def run(self, mode: str) -> None:
        """Run a mode; if it dies, let its lease expire."""
        ours = self.fleet
        try:
            assert errors(self.modes[mode]()) == []
        except Death:
            ours.clock.turn(minutes=ours.settings.lease_minutes + 1)
        except Refused:
            # Tables in migration and completed tables can't be reverted.
            assert mode == "revert"
        self.effects = None
        ours.notify()

    def sleep(self, mode: str, at: int, after_guard: bool) -> None:
        """Run a mode whose worker is suspended at an effect, before or after its last check of the claim."""
        number, real = count(), Warehouse.effect

        def effect(warehouse: Warehouse, work: Callable[[], Any], **how: Any) -> Any:
            if next(number) != at:
                return real(warehouse, work, **how)
            if after_guard:
                warehouse.guard()
            self.fleet.clock.turn(minutes=self.fleet.settings.lease_minutes + 1)
            for other in ("continue revert", "migrate", "shadow"):
                self.run(other)
            return work() if after_guard else real(warehouse, work, **how)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Warehouse, "effect", effect)
            try:
                report = self.modes[mode]()
            except Refused:
                assert mode == "revert"
                return
        assert {job.outcome for job in report.jobs} <= {"done", "lost"}, errors(report)

    def run_all(self) -> Job:
        """Run all modes, and return the job."""
        for mode in ("continue revert", "preprocess", "migrate", "shadow"):
            self.run(mode)
        return self.fleet.job("t")

    def check(self) -> None:
        """Assert that the table contains every row, and during probation the Hive copy, too."""
        job = self.run_all()
        names = Names.of(job)
        assert self.read(self.name) == sorted(self.rows, key=repr)
        if job.pair == (State.WRITES_UNBLOCKED, State.WRITES_UNBLOCKED):
            assert self.read(names.hive) == sorted(self.rows, key=repr)
            if names.elsewhere:
                assert self.read(names.main) == sorted(self.rows, key=repr)
        # Later writes don't restore other rows.
        for day in DAYS:
            self.insert(day)
        assert self.read(self.name) == sorted(self.rows, key=repr)


INSERT = st.tuples(st.just("insert"), st.sampled_from(DAYS))
EVENTS = st.one_of(
    INSERT,
    INSERT,
    st.tuples(st.just("write_late"), st.sampled_from(DAYS)),
    st.tuples(st.just("delete"), st.sampled_from(DAYS[:2])),
    st.tuples(st.just("update"), st.sampled_from(DAYS[:2])),
    st.tuples(st.sampled_from(("migrate", "shadow", "continue revert")), st.none()),
    st.tuples(st.sampled_from(("migrate", "revert", "continue revert")), st.integers(0, 14)),
    st.tuples(st.just("revert"), st.integers(0, 14)),
    st.tuples(
        st.just("sleep"),
        st.tuples(st.sampled_from(("migrate", "shadow", "revert")), st.integers(0, 15), st.booleans()),
    ),
    st.tuples(st.just("days"), st.just(14)),
    st.tuples(st.just("overwrite"), st.sampled_from(DAYS)),
    st.tuples(st.sampled_from(("share", "resume", "revert and resume")), st.none()),
)


@contextmanager
def dying_workers(model: TableModel, patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let a run die after any step, and before or after any save, as the model requires."""

    def step(planned: Step, job: Job, warehouse: Warehouse, save: Save) -> Job:
        job = perform(planned, job, warehouse, save)
        model.effect()
        return job

    store: Any = model.fleet.store
    real = store.save

    def save(*given: Any, **how: Any) -> Job:
        model.effect()
        saved: Job = real(*given, **how)
        model.effect()
        return saved

    patch.setattr(job_run, "perform", step)
    patch.setattr(store, "save", save)
    yield


@pytest.mark.parametrize("old_name", soak.amount([None], [None, *OldName]))
@pytest.mark.parametrize(
    ("form", "stored"),
    [
        (TargetFormat.ICEBERG, "PARQUET"),
        (TargetFormat.DELTA, "PARQUET"),
        *(pytest.param(form, "TEXTFILE", marks=soak.slow) for form in TargetFormat),
    ],
)
def test_no_row_is_lost_when_workers_die(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    form: TargetFormat,
    stored: str,
    old_name: OldName | None,
) -> None:
    if (form, stored, old_name) == (TargetFormat.DELTA, "PARQUET", OldName.TABLE):
        pytest.skip("a Hive table that shares its files with a Delta table can't keep its name")

    @soak.slow_examples(soak.amount(1, 6))
    @given(st.booleans(), st.booleans(), st.lists(EVENTS, min_size=4, max_size=9), st.integers(0, 14))
    def scenario(managed: bool, shared: bool, events: list[tuple[str, Any]], first_death: int) -> None:
        schema = f"fleet_model_{next(_numbers)}"
        folder = tmp_path / schema
        folder.mkdir()
        spark.sql(f"CREATE SCHEMA {schema}")
        spark.sql(f"CREATE SCHEMA {schema}_lake")
        where = "" if managed else f"LOCATION '{folder / 't'}'"
        external = "" if managed else "EXTERNAL"
        spark.sql(
            f"CREATE {external} TABLE {schema}.t (id INT, amount INT) PARTITIONED BY (day STRING) "
            f"STORED AS {stored} {where}"
        )
        ours = fleet(spark, schema, folder)
        # A chunk for each partition.
        ours.warehouse = replace(ours.warehouse, late_files=LateFiles.TAKE, rewrite_chunk=1)
        [directory] = [
            Path(row["data_type"].removeprefix("file:"))
            for row in spark.sql(f"DESCRIBE TABLE EXTENDED {schema}.t").collect()
            if row["col_name"] == "Location"
        ]
        model = TableModel(ours, directory, stored)
        try:
            with monkeypatch.context() as patch, dying_workers(model, patch):
                place = {"target_schema": f"{schema}_lake", "old_name": old_name} if old_name else {}
                ours.add("t", form=form, rewrite=True, **place)
                for day in DAYS[:2]:
                    model.insert(day)
                ours.preprocess()
                ours.notify()
                ours.clock.turn(days=14)
                if shared:
                    model.share()
                model.effects = first_death
                model.run("migrate")
                for kind, value in events:
                    match kind:
                        case "insert":
                            model.insert(value)
                        case "write_late":
                            model.write_late(value)
                        case "sleep":
                            model.sleep(*value)
                        case "delete":
                            model.change("DELETE FROM {t}", value)
                        case "update":
                            model.change("UPDATE {t} SET amount = amount + 1", value)
                        case "overwrite":
                            model.overwrite(value)
                        case "share":
                            model.share()
                        case "resume":
                            model.resume()
                        case "revert and resume":
                            model.run("revert")
                            model.resume()
                        case "days":
                            ours.clock.turn(days=value)
                        case _:
                            model.effects = value
                            model.run(kind)
                model.check()
        finally:
            ours.store.close()
            spark.sql(f"DROP SCHEMA {schema} CASCADE")
            spark.sql(f"DROP SCHEMA {schema}_lake CASCADE")

    with session.settings(spark, {"hive.exec.dynamic.partition.mode": "nonstrict"}, "the test"):
        scenario()
