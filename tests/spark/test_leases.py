"""Runs on several machines: one at a time fills a target, and one that slept changes nothing more."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests import soak
from tests.spark.projects import Project

from tableferry.errors import Busy
from tableferry.pipelines.leases import TABLE, Leases
from tableferry.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FEED = "id int, v string"


@pytest.fixture
def target(schema: str) -> TableName:
    return TableName((schema, "out"))


def leases(spark: SparkSession, *targets: TableName, **how: Any) -> Leases:
    return Leases(spark, targets, "the test", **{"wait": lambda _: None, **how})


def holders(spark: SparkSession, schema: str) -> list[str]:
    return [row[0] for row in spark.sql(f"SELECT holder FROM {schema}.{TABLE} ORDER BY target").collect()]


def test_a_target_has_one_holder_as_long_as_it_lives(spark: SparkSession, schema: str) -> None:
    first, other = (TableName((schema, name)) for name in ("a", "b{}'"))
    mine = leases(spark, other, first)
    with mine.held():
        mine.check()
        another = leases(spark, first, wait=lambda _: mine.renew())
        with pytest.raises(Busy, match="is being run by another process"), another.held():
            raise AssertionError("both hold it")
        mine.check()
        assert holders(spark, schema) == [mine.name, mine.name]
    assert holders(spark, schema) == ["", ""]
    with leases(spark, first).held():
        pass


def test_a_holder_without_a_sign_of_life_is_followed_by_another(
    spark: SparkSession, schema: str, target: TableName
) -> None:
    waited: list[float] = []
    asleep = leases(spark, target)
    with asleep.held():
        awake = leases(spark, target, wait=waited.append)
        with awake.held():
            assert sum(waited) == pytest.approx(asleep.lease.total_seconds())
            with pytest.raises(Busy, match="another run has taken over"):
                asleep.check()
            asleep.renew()
            awake.check()
        with pytest.raises(Busy):
            asleep.check()
    assert holders(spark, schema) == [""]


@soak.only  # Delta refuses all but one of two commits at once, which test_fleet_queue.py has too.
def test_of_many_at_once_one_gets_it(spark: SparkSession, schema: str, target: TableName) -> None:
    def take(mine: Leases) -> bool:
        try:
            mine._take(target)
        except Busy:
            return False
        return True

    with leases(spark, target).held():
        pass
    runs = [leases(spark, target, wait=lambda _: None) for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        won = list(pool.map(take, runs))
    # Who looks late may find a holder that doesn't beat, and follows it: the last one holds it.
    assert any(won)
    assert holders(spark, schema)[0] in {run.name for run, has in zip(runs, won, strict=True) if has}


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
        found: list[tuple[dict[str, bytes], dict[str, int]]] = []

        def before(_: str, at: int = at, numbers: Iterator[int] = numbers) -> None:
            if next(numbers) == at:
                # It sleeps here, and another run comes and goes.
                with leases(spark, target).held():
                    found.append(project.contents())  # noqa: B023

        with pytest.raises(Busy, match="another run has taken over"):
            project.run(before=before)
        files, commits = project.contents()
        assert files == found[0][0]
        assert {**commits, TABLE: 0} == {**found[0][1], TABLE: 0}
        project.run()
        assert project.rows("out") == sorted(rows, key=repr)
