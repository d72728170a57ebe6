"""Tables whose new ones are in another schema: forward, on probation, into the archive, and back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.fleets import Fleet, errors, fleet, hive_table
from tests.spark.tables import tables_in

from tableferry import session
from tableferry.fleet.job import OldName, State, TargetFormat


@pytest.fixture
def ours(spark: SparkSession, schema: str, tmp_path: Path) -> Iterator[Fleet]:
    """A fleet of one partitioned Hive table, `orders`, and an empty schema for the new one."""
    spark.sql(f"CREATE SCHEMA {schema}_lake")
    with session.settings(spark, {"hive.exec.dynamic.partition.mode": "nonstrict"}, "the test"):
        hive_table(spark, f"{schema}.orders", tmp_path / "orders", [(1, "a"), (2, "b"), (3, None)])
        yield fleet(spark, schema, tmp_path)


@pytest.mark.parametrize("old_name", OldName)
@pytest.mark.parametrize("form", TargetFormat)
def test_there_and_back(ours: Fleet, form: TargetFormat, old_name: OldName) -> None:
    before, lake = ours.rows("orders"), f"{ours.schema}_lake"
    ours.add("orders", form=form, target_schema=lake, old_name=old_name)
    assert errors(ours.preprocess()) == []
    ours.notify()
    ours.clock.turn(days=14)
    [planned] = ours.migrate(dry_run=True).jobs
    [done] = ours.migrate().jobs
    assert (done.outcome, done.did) == ("done", planned.did)
    copy = "orders_hive" if old_name is OldName.VIEW else "orders"
    assert tables_in(ours.spark, lake) == ["orders"]
    assert tables_in(ours.spark, ours.schema) == sorted({"orders", copy})
    live = ours.live("orders")
    assert live.parts[1] == lake
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
    assert ours.rows(live) == after

    ours.write("orders", "INSERT INTO {t} VALUES (5, NULL, 'b')")
    after = ours.rows(live)
    assert errors(ours.revert("orders", from_archive=True)) == []
    assert tables_in(ours.spark, ours.schema) == ["orders"]
    assert tables_in(ours.spark, lake) == []
    assert ours.rows("orders") == after
    ours.spark.sql(f"INSERT INTO {ours.schema}.orders VALUES (9, NULL, 'a')")
    assert len(ours.rows("orders")) == len(after) + 1
