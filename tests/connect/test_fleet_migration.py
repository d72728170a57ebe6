"""A fleet's tables are migrated and reverted through databricks-connect, also in a REST catalog."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests import soak
from tests.connect.conftest import SERVER_PYTHON
from tests.spark.fleets import Fleet, errors, fleet, hive_table
from tests.spark.tables import tables_in

from tableferry.fleet.copies import iceberg
from tableferry.fleet.jobs.job import OldName, State, TargetFormat
from tableferry.spark import session
from tableferry.spark.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CATALOG = "elsewhere"


@pytest.fixture
def ours(spark: SparkSession, schema: str, tmp_path: Path) -> Iterator[Fleet]:
    """A fleet of one partitioned Hive table, `orders`."""
    with session.settings(spark, {"hive.exec.dynamic.partition.mode": "nonstrict"}, "the test"):
        hive_table(spark, f"{schema}.orders", tmp_path / "orders", [(1, "a"), (2, "b"), (3, None)])
        yield replace(fleet(spark, schema, tmp_path), theirs=spark)


@pytest.fixture
def rest(spark: SparkSession, ours: Fleet, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """The options of a job whose new table is in a REST catalog."""
    command = [os.environ[SERVER_PYTHON], "-m", "tests.rest_catalog", str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        address = server.stdout.readline().strip()
        settings = {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "rest", ".uri": address}
        for key, value in {**settings, ".cache-enabled": "false"}.items():
            spark.conf.set(f"spark.sql.catalog.{CATALOG}{key}", value)
        spark.sql(f"CREATE SCHEMA {CATALOG}.{ours.schema}")
        yield {"target_catalog": CATALOG, "target_schema": ours.schema, "old_name": OldName.VIEW}
        assert server.stdin is not None
        server.stdin.close()


def migrate_and_revert(ours: Fleet, live: TableName, form: TargetFormat, **where: Any) -> None:
    """Migrate `orders`, write to it during probation, and revert it."""
    before = ours.rows("orders")
    ours.to_probation("orders", form=form, **where)
    assert tables_in(ours.spark, ours.schema) == ["orders", "orders_hive"]
    assert ours.rows(live) == ours.rows("orders_hive") == before
    ours.write("orders", "INSERT INTO {t} VALUES (4, TIMESTAMP '2026-02-01 00:00:00', 'c')")
    ours.write("orders", "DELETE FROM {t} WHERE id = 1")
    assert errors(ours.shadow()) == []
    after = ours.rows(live)
    assert len(after) == len(before)
    assert ours.rows("orders_hive") == after
    ours.write("orders", "INSERT INTO {t} VALUES (5, NULL, 'b')")
    after = ours.rows(live)
    assert errors(ours.revert("orders")) == []
    assert ours.job("orders").pair == (State.ICEBERG_DROPPED, State.ICEBERG_DROPPED)
    assert tables_in(ours.spark, ours.schema) == ["orders"]
    assert ours.rows("orders") == after


@soak.slow
@pytest.mark.parametrize("form", TargetFormat)
def test_table_is_migrated_and_reverted(ours: Fleet, form: TargetFormat) -> None:
    migrate_and_revert(ours, ours.name("orders"), form)


def test_migration_to_rest_catalog_adds_files_with_pyiceberg(
    ours: Fleet, rest: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Spark's add_files, which pyiceberg replaces, would read every footer in the driver.
    monkeypatch.setattr(iceberg, "_add_files", None)
    migrate_and_revert(ours, TableName((CATALOG, ours.schema, "orders")), TargetFormat.ICEBERG, **rest)
