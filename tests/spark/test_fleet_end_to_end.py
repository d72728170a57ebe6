"""Every mode on real tables: migration, probation, archive and revert."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests import soak
from tests.spark.fleets import Fleet, errors, fleet, hive_table
from tests.spark.tables import tables_in

from tableferry.fleet.jobs.job import Job, State, TargetFormat
from tableferry.fleet.jobs.pauses import resumed
from tableferry.fleet.jobs.steps import DropCopy, Step
from tableferry.fleet.modes import job_run
from tableferry.fleet.modes.performer import perform
from tableferry.fleet.settings import FleetSettings
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.step_run import Save
from tableferry.spark import session

FORMATS = list(TargetFormat)


class Death(BaseException):
    """A worker dies."""


@pytest.fixture
def ours(spark: SparkSession, schema: str, tmp_path: Path) -> Iterator[Fleet]:
    """Provide a fleet with one partitioned Hive table, `orders`."""
    with session.settings(spark, {"hive.exec.dynamic.partition.mode": "nonstrict"}, "the test"):
        hive_table(spark, f"{schema}.orders", tmp_path / "orders", [(1, "a"), (2, "b"), (3, None)])
        yield fleet(spark, schema, tmp_path)


def test_table_recreated_before_its_migration_is_checked_and_announced_again(
    ours: Fleet, tmp_path: Path
) -> None:
    ours.add("orders")
    assert errors(ours.preprocess()) == []
    ours.notify()
    ours.spark.sql(f"DROP TABLE {ours.schema}.orders")
    hive_table(ours.spark, f"{ours.schema}.orders", tmp_path / "others", [(7, "z")])
    ours.clock.turn(days=14)

    [waits] = ours.migrate().jobs

    assert (waits.outcome, waits.actions) == ("waiting", ())
    assert waits.error.startswith("the table was recreated since it was checked: preprocess checks it again")
    assert ours.job("orders").pair == (State.UNDEFINED, State.UNDEFINED)
    assert errors(ours.preprocess()) == []
    assert ours.migrate().jobs == ()
    ours.notify()
    assert ours.job("orders").comm_level1_date == ours.clock()
    ours.clock.turn(days=14)
    [planned] = ours.migrate(dry_run=True).jobs
    assert planned.outcome == "planned"


# The other format is covered by the property test and by test_fleet_warehouse.py.
@pytest.mark.parametrize("form", soak.amount([TargetFormat.ICEBERG], FORMATS))
def test_table_is_migrated_and_archived(ours: Fleet, form: TargetFormat) -> None:
    before = ours.rows("orders")
    ours.add("orders", form=form)
    assert errors(ours.preprocess()) == []
    assert ours.migrate().jobs == ()  # No owner was notified yet.
    ours.notify()
    ours.clock.turn(days=13, minutes=1439)
    assert ours.migrate().jobs == ()  # The gap hasn't passed yet.
    ours.clock.turn(minutes=1)
    job = ours.job("orders")
    [planned] = ours.migrate(dry_run=True).jobs
    block = f"block writes to spark_catalog.{ours.schema}.orders"
    # Rows are compared before the block.
    assert planned.actions.index(block) == 3
    assert ours.job("orders") == job
    assert tables_in(ours.spark, ours.schema) == ["orders"]
    [done] = ours.migrate().jobs
    assert (done.outcome, done.actions) == ("done", planned.actions)

    assert ours.job("orders").pair == (State.WRITES_UNBLOCKED, State.WRITES_UNBLOCKED)
    assert tables_in(ours.spark, ours.schema) == ["orders", "orders_hive"]
    assert ours.rows("orders") == ours.rows("orders_hive") == before

    ours.notify()
    ours.write("orders", "INSERT INTO {t} VALUES (4, TIMESTAMP '2026-02-01 00:00:00', 'c')")
    ours.write("orders", "DELETE FROM {t} WHERE id = 1")
    assert errors(ours.shadow()) == []
    after = ours.rows("orders")
    assert len(after) == 3
    assert ours.rows("orders_hive") == after
    assert ours.shadow().jobs[0].actions == ()  # No row changed.

    ours.write("orders", "INSERT INTO {t} VALUES (5, NULL, 'b')")
    ours.clock.turn(days=14)
    assert errors(ours.preprocess()) == []
    assert errors(ours.migrate()) == []
    assert ours.job("orders").pair == (State.HIVE_DROPPED, State.HIVE_DROPPED)
    assert tables_in(ours.spark, ours.schema) == ["orders", "orders_hive_archived"]
    assert len(ours.rows("orders_hive_archived")) == len(ours.rows("orders")) == 4
    ours.preprocess()
    assert not ours.job("orders").in_process


@soak.only  # In make test, test_fleet_property.py and test_fleet_warehouse.py revert tables.
@pytest.mark.parametrize("form", FORMATS)
def test_revert_keeps_every_row(ours: Fleet, form: TargetFormat, monkeypatch: pytest.MonkeyPatch) -> None:
    ours.to_probation("orders", form=form)
    ours.write("orders", "INSERT INTO {t} VALUES (4, TIMESTAMP '2026-02-01 00:00:00', 'a')")
    ours.write("orders", "DELETE FROM {t} WHERE id = 2")
    after = ours.rows("orders")
    copy = f"orders_{form.value}"

    def late(step: Step, job: Job, warehouse: Warehouse, save: Save) -> Job:
        if isinstance(step, DropCopy):
            # A writer that opened the new table before its name became Hive's again.
            name = ours.name(copy)
            target = warehouse.named(name, form)
            ours.spark.sql(f"INSERT INTO {target.sql} VALUES (5, NULL, 'b')")
        return perform(step, job, warehouse, save)

    with monkeypatch.context() as patch:
        patch.setattr(job_run, "perform", late)
        [refused] = errors(ours.revert("orders"))
    assert "[COPY_WRITTEN_AFTER_SYNC]" in refused
    assert ours.job("orders").pause_reason.startswith("WRITTEN_WHILE_BLOCKED: ")
    assert tables_in(ours.spark, ours.schema) == ["orders", copy]
    assert ours.rows("orders") == after
    ours.spark.sql(f"INSERT INTO {ours.schema}.orders VALUES (5, NULL, 'b')")
    after = ours.rows("orders")
    ours.store.edit(resumed(ours.job("orders"), accept=True), ours.clock())
    assert errors(ours.revert()) == []
    assert tables_in(ours.spark, ours.schema) == ["orders"]
    assert ours.rows("orders") == after
    job = ours.job("orders")
    assert job.migration_paused
    assert job.pause_reason == "REVERTED"
    assert job.pair == (State.ICEBERG_DROPPED, State.ICEBERG_DROPPED)
    assert ours.migrate().jobs == ()
    ours.spark.sql(f"INSERT INTO {ours.schema}.orders VALUES (9, NULL, 'a')")
    assert len(ours.rows("orders")) == len(after) + 1


@soak.only  # In make test, workers of test_fleet_property.py die before and after each kind of effect.
@pytest.mark.parametrize("form", FORMATS)
def test_migration_and_revert_resume_after_a_crash_at_any_step(
    ours: Fleet, form: TargetFormat, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker dies after each step; the next worker claims the job and resumes it."""
    died: set[tuple[State, State, Step]] = set()

    def deadly(step: Step, job: Job, warehouse: Warehouse, save: Save) -> Job:
        job = perform(step, job, warehouse, save)
        if (*job.pair, step) not in died:
            died.add((*job.pair, step))
            raise Death
        return job

    def run_until_it_survives(run: object) -> None:
        for _ in range(20):
            try:
                assert errors(run()) == []  # type: ignore[operator]
                return
            except Death:
                ours.clock.turn(minutes=ours.settings.lease_minutes + 1)
        raise AssertionError("each run died")

    before = ours.rows("orders")
    ours.add("orders", form=form)
    ours.preprocess()
    ours.notify()
    ours.clock.turn(days=14)
    monkeypatch.setattr(job_run, "perform", deadly)
    run_until_it_survives(ours.migrate)
    assert ours.rows("orders") == ours.rows("orders_hive") == before
    assert len(died) >= 9
    ours.notify()

    ours.write("orders", "INSERT INTO {t} VALUES (4, NULL, 'a'), (5, NULL, 'new')")
    ours.write("orders", "DELETE FROM {t} WHERE id = 2")
    after = ours.rows("orders")
    migration_start = iter([("orders",)])
    run_until_it_survives(lambda: ours.revert(*next(migration_start, ())))
    assert ours.rows("orders") == after
    assert tables_in(ours.spark, ours.schema) == ["orders"]


@soak.only  # test_fleet_warehouse.py migrates an empty table.
@pytest.mark.parametrize("form", FORMATS)
def test_empty_table_is_migrated_and_reverted(ours: Fleet, form: TargetFormat, tmp_path: Path) -> None:
    hive_table(ours.spark, f"{ours.schema}.empty", tmp_path / "empty", [])
    ours.to_probation("empty", form=form)
    assert ours.shadow().jobs[0].actions == ()
    ours.clock.turn(days=14)
    ours.preprocess()
    assert errors(ours.migrate()) == []
    assert ours.rows("empty") == ours.rows("empty_hive_archived") == []
    ours.write("empty", "INSERT INTO {t} VALUES (1, NULL, 'x')")
    assert errors(ours.revert("empty", from_archive=True)) == []
    assert len(ours.rows("empty")) == 1


@soak.slow
def test_row_written_after_the_block_is_copied(ours: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Step] = []

    def late(step: Step, job: Job, warehouse: Warehouse, save: Save) -> Job:
        job = perform(step, job, warehouse, save)
        if job.state is State.WRITES_BLOCKED and not written:
            written.append(step)
            ours.spark.sql(f"INSERT INTO {ours.schema}.orders VALUES (7, NULL, 'late')")
        return job

    monkeypatch.setattr(job_run, "perform", late)
    ours.to_probation("orders")
    assert written
    assert len(ours.rows("orders")) == 4
    assert ours.rows("orders") == ours.rows("orders_hive")


@soak.only
def test_job_pauses_if_writes_continue_after_the_block(ours: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(step: Step, job: Job, warehouse: Warehouse, save: Save) -> Job:
        job = perform(step, job, warehouse, save)
        if job.state is State.WRITES_BLOCKED:
            ours.spark.sql(f"INSERT INTO {ours.schema}.orders VALUES (7, NULL, 'busy')")
        return job

    monkeypatch.setattr(job_run, "perform", busy)
    ours.add("orders")
    ours.preprocess()
    ours.notify()
    ours.clock.turn(days=14)
    [report] = ours.migrate().jobs
    assert report.outcome == "paused"
    assert report.job.pause_reason.startswith("WRITTEN_WHILE_BLOCKED: ")
    assert report.job.pair == (State.READY, State.WRITES_BLOCKED)
    assert "orders" in tables_in(ours.spark, ours.schema)


@soak.slow
def test_tables_migrated_and_reverted_concurrently_keep_their_rows(
    spark: SparkSession, schema: str, tmp_path: Path
) -> None:
    ours = fleet(spark, schema, tmp_path)
    ours.settings = FleetSettings(tables_at_once=3)
    rows: dict[str, list[tuple[Any, ...]]] = {}

    def read(table: str) -> list[tuple[Any, ...]]:
        # This session caches the table, so it doesn't see files of other sessions, such as the workers'.
        spark.catalog.refreshTable(f"{schema}.{table}")
        return ours.rows(table)

    with session.settings(spark, {"hive.exec.dynamic.partition.mode": "nonstrict"}, "the test"):
        for number in range(soak.amount(6, 24)):
            table, form = f"t{number}", FORMATS[number % 2]
            hive_table(spark, f"{schema}.{table}", tmp_path / table, [(1, "a"), (2, "b"), (3, None)])
            ours.add(table, form=form)
            rows[table] = ours.rows(table)
        assert errors(ours.preprocess()) == []
        ours.notify()
        ours.clock.turn(days=14)
        assert errors(ours.migrate()) == []
        ours.notify()
        for number, table in enumerate(rows, start=4):
            assert read(table) == read(f"{table}_hive") == rows[table]
            # Shadow copies a row of an existing partition and a row of a new partition in different ways.
            for day in ("a", "new"):
                ours.write(table, f"INSERT INTO {{t}} VALUES ({number}, TIMESTAMP '2026-02-01', '{day}')")
            rows[table] = ours.rows(table)
            assert len(rows[table]) == 5
        assert errors(ours.shadow()) == []
        assert all(read(f"{table}_hive") == rows[table] for table in rows)
        assert errors(ours.revert(*rows)) == []
    assert {ours.job(table).state for table in rows} == {State.ICEBERG_DROPPED}
    assert tables_in(spark, schema) == sorted(rows)
    assert all(read(table) == rows[table] for table in rows)


# The same code updates the Hive copies of both formats.
@pytest.mark.parametrize("form", soak.amount([TargetFormat.ICEBERG], FORMATS))
@soak.slow
def test_deleted_rows_stay_deleted_when_their_partition_is_written_again(
    ours: Fleet, form: TargetFormat
) -> None:
    ours.to_probation("orders", form=form)
    ours.write("orders", "DELETE FROM {t} WHERE day = 'a'")
    assert errors(ours.shadow()) == []
    assert errors(ours.revert("orders")) == []
    ours.spark.sql(f"INSERT INTO {ours.schema}.orders VALUES (9, NULL, 'a')")
    assert [row[0] for row in ours.rows("orders")] == [2, 3, 9]
