"""A suspended worker changes no row after another worker has finished its job."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests import conditions, soak
from tests.spark.fleets import Fleet, errors, fleet, hive_table

from tableferry.convert import overlay
from tableferry.errors import Refused
from tableferry.fleet.hive_tables.hive_table import SOURCE
from tableferry.fleet.jobs.job import State, TargetFormat
from tableferry.fleet.jobs.names import Names
from tableferry.fleet.jobs.pauses import resumed
from tableferry.fleet.jobs.step_plan import Kind
from tableferry.fleet.jobs.steps import DropCopy
from tableferry.fleet.modes.migrator import migrate
from tableferry.fleet.modes.performer import perform
from tableferry.fleet.modes.results import ModeReport
from tableferry.fleet.modes.reverter import revert
from tableferry.fleet.modes.shadower import shadow
from tableferry.fleet.warehouse import job_tables, table_renames, target_versions
from tableferry.fleet.warehouse.context import Warehouse

OLD = [(1, "mon"), (2, "tue"), (3, None)]
# The guard is the same for both formats, but the guarded effects differ.
FORMATS = list(TargetFormat)
SHADOWED = soak.amount([TargetFormat.ICEBERG], FORMATS)


@pytest.fixture
def ours(spark: SparkSession, schema: str, tmp_path: Path) -> Iterator[Fleet]:
    ours = fleet(spark, schema, tmp_path)
    yield ours
    ours.store.close()


@contextmanager
def patched(where: object, name: str, replacement: object) -> Iterator[None]:
    """Replace an attribute inside a ``with``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(where, name, replacement)
        yield


@contextmanager
def suspended_after_guard(at: int, other_work: Callable[[], object]) -> Iterator[None]:
    """Run ``other_work`` between the check of the claim and the effect number ``at``."""
    number, real = count(), Warehouse.effect

    def effect(warehouse: Warehouse, work: Callable[[], Any], **how: Any) -> Any:
        if next(number) != at:
            return real(warehouse, work, **how)
        warehouse.guard()
        other_work()
        return work()

    with patched(Warehouse, "effect", effect):
        yield


@contextmanager
def suspended(ours: Fleet, at: int, other_work: Callable[[], ModeReport]) -> Iterator[list[ModeReport]]:
    """Let the lease expire before the effect number ``at``, counted from 0, and run ``other_work``."""
    number, real = count(), Warehouse.effect
    done: list[ModeReport] = []

    def effect(warehouse: Warehouse, work: Callable[[], Any], **how: Any) -> Any:
        if next(number) == at:
            ours.clock.turn(minutes=ours.settings.lease_minutes + 1)
            done.append(other_work())
        return real(warehouse, work, **how)

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
@soak.slow
def test_suspended_shadow_run_loses_its_claim_and_no_row(
    ours: Fleet, tmp_path: Path, form: TargetFormat
) -> None:
    hive_table(ours.spark, ours.name("t").sql, tmp_path / "t", OLD)
    ours.to_probation("t", form=form)
    written = [1, 2, 3]
    for at in range(soak.amount(2, 20)):
        written.append(100 + at)
        insert(ours, "t", written[-1])
        with suspended(ours, at, lambda: shadow(ours.worker("quick"))) as others:
            report = shadow(ours.worker("slow"))
        assert ids(ours, "t_hive") == written == ids(ours, "t"), at
        if not others:
            assert at >= 2
            break
        assert (outcomes(others[0]), outcomes(report)) == (["done"], ["lost"]), at
    assert errors(ours.shadow()) == []
    assert errors(ours.revert("t")) == []
    assert ids(ours, "t") == written


@soak.only  # In make test, reverts and migrations of test_fleet_property.py are suspended.
@pytest.mark.parametrize("form", FORMATS)
def test_suspended_revert_loses_its_claim_and_no_row(ours: Fleet, tmp_path: Path, form: TargetFormat) -> None:
    for at in range(20):
        table = f"t{at}"
        hive_table(ours.spark, ours.name(table).sql, tmp_path / table, OLD)
        ours.to_probation(table, form=form)
        insert(ours, table, 4)
        with suspended(ours, at, lambda: revert(ours.worker("quick"), ())) as others:
            report = revert(ours.worker("slow"), [ours.name(table)])
        assert ids(ours, table) == [1, 2, 3, 4], at
        assert ours.job(table).state is State.ICEBERG_DROPPED
        if not others:
            assert at > 3
            break
        assert (outcomes(others[0]), outcomes(report)) == (["done"], ["lost"]), at


@soak.only
@pytest.mark.parametrize("form", FORMATS)
def test_suspended_migration_loses_its_claim_and_no_row(
    ours: Fleet, tmp_path: Path, form: TargetFormat
) -> None:
    for at in range(20):
        table = f"t{at}"
        hive_table(ours.spark, ours.name(table).sql, tmp_path / table, OLD)
        # The probation is so long that no run archives a table.
        ours.add(table, form=form, probation_gap_days=1000)
        ours.preprocess()
        ours.notify()
        ours.clock.turn(days=14)
        with suspended(ours, at, lambda: migrate(ours.worker("quick"))) as others:
            report = migrate(ours.worker("slow"))
        assert ours.job(table).pair == (State.WRITES_UNBLOCKED, State.WRITES_UNBLOCKED), at
        insert(ours, table, 4)
        assert ids(ours, table) == [1, 2, 3, 4], at
        if not others:
            assert at > 2
            break
        assert (outcomes(others[0]), outcomes(report)) == (["done"], ["lost"]), at


def recreate_table(ours: Fleet, form: TargetFormat, table: str, folder: Path) -> None:
    """Create a table as another migration does: with the same name and directory."""
    name = ours.name(table)
    named = ours.warehouse.named(name, form)
    ours.spark.sql(f"DROP TABLE IF EXISTS {named.sql}")
    rmtree(folder / "_delta_log", ignore_errors=True)
    ours.spark.sql(f"CREATE TABLE {named.sql} (id INT) USING {form.value} LOCATION '{folder}'")


@pytest.mark.parametrize("form", list(TargetFormat))
def test_rename_fails_if_the_table_is_recreated_after_the_guard(
    ours: Fleet, tmp_path: Path, form: TargetFormat
) -> None:
    old, new = ours.name("t"), ours.name("t_new")
    recreate_table(ours, form, "t", tmp_path / "t")
    with (
        suspended_after_guard(0, lambda: recreate_table(ours, form, "t", tmp_path / "t")),
        conditions.raises("TABLE_CHANGED_DURING_STEP", tables=old),
    ):
        table_renames.rename_table(ours.warehouse, old, new)
    kind = Kind(form.value)
    assert job_tables.kinds(ours.warehouse, (old, new)) == {old: kind}
    table_renames.rename_table(ours.warehouse, old, new)
    assert job_tables.kinds(ours.warehouse, (old, new)) == {new: kind}


def test_rename_of_a_hive_table_fails_if_the_copy_is_dropped_after_the_guard(
    ours: Fleet, tmp_path: Path
) -> None:
    hive_table(ours.spark, ours.name("t").sql, tmp_path / "t", [])
    main, hive, copy = map(ours.name, ("t", "t_hive", "t_iceberg"))
    recreate_table(ours, TargetFormat.ICEBERG, "t_iceberg", tmp_path / "t_iceberg")
    with (
        suspended_after_guard(0, lambda: ours.spark.sql(f"DROP TABLE {ours.warehouse.iceberg(copy).sql}")),
        conditions.raises("TABLE_CHANGED_DURING_STEP", tables=re.compile("t_iceberg")),
    ):
        table_renames.rename_table(ours.warehouse, main, hive, beside=(copy,))
    assert job_tables.kinds(ours.warehouse, (main, hive)) == {main: Kind.HIVE}


@pytest.mark.parametrize("form", list(TargetFormat))
@soak.slow
def test_copy_written_while_it_is_dropped_is_kept(ours: Fleet, tmp_path: Path, form: TargetFormat) -> None:
    ours.add("t", form=form)
    names = Names.of(ours.job("t"))
    ours.spark.sql(
        f"CREATE EXTERNAL TABLE {names.main.sql} (id INT) STORED AS PARQUET LOCATION '{tmp_path}/t'"
    )
    recreate_table(ours, form, names.copy.table, tmp_path / "t")
    named = ours.warehouse.named(names.copy, form)
    ours.spark.sql(f"ALTER TABLE {named.sql} SET TBLPROPERTIES ('{SOURCE}' = '{names.main.key}')")
    current, identity = target_versions.current_version, overlay.log_identity
    left = 0

    def write(after: int) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            ours.spark.sql(f"INSERT INTO {named.sql} VALUES ({after})")

    def look_and_write(*how: Any) -> str:
        version = current(*how)
        write(1)
        return version

    def identify_and_write(root: Path) -> overlay.LogIdentity:
        log = identity(root)
        write(2)
        return log

    # A commit follows the check of the version and, if a log is moved, the last check of the log.
    for looks, module, name, hook in (
        (1, target_versions, "current_version", look_and_write),
        (2, overlay, "log_identity", identify_and_write),
    )[: 1 if form is TargetFormat.ICEBERG else 2]:
        job = replace(ours.job("t"), shadow_watermark=current(ours.warehouse, names.copy, form))
        left = looks
        with (
            patched(module, name, hook),
            pytest.raises(Refused, match=r"DELTA_LOG_REPLACED|COPY_WRITTEN_AFTER_SYNC"),
        ):
            perform(DropCopy(names.copy, names.main, form), job, ours.warehouse, lambda job: job)
        assert current(ours.warehouse, names.copy, form) not in ("-1", job.shadow_watermark)
    held = [row[0] for row in ours.spark.sql(f"SELECT id FROM {named.sql} ORDER BY id").collect()]
    assert held == ([1] if form is TargetFormat.ICEBERG else [1, 2])
    # The state after a run that died at its last step.
    if form is TargetFormat.ICEBERG:
        table_renames.rename_table(ours.warehouse, names.copy, names.dropped)
    at = current(ours.warehouse, names.dropped if form is TargetFormat.ICEBERG else names.copy, form)
    job = replace(ours.job("t"), shadow_watermark=at)
    perform(DropCopy(names.copy, names.main, form), job, ours.warehouse, lambda job: job)
    assert job_tables.list_job_tables(ours.warehouse, names) == {names.main: Kind.HIVE}
    assert not (tmp_path / "t" / "_delta_log").exists()


@soak.only
@pytest.mark.parametrize("form", list(TargetFormat))
def test_revert_suspended_during_another_migration_loses_its_claim_and_no_row(
    ours: Fleet, tmp_path: Path, form: TargetFormat
) -> None:
    hive_table(ours.spark, ours.name("t").sql, tmp_path / "t", OLD)
    ours.to_probation("t", form=form)
    insert(ours, "t", 4)
    lapse = ours.settings.lease_minutes + 1

    def migrate_again() -> None:
        ours.clock.turn(minutes=lapse)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Warehouse, "effect", undisturbed)
            assert errors(revert(ours.worker("quick"), ())) == []
            ours.store.edit(resumed(ours.job("t")), ours.clock())
            ours.preprocess()
            ours.notify()
            ours.clock.turn(days=14)
            assert errors(ours.migrate()) == []

    undisturbed, rename = Warehouse.effect, table_renames.rename_table

    def suspended_rename(*names: Any, **how: Any) -> None:
        with pytest.MonkeyPatch.context() as inner, suspended_after_guard(0, migrate_again):
            inner.setattr(table_renames, "rename_table", rename)
            rename(*names, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_renames, "rename_table", suspended_rename)
        report = revert(ours.worker("slow"), [ours.name("t")])
    assert outcomes(report) == ["lost"]
    assert ours.job("t").pair == (State.WRITES_UNBLOCKED, State.WRITES_UNBLOCKED)
    insert(ours, "t", 5)
    assert errors(ours.shadow()) == []
    assert ids(ours, "t") == ids(ours, "t_hive") == [1, 2, 3, 4, 5]
