"""Leases: one run at a time fills a target, and a suspended run that lost its lease writes nothing."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests import soak
from tests.conditions import raises
from tests.spark.projects import Project
from tests.spark.tables import schema_folder

from tableferry.errors import Busy
from tableferry.pipelines.cdc import change_feed
from tableferry.pipelines.engines.streaming import cdc_batches, table_creation
from tableferry.pipelines.model.flows import CdcSettings, Target, event_log_name
from tableferry.pipelines.state.lease import LEASE_TABLE, TargetLeases
from tableferry.spark.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FEED = "id int, v string"


@pytest.fixture
def target(schema: str) -> TableName:
    return TableName((schema, "out"))


def leases(folder: Path, *targets: TableName, **how: Any) -> TargetLeases:
    return TargetLeases(targets, "the test", folder, **{"wait": lambda _: None, **how})


def holders(spark: SparkSession, schema: str) -> list[str]:
    return [
        row[0] for row in spark.sql(f"SELECT holder FROM {schema}.{LEASE_TABLE} ORDER BY target").collect()
    ]


def test_acquire_waits_until_another_run_has_created_the_table_of_leases(
    spark: SparkSession, schema: str, target: TableName, tmp_path: Path
) -> None:
    half_made = schema_folder(spark, schema) / LEASE_TABLE
    (half_made / "_delta_log" / "_staged_commits").mkdir(parents=True)
    with (
        raises("LEASES_HALF_CREATED"),
        leases(tmp_path, target).acquire(spark),
    ):
        pass
    with leases(tmp_path, target, wait=lambda _: shutil.rmtree(half_made)).acquire(spark):
        assert len(holders(spark, schema)) == 1


@soak.slow
def test_lease_that_is_renewed_isnt_taken_over(spark: SparkSession, schema: str, tmp_path: Path) -> None:
    first, other = (TableName((schema, name)) for name in ("a", "b{}'"))
    mine = leases(tmp_path, other, first)
    with mine.acquire(spark):
        mine.check(spark)
        another = leases(tmp_path, first, wait=lambda _: mine.renew())
        with raises("RUN_BY_ANOTHER_PROCESS"):
            another.acquire(spark).__enter__()
        mine.check(spark)
        assert holders(spark, schema) == [mine.name, mine.name]
    assert holders(spark, schema) == ["", ""]
    with leases(tmp_path, first).acquire(spark):
        pass
    assert list(tmp_path.iterdir()) == []


@soak.slow
def test_lease_without_a_heartbeat_is_taken_over(
    spark: SparkSession, schema: str, target: TableName, tmp_path: Path
) -> None:
    waited: list[float] = []
    asleep = leases(tmp_path, target)
    with asleep.acquire(spark):
        awake = leases(tmp_path, target, wait=waited.append)
        with awake.acquire(spark):
            assert sum(waited) == pytest.approx(asleep.lease.total_seconds())
            with raises("LEASE_LOST"):
                asleep.check(spark)
            asleep.renew()
            awake.check(spark)
            # `apply_events` checks the lease directly before it writes.
            settings, events = CdcSettings(("id",), "at", 1), spark.sql("SELECT 1 AS id, 1 AS at")
            feed = change_feed.build_feed_events(events, settings)
            table_creation.create_tables(spark, Target(target, cdc=settings), feed.schema)
            with raises("LEASE_LOST"):
                cdc_batches.apply_events(
                    feed, target, settings, before_commit=lambda _: asleep.check(spark), batch_number=0
                )
            assert spark.table(event_log_name(target).sql).count() == 0
        with pytest.raises(Busy):
            asleep.check(spark)
    assert holders(spark, schema) == [""]


@soak.only  # test_fleet_queue.py also tests that Delta accepts one of two concurrent commits.
def test_lease_goes_to_one_of_several_concurrent_runs(
    spark: SparkSession, schema: str, target: TableName, tmp_path: Path
) -> None:
    def take(mine: TargetLeases) -> bool:
        # The others see this heartbeat and don't take over.
        try:
            mine.renew()
            mine._acquire_target(spark, target)
        except Busy:
            return False
        return True

    with leases(tmp_path, target).acquire(spark):
        pass
    runs: list[TargetLeases] = []

    def wait(_: float) -> None:
        for run in runs:
            run.renew()

    runs += [leases(tmp_path, target, wait=wait) for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        won = list(pool.map(take, runs))
    assert won.count(True) == 1
    assert holders(spark, schema) == [runs[won.index(True)].name]


def test_run_that_lost_its_lease_while_suspended_changes_nothing(
    spark: SparkSession, schema: str, target: TableName, tmp_path: Path
) -> None:
    project = Project(tmp_path / "shop", schema, spark)
    shared = {"table_migration_state_volume_path": "state", "table_migration_state_shared": True}
    project.write("pipeline_configs/global.json", shared)
    project.create("src", FEED, (1, "a"))
    project.create("out_legacy", FEED, (1, "a"))
    project.standard("out", "src", migration={})
    project.run()
    assert holders(spark, schema) == [""]
    rows = [(1, "a")]
    for at in soak.amount((2,), range(3)):
        project.insert("src", (10 + at, "b"))
        rows.append((10 + at, "b"))
        numbers: Iterator[int] = count()
        snapshots: list[tuple[dict[str, bytes], dict[str, int]]] = []

        def before(_: str, at: int = at, numbers: Iterator[int] = numbers) -> None:
            if next(numbers) == at:
                # The run is suspended here while another run acquires and releases the lease.
                with leases(tmp_path, target).acquire(spark):
                    snapshots.append(project.contents())  # noqa: B023

        with raises("LEASE_LOST"):
            project.run(before=before)
        files, commits = project.contents()
        # Only the heartbeat file of the suspended run was removed.
        assert files == {name: text for name, text in snapshots[0][0].items() if "/_run_" not in name}
        assert {**commits, LEASE_TABLE: 0} == {**snapshots[0][1], LEASE_TABLE: 0}
        project.run()
        assert project.rows("out") == sorted(rows, key=repr)
