"""Somebody writes into the Hive table's old directories after the switch: no row is lost or doubled."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests import soak
from tests.spark.fleets import Fleet, errors, fleet, hive_table

from tableferry.fleet.hive_copy.delta_changes import DeltaTarget
from tableferry.fleet.hive_copy.table import HiveCopy
from tableferry.fleet.hive_copy.target import read_target
from tableferry.fleet.hive_tables.progress_properties import SWEEP
from tableferry.fleet.jobs.job import Job, State, TargetFormat
from tableferry.fleet.jobs.pauses import resumed
from tableferry.fleet.jobs.steps import CheckSuspended, Rename, Step
from tableferry.fleet.late_files import file_record, settlement
from tableferry.fleet.modes import job_run
from tableferry.fleet.modes.performer import perform
from tableferry.fleet.modes.shadower import shadow
from tableferry.fleet.queue.selections import finished
from tableferry.fleet.settings import LateFiles, RemovedPartitions
from tableferry.fleet.warehouse import table_renames
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.step_run import Save
from tableferry.spark import session
from tableferry.spark.tables import TableName

FORMATS = list(TargetFormat)
OLD = [(1, "mon"), (2, "tue"), (3, None)]
DELTAS = "part-00003-6b1e9b0e-3b9c-4a53-9d5e-0a1b2c3d4e5f.c000.snappy.parquet"


class Crash(BaseException):
    """The worker dies."""


@pytest.fixture
def ours(spark: SparkSession, schema: str, tmp_path: Path) -> Iterator[Fleet]:
    with session.settings(spark, {"hive.exec.dynamic.partition.mode": "nonstrict"}, "the test"):
        hive_table(spark, f"{schema}.t", tmp_path / "t", OLD)
        ours = fleet(spark, schema, tmp_path)
        yield ours
        ours.store.close()


def leave(folder: Path, *numbers: int, name: str = "000000_0_copy_1") -> Path:
    """Leave a file as a job of Hive's does."""
    folder.mkdir(parents=True, exist_ok=True)
    table = pa.table(
        {"id": pa.array(numbers, pa.int32()), "at": pa.array([None for _ in numbers], pa.timestamp("us"))}
    )
    pq.write_table(table, folder / name, use_deprecated_int96_timestamps=True)
    return folder / name


def late_files_taken(ours: Fleet) -> None:
    ours.warehouse = replace(ours.warehouse, late_files=LateFiles.TAKE)


def resume(ours: Fleet, **how: Any) -> None:
    ours.store.edit(resumed(ours.job("t"), **how), ours.clock())


def ids(ours: Fleet, table: str = "t") -> list[int]:
    return sorted(row[0] for row in ours.rows(table))


def insert(ours: Fleet, number: int, day: str = "mon") -> None:
    ours.write("t", f"INSERT INTO {{t}} SELECT {number}, TIMESTAMP '2026-01-05 10:00:00', '{day}'")


# What a job may call its files.
NAMES = ("data (1).parquet", "ü%20.parquet", "a+b=c,d", "x y")


# How either format takes rows in has a test of its own below, and the property test has late files too.
@pytest.mark.parametrize("form", soak.amount([TargetFormat.ICEBERG], FORMATS))
def test_a_late_file_pauses_its_table_or_is_taken_in(ours: Fleet, tmp_path: Path, form: TargetFormat) -> None:
    ours.to_probation("t", form=form)
    insert(ours, 4)
    assert errors(ours.shadow()) == []
    late = leave(tmp_path / "t" / "day=mon", 5, 6)
    [paused] = errors(ours.shadow())
    assert str(late) in paused
    assert ours.job("t").pause_reason.startswith("WRITTEN_LATE: ")
    assert ids(ours) == [1, 2, 3, 4]

    late_files_taken(ours)
    resume(ours)
    # A partition that nobody knew, odd names, and a partition that changes at the same time.
    leave(tmp_path / "t" / "day=new", 7)
    for number, name in enumerate(NAMES, 10):
        leave(tmp_path / "t" / "day=tue", number, name=name)
    ours.write("t", "UPDATE {t} SET at = NULL WHERE day = 'mon'")
    expected = [1, 2, 3, 4, 5, 6, 7, 10, 11, 12, 13]
    for _ in range(2):
        assert errors(ours.shadow()) == []
        assert ids(ours) == ids(ours, "t_hive") == expected
    # Where the copy reads no more, too.
    leave(tmp_path / "t" / "day=mon", 14, name="000000_0_copy_2")
    ours.clock.turn(days=14)
    assert errors(ours.preprocess()) == []
    assert errors(ours.migrate()) == []
    assert ours.job("t").state is State.HIVE_DROPPED
    assert ids(ours) == ids(ours, "t_hive_archived") == [*expected, 14]


@soak.slow
def test_a_file_that_came_before_a_dead_worker_looked_at_the_switch(
    ours: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """People wrote to the new table meanwhile, so that the switch can't be taken back."""

    def dies(step: Step, job: Job, warehouse: Warehouse, save: Save) -> Job:
        job = perform(step, job, warehouse, save)
        if isinstance(step, Rename) and step.to == ours.name("t"):
            raise Crash
        return job

    ours.add("t")
    ours.preprocess()
    ours.notify()
    ours.clock.turn(days=14)
    with monkeypatch.context() as patch, suppress(Crash):
        patch.setattr(job_run, "perform", dies)
        ours.migrate()
    ours.clock.turn(minutes=ours.settings.lease_minutes + 1)
    insert(ours, 4)
    leave(tmp_path / "t" / "day=mon", 5)
    [paused] = errors(ours.migrate())
    assert "000000_0_copy_1" in paused
    assert ours.job("t").pause_reason.startswith("WRITTEN_LATE: ")
    late_files_taken(ours)
    resume(ours)
    assert errors(ours.migrate()) == []
    assert ours.job("t").state is State.WRITES_UNBLOCKED
    ours.notify()
    for _ in range(2):
        assert errors(ours.shadow()) == []
        assert ids(ours) == ids(ours, "t_hive") == [1, 2, 3, 4, 5]


@soak.only  # In make test files come late to tables that aren't archived yet.
def test_a_file_that_comes_while_or_after_the_table_is_archived_is_noticed(
    ours: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours.add("t", probation_gap_days=0)
    ours.preprocess()
    ours.notify()
    ours.clock.turn(days=14)
    assert errors(ours.migrate()) == []
    ours.notify()
    late_files_taken(ours)
    leave(tmp_path / "t" / "day=mon", 4)
    assert errors(ours.preprocess()) == []
    rename = table_renames.rename_table

    def rename_late(warehouse: Warehouse, name: TableName, *how: Any, **more: Any) -> None:
        leave(tmp_path / "t" / "day=tue", 5)
        rename(warehouse, name, *how, **more)

    # After the last look before the rename: the first file's rows are taken over once all the same.
    with monkeypatch.context() as patch:
        patch.setattr(table_renames, "rename_table", rename_late)
        assert errors(ours.migrate()) == []
    assert ours.job("t").state is State.HIVE_DROPPED
    assert ids(ours) == [1, 2, 3, 4, 5]
    # A job that takes half an hour more, and one that nobody lets in.
    leave(tmp_path / "t" / "day=mon", 6, name="000000_0_copy_2")
    for _ in range(2):
        assert errors(ours.shadow()) == []
        assert ids(ours) == [1, 2, 3, 4, 5, 6]
    ours.warehouse = replace(ours.warehouse, late_files=LateFiles.PAUSE)
    late = leave(tmp_path / "t" / "day=mon", 7, name="000000_0_copy_3")
    ours.preprocess()
    ours.notify()
    [paused] = errors(ours.shadow())
    assert str(late) in paused
    assert "copy_2" not in paused
    # It stays in the queue until somebody has looked.
    assert ours.store.archive(finished(), ours.clock()) == 0
    resume(ours, accept=True)
    assert errors(ours.shadow()) == []
    assert ids(ours) == [1, 2, 3, 4, 5, 6]
    # A person was to write its row; then everything comes back with the revert.
    insert(ours, 7)
    assert errors(ours.revert("t", from_archive=True)) == []
    assert ids(ours) == [1, 2, 3, 4, 5, 6, 7]


@soak.only
def test_a_table_without_a_record_is_said_to_be_looked_at_by_nobody(
    ours: Fleet, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ours.to_probation("t")
    ours.spark.sql(f"ALTER TABLE {ours.name('t_hive').sql} UNSET TBLPROPERTIES ('{file_record.FILES}')")
    leave(tmp_path / "t" / "day=mon", 4)
    assert errors(ours.shadow()) == []
    sentence = ours.job("t").record.late_files_not_looked_for
    assert "t_hive has no record of the files that were there at the switch" in sentence
    assert any(sentence in message for message in caplog.messages)


@soak.only
def test_rows_that_a_suspended_shadow_run_wrote_after_the_last_one_stop_a_revert(
    ours: Fleet, tmp_path: Path
) -> None:
    ours.to_probation("t")
    insert(ours, 4)
    assert errors(ours.shadow()) == []
    hive = ours.name("t_hive").sql
    [location] = ours.spark.sql(f"SELECT DISTINCT input_file_name() FROM {hive} WHERE id = 4").collect()
    folder = Path(location[0].removeprefix("file://")).parent
    stray = folder / "tableferry-0123abcd-0.parquet"

    def perform_and_wake(step: Step, *how: Any) -> Job:
        if isinstance(step, CheckSuspended):
            leave(folder, 4, name=stray.name)
        return perform(step, *how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job_run, "perform", perform_and_wake)
        [paused] = errors(ours.revert("t"))
    assert str(stray) in paused
    assert "remove these files" in paused
    assert ours.job("t").state is State.WRITES_UNBLOCKED
    stray.unlink()
    assert errors(ours.revert("t")) == []
    ours.spark.sql(f"REFRESH TABLE {ours.name('t').sql}")
    assert ids(ours) == [1, 2, 3, 4]
    assert ours.job("t").state is State.ICEBERG_DROPPED


@soak.only  # In make test it's looked for before the archive of a table with a probation.
def test_without_a_probation_it_is_looked_for_before_the_archive(ours: Fleet, tmp_path: Path) -> None:
    ours.add("t", probation_gap_days=0)
    ours.preprocess()
    ours.notify()
    ours.clock.turn(days=14)
    assert errors(ours.migrate()) == []
    ours.notify()
    leave(tmp_path / "t" / "day=mon", 5)
    assert errors(ours.preprocess()) == []
    assert len(errors(ours.migrate())) == 1
    assert ours.job("t").pause_reason.startswith("WRITTEN_LATE: ")
    assert ours.job("t").state is State.WRITES_UNBLOCKED
    late_files_taken(ours)
    resume(ours)
    assert errors(ours.migrate()) == []
    assert ours.job("t").state is State.HIVE_DROPPED
    assert ids(ours) == [1, 2, 3, 5]


@soak.only  # In make test the property has reverts of tables with late files.
@pytest.mark.parametrize("form", FORMATS)
def test_a_revert_keeps_what_came_late(ours: Fleet, tmp_path: Path, form: TargetFormat) -> None:
    ours.to_probation("t", form=form)
    insert(ours, 4)
    leave(tmp_path / "t" / "day=mon", 5)
    assert len(errors(ours.revert("t"))) == 1
    assert ours.job("t").pause_reason.startswith("WRITTEN_LATE: ")
    # Nobody is kept from writing meanwhile.
    assert ours.job("t").state is State.WRITES_UNBLOCKED
    late_files_taken(ours)
    assert errors(ours.revert("t")) == []
    assert ids(ours) == [1, 2, 3, 4, 5]


@soak.only  # tests/unit/test_fleet_late.py has the decision.
def test_a_person_may_say_that_all_is_well(ours: Fleet, tmp_path: Path) -> None:
    ours.to_probation("t")
    leave(tmp_path / "t" / "day=mon", 5)
    leave(tmp_path / "t" / "nowhere", 6)
    assert len(errors(ours.shadow())) == 1
    insert(ours, 5)
    resume(ours, accept=True)
    # What came since isn't what was said to be well.
    more = leave(tmp_path / "t" / "day=mon", 7, name="000000_0_copy_9")
    [paused] = errors(ours.shadow())
    assert str(more) in paused
    insert(ours, 7)
    resume(ours, accept=True)
    for _ in range(2):
        assert errors(ours.shadow()) == []
        assert ids(ours) == ids(ours, "t_hive") == [1, 2, 3, 5, 7]
    # Where nothing else is to be done, too.
    leave(tmp_path / "t" / "nowhere", 8, name="other")
    assert len(errors(ours.shadow())) == 1
    resume(ours, accept=True)
    for _ in range(2):
        assert errors(ours.shadow()) == []


@soak.only  # tests/unit/test_fleet_late.py has the decision.
def test_a_file_that_somebody_gave_to_the_new_table_is_not_late(ours: Fleet, tmp_path: Path) -> None:
    ours.spark.sql(
        f"CREATE EXTERNAL TABLE {ours.name('u').sql} (id INT, at TIMESTAMP) STORED AS PARQUET "
        f"LOCATION '{tmp_path / 'u'}'"
    )
    ours.spark.sql(f"INSERT INTO {ours.name('u').sql} VALUES (1, NULL)")
    ours.to_probation("u")
    late = leave(tmp_path / "u", 2)
    named = ours.warehouse.iceberg(ours.name("u")).sql
    ours.spark.sql(f"CALL ice.system.add_files(table => '{named}', source_table => '`parquet`.`{late}`')")
    for _ in range(2):
        assert errors(ours.shadow()) == []
        assert ids(ours, "u") == ids(ours, "u_hive") == [1, 2]


@soak.slow
def test_a_file_that_was_given_to_the_new_table_and_compacted_there_is_not_late(
    ours: Fleet, tmp_path: Path
) -> None:
    """It lies there still, and only a snapshot of before names it."""
    ours.spark.sql(
        f"CREATE EXTERNAL TABLE {ours.name('u').sql} (id INT, at TIMESTAMP) STORED AS PARQUET "
        f"LOCATION '{tmp_path / 'u'}'"
    )
    ours.spark.sql(f"INSERT INTO {ours.name('u').sql} VALUES (1, NULL)")
    late_files_taken(ours)
    ours.to_probation("u")
    late = leave(tmp_path / "u", 2)
    named = ours.warehouse.iceberg(ours.name("u")).sql
    ours.spark.sql(f"CALL ice.system.add_files(table => '{named}', source_table => '`parquet`.`{late}`')")
    options = "options => map('rewrite-all', 'true')"
    ours.spark.sql(f"CALL ice.system.rewrite_data_files(table => '{named}', {options})")
    read = [row[0] for row in ours.spark.sql(f"SELECT file_path FROM {named}.files").collect()]
    assert not any(path.endswith(late.name) for path in read)
    for _ in range(2):
        assert errors(ours.shadow()) == []
        assert ids(ours, "u") == ids(ours, "u_hive") == [1, 2]


@soak.slow
def test_a_table_that_was_replaced_is_reverted_with_what_shadow_wrote_before(ours: Fleet) -> None:
    """Its log has another id since, and the rows that Hive has already stay where they are."""
    ours.to_probation("t", form=TargetFormat.DELTA)
    ours.write("t", "UPDATE {t} SET at = NULL WHERE day = 'mon'")
    assert errors(ours.shadow()) == []
    ours.write("t", "CREATE OR REPLACE TABLE {t} USING delta PARTITIONED BY (day) AS SELECT * FROM {t}")
    ours.write("t", "INSERT INTO {t} SELECT 4, NULL, 'tue'")
    assert errors(ours.shadow()) == []
    assert ids(ours) == ids(ours, "t_hive") == [1, 2, 3, 4]
    assert errors(ours.revert("t")) == []
    assert ids(ours) == [1, 2, 3, 4]


@soak.only  # tests/unit/test_fleet_late.py has the decision.
def test_what_is_for_a_person_in_any_case(ours: Fleet, tmp_path: Path) -> None:
    ours.to_probation("t")
    late_files_taken(ours)
    stray = leave(tmp_path / "t" / "nowhere", 6)
    [paused] = errors(ours.shadow())
    assert "late_files" not in paused
    assert "resume" in paused
    stray.unlink()
    [old] = (tmp_path / "t" / "day=mon").glob("part-*")
    leave(old.parent, 1, 9, name=old.name)
    (old.parent / f".{old.name}.crc").unlink()
    resume(ours)
    [paused] = errors(ours.shadow())
    assert "were replaced or removed after the switch" in paused
    assert old.name in paused


@soak.only  # tests/unit/test_fleet_late.py has the decision.
def test_a_write_that_goes_on_is_no_late_file(
    ours: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settlement, "_PAUSE", 0.0)
    ours.to_probation("t", form=TargetFormat.DELTA)
    late_files_taken(ours)
    insert(ours, 4)
    going_on = leave(tmp_path / "t" / "day=mon", 5, name=DELTAS)
    assert errors(ours.shadow()) == []
    assert ids(ours) == ids(ours, "t_hive") == [1, 2, 3, 4]
    # It hasn't ended, and the archive is for ever.
    ours.clock.turn(days=14)
    assert errors(ours.preprocess()) == []
    [failed] = errors(ours.migrate())
    assert "[FILES_MAY_BE_UNCOMMITTED]" in failed
    assert ours.job("t").state is State.WRITES_UNBLOCKED
    # A day later it's clear that no commit will name it.
    os.utime(going_on, (1, 1))
    # But whether it's of a write that failed, or of a job of Hive's on Spark, only a person knows.
    [paused] = errors(ours.migrate())
    assert "or they are of a write to it that failed" in paused
    assert "late_files" not in paused
    resume(ours, accept=True)
    assert errors(ours.migrate()) == []
    assert ids(ours) == ids(ours, "t_hive_archived") == [1, 2, 3, 4]


@soak.only
def test_a_write_that_ends_while_the_archive_looks_is_waited_for(
    ours: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours.to_probation("t", form=TargetFormat.DELTA)
    going_on = leave(tmp_path / "t" / "day=mon", 5, name=DELTAS)
    looks: list[float] = []

    def end(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 2:
            commit_file(tmp_path / "t", going_on)

    monkeypatch.setattr(f"{settlement.__name__}.sleep", end)
    ours.clock.turn(days=14)
    assert errors(ours.preprocess()) == []
    assert errors(ours.migrate()) == []
    assert len(looks) == 2
    assert ids(ours) == ids(ours, "t_hive_archived") == [1, 2, 3, 5]


def commit_file(table: Path, file: Path) -> None:
    """Let a Delta table's next commit name a file, as the end of a write does."""
    log = table / "_delta_log"
    add = {
        "path": str(file.relative_to(table)),
        "partitionValues": {"day": "mon"},
        "size": file.stat().st_size,
        "modificationTime": 0,
        "dataChange": True,
    }
    number = len(list(log.glob("*.json")))
    info = {"operation": "WRITE", "operationParameters": {"mode": "Append"}}
    text = "".join(json.dumps(action) + "\n" for action in ({"commitInfo": info}, {"add": add}))
    (log / f"{number:020}.json").write_text(text)


@soak.only
def test_files_that_a_compaction_replaced_while_rows_were_taken_in_are_not_late(
    ours: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours.to_probation("t", form=TargetFormat.DELTA)
    late_files_taken(ours)
    leave(tmp_path / "t" / "day=mon", 5)
    real = DeltaTarget.append_once

    def append_and_compact(target: DeltaTarget, *how: Any) -> None:
        real(target, *how)
        before = set((tmp_path / "t").rglob("*.parquet"))
        insert(ours, 6)
        ours.write("t", "OPTIMIZE {t}")
        # A young file without a commit may be of a write that is going on.
        for file in set((tmp_path / "t").rglob("*.parquet")) - before:
            os.utime(file, (1, 1))

    with monkeypatch.context() as patch:
        patch.setattr(DeltaTarget, "append_once", append_and_compact)
        assert errors(ours.shadow()) == []
    for _ in range(2):
        assert errors(ours.shadow()) == []
        assert ids(ours) == ids(ours, "t_hive") == [1, 2, 3, 5, 6]


@soak.only
def test_where_files_get_no_names_of_ours_nothing_is_added_to_the_first_directories(
    ours: Fleet, tmp_path: Path
) -> None:
    ours.to_probation("t")
    before = sorted((tmp_path / "t").rglob("*.parquet"))
    other = {
        "spark.sql.sources.commitProtocolClass": "org.apache.spark.internal.io.HadoopMapReduceCommitProtocol"
    }
    with session.settings(ours.spark, other, "the test"):
        for number in (4, 5):
            insert(ours, number)
            assert errors(ours.shadow()) == []
    assert sorted((tmp_path / "t").rglob("*.parquet")) == before
    assert ids(ours, "t_hive") == [1, 2, 3, 4, 5]
    assert errors(ours.shadow()) == []


@soak.only  # tests/unit/test_fleet_late.py has the decision.
@pytest.mark.parametrize("form", FORMATS)
def test_a_write_that_removes_partitions_it_did_not_write_is_reported(
    ours: Fleet, form: TargetFormat
) -> None:
    ours.to_probation("t", form=form)
    # What somebody says is meant so.
    ours.write("t", "DELETE FROM {t} WHERE day = 'tue'")
    assert ours.theirs is not None
    with session.settings(ours.theirs, {"spark.sql.sources.partitionOverwriteMode": "dynamic"}, "the test"):
        ours.write("t", "INSERT OVERWRITE {t} SELECT 4, NULL, 'mon'")
    assert errors(ours.shadow()) == []
    assert ids(ours) == ids(ours, "t_hive") == [3, 4]
    assert not ours.job("t").record.removed_partitions

    ours.warehouse = replace(ours.warehouse, removed_partitions=RemovedPartitions.PAUSE)
    ours.write("t", "INSERT OVERWRITE {t} SELECT 5, NULL, 'mon'")
    [paused] = errors(ours.shadow())
    assert "day=__HIVE_DEFAULT_PARTITION__ have none since" in paused
    assert "partitionOverwriteMode=dynamic" in paused
    assert ours.job("t").pause_reason.startswith("PARTITIONS_REMOVED: ")
    # Hive has the rows that are gone.
    assert ids(ours) == [5]
    assert ids(ours, "t_hive") == [3, 4]
    resume(ours, accept=True)
    assert errors(ours.shadow()) == []
    assert ids(ours, "t_hive") == [5]
    ours.warehouse = replace(ours.warehouse, removed_partitions=RemovedPartitions.ALARM)
    insert(ours, 6, "tue")
    assert errors(ours.shadow()) == []
    ours.write("t", "INSERT OVERWRITE {t} SELECT 7, NULL, 'tue'")
    assert errors(ours.shadow()) == []
    assert ids(ours) == ids(ours, "t_hive") == [7]
    assert "day=mon have none since" in ours.job("t").record.removed_partitions


@contextmanager
def effects(at: int, before: Callable[[], None] | None = None) -> Iterator[list[int]]:
    """Die after the effect number ``at``, or do something between its guard and itself."""
    number, real = count(), Warehouse.effect
    reached: list[int] = []

    def effect(warehouse: Warehouse, work: Callable[[], Any], **how: Any) -> Any:
        here = next(number) == at
        if here:
            reached.append(at)
        if not here:
            return real(warehouse, work, **how)
        if before is None:
            real(warehouse, work, **how)
            raise Crash
        warehouse.guard()
        before()
        return work()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Warehouse, "effect", effect)
        yield reached


@soak.only
@pytest.mark.parametrize("form", FORMATS)
def test_rows_are_appended_once_for_a_key(ours: Fleet, form: TargetFormat) -> None:
    ours.to_probation("t", form=form)

    def append(number: int, key: str) -> None:
        target = read_target(ours.warehouse, ours.name("t"), form)
        rows = target.rows().limit(1).selectExpr(f"{number} AS id", "at", "day")
        target.append_once(ours.warehouse, rows, key)

    for _ in range(2):
        append(4, "one")
    append(5, "two")
    assert ids(ours) == [1, 2, 3, 4, 5]
    # After the rows are written, and before anybody sees them.
    with effects(1), suppress(Crash):
        append(6, "three")
    append(6, "three")
    assert ids(ours) == [1, 2, 3, 4, 5, 6]
    named = ours.warehouse.named(ours.name("t"), form)
    properties = {row["key"] for row in ours.spark.sql(f"SHOW TBLPROPERTIES {named.sql}").collect()}
    assert properties.isdisjoint({"write.wap.enabled", "tableferry.staging"})
    # Whoever looked before another one's commit came.
    stale = read_target(ours.warehouse, ours.name("t"), form)
    append(7, "four")
    stale.append_once(ours.warehouse, stale.rows().limit(1).selectExpr("7 AS id", "at", "day"), "four")
    assert ids(ours) == [1, 2, 3, 4, 5, 6, 7]


@soak.only  # In make test the property has late files, and workers that die and sleep.
@pytest.mark.parametrize("form", FORMATS)
def test_what_dies_while_it_takes_a_file_in_is_made_good(
    ours: Fleet, tmp_path: Path, form: TargetFormat
) -> None:
    ours.to_probation("t", form=form)
    late_files_taken(ours)
    expected = [1, 2, 3]
    for at in range(40):
        leave(tmp_path / "t" / "day=mon", 100 + at, name=f"late-{at}")
        insert(ours, 200 + at)
        expected = sorted([*expected, 100 + at, 200 + at, 300 + at])
        with effects(at) as reached:
            try:
                ours.shadow()
            except Crash:
                ours.clock.turn(minutes=ours.settings.lease_minutes + 1)
        # Another one comes before the next run.
        leave(tmp_path / "t" / "day=mon", 300 + at, name=f"later-{at}")
        assert errors(ours.shadow()) == []
        assert ids(ours) == ids(ours, "t_hive") == expected, at
        if not reached:
            assert at > 12
            break


@soak.only
@pytest.mark.parametrize("form", FORMATS)
def test_a_shadower_that_sleeps_behind_the_guard_is_made_good(ours: Fleet, form: TargetFormat) -> None:
    ours.to_probation("t", form=form)
    expected = [1, 2, 3]

    def meanwhile() -> None:
        ours.clock.turn(minutes=ours.settings.lease_minutes + 1)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Warehouse, "effect", undisturbed)
            assert errors(shadow(ours.worker("quick"))) == []

    undisturbed = Warehouse.effect
    for at in range(20):
        insert(ours, 100 + at)
        expected = sorted([*expected, 100 + at])
        with effects(at, meanwhile) as reached:
            ours.shadow()
        assert errors(ours.shadow()) == []
        assert ids(ours) == ids(ours, "t_hive") == expected, at
        if not reached:
            assert at >= 2
            break


@pytest.mark.parametrize("looked", soak.amount([True], [True, False]))
@soak.slow
def test_a_person_is_asked_about_a_file_whose_columns_have_other_names_by_now(
    ours: Fleet, tmp_path: Path, looked: bool
) -> None:
    late_files_taken(ours)
    ours.to_probation("t")
    ours.write("t", "ALTER TABLE {t} RENAME COLUMN at TO seen")
    if looked:
        assert errors(ours.shadow()) == []
    late = leave(tmp_path / "t" / "day=mon", 5)
    [paused] = errors(ours.shadow())
    assert str(late) in paused
    assert "and resume the job with --accept" in paused
    assert "late_files: take" not in paused
    assert ids(ours) == [1, 2, 3]


@soak.slow
def test_a_late_row_of_a_null_partition_has_no_value_there(ours: Fleet, tmp_path: Path) -> None:
    late_files_taken(ours)
    name = ours.name("lines").sql
    ours.spark.sql(
        f"CREATE EXTERNAL TABLE {name} (id INT) PARTITIONED BY (day STRING) STORED AS TEXTFILE "
        f"LOCATION '{tmp_path}/lines'"
    )
    ours.spark.sql(f"INSERT INTO {name} PARTITION (day = 'a') VALUES (1)")
    ours.to_probation("lines", rewrite=True)
    late = tmp_path / "lines" / "day=__HIVE_DEFAULT_PARTITION__" / "000000_0"
    late.parent.mkdir()
    late.write_text("2\n")
    assert errors(ours.shadow()) == []
    assert ours.rows("lines") == [(1, "a"), (2, None)]


@pytest.mark.parametrize("form", soak.amount([TargetFormat.DELTA], FORMATS))
@soak.slow
def test_what_a_job_adds_where_shadow_wrote_a_partition_is_late(
    ours: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: TargetFormat
) -> None:
    """It writes to the Hive table by its name, and so to wherever the catalog says."""

    def insert_into_hive(number: int) -> None:
        ours.spark.sql(f"INSERT INTO {ours.schema}.t_hive VALUES ({number}, NULL, 'mon')")

    ours.to_probation("t", form=form)
    ours.write("t", "UPDATE {t} SET at = NULL WHERE day = 'mon'")
    assert errors(ours.shadow()) == []
    insert_into_hive(4)
    late_files_taken(ours)
    for _ in range(2):
        assert errors(ours.shadow()) == []
        assert ids(ours) == ids(ours, "t_hive") == [1, 2, 3, 4]
    # After the look, before the partition's directory is removed.
    real = HiveCopy.note

    def note(copy: HiveCopy, **notes: str) -> None:
        if notes.get("pending") not in ("", SWEEP):
            insert_into_hive(5)
        real(copy, **notes)

    with monkeypatch.context() as patch:
        patch.setattr(HiveCopy, "note", note)
        ours.write("t", "UPDATE {t} SET at = TIMESTAMP '2026-01-05 10:00:00' WHERE day = 'mon'")
        assert errors(ours.shadow()) == []
    [asked] = errors(ours.shadow())
    [left] = re.findall(r"/t_sync/\S+", asked)
    assert "/day=mon/part-" in left
    # It's there still, for whoever is asked.
    assert ids(ours, "t_hive") == [1, 2, 3, 4]
    [file] = (tmp_path / "t_sync").glob(f"*/*/day=mon/{Path(left).name}")
    assert ours.spark.read.parquet(str(file)).select("id").collect() == [(5,)]


@pytest.mark.parametrize("form", soak.amount([TargetFormat.ICEBERG], FORMATS))
@soak.slow
def test_whoever_removes_the_folder_of_shadow_runs_loses_nothing(
    ours: Fleet, tmp_path: Path, form: TargetFormat
) -> None:
    """The record of late files is in it too."""
    ours.to_probation("t", form=form)
    ours.write("t", "UPDATE {t} SET at = NULL WHERE day = 'mon'")
    assert errors(ours.shadow()) == []
    shutil.rmtree(tmp_path / "t_sync")
    assert errors(ours.revert("t")) == []
    assert ids(ours) == [1, 2, 3]


@soak.slow
def test_a_copy_that_missed_a_change_is_made_good_by_resuming(ours: Fleet) -> None:
    """As when a backup of a Delta log was restored, and grew to the version that Hive had."""
    ours.to_probation("t")
    ours.write("t", "UPDATE {t} SET at = NULL WHERE day = 'mon'")
    assert errors(ours.shadow()) == []
    insert(ours, 4, "tue")
    job = ours.job("t")
    target = read_target(ours.warehouse, ours.name("t"), job.target_format)
    noted = f"'tableferry.shadow_watermark' = '{target.version}'"
    ours.spark.sql(f"ALTER TABLE {ours.schema}.t_hive SET TBLPROPERTIES ({noted})")
    [differ] = errors(ours.revert("t"))
    assert "3 rows against 4" in differ
    resume(ours)
    assert errors(ours.revert("t")) == []
    assert ids(ours) == [1, 2, 3, 4]
    assert not ours.job("t").record.compare_all
