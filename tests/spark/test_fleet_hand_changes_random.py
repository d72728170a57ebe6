"""Random changes by hand to a table in probation, on real tables, with workers that die at any step.

No row is lost that a table or a Delta log still has, the command of each finding resolves it, and another
table of the queue is migrated as usual.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from tests import soak
from tests.spark.fleets import dynamic_fleet, errors
from tests.spark.test_fleet_property import DAYS, Death, TableModel, dying_workers

from tableferry.errors import Refused
from tableferry.fleet.checks.table_conditions import table_conditions
from tableferry.fleet.jobs.hand_changes import Condition, phase_of
from tableferry.fleet.jobs.job import Job, PauseReason, State, TargetFormat
from tableferry.fleet.jobs.names import Names
from tableferry.fleet.jobs.pauses import reason, resume_command, resumed
from tableferry.fleet.jobs.step_plan import target_kind
from tableferry.fleet.modes.results import ModeReport
from tableferry.fleet.warehouse import job_tables
from tableferry.spark.tables import TableName

Row = tuple[int, int, str | None]
Event = tuple[str, Any]

_numbers = count(1)
HAND_CHANGES = (
    "drop the new table",
    "take the new table's name",
    "remove the new table's metadata",
    "replace the new table",
    "drop the Hive copy",
    "replace the Hive copy",
    "remove files of the Hive copy",
)
REASONS = frozenset(
    (
        PauseReason.NEW_TABLE_MISSING,
        PauseReason.NEW_TABLE_REPLACED,
        PauseReason.NEW_TABLE_UNREADABLE,
        PauseReason.NAME_TAKEN,
        PauseReason.HIVE_COPY_MISSING,
        PauseReason.HIVE_COPY_REPLACED,
        PauseReason.HIVE_COPY_CHANGED,
    )
)


@dataclass
class HandChangeScenario:
    """A table in probation that people change by hand.

    Attributes:
        model: The table; its rows are those that a table or a Delta log still has.
        folder: The folder of the new table's files and of other tables.
        written: All rows that people wrote.
        backup: A copy of the new table's metadata, if people removed it.
        metadata: The folder from which people removed it.
        dropped: The folder of a dropped Delta table, or the newest metadata file of a dropped Iceberg table.
        lost_log: Whether a Delta table lost its log, so that Hive reads files of several versions.
        log: The events, for the message of a failure.
    """

    model: TableModel
    folder: Path
    written: set[Row] = field(default_factory=set)
    backup: Path | None = None
    metadata: Path = Path()
    dropped: str = ""
    lost_log: bool = False
    log: list[str] = field(default_factory=list)

    @property
    def job(self) -> Job:
        return self.model.fleet.job("t")

    @property
    def form(self) -> TargetFormat:
        return self.job.target_format

    @property
    def names(self) -> Names:
        return Names.of(self.job)

    @property
    def hive(self) -> TableName:
        """The Hive copy's name in the job's state."""
        return self.names.archived if self.job.state is State.HIVE_DROPPED else self.names.hive

    @property
    def new(self) -> str:
        """The new table's name in Spark."""
        return self.model.fleet.warehouse.named(self.names.target, self.form).sql

    def sql(self, statement: str) -> None:
        self.model.fleet.spark.sql(statement)

    def new_table_folder(self) -> Path:
        target = self.names.target
        entry = job_tables.entries(self.model.fleet.warehouse, (target,), refresh=True)[target]
        return Path(entry.location.removeprefix("file:"))

    def is_new_table_sound(self) -> bool:
        """Whether the new table has its name and can be read."""
        tables = job_tables.list_job_tables(self.model.fleet.warehouse, self.names)
        return tables.get(self.names.target) is target_kind(self.job) and self.backup is None

    def rows_of_hive_copy(self) -> set[Row] | None:
        """Return the rows of the Hive copy; None if it is missing or another table."""
        if table_conditions(self.model.fleet.warehouse, self.job)[1] is not Condition.SOUND:
            return None
        return set(self.model.read(self.hive))

    def change_by_hand(self, change: str) -> None:
        """Apply one of `HAND_CHANGES` while the job has both tables."""
        if phase_of(self.job) is None:
            return
        copy = self.rows_of_hive_copy()
        match change:
            case "drop the new table" if self.is_new_table_sound():
                self._drop_new_table(copy)
            case "take the new table's name" if self.is_new_table_sound():
                self._drop_new_table(copy)
                self.sql(f"CREATE VIEW {self.names.target.sql} AS SELECT 0 AS id")
            case "remove the new table's metadata" if self.is_new_table_sound():
                self._remove_metadata(copy)
            case "replace the new table" if self.is_new_table_sound():
                self._replace_new_table()
            case "drop the Hive copy" if copy is not None:
                self.sql(f"DROP TABLE {self.hive.sql}")
            case "replace the Hive copy" if copy is not None:
                self.sql(f"DROP TABLE {self.hive.sql}")
                # The metastore records the creation of a table in seconds.
                self.sql("SELECT java_method('java.lang.Thread', 'sleep', 1100L)")
                self.sql(
                    f"CREATE EXTERNAL TABLE {self.hive.sql} (id INT, amount INT) PARTITIONED BY (day STRING) "
                    f"STORED AS PARQUET LOCATION '{self.folder / 'another'}'"
                )
            case "remove files of the Hive copy" if copy is not None:
                # The new table reads the other directories too.
                for partition in sorted(self.folder.glob("t_sync/*/*/day=*"))[-1:]:
                    shutil.rmtree(partition)
            case _:
                return
        self.log.append(f"by hand: {change}")

    def _drop_new_table(self, copy: set[Row] | None) -> None:
        place = self.new_table_folder()
        # A revert finds the log of a Delta table in the Hive table's directory.
        if self.form is TargetFormat.ICEBERG or place != self.model.directory:
            self._lose_rows_that_only_the_new_table_has(copy)
        self.dropped = str(place)
        if self.form is TargetFormat.ICEBERG:
            files = (place / "metadata").glob("*.metadata.json")
            self.dropped = str(max(files, key=lambda file: file.stat().st_mtime_ns))
        self.sql(f"DROP TABLE {self.new}")

    def _remove_metadata(self, copy: set[Row] | None) -> None:
        self._lose_rows_that_only_the_new_table_has(copy)
        folder = "metadata" if self.form is TargetFormat.ICEBERG else "_delta_log"
        self.metadata = self.new_table_folder() / folder
        self.backup = self.folder / f"backup_{next(_numbers)}"
        shutil.move(self.metadata, self.backup)

    def _lose_rows_that_only_the_new_table_has(self, copy: set[Row] | None) -> None:
        if copy is not None:
            self.model.rows &= copy
            self.written |= copy
            self.lost_log |= self.form is TargetFormat.DELTA

    def _replace_new_table(self) -> None:
        rows = self.model.read(self.names.target)
        values = ", ".join(f"({number}, {amount}, '{day}')" for number, amount, day in rows)
        select = (
            f"SELECT * FROM VALUES {values} AS t(id, amount, day)" if rows else "SELECT 0, 0, '' WHERE 1 = 0"
        )
        self.sql(f"DROP TABLE {self.new}")
        place = self.folder / f"replaced_{next(_numbers)}"
        self.sql(
            f"CREATE TABLE {self.new} (id INT, amount INT, day STRING) USING {self.form.value} "
            f"LOCATION '{place}'"
        )
        self.sql(f"INSERT INTO {self.new} {select}")

    def run(self, mode: str) -> None:
        """Run a mode; it may die, or pause the table with one of `REASONS`."""
        ours = self.model.fleet
        self.log.append(f"{mode}, {self.model.effects} effects")
        try:
            report = self.model.modes[mode]()
        except Death:
            ours.clock.turn(minutes=ours.settings.lease_minutes + 1)
            return
        except Refused as error:
            self.log.append(f"refused: {error}")
            return
        finally:
            self.model.effects = None
        self._check(report)
        ours.notify()

    def _check(self, report: ModeReport) -> None:
        for result in report.jobs:
            if result.outcome in ("done", "planned", "lost"):
                continue
            assert result.job.tbl_name == "t", errors(report)
            assert result.outcome == "paused", errors(report)
            assert reason(result.job) in REASONS, errors(report)

    def follow_finding(self) -> None:
        """Run the statement and the command that the pause of the job contains."""
        ours, job = self.model.fleet, self.job
        if not job.migration_paused or reason(job) is PauseReason.REVERTED:
            return
        command = resume_command(job)
        self.log.append(f"{job.pause_reason}\n  -> {command}")
        if reason(job) is not PauseReason.HIVE_COPY_CHANGED:
            assert command in job.pause_reason
        if statement := re.search(r"Rename it: (ALTER (TABLE|VIEW) .+ RENAME TO (.+?))\. ", job.pause_reason):
            self.sql(f"DROP {statement[2]} IF EXISTS {statement[3]}")
            self.sql(statement[1])
        if "_AND_COPY_GONE]" in job.pause_reason:
            self._restore_new_table()
        match command.removeprefix("tableferry fleet ").split()[:2]:
            case ["revert", option]:
                self._check(ours.revert("t", from_archive=option == "--from-archive"))
            case ["resume", option]:
                ours.store.edit(resumed(job, accept=option == "--accept"), ours.clock())
            case other:
                raise AssertionError(other)

    def _restore_new_table(self) -> None:
        if self.backup is not None:
            shutil.move(self.backup, self.metadata)
        elif self.form is TargetFormat.DELTA:
            self.sql(f"CREATE TABLE {self.new} USING delta LOCATION '{self.dropped}'")
        else:
            catalog = self.model.fleet.warehouse.iceberg_catalog
            table = ".".join(self.names.target.parts[-2:])
            self.sql(f"CALL {catalog}.system.register_table('{table}', '{self.dropped}')")
        self.backup = None

    def end(self) -> None:
        """Run all modes and follow each finding until the job is finished; then compare the rows."""
        for _ in range(8):
            self.follow_finding()
            for mode in ("continue revert", "migrate", "shadow"):
                self.run(mode)
            job = self.job
            if reason(job) is PauseReason.REVERTED or (
                not job.migration_paused
                and not job.claimed_by
                and job.state in (job.desired_state, State.WRITES_UNBLOCKED)
            ):
                break
        else:
            raise AssertionError("the job is stuck: " + self.job.pause_reason)
        rows = self.model.read(self.model.name)
        assert self.model.rows <= set(rows) <= self.written | self.model.rows
        if not self.lost_log:
            assert len(rows) == len(set(rows)), f"rows are doubled: {rows}"
        other = self.model.fleet.job("u")
        assert not other.migration_paused
        assert self.model.read(self.model.fleet.live("u")) == [(1, 1, "a"), (2, 1, "b")]

    def play(self, events: list[Event]) -> None:
        """Play the events, and end the job."""
        try:
            for kind, value in events:
                self._play(kind, value)
            self.written |= self.model.rows
            self.model.effects = None
            self.end()
        except Exception as error:
            error.add_note("\n".join(self.log))
            raise

    def _play(self, kind: str, value: Any) -> None:
        self.written |= self.model.rows
        can_write = self.backup is None
        match kind:
            case "insert" if can_write:
                self.model.insert(value)
            case "delete" if can_write:
                self.model.change("DELETE FROM {t}", value)
            case "update" if can_write:
                self.model.change("UPDATE {t} SET amount = amount + 1", value)
            case "by hand":
                self.change_by_hand(value)
            case "follow the finding":
                self.follow_finding()
            case "archive":
                self.model.fleet.clock.turn(days=14)
                self.run("preprocess")
                self.run("migrate")
            case "shadow" | "revert" | "continue revert":
                self.model.effects = value
                self.run(kind)


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("by hand"), st.sampled_from(HAND_CHANGES)),
        st.tuples(st.sampled_from(("shadow", "revert", "continue revert")), st.none() | st.integers(0, 9)),
        st.tuples(st.sampled_from(("insert", "update", "delete")), st.sampled_from(DAYS[:2])),
        st.tuples(st.sampled_from(("follow the finding", "archive", "shadow")), st.none()),
    ),
    max_size=3,
)
SCENARIOS = st.tuples(
    EVENTS, st.sampled_from(HAND_CHANGES), EVENTS, st.sampled_from(HAND_CHANGES), EVENTS
).map(lambda drawn: [*drawn[0], ("by hand", drawn[1]), *drawn[2], ("by hand", drawn[3]), *drawn[4]])
KNOWN: Mapping[TargetFormat, list[Event]] = {
    TargetFormat.ICEBERG: [
        ("update", "b"),
        ("shadow", None),
        ("by hand", "remove files of the Hive copy"),
        ("shadow", None),
        ("follow the finding", None),
        ("by hand", "drop the Hive copy"),
        ("insert", "a"),
        ("revert", 3),
    ],
    TargetFormat.DELTA: [
        ("insert", "a"),
        ("shadow", 2),
        ("by hand", "replace the Hive copy"),
        ("revert", None),
        ("follow the finding", None),
        ("by hand", "take the new table's name"),
    ],
}


@pytest.mark.parametrize("form", [pytest.param(TargetFormat.ICEBERG, marks=soak.slow), TargetFormat.DELTA])
def test_tables_changed_by_hand_lose_no_row_and_stop_no_other_table(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: TargetFormat
) -> None:
    def play(events: list[Event]) -> None:
        schema = f"fleet_by_hand_{next(_numbers)}"
        folder = tmp_path / schema
        folder.mkdir()
        spark.sql(f"CREATE SCHEMA {schema}")
        try:
            for table in ("t", "u"):
                spark.sql(
                    f"CREATE EXTERNAL TABLE {schema}.{table} (id INT, amount INT) "
                    f"PARTITIONED BY (day STRING) STORED AS PARQUET LOCATION '{folder / table}'"
                )
            with dynamic_fleet(spark, schema, folder) as ours, monkeypatch.context() as patch:
                for table in ("t", "u"):
                    spark.sql(f"INSERT INTO {schema}.{table} VALUES (1, 1, 'a'), (2, 1, 'b')")
                ours.to_probation("t", "u", form=form)
                model = TableModel(ours, folder / "t", rows={(1, 1, "a"), (2, 1, "b")})
                with dying_workers(model, patch):
                    HandChangeScenario(model, folder).play(events)
        finally:
            spark.sql(f"DROP SCHEMA {schema} CASCADE")

    @soak.slow_examples(12)
    @given(SCENARIOS)
    def scenarios(events: list[Event]) -> None:
        play(events)

    play(KNOWN[form])
    if soak.SOAKING:
        scenarios()
