"""Close completed tables: remains of Hive are removed, and every version of the new table stays readable."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests import conditions, soak
from tests.spark.fleets import Fleet, errors, fleet, hive_table
from tests.spark.tables import tables_in
from tests.spark.test_fleet_late import leave
from typer.testing import CliRunner

from tableferry import cli
from tableferry.fleet.closure import removal
from tableferry.fleet.closure.leftovers import require_keeps_files
from tableferry.fleet.closure.referenced_files import list_referenced_files
from tableferry.fleet.hive_tables.hive_table import HiveTable
from tableferry.fleet.jobs.job import Job, State, TargetFormat
from tableferry.fleet.jobs.pauses import resumed
from tableferry.fleet.jobs.steps import DropArchived, Step
from tableferry.fleet.modes import job_run
from tableferry.fleet.modes.close import list_leftovers, unmark_to_close
from tableferry.fleet.modes.performer import perform
from tableferry.fleet.queue.selections import numbered
from tableferry.fleet.settings import LateFiles
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.spark import session

FORMATS = list(TargetFormat)
GC = "gc.enabled"


class Death(BaseException):
    """A worker dies."""


@pytest.fixture
def ours(spark: SparkSession, schema: str, tmp_path: Path) -> Iterator[Fleet]:
    """Provide a fleet with one Hive table, `t`, in four partitions."""
    with session.settings(spark, {"hive.exec.dynamic.partition.mode": "nonstrict"}, "the test"):
        hive_table(spark, f"{schema}.t", tmp_path / "t", [(1, "mon"), (2, "tue"), (3, None), (8, "a b%")])
        made = fleet(spark, schema, tmp_path)
        yield made
        made.store.close()


def completed(ours: Fleet, form: TargetFormat) -> list[int]:
    """Complete the migration of a table during writes, and return the ids of its rows."""
    ours.to_probation("t", form=form)
    # Shadow appends to the partition's own directory, or rewrites the partition in another directory.
    ours.write("t", "INSERT INTO {t} VALUES (4, NULL, 'mon'), (9, NULL, 'a b%')")
    ours.write("t", "INSERT INTO {t} VALUES (5, NULL, 'tue'), (6, NULL, 'wed')")
    assert errors(ours.shadow()) == []
    ours.write("t", "DELETE FROM {t} WHERE id = 2")
    assert errors(ours.shadow()) == []
    ours.write("t", "UPDATE {t} SET id = 30 WHERE id = 3")
    ours.to_archive("t")
    assert ids(ours, "t_hive_archived") == [1, 4, 5, 6, 8, 9, 30]
    return [1, 4, 5, 6, 8, 9, 30]


def ids(ours: Fleet, table: str = "t") -> list[int]:
    return sorted(row[0] for row in ours.rows(table))


def named(ours: Fleet, form: TargetFormat) -> str:
    name = ours.name("t")
    return ours.warehouse.named(name, form).sql


def history(ours: Fleet, form: TargetFormat) -> dict[str, list[Any]]:
    """Return the rows of each version."""
    if form is TargetFormat.ICEBERG:
        known = ours.spark.sql(f"SELECT snapshot_id FROM {named(ours, form)}.snapshots")
    else:
        known = ours.spark.sql(f"DESCRIBE HISTORY {named(ours, form)}").select("version")
    versions = sorted(row[0] for row in known.collect())
    return {
        str(version): sorted(
            ours.spark.sql(f"SELECT * FROM {named(ours, form)} VERSION AS OF {version}").collect(), key=repr
        )
        for version in versions
    }


def call(folder: Path, *arguments: str) -> str:
    store = f"sqlite:///{folder / 'fleet.db'}"
    done = CliRunner().invoke(cli.app, ["fleet", "close", *arguments, "--store", store])
    assert done.exit_code == 0, done.output
    return done.stdout


def files_in(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*.parquet") if path.is_file() and "_delta_log" not in path.parts}


def properties(ours: Fleet) -> dict[str, str]:
    rows = ours.spark.sql(f"SHOW TBLPROPERTIES {named(ours, TargetFormat.ICEBERG)}").collect()
    return {row["key"]: row["value"] for row in rows}


# The next test closes an Iceberg table, too.
@pytest.mark.parametrize("form", soak.amount([TargetFormat.DELTA], FORMATS))
@soak.slow
def test_close_removes_hive_remains_and_keeps_files_of_the_new_table(
    ours: Fleet, tmp_path: Path, form: TargetFormat
) -> None:
    expected = completed(ours, form)
    ours.warehouse = replace(ours.warehouse, late_files=LateFiles.TAKE)
    sync = tmp_path / "t_sync"
    assert any(path.name.startswith("known-") for path in sync.iterdir())
    assert any(file.name.startswith("tableferry-") for file in files_in(sync))
    if form is TargetFormat.ICEBERG:
        assert any(file.name.startswith("tableferry-") for file in files_in(tmp_path / "t"))
        assert properties(ours)[GC] == "false"
    [marking] = ours.mark("t")
    assert marking.error == ""
    assert ours.close().jobs == ()
    ours.clock.turn(days=6, minutes=1439)
    assert ours.close().jobs == ()
    # A Hive job was suspended for weeks.
    leave(tmp_path / "t" / "day=mon", 7)
    ours.clock.turn(minutes=1)
    before = ours.job("t")
    [planned] = ours.close(dry_run=True).jobs
    assert ours.job("t") == before
    theirs = {file for file in files_in(tmp_path / "t") if not file.name.startswith("tableferry-")}

    [done] = ours.close().jobs
    assert (done.outcome, done.error) == ("done", "")
    assert done.actions == planned.actions
    assert tables_in(ours.spark, ours.schema) == ["t"]
    assert not sync.exists()
    assert theirs <= files_in(tmp_path / "t")
    if form is TargetFormat.ICEBERG:
        assert not any(file.name.startswith("tableferry-") for file in files_in(tmp_path / "t"))
        assert GC not in properties(ours)
    assert ids(ours) == sorted([*expected, 7])
    job = ours.job("t")
    assert job.record.closed == {"at": ours.clock().isoformat(timespec="seconds"), "kept": []}
    assert (job.close_at, bool(job.record.closing), job.pair) == (
        None,
        False,
        (State.HIVE_DROPPED,) * 2,
    )
    assert ours.close().jobs == ()

    with conditions.raises("JOB_CLOSED_FINALLY", archived=re.compile("t_hive_archived$")):
        ours.revert("t", from_archive=True)
    [again] = ours.mark("t")
    assert "[JOB_CLOSED]" in again.error
    assert ours.job("t") == job


@pytest.mark.parametrize("form", soak.amount([TargetFormat.ICEBERG], FORMATS))
@soak.slow
def test_closed_table_keeps_its_versions_and_allows_cleanup(
    ours: Fleet, tmp_path: Path, form: TargetFormat
) -> None:
    expected = completed(ours, form)
    before = history(ours, form)
    assert len(before) >= 5
    ours.mark("t", days=0)
    assert errors(ours.close()) == []
    assert history(ours, form) == before
    if form is TargetFormat.DELTA:
        with session.settings(
            ours.spark, {"spark.databricks.delta.retentionDurationCheck.enabled": "false"}, "the test"
        ):
            ours.spark.sql(f"VACUUM {named(ours, form)} RETAIN 0 HOURS").collect()
        assert ids(ours) == expected
        return
    first = next((tmp_path / "t" / "day=tue").glob("*.parquet"))
    ours.spark.sql(
        f"CALL ice.system.expire_snapshots(table => '{ours.schema}.t', "
        "older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1)"
    ).collect()
    # It contained the deleted row, and no snapshot reads it now.
    assert not first.exists()
    assert ids(ours) == expected


@pytest.mark.parametrize("form", soak.amount([TargetFormat.ICEBERG], FORMATS))
@soak.slow
def test_close_resumes_after_a_crash_at_any_change(
    ours: Fleet, tmp_path: Path, form: TargetFormat, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = completed(ours, form)
    before = history(ours, form)
    ours.mark("t", days=0)
    real, deaths = Warehouse.effect, 0

    def effect(warehouse: Warehouse, change: Callable[[], Any], **how: Any) -> Any:
        real(warehouse, change, **how)
        raise Death

    for _ in range(20):
        # A run doesn't repeat completed changes, so its first change is the next one.
        with monkeypatch.context() as patch, suppress(Death):
            patch.setattr(Warehouse, "effect", effect)
            assert errors(ours.close()) == []
            break
        deaths += 1
        ours.clock.turn(minutes=ours.settings.lease_minutes + 1)
        assert ids(ours) == expected
    # The catalog entry and the folders; with Iceberg also files in the table's directory and the property.
    assert deaths == (6 if form is TargetFormat.ICEBERG else 4)
    assert tables_in(ours.spark, ours.schema) == ["t"]
    assert not (tmp_path / "t_sync").exists()
    assert ours.job("t").record.closed is not None
    if form is TargetFormat.ICEBERG:
        assert GC not in properties(ours)
    assert history(ours, form) == before


@soak.slow
def test_worker_without_its_claim_drops_nothing_and_the_mark_can_be_removed(
    ours: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = completed(ours, TargetFormat.ICEBERG)
    ours.mark("t", days=0)

    def sleeps(step: Step, job: Job, *how: Any) -> Job:
        if isinstance(step, DropArchived):
            ours.clock.turn(minutes=ours.settings.lease_minutes + 1)
            taken = ours.store.claim(
                numbered([job.task_id]), "other", now=ours.clock(), lease=timedelta(hours=1), limit=1
            )
            assert len(taken) == 1
        return perform(step, job, *how)

    with monkeypatch.context() as patch:
        patch.setattr(job_run, "perform", sleeps)
        [lost] = ours.close().jobs
    assert lost.outcome == "lost"
    assert tables_in(ours.spark, ours.schema) == ["t", "t_hive_archived"]
    assert properties(ours)[GC] == "false"
    # The other worker has died, too. The close has started, so a revert is refused.
    ours.clock.turn(minutes=61)
    with conditions.raises("JOB_BEING_CLOSED", archived=re.compile("t_hive_archived$")):
        ours.revert("t", from_archive=True)
    [undone] = unmark_to_close(ours.store, [ours.job("t")], ours.clock(), "ann", lambda: ours.warehouse)
    assert undone.error == ""
    assert ours.close().jobs == ()
    ours.mark("t", days=3)
    assert errors(ours.revert("t", from_archive=True)) == []
    job = ours.job("t")
    assert (job.state, job.close_at) == (State.ICEBERG_DROPPED, None)
    ours.spark.sql(f"REFRESH TABLE {ours.name('t').sql}")
    assert ids(ours) == expected
    assert tables_in(ours.spark, ours.schema) == ["t"]


@soak.slow
def test_close_is_refused_with_its_blocker_while_the_remains_are_needed(ours: Fleet, tmp_path: Path) -> None:
    expected = completed(ours, TargetFormat.ICEBERG)
    ours.mark("t", days=0)
    spark, schema, hive = ours.spark, ours.schema, ours.name("t_hive_archived").sql
    table = named(ours, TargetFormat.ICEBERG)
    external = f"CREATE EXTERNAL TABLE {schema}.other (id INT) STORED AS PARQUET LOCATION"
    blockers = [
        (f"ALTER TABLE {hive} SET TBLPROPERTIES ('external.table.purge' = 'true')", "Make it EXTERNAL"),
        (f"ALTER TABLE {hive} SET TBLPROPERTIES ('external.table.purge' = 'false')", ""),
        (
            f"CREATE VIEW {schema}.v AS SELECT id FROM {schema}.t_hive_archived",
            f"is read by spark_catalog.{schema}.v,",
        ),
        (f"DROP VIEW {schema}.v", ""),
        (f"{external} '{tmp_path}/t_sync/x'", f"{schema}.other at"),
        (f"DROP TABLE {schema}.other", ""),
        (f"{external} '{tmp_path}/t/day=mon'", f"{schema}.other at"),
        (f"DROP TABLE {schema}.other", ""),
        (f"{external} '{tmp_path}/t_iceberg/data'", f"{schema}.other at"),
        (f"DROP TABLE {schema}.other", ""),
    ]
    for statement, expects in blockers:
        spark.sql(statement).collect()
        if not expects:
            continue
        [paused] = errors(ours.close())
        assert expects in paused
        assert ours.job("t").pause_reason.startswith("STEP_REFUSED: ")
        assert not ours.job("t").record.closing
        assert "t_hive_archived" in tables_in(spark, schema)
        assert (tmp_path / "t_sync").is_dir()
        [leftover] = list_leftovers(ours.warehouse, [ours.job("t")])
        assert leftover.left is not None
        assert "purge" in statement or expects in leftover.left.blocker
        ours.store.edit(resumed(ours.job("t")), ours.clock())
    spark.sql(f"ALTER TABLE {table} UNSET TBLPROPERTIES ('tableferry.source')")
    [paused] = errors(ours.close())
    assert f"{ours.name('t')} is a table of another process" in paused
    [leftover] = list_leftovers(ours.warehouse, [ours.job("t")])
    assert leftover.left is not None
    assert "isn't the table that was made" in leftover.left.blocker
    ours.store.edit(resumed(ours.job("t")), ours.clock())
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('tableferry.source' = '{ours.name('t').key}')")
    assert errors(ours.close()) == []
    assert tables_in(spark, schema) == ["t"]
    assert ids(ours) == expected


@soak.slow
def test_archived_table_that_would_remove_its_files_is_not_dropped(
    ours: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The property changes after the check and before the drop, so the drop checks it again."""
    expected = completed(ours, TargetFormat.ICEBERG)
    ours.mark("t", days=0)
    hive = ours.name("t_hive_archived").sql

    def then_changes(table: HiveTable) -> None:
        require_keeps_files(table)
        ours.spark.sql(f"ALTER TABLE {hive} SET TBLPROPERTIES ('external.table.purge' = 'true')").collect()

    with monkeypatch.context() as patch:
        patch.setattr("tableferry.fleet.closure.removal.require_keeps_files", then_changes)
        [failed] = errors(ours.close())
    assert "[TABLE_CHANGED_DURING_STEP]" in failed
    assert tables_in(ours.spark, ours.schema) == ["t", "t_hive_archived"]
    assert ids(ours) == expected


@soak.slow
def test_close_keeps_files_of_an_earlier_migration_that_the_new_table_reads(
    ours: Fleet, tmp_path: Path
) -> None:
    expected = completed(ours, TargetFormat.ICEBERG)
    assert errors(ours.revert("t", from_archive=True)) == []
    ours.spark.sql(f"REFRESH TABLE {ours.name('t').sql}")
    assert ids(ours) == expected
    # Files that the reverted migration rewrote belong to Hive, and then to the next new table.
    job = resumed(ours.job("t"))
    ours.store.edit(replace(job, probation_gap_days=0), ours.clock())
    ours.preprocess()
    ours.notify()
    ours.clock.turn(days=14)
    assert errors(ours.migrate()) == []
    ours.notify()
    # Only an older version reads these rows from the files in that folder.
    ours.write("t", "DELETE FROM {t} WHERE id > 4")
    ours.to_archive("t")
    versions = history(ours, TargetFormat.ICEBERG)
    assert expected in [[row[0] for row in sorted(rows)] for rows in versions.values()]
    before = {file for file in files_in(tmp_path / "t_sync") if "known-" not in str(file)}
    assert before
    ours.mark("t", days=0)
    [done] = ours.close().jobs
    assert done.error == ""
    assert ids(ours) == [1, 4]
    assert history(ours, TargetFormat.ICEBERG) == versions
    kept = {file for file in files_in(tmp_path / "t_sync") if "known-" not in str(file)}
    assert kept == before
    closed = ours.job("t").record.closed
    assert closed is not None
    [folder] = closed["kept"]
    assert folder in done.actions[-2]
    # The file record of the first migration isn't the record of this one.
    [left] = ours.job("t").record.left_directories
    assert "/t_sync/known-" in left
    assert left in done.actions[-1]
    assert tables_in(ours.spark, ours.schema) == ["t"]


@pytest.mark.parametrize("form", soak.amount([TargetFormat.DELTA], FORMATS))
@soak.slow
def test_unpartitioned_table_with_a_rewritten_hive_copy_is_closed(
    spark: SparkSession, ours: Fleet, tmp_path: Path, form: TargetFormat
) -> None:
    spark.sql(f"CREATE EXTERNAL TABLE {ours.schema}.u (id INT) STORED AS PARQUET LOCATION '{tmp_path}/u'")
    spark.sql(f"INSERT INTO {ours.schema}.u VALUES (1), (2)")
    ours.to_probation("u", form=form)
    ours.write("u", "DELETE FROM {t} WHERE id = 1")
    assert errors(ours.shadow()) == []
    ours.to_archive("u")
    assert ids(ours, "u_hive_archived") == [2]
    [leftover] = list_leftovers(ours.warehouse, [ours.job("u")])
    left = leftover.left
    assert left is not None
    assert (left.hive, left.directory, left.folders, left.blocker) == (
        ours.name("u_hive_archived"),
        f"file:{tmp_path}/u",
        (f"file:{tmp_path}/u_sync",),
        "",
    )
    assert left.gc_enabled is (False if form is TargetFormat.ICEBERG else None)
    table = f"{ours.schema}.u"
    call(tmp_path, table, "--after-days", "0")
    [planned] = json.loads(call(tmp_path, "--dry-run", "--output", "json"))["jobs"]
    assert planned["did"][2] == f"drop {ours.name('u_hive_archived')}, and keep its files, which " + (
        f"{ours.name('u')} reads"
    )
    shown = " ".join(call(tmp_path, "--list").split())
    assert "from 20" in shown
    assert "can't be closed" not in shown
    assert call(tmp_path) == "1 done\n"
    [row] = json.loads(call(tmp_path, "--list", table, "--output", "json"))
    assert (row["hive"], row["hinders"], row["closed"][:2]) == (None, "", "20")
    assert not (tmp_path / "u_sync").exists()
    assert tables_in(spark, ours.schema) == ["t", "u"]
    assert ids(ours, "u") == [2]


@soak.slow
def test_close_lists_directories_that_it_cannot_remove(
    ours: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Hive table was dropped by hand."""
    expected = completed(ours, TargetFormat.ICEBERG)
    ours.spark.sql(f"DROP TABLE {ours.name('t_hive_archived').sql}")
    [leftover] = list_leftovers(ours.warehouse, [ours.job("t")])
    assert leftover.left is not None
    assert (leftover.left.hive, leftover.left.gc_enabled) == (None, False)
    ours.mark("t", days=0)
    monkeypatch.setattr(removal, "storage_of", lambda *_: None)
    [done] = ours.close().jobs
    assert "are left" in done.actions[-1]
    assert any("t_sync" in place for place in ours.job("t").record.left_directories)
    assert any("/t/day=" in place for place in ours.job("t").record.left_directories)
    assert (tmp_path / "t_sync").is_dir()
    assert GC not in properties(ours)
    assert ids(ours) == expected


@soak.slow
def test_referenced_files_of_a_delta_table_include_those_of_older_versions(
    spark: SparkSession, schema: str, tmp_path: Path, ours: Fleet
) -> None:
    spark.sql(f"CREATE TABLE {schema}.a (id INT) USING delta LOCATION '{tmp_path}/a b'")
    spark.sql(f"INSERT INTO {schema}.a VALUES (1)")
    spark.sql(f"CREATE TABLE {schema}.b SHALLOW CLONE {schema}.a LOCATION '{tmp_path}/b'")
    spark.sql(f"INSERT INTO {schema}.b VALUES (2)")
    name, location = ours.name("b"), f"file:{tmp_path}/b"
    [theirs] = files_in(tmp_path / "a b")

    def elsewhere() -> set[Path]:
        found = list_referenced_files(ours.warehouse, name, TargetFormat.DELTA, location, ())
        assert location in found
        return {Path("/" + path.removeprefix("file:").lstrip("/")) for path in found if path != location}

    assert elsewhere() == {theirs}
    spark.sql(f"DELETE FROM {schema}.b WHERE id = 1")
    assert elsewhere() == {theirs}
    # Only the last commit remains, and a checkpoint that lists the removed files.
    spark.sql(f"ALTER TABLE {schema}.b SET TBLPROPERTIES ('delta.checkpointInterval' = '1')")
    spark.sql(f"INSERT INTO {schema}.b VALUES (3)")
    log = tmp_path / "b" / "_delta_log"
    assert list(log.glob("*.checkpoint.parquet"))
    for commit in sorted(log.glob("*.json"))[:-1]:
        commit.unlink()
    assert elsewhere() == {theirs}
