"""Runs on several machines: one at a time fills a target, and one that slept changes nothing more."""

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
from tableferry.pipelines.model.flows import CdcSettings, Target, log_name
from tableferry.pipelines.state.lease import LEASE_TABLE, Leases
from tableferry.spark.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FEED = "id int, v string"


@pytest.fixture
def target(schema: str) -> TableName:
    return TableName((schema, "out"))


def leases(folder: Path, *targets: TableName, **how: Any) -> Leases:
    return Leases(targets, "the test", folder, **{"wait": lambda _: None, **how})


def holders(spark: SparkSession, schema: str) -> list[str]:
    return [
        row[0] for row in spark.sql(f"SELECT holder FROM {schema}.{LEASE_TABLE} ORDER BY target").collect()
    ]


def test_a_table_of_leases_that_another_run_is_making_is_waited_for(
    spark: SparkSession, schema: str, target: TableName, tmp_path: Path
) -> None:
    half_made = schema_folder(spark, schema) / LEASE_TABLE
    (half_made / "_delta_log" / "_staged_commits").mkdir(parents=True)
    with (
        raises("LEASES_HALF_CREATED"),
        leases(tmp_path, target).held(spark),
    ):
        pass
    with leases(tmp_path, target, wait=lambda _: shutil.rmtree(half_made)).held(spark):
        assert len(holders(spark, schema)) == 1


@soak.slow
def test_a_target_has_one_holder_as_long_as_it_lives(
    spark: SparkSession, schema: str, tmp_path: Path
) -> None:
    first, other = (TableName((schema, name)) for name in ("a", "b{}'"))
    mine = leases(tmp_path, other, first)
    with mine.held(spark) as held:
        held.check(spark)
        another = leases(tmp_path, first, wait=lambda _: mine.beat())
        with raises("RUN_BY_ANOTHER_PROCESS"):
            another.held(spark).__enter__()
        held.check(spark)
        assert holders(spark, schema) == [mine.name, mine.name]
    assert holders(spark, schema) == ["", ""]
    with leases(tmp_path, first).held(spark):
        pass
    assert list(tmp_path.iterdir()) == []


@soak.slow
def test_a_holder_without_a_sign_of_life_is_followed_by_another(
    spark: SparkSession, schema: str, target: TableName, tmp_path: Path
) -> None:
    waited: list[float] = []
    asleep = leases(tmp_path, target)
    with asleep.held(spark) as held:
        awake = leases(tmp_path, target, wait=waited.append)
        with awake.held(spark) as now:
            assert sum(waited) == pytest.approx(asleep.lease.total_seconds())
            with raises("LEASE_LOST"):
                held.check(spark)
            asleep.beat()
            now.check(spark)
            # The function that folds a stream's batches checks too, right before it writes.
            settings, events = CdcSettings(("id",), "at", 1), spark.sql("SELECT 1 AS id, 1 AS at")
            feed = change_feed.build_feed_events(events, settings)
            table_creation.create_tables(spark, Target(target, cdc=settings), feed.schema)
            with raises("LEASE_LOST"):
                cdc_batches.apply_events(
                    feed, target, settings, before_commit=lambda _: held.check(spark), batch_number=0
                )
            assert spark.table(log_name(target).sql).count() == 0
        with pytest.raises(Busy):
            held.check(spark)
    assert holders(spark, schema) == [""]


@soak.only  # Delta refuses all but one of two commits at once, which test_fleet_queue.py has too.
def test_of_many_at_once_one_gets_it(
    spark: SparkSession, schema: str, target: TableName, tmp_path: Path
) -> None:
    def take(mine: Leases) -> bool:
        # It lives: whoever finds it leaves it alone.
        try:
            mine.beat()
            mine._take(spark, target)
        except Busy:
            return False
        return True

    with leases(tmp_path, target).held(spark):
        pass
    runs: list[Leases] = []

    def wait(_: float) -> None:
        for run in runs:
            run.beat()

    runs += [leases(tmp_path, target, wait=wait) for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        won = list(pool.map(take, runs))
    assert won.count(True) == 1
    assert holders(spark, schema) == [runs[won.index(True)].name]


def test_a_run_that_slept_changes_nothing_more(
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
                # It sleeps here, and another run comes and goes.
                with leases(tmp_path, target).held(spark):
                    snapshots.append(project.contents())  # noqa: B023

        with raises("LEASE_LOST"):
            project.run(before=before)
        files, commits = project.contents()
        # But for its sign of life, which is gone.
        assert files == {name: text for name, text in snapshots[0][0].items() if "/_run_" not in name}
        assert {**commits, LEASE_TABLE: 0} == {**snapshots[0][1], LEASE_TABLE: 0}
        project.run()
        assert project.rows("out") == sorted(rows, key=repr)
