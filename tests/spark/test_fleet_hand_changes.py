"""Tables dropped or replaced during probation don't block their job, and a revert keeps the rows."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests import soak
from tests.spark.fleets import Fleet, dynamic_fleet, errors, hive_table
from tests.spark.tables import tables_in

from tableferry.fleet.copies.shared_files_comment import warning_text
from tableferry.fleet.jobs.job import PauseReason, State, TargetFormat
from tableferry.fleet.jobs.pauses import reason, resumed
from tableferry.fleet.warehouse.table_descriptions import describe

ICEBERG, DELTA = TargetFormat
FORMATS = [ICEBERG, pytest.param(DELTA, marks=soak.slow)]


@pytest.fixture
def ours(spark: SparkSession, schema: str, tmp_path: Path) -> Iterator[Fleet]:
    with dynamic_fleet(spark, schema, tmp_path) as ours:
        yield ours


def on_probation(ours: Fleet, folder: Path, form: TargetFormat, *tables: str) -> None:
    for table in tables:
        hive_table(ours.spark, ours.name(table).sql, folder / table, [(1, "a"), (2, "b")])
    ours.to_probation(*tables, form=form)


def drop(ours: Fleet, table: str, form: TargetFormat | None = None) -> None:
    name = ours.name(table)
    ours.spark.sql(f"DROP TABLE {(ours.warehouse.named(name, form) if form else name).sql}")


def accept(ours: Fleet, table: str) -> None:
    """Resume a job as `fleet resume --accept` does."""
    job = ours.job(table)
    assert job.migration_paused
    ours.store.edit(resumed(job, accept=True), ours.clock(), by="ann")


def numbers(ours: Fleet, table: str) -> list[int]:
    return [row[0] for row in ours.rows(table)]


@pytest.mark.parametrize("form", FORMATS)
def test_dropped_hive_copy_is_given_up_or_created_again_by_a_revert(
    ours: Fleet, tmp_path: Path, form: TargetFormat
) -> None:
    on_probation(ours, tmp_path, form, "t", "u")
    ours.write("u", "INSERT INTO {t} VALUES (3, NULL, 'b')")
    for table in ("t", "u"):
        drop(ours, f"{table}_hive")
    # The first shadow run finds it, instead of three failures.
    assert len(errors(ours.shadow())) == 2
    for table in ("t", "u"):
        assert reason(ours.job(table)) is PauseReason.HIVE_COPY_MISSING
    accept(ours, "t")
    assert errors(ours.shadow()) == []
    ours.to_archive("t")
    assert ours.job("t").state is State.HIVE_DROPPED
    assert numbers(ours, "t") == [1, 2]

    [stopped] = errors(ours.revert("u"))
    assert f"Create {ours.name('u_hive')} again" in stopped
    accept(ours, "u")
    assert errors(ours.revert()) == []
    assert ours.job("u").state is State.ICEBERG_DROPPED
    assert numbers(ours, "u") == [1, 2, 3]
    assert tables_in(ours.spark, ours.schema) == ["t", "u"]
    ours.spark.sql(f"INSERT INTO {ours.name('u').sql} VALUES (4, NULL, 'c')")
    assert numbers(ours, "u") == [1, 2, 3, 4]


@pytest.mark.parametrize("form", [pytest.param(ICEBERG, marks=soak.slow), DELTA])
def test_revert_works_after_the_new_table_was_dropped(
    ours: Fleet, tmp_path: Path, form: TargetFormat
) -> None:
    on_probation(ours, tmp_path, form, "t", "u")
    assert errors(ours.shadow()) == []
    for table in ("t", "u"):
        ours.write(table, "INSERT INTO {t} VALUES (3, NULL, 'b')")
        drop(ours, table, form)
    [first, _] = errors(ours.shadow())
    assert f"tableferry fleet revert {ours.name('t')}" in first
    if form is DELTA:
        shutil.rmtree(tmp_path / "u" / "_delta_log")
    assert errors(ours.revert("t", "u")) == []
    assert tables_in(ours.spark, ours.schema) == ["t", "u"]
    if form is DELTA:
        # The log remained, so no row was lost.
        assert numbers(ours, "t") == [1, 2, 3]
        assert ours.job("t").pause_reason == "REVERTED"
        assert not (tmp_path / "t" / "_delta_log").exists()
    else:
        assert numbers(ours, "t") == numbers(ours, "u") == [1, 2]
    assert f"REVERTED: {ours.name('u')} was gone before the revert" in ours.job("u").pause_reason


@soak.slow
@pytest.mark.parametrize("form", TargetFormat)
def test_revert_drops_the_entry_of_a_new_table_without_metadata(
    ours: Fleet, tmp_path: Path, form: TargetFormat
) -> None:
    on_probation(ours, tmp_path, form, "t")
    assert errors(ours.shadow()) == []
    shutil.rmtree(tmp_path / "t_iceberg" if form is ICEBERG else tmp_path / "t" / "_delta_log")
    [stopped] = errors(ours.shadow())
    assert reason(ours.job("t")) is PauseReason.NEW_TABLE_UNREADABLE, stopped
    assert errors(ours.revert("t")) == []
    assert tables_in(ours.spark, ours.schema) == ["t"]
    assert numbers(ours, "t") == [1, 2]


@soak.slow
@pytest.mark.parametrize("form", TargetFormat)
def test_table_that_replaced_the_new_one_is_adopted(ours: Fleet, tmp_path: Path, form: TargetFormat) -> None:
    on_probation(ours, tmp_path, form, "t")
    assert errors(ours.shadow()) == []
    name = ours.warehouse.named(ours.name("t"), form).sql
    drop(ours, "t", form)
    ours.spark.sql(f"CREATE TABLE {name} USING {form.value} AS SELECT * FROM {ours.name('t_hive').sql}")
    ours.spark.sql(f"INSERT INTO {name} VALUES (3, NULL, 'b')")
    assert len(errors(ours.shadow())) == 1
    assert reason(ours.job("t")) is PauseReason.NEW_TABLE_REPLACED
    accept(ours, "t")
    assert errors(ours.shadow()) == []
    assert numbers(ours, "t_hive") == [1, 2, 3]


@soak.slow
def test_table_of_the_hive_copy_s_name_stays_when_the_migration_is_finished_without_one(
    ours: Fleet, tmp_path: Path
) -> None:
    on_probation(ours, tmp_path, ICEBERG, "t")
    drop(ours, "t_hive")
    # The metastore keeps the second of a table's creation.
    ours.spark.sql("SELECT java_method('java.lang.Thread', 'sleep', 1100L)")
    hive_table(ours.spark, ours.name("t_hive").sql, tmp_path / "another", [(9, "z")])
    assert len(errors(ours.shadow())) == 1
    assert reason(ours.job("t")) is PauseReason.HIVE_COPY_REPLACED
    accept(ours, "t")
    assert errors(ours.shadow()) == []
    ours.to_archive("t")
    assert ours.job("t").state is State.HIVE_DROPPED
    assert numbers(ours, "t_hive") == [9]
    assert tables_in(ours.spark, ours.schema) == ["t", "t_hive"]


@soak.slow
def test_hive_table_in_the_new_table_s_place_is_never_migrated_by_the_archive(
    ours: Fleet, tmp_path: Path
) -> None:
    on_probation(ours, tmp_path, ICEBERG, "t")
    drop(ours, "t", ICEBERG)
    hive_table(ours.spark, ours.name("t").sql, tmp_path / "another", [(9, "z")])
    ours.clock.turn(days=14)
    assert errors(ours.preprocess()) == []
    [stopped] = errors(ours.migrate())
    assert "[NEW_TABLE_NAME_TAKEN]" in stopped
    assert ours.job("t").pair == (State.WRITES_UNBLOCKED, State.HIVE_DROPPED)
    [statement] = re.findall(r"Rename it: (ALTER TABLE .+?)\. ", stopped)
    ours.spark.sql(statement)
    assert errors(ours.revert("t")) == []
    assert (numbers(ours, "t"), numbers(ours, "t_by_hand")) == ([1, 2], [9])


@pytest.mark.parametrize("form", FORMATS)
def test_shadow_reports_dropped_moved_and_added_partitions_of_the_hive_copy(
    ours: Fleet, tmp_path: Path, form: TargetFormat
) -> None:
    hive_table(ours.spark, ours.name("t").sql, tmp_path / "t", [(n, day) for n, day in enumerate("abcd", 1)])
    ours.to_probation("t", form=form)
    hive = ours.name("t_hive").sql
    ours.spark.sql(f"ALTER TABLE {hive} DROP PARTITION (day = 'a')")
    [stopped] = errors(ours.shadow())
    assert f"[HIVE_COPY_CHANGED_BY_HAND] {ours.name('t_hive')}: The partitions day=a were changed" in stopped
    assert reason(ours.job("t")) is PauseReason.HIVE_COPY_CHANGED
    # A later change is also reported.
    (tmp_path / "elsewhere").mkdir()
    shutil.copytree(tmp_path / "t" / "day=c", tmp_path / "moved")
    shutil.copytree(tmp_path / "t" / "day=d", tmp_path / "added")
    ours.spark.sql(f"ALTER TABLE {hive} PARTITION (day = 'b') SET LOCATION '{tmp_path}/elsewhere'")
    # The same files in another directory don't change rows.
    ours.spark.sql(f"ALTER TABLE {hive} PARTITION (day = 'c') SET LOCATION '{tmp_path}/moved'")
    ours.spark.sql(f"ALTER TABLE {hive} ADD PARTITION (day = 'x') LOCATION '{tmp_path}/added'")
    accept(ours, "t")
    [stopped] = errors(ours.shadow())
    assert "The partitions day=a, day=b, day=x were changed" in stopped
    # The user applies the change to the new table as well; then --accept is valid.
    ours.write("t", "DELETE FROM {t} WHERE day = 'b'")
    accept(ours, "t")
    assert errors(ours.shadow()) == []
    assert numbers(ours, "t_hive") == numbers(ours, "t") == [1, 3, 4]
    assert errors(ours.shadow()) == []
    assert errors(ours.revert("t")) == []
    assert numbers(ours, "t") == [1, 3, 4]


@soak.slow
@pytest.mark.parametrize("form", TargetFormat)
def test_shadow_reports_partitions_whose_files_are_gone(
    ours: Fleet, tmp_path: Path, form: TargetFormat
) -> None:
    on_probation(ours, tmp_path, form, "t")
    ours.write("t", "UPDATE {t} SET id = id + 10 WHERE day = 'b'")
    ours.write("t", "DELETE FROM {t} WHERE day = 'a'")
    assert errors(ours.shadow()) == []
    assert errors(ours.shadow()) == []
    [folder] = (tmp_path / "t_sync").glob("*/*/day=b")
    shutil.rmtree(folder)
    [stopped] = errors(ours.shadow())
    assert f"[HIVE_COPY_CHANGED_BY_HAND] {ours.name('t_hive')}: The partitions day=b were changed" in stopped
    accept(ours, "t")
    assert errors(ours.shadow()) == []
    assert numbers(ours, "t_hive") == [12]


@soak.slow
def test_statements_of_the_pause_repair_a_delta_table_after_its_hive_copy_was_overwritten(
    ours: Fleet, tmp_path: Path
) -> None:
    on_probation(ours, tmp_path, DELTA, "t")
    assert errors(ours.shadow()) == []
    hive = ours.name("t_hive").sql
    comment = describe(ours.spark, ours.name("t_hive"))["comment"]
    assert comment == f"{warning_text(ours.name('t'))} a table"
    ours.spark.sql(f"INSERT OVERWRITE {hive} PARTITION (day = 'a') VALUES (7, NULL)")
    [stopped] = errors(ours.shadow())
    statements = re.search(r"Run (DELETE .*?); (INSERT .*?)\. Then resume the job with --accept", stopped)
    assert statements, stopped
    # The column of the pause reason is long enough for the statements.
    assert "--accept" in ours.job("t").pause_reason
    for statement in statements.groups():
        ours.spark.sql(statement)
    accept(ours, "t")
    for _ in range(2):
        assert errors(ours.shadow()) == []
        assert numbers(ours, "t") == numbers(ours, "t_hive") == [2, 7]
    assert errors(ours.revert("t")) == []
    assert numbers(ours, "t") == [2, 7]
    assert describe(ours.spark, ours.name("t"))["comment"] == "a table"
