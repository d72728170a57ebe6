"""Migration to another schema or catalog, and its revert, keep every row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests import rest_catalog, soak
from tests.spark.fleets import Fleet, errors, fleet, hive_table
from tests.spark.tables import tables_in

from tableferry.fleet.jobs.job import Job, OldName, PauseReason, State, TargetFormat
from tableferry.fleet.jobs.pauses import resumed
from tableferry.fleet.jobs.steps import CheckFence, Step
from tableferry.fleet.modes import job_run
from tableferry.fleet.modes.performer import perform
from tableferry.spark import session
from tableferry.spark.tables import TableName

CATALOG = "elsewhere"
"""The name of a REST catalog, which a server provides."""

ICEBERG, DELTA = TargetFormat


@pytest.fixture(scope="module")
def _catalog(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with rest_catalog.serving(tmp_path_factory.mktemp("rest")) as address:
        settings = {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "rest", ".uri": address}
        for key, value in settings.items():
            spark.conf.set(f"spark.sql.catalog.{CATALOG}{key}", value)
        yield


@pytest.fixture
def ours(spark: SparkSession, schema: str, tmp_path: Path, _catalog: None) -> Iterator[Fleet]:
    """Provide a fleet with one partitioned Hive table, `orders`, and empty schemas for the new table."""
    spark.sql(f"CREATE SCHEMA {schema}_lake")
    # Another session creates it, because the fleet configures the catalog before this session's first use.
    theirs = session.beside(spark)
    assert theirs is not None
    theirs.sql(f"CREATE SCHEMA {CATALOG}.{schema}")
    with session.settings(spark, {"hive.exec.dynamic.partition.mode": "nonstrict"}, "the test"):
        hive_table(spark, f"{schema}.orders", tmp_path / "orders", [(1, "a"), (2, "b"), (3, None)])
        yield fleet(spark, schema, tmp_path)


def place(ours: Fleet, catalog: str, old_name: OldName) -> dict[str, Any]:
    """Return a job's options for a new table in another schema or catalog."""
    if catalog == CATALOG:
        return {"target_catalog": catalog, "target_schema": ours.schema, "old_name": old_name}
    return {"target_catalog": catalog, "target_schema": f"{ours.schema}_lake", "old_name": old_name}


PLACES = [(DELTA, "spark_catalog", OldName.VIEW), (ICEBERG, CATALOG, OldName.TABLE)]
MORE_PLACES = [
    (ICEBERG, "spark_catalog", OldName.VIEW),
    (ICEBERG, "spark_catalog", OldName.TABLE),
    (ICEBERG, CATALOG, OldName.VIEW),
]


@pytest.mark.parametrize(("form", "catalog", "old_name"), soak.amount(PLACES, PLACES + MORE_PLACES))
@soak.slow
def test_table_is_migrated_to_another_schema_or_catalog_and_reverted(
    ours: Fleet, form: TargetFormat, catalog: str, old_name: OldName
) -> None:
    before, where = ours.rows("orders"), place(ours, catalog, old_name)
    lake = TableName((where["target_catalog"], where["target_schema"]))
    ours.add("orders", form=form, **where)
    assert errors(ours.preprocess()) == []
    ours.notify()
    ours.clock.turn(days=14)
    [planned] = ours.migrate(dry_run=True).jobs
    [done] = ours.migrate().jobs
    assert (done.outcome, done.actions) == ("done", planned.actions)
    copy = "orders_hive" if old_name is OldName.VIEW else "orders"
    live = TableName((*lake.parts, "orders"))
    assert tables_in(ours.spark, lake.sql) == ["orders"]
    assert tables_in(ours.spark, ours.schema) == sorted({"orders", copy})
    assert ours.rows(live) == ours.rows("orders") == ours.rows(copy) == before

    ours.notify()
    ours.write("orders", "INSERT INTO {t} VALUES (4, TIMESTAMP '2026-02-01 00:00:00', 'c')")
    ours.write("orders", "DELETE FROM {t} WHERE id = 1")
    assert errors(ours.shadow()) == []
    after = ours.rows(live)
    assert len(after) == 3
    assert ours.rows("orders") == ours.rows(copy) == after

    ours.clock.turn(days=14)
    assert errors(ours.preprocess()) == []
    assert errors(ours.migrate()) == []
    assert ours.job("orders").pair == (State.HIVE_DROPPED, State.HIVE_DROPPED)
    left = ["orders", "orders_hive_archived"] if old_name is OldName.VIEW else ["orders_hive_archived"]
    assert tables_in(ours.spark, ours.schema) == left
    ours.write("orders", "INSERT INTO {t} VALUES (5, NULL, 'b')")
    after = ours.rows(live)
    if old_name is OldName.VIEW:
        assert ours.rows("orders") == after

    assert errors(ours.revert("orders", from_archive=True)) == []
    assert tables_in(ours.spark, ours.schema) == ["orders"]
    assert tables_in(ours.spark, lake.sql) == []
    assert ours.rows("orders") == after
    ours.spark.sql(f"INSERT INTO {ours.schema}.orders VALUES (9, NULL, 'a')")
    assert len(ours.rows("orders")) == len(after) + 1


@soak.slow
def test_close_of_a_table_in_another_catalog_keeps_its_view_and_rows(ours: Fleet) -> None:
    ours.to_probation("orders", form=ICEBERG, **place(ours, CATALOG, OldName.VIEW))
    ours.write("orders", "DELETE FROM {t} WHERE id = 1")
    ours.write("orders", "INSERT INTO {t} VALUES (4, NULL, 'b')")
    ours.to_archive("orders")
    live = ours.live("orders")
    after = ours.rows(live)
    ours.mark("orders", days=0)
    assert errors(ours.close()) == []
    assert tables_in(ours.spark, ours.schema) == ["orders"]
    assert ours.rows(live) == ours.rows("orders") == after
    properties = {row["key"] for row in ours.spark.sql(f"SHOW TBLPROPERTIES {live.sql}").collect()}
    assert "gc.enabled" not in properties


@soak.slow
def test_view_at_the_old_name_has_added_columns_and_refuses_writes(ours: Fleet) -> None:
    ours.to_probation("orders", form=DELTA, **place(ours, "spark_catalog", OldName.VIEW))
    ours.write("orders", "ALTER TABLE {t} ADD COLUMN more INT")
    ours.write("orders", "INSERT INTO {t} (id, day, more) VALUES (4, 'a', 7)")
    shown = ours.spark.sql(f"SELECT id, more FROM {ours.schema}.orders ORDER BY id").collect()
    assert [tuple(row) for row in shown] == [(1, None), (2, None), (3, None), (4, 7)]
    with pytest.raises(Exception, match="VIEW"):
        ours.spark.sql(f"INSERT INTO {ours.schema}.orders VALUES (5, NULL, 'a', 1)")


@soak.slow
def test_row_written_to_a_hive_table_that_keeps_its_name_is_late(ours: Fleet) -> None:
    ours.to_probation("orders", form=ICEBERG, **place(ours, "spark_catalog", OldName.TABLE))
    ours.spark.sql(f"INSERT INTO {ours.schema}.orders VALUES (4, NULL, 'a')")
    [late] = errors(ours.shadow())
    assert "WRITTEN_LATE" in late or "appeared in the directories" in late


@soak.slow
def test_session_with_documented_settings_reads_tables_by_their_old_names(
    ours: Fleet, spark: SparkSession, tmp_path: Path
) -> None:
    hive_table(spark, f"{ours.schema}.moved", tmp_path / "moved", [(7, "a")])
    ours.add("moved", form=ICEBERG, **place(ours, "spark_catalog", OldName.VIEW))
    ours.to_probation("orders", form=ICEBERG)
    page = (Path(__file__).parents[2] / "docs/how-to/read-migrated-tables.md").read_text(encoding="utf-8")
    block = page.partition('```properties title="spark-defaults.conf"\n')[2].partition("```")[0]
    reader = spark.newSession()
    for key, value in (line.split(" ") for line in block.splitlines()):
        # The process already has the extensions and jars.
        if key not in ("spark.sql.extensions", "spark.jars.packages"):
            reader.conf.set(key, value)
    ours.write("orders", "INSERT INTO {t} VALUES (4, NULL, 'a')")
    ours.write("moved", "INSERT INTO {t} VALUES (8, NULL, 'a')")
    for table, rows in (("orders", [1, 2, 3, 4]), ("moved", [7, 8])):
        shown = reader.sql(f"SELECT id FROM {ours.schema}.{table} ORDER BY id").collect()
        assert [row[0] for row in shown] == rows


def test_missing_target_schema_is_refused_before_any_notification(ours: Fleet) -> None:
    ours.add("orders", form=ICEBERG, target_schema="nowhere", old_name=OldName.VIEW)
    [refused] = errors(ours.preprocess())
    assert f"CREATE SCHEMA {TableName(('spark_catalog', 'nowhere')).sql}" in refused
    assert ours.job("orders").pause_reason.startswith("NO_TARGET_SCHEMA: ")


class Crash(BaseException):
    """A worker dies."""


def add_due_job(ours: Fleet, form: TargetFormat, old_name: OldName) -> None:
    """Add a job, and prepare it until its migration is due."""
    ours.add("orders", form=form, **place(ours, "spark_catalog", old_name))
    assert errors(ours.preprocess()) == []
    ours.notify()
    ours.clock.turn(days=14)


def pause_and_revert(ours: Fleet) -> list[str]:
    """Pause a job whose worker died, as a user does, and revert it."""
    ours.clock.turn(days=1)
    ours.store.edit(ours.job("orders").paused(PauseReason.PAUSED_BY_USER), ours.clock())
    return errors(ours.revert("orders"))


@pytest.mark.parametrize("form", [DELTA, ICEBERG])
@soak.slow
def test_two_tables_with_the_same_target_keep_their_own_rows(
    ours: Fleet, spark: SparkSession, tmp_path: Path, form: TargetFormat
) -> None:
    add_due_job(ours, form, OldName.VIEW)
    us = fleet(spark, f"{ours.schema}_us", tmp_path)
    spark.sql(f"CREATE SCHEMA {us.schema}")
    hive_table(spark, us.name("orders").sql, tmp_path / "us", [(7, "a"), (8, "b"), (9, None)])
    where = place(ours, "spark_catalog", OldName.VIEW)
    us.add("orders", form=form, **where)
    [refused] = errors(us.preprocess())
    assert us.job("orders").pause_reason.startswith("NAME_TAKEN: ")
    assert f"{ours.name('orders')} becomes" in refused
    # An earlier version migrated it.
    blocked = replace(us.job("orders"), state=State.WRITES_BLOCKED, desired_state=State.ICEBERG_READY)
    us.store.edit(replace(blocked, in_process=True), us.clock())
    assert errors(ours.migrate()) == []
    before = ours.rows(ours.live("orders")), us.rows("orders")
    assert errors(us.revert("orders")) == []
    lake = TableName((where["target_catalog"], where["target_schema"]))
    assert tables_in(spark, lake.sql) == ["orders"]
    assert (ours.rows(TableName((*lake.parts, "orders"))), us.rows("orders")) == before
    assert ours.rows("orders") == before[0]


@pytest.mark.parametrize("form", [ICEBERG, pytest.param(DELTA, marks=soak.slow)])
def test_revert_before_the_switch_keeps_rows_written_to_hive(
    ours: Fleet, form: TargetFormat, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_due_job(ours, form, OldName.VIEW)

    def dying(step: Step, *given: Any) -> Job:
        if isinstance(step, CheckFence):
            raise Crash
        return perform(step, *given)

    with monkeypatch.context() as patch:
        patch.setattr(job_run, "perform", dying)
        with pytest.raises(Crash):
            ours.migrate()
    assert ours.job("orders").state is State.ICEBERG_READY
    ours.spark.sql(f"INSERT INTO {ours.schema}.orders VALUES (4, NULL, 'a')")
    assert pause_and_revert(ours) == []
    assert [row[0] for row in ours.rows("orders")] == [1, 2, 3, 4]
    assert tables_in(ours.spark, ours.schema) == ["orders"]


@soak.slow
def test_revert_is_refused_if_the_view_at_the_old_name_was_altered(
    ours: Fleet,
) -> None:
    ours.to_probation("orders", form=DELTA, **place(ours, "spark_catalog", OldName.VIEW))
    live, view = ours.live("orders"), ours.name("orders").sql
    ours.spark.sql(f"CREATE OR REPLACE VIEW {view} AS SELECT id FROM {live.sql}")
    [refused] = errors(ours.revert("orders"))
    assert "is a view, and the view of" in refused
    assert ours.job("orders").state is State.WRITES_UNBLOCKED
    assert ours.live("orders") == live
    ours.spark.sql(f"DROP VIEW {view}")
    ours.store.edit(resumed(ours.job("orders")), ours.clock())
    assert errors(ours.revert()) == []
    assert tables_in(ours.spark, ours.schema) == ["orders"]


@soak.slow
def test_table_in_the_directory_of_the_new_table_is_refused(ours: Fleet, tmp_path: Path) -> None:
    hive_table(ours.spark, ours.name("trial").sql, tmp_path / "orders_iceberg", [(7, "a")])
    ours.add("orders", form=ICEBERG, **place(ours, "spark_catalog", OldName.VIEW))
    [refused] = errors(ours.preprocess())
    assert ours.job("orders").pause_reason.startswith("SHARED_DIRECTORY: ")
    assert "trial at " in refused


def test_existing_table_with_the_new_name_is_refused(ours: Fleet) -> None:
    ours.spark.sql(f"CREATE TABLE {ours.schema}_lake.orders (other INT) USING delta")
    ours.add("orders", form=DELTA, **place(ours, "spark_catalog", OldName.VIEW))
    [refused] = errors(ours.preprocess())
    assert ours.job("orders").pause_reason.startswith("NAME_TAKEN: ")
    assert f"{ours.schema}_lake.orders" in refused
