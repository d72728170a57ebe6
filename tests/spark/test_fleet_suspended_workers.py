"""A worker is suspended before an effect, another one goes on with its job, it wakes: rows stay the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests import soak
from tests.spark.fleets import Fleet, errors, fleet, hive_table

from tableferry.fleet.job import State, TargetFormat
from tableferry.fleet.modes.migrate import migrate
from tableferry.fleet.modes.revert import revert
from tableferry.fleet.modes.shadow import shadow
from tableferry.fleet.reports import ModeReport
from tableferry.fleet.warehouse.context import Warehouse

OLD = [(1, "mon"), (2, "tue"), (3, None)]
# The guard is the same for both formats; what it guards differs.
SHADOWED, REVERTED, MIGRATED = (
    soak.amount([form], list(TargetFormat))
    for form in (TargetFormat.ICEBERG, TargetFormat.DELTA, TargetFormat.DELTA)
)


@pytest.fixture
def ours(spark: SparkSession, schema: str, tmp_path: Path) -> Iterator[Fleet]:
    ours = fleet(spark, schema, tmp_path)
    yield ours
    ours.store.close()


@contextmanager
def sleeping(ours: Fleet, at: int, meanwhile: Callable[[], ModeReport]) -> Iterator[list[ModeReport]]:
    """Let whoever has the effect number ``at``, from 0, sleep before it for longer than its lease."""
    number, real = count(), Warehouse.effect
    done: list[ModeReport] = []

    def effect(warehouse: Warehouse, work: Callable[[], Any]) -> Any:
        if next(number) == at:
            ours.clock.turn(minutes=ours.settings.lease_minutes + 1)
            done.append(meanwhile())
        return real(warehouse, work)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Warehouse, "effect", effect)
        yield done


def outcomes(report: ModeReport) -> list[str]:
    return [job.outcome for job in report.jobs]


def ids(ours: Fleet, table: str) -> list[int]:
    return sorted(row[0] for row in ours.rows(table))


def insert(ours: Fleet, table: str, number: int) -> None:
    ours.write(table, f"INSERT INTO {{t}} SELECT {number}, TIMESTAMP '2026-01-05 10:00:00', 'mon'")


@pytest.mark.parametrize("form", SHADOWED)
def test_a_shadower_that_slept(ours: Fleet, tmp_path: Path, form: TargetFormat) -> None:
    hive_table(ours.spark, ours.name("t").sql, tmp_path / "t", OLD)
    ours.to_probation("t", form=form)
    written = [1, 2, 3]
    for at in range(soak.amount(3, 20)):
        written.append(100 + at)
        insert(ours, "t", written[-1])
        with sleeping(ours, at, lambda: shadow(ours.worker("quick"))) as meanwhile:
            report = shadow(ours.worker("slow"))
        assert ids(ours, "t_hive") == written == ids(ours, "t"), at
        if not meanwhile:
            assert at >= 2
            break
        assert (outcomes(meanwhile[0]), outcomes(report)) == (["done"], ["lost"]), at
    assert errors(ours.shadow()) == []
    assert errors(ours.revert("t")) == []
    assert ids(ours, "t") == written


@pytest.mark.parametrize("form", REVERTED)
def test_a_reverter_that_slept(ours: Fleet, tmp_path: Path, form: TargetFormat) -> None:
    for at in soak.amount((3,), range(20)):
        table = f"t{at}"
        hive_table(ours.spark, ours.name(table).sql, tmp_path / table, OLD)
        ours.to_probation(table, form=form)
        insert(ours, table, 4)
        with sleeping(ours, at, lambda: revert(ours.worker("quick"), ())) as meanwhile:
            report = revert(ours.worker("slow"), [ours.name(table)])
        assert ids(ours, table) == [1, 2, 3, 4], at
        assert ours.job(table).state is State.ICEBERG_DROPPED
        if not meanwhile:
            assert at > 3
            break
        assert (outcomes(meanwhile[0]), outcomes(report)) == (["done"], ["lost"]), at


@pytest.mark.parametrize("form", MIGRATED)
def test_a_migrator_that_slept(ours: Fleet, tmp_path: Path, form: TargetFormat) -> None:
    for at in soak.amount((2,), range(20)):
        table = f"t{at}"
        hive_table(ours.spark, ours.name(table).sql, tmp_path / table, OLD)
        # Long enough that no run archives one of them meanwhile.
        ours.add(table, form=form, probation_gap_days=1000)
        ours.preprocess()
        ours.notify()
        ours.clock.turn(days=14)
        with sleeping(ours, at, lambda: migrate(ours.worker("quick"))) as meanwhile:
            report = migrate(ours.worker("slow"))
        assert ours.job(table).pair == (State.WRITES_UNBLOCKED, State.WRITES_UNBLOCKED), at
        insert(ours, table, 4)
        assert ids(ours, table) == [1, 2, 3, 4], at
        if not meanwhile:
            assert at > 2
            break
        assert (outcomes(meanwhile[0]), outcomes(report)) == (["done"], ["lost"]), at
