"""Files written into the Hive table's original directories after the switch: no row is lost or duplicated."""

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
    """A worker dies."""


@pytest.fixture
def ours(spark: SparkSession, schema: str, tmp_path: Path) -> Iterator[Fleet]:
    with session.settings(spark, {"hive.exec.dynamic.partition.mode": "nonstrict"}, "the test"):
        hive_table(spark, f"{schema}.t", tmp_path / "t", OLD)
        ours = fleet(spark, schema, tmp_path)
        yield ours
        ours.store.close()


def leave(folder: Path, *numbers: int, name: str = "000000_0_copy_1") -> Path:
    """Write a file as a Hive job does."""
    folder.mkdir(parents=True, exist_ok=True)
    table = pa.table(
        {"id": pa.array(numbers, pa.int32()), "at": pa.array([None for _ in numbers], pa.timestamp("us"))}
    )
    pq.write_table(table, folder / name, use_deprecated_int96_timestamps=True)
    return folder / name


def append_late_files(ours: Fleet) -> None:
    ours.warehouse = replace(ours.warehouse, late_files=LateFiles.TAKE)


def resume(ours: Fleet, **how: Any) -> None:
    ours.store.edit(resumed(ours.job("t"), **how), ours.clock())


def ids(ours: Fleet, table: str = "t") -> list[int]:
    return sorted(row[0] for row in ours.rows(table))


def insert(ours: Fleet, number: int, day: str = "mon") -> None:
    ours.write("t", f"INSERT INTO {{t}} SELECT {number}, TIMESTAMP '2026-01-05 10:00:00', '{day}'")


# Names that a job may give to its files.
NAMES = ("data (1).parquet", "ü%20.parquet", "a+b=c,d", "x y")


# Another test below appends rows to both formats, and test_fleet_property.py has late files, too.
@pytest.mark.parametrize("form", soak.amount([TargetFormat.ICEBERG], FORMATS))
def test_late_file_pauses_the_job_or_is_appended(ours: Fleet, tmp_path: Path, form: TargetFormat) -> None:
    ours.to_probation("t", form=form)
    insert(ours, 4)
    assert errors(ours.shadow()) == []
    late = leave(tmp_path / "t" / "day=mon", 5, 6)
    [paused] = errors(ours.shadow())
    assert str(late) in paused
    assert ours.job("t").pause_reason.startswith("WRITTEN_LATE: ")
    assert ids(ours) == [1, 2, 3, 4]

    append_late_files(ours)
    resume(ours)
    # A new partition, odd names, and a partition that changes concurrently.
    leave(tmp_path / "t" / "day=new", 7)
    for number, name in enumerate(NAMES, 10):
        leave(tmp_path / "t" / "day=tue", number, name=name)
    ours.write("t", "UPDATE {t} SET at = NULL WHERE day = 'mon'")
    expected = [1, 2, 3, 4, 5, 6, 7, 10, 11, 12, 13]
    for _ in range(2):
        assert errors(ours.shadow()) == []
        assert ids(ours) == ids(ours, "t_hive") == expected
    # Also in a directory that the Hive copy no longer reads.
    leave(tmp_path / "t" / "day=mon", 14, name="000000_0_copy_2")
    ours.clock.turn(days=14)
    assert errors(ours.preprocess()) == []
    assert errors(ours.migrate()) == []
    assert ours.job("t").state is State.HIVE_DROPPED
    assert ids(ours) == ids(ours, "t_hive_archived") == [*expected, 14]


@soak.slow
def test_file_written_before_the_check_of_a_killed_worker_is_late(
    ours: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new table has newer rows, so the switch can't be reverted."""

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
    append_late_files(ours)
    resume(ours)
    assert errors(ours.migrate()) == []
    assert ours.job("t").state is State.WRITES_UNBLOCKED
    ours.notify()
    for _ in range(2):
        assert errors(ours.shadow()) == []
        assert ids(ours) == ids(ours, "t_hive") == [1, 2, 3, 4, 5]


@soak.only  # In make test, files arrive late only before the archive.
def test_file_written_during_or_after_the_archive_is_found(
    ours: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours.add("t", probation_gap_days=0)
    ours.preprocess()
    ours.notify()
    ours.clock.turn(days=14)
    assert errors(ours.migrate()) == []
    ours.notify()
    append_late_files(ours)
    leave(tmp_path / "t" / "day=mon", 4)
    assert errors(ours.preprocess()) == []
    rename = table_renames.rename_table

    def rename_late(warehouse: Warehouse, name: TableName, *how: Any, **more: Any) -> None:
        leave(tmp_path / "t" / "day=tue", 5)
        rename(warehouse, name, *how, **more)

    # The second file arrives after the last check before the rename. The first file's rows are appended once.
    with monkeypatch.context() as patch:
        patch.setattr(table_renames, "rename_table", rename_late)
        assert errors(ours.migrate()) == []
    assert ours.job("t").state is State.HIVE_DROPPED
    assert ids(ours) == [1, 2, 3, 4, 5]
    # A job that runs for half an hour longer, and a job whose file isn't accepted.
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
    # It stays in the queue until a user has checked the file.
    assert ours.store.archive(finished(), ours.clock()) == 0
    resume(ours, accept=True)
    assert errors(ours.shadow()) == []
    assert ids(ours) == [1, 2, 3, 4, 5, 6]
    # A user writes its row; then the revert keeps all rows.
    insert(ours, 7)
    assert errors(ours.revert("t", from_archive=True)) == []
    assert ids(ours) == [1, 2, 3, 4, 5, 6, 7]


@soak.only
def test_table_without_a_file_record_is_reported_as_unchecked(
    ours: Fleet, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ours.to_probation("t")
    ours.spark.sql(f"ALTER TABLE {ours.name('t_hive').sql} UNSET TBLPROPERTIES ('{file_record.FILES}')")
    leave(tmp_path / "t" / "day=mon", 4)
    assert errors(ours.shadow()) == []
    sentence = ours.job("t").record.late_files_not_looked_for
    assert "t_hive has no record of the files at the switch" in sentence
    assert any(sentence in message for message in caplog.messages)


@soak.only
def test_files_written_by_a_suspended_shadow_run_pause_a_revert(ours: Fleet, tmp_path: Path) -> None:
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
    assert "[ROWS_READ_TWICE]" in paused
    assert "Remove these files" in paused
    assert ours.job("t").state is State.WRITES_UNBLOCKED
    stray.unlink()
    assert errors(ours.revert("t")) == []
    ours.spark.sql(f"REFRESH TABLE {ours.name('t').sql}")
    assert ids(ours) == [1, 2, 3, 4]
    assert ours.job("t").state is State.ICEBERG_DROPPED


@soak.only  # In make test, late files are searched before the archive of a table with a probation.
def test_late_file_without_a_probation_is_found_before_the_archive(ours: Fleet, tmp_path: Path) -> None:
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
    append_late_files(ours)
    resume(ours)
    assert errors(ours.migrate()) == []
    assert ours.job("t").state is State.HIVE_DROPPED
    assert ids(ours) == [1, 2, 3, 5]


@soak.only  # In make test, test_fleet_property.py reverts tables with late files.
@pytest.mark.parametrize("form", FORMATS)
def test_revert_keeps_late_rows(ours: Fleet, tmp_path: Path, form: TargetFormat) -> None:
    ours.to_probation("t", form=form)
    insert(ours, 4)
    leave(tmp_path / "t" / "day=mon", 5)
    assert len(errors(ours.revert("t"))) == 1
    assert ours.job("t").pause_reason.startswith("WRITTEN_LATE: ")
    # Writes aren't blocked during the pause.
    assert ours.job("t").state is State.WRITES_UNBLOCKED
    append_late_files(ours)
    assert errors(ours.revert("t")) == []
    assert ids(ours) == [1, 2, 3, 4, 5]


@soak.only  # tests/unit/test_fleet_late.py tests the decision.
def test_accepted_late_files_are_not_reported_again(ours: Fleet, tmp_path: Path) -> None:
    ours.to_probation("t")
    leave(tmp_path / "t" / "day=mon", 5)
    leave(tmp_path / "t" / "nowhere", 6)
    assert len(errors(ours.shadow())) == 1
    insert(ours, 5)
    resume(ours, accept=True)
    # Files that arrived later weren't accepted.
    more = leave(tmp_path / "t" / "day=mon", 7, name="000000_0_copy_9")
    [paused] = errors(ours.shadow())
    assert str(more) in paused
    insert(ours, 7)
    resume(ours, accept=True)
    for _ in range(2):
        assert errors(ours.shadow()) == []
        assert ids(ours) == ids(ours, "t_hive") == [1, 2, 3, 5, 7]
    # Also if the run has no other change.
    leave(tmp_path / "t" / "nowhere", 8, name="other")
    assert len(errors(ours.shadow())) == 1
    resume(ours, accept=True)
    for _ in range(2):
        assert errors(ours.shadow()) == []


@soak.only  # tests/unit/test_fleet_late.py tests the decision.
def test_file_added_to_the_new_table_is_not_late(ours: Fleet, tmp_path: Path) -> None:
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
def test_file_added_to_the_new_table_and_compacted_is_not_late(ours: Fleet, tmp_path: Path) -> None:
    """The file still exists, and only an older snapshot lists it."""
    ours.spark.sql(
        f"CREATE EXTERNAL TABLE {ours.name('u').sql} (id INT, at TIMESTAMP) STORED AS PARQUET "
        f"LOCATION '{tmp_path / 'u'}'"
    )
    ours.spark.sql(f"INSERT INTO {ours.name('u').sql} VALUES (1, NULL)")
    append_late_files(ours)
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
def test_revert_of_a_replaced_table_keeps_rows_of_earlier_shadow_runs(ours: Fleet) -> None:
    """The replaced table has another id in its log, and the rows of the Hive copy stay in their files."""
    ours.to_probation("t", form=TargetFormat.DELTA)
    ours.write("t", "UPDATE {t} SET at = NULL WHERE day = 'mon'")
    assert errors(ours.shadow()) == []
    ours.write("t", "CREATE OR REPLACE TABLE {t} USING delta PARTITIONED BY (day) AS SELECT * FROM {t}")
    ours.write("t", "INSERT INTO {t} SELECT 4, NULL, 'tue'")
    assert errors(ours.shadow()) == []
    assert ids(ours) == ids(ours, "t_hive") == [1, 2, 3, 4]
    assert errors(ours.revert("t")) == []
    assert ids(ours) == [1, 2, 3, 4]


@soak.only  # tests/unit/test_fleet_late.py tests the decision.
def test_files_outside_partitions_and_replaced_files_always_pause_the_job(
    ours: Fleet, tmp_path: Path
) -> None:
    ours.to_probation("t")
    append_late_files(ours)
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


@soak.only  # tests/unit/test_fleet_late.py tests the decision.
def test_file_of_an_unfinished_write_is_not_late(
    ours: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settlement, "_PAUSE", 0.0)
    ours.to_probation("t", form=TargetFormat.DELTA)
    append_late_files(ours)
    insert(ours, 4)
    unfinished = leave(tmp_path / "t" / "day=mon", 5, name=DELTAS)
    assert errors(ours.shadow()) == []
    assert ids(ours) == ids(ours, "t_hive") == [1, 2, 3, 4]
    # The write hasn't ended, and the archive can't be reverted later.
    ours.clock.turn(days=14)
    assert errors(ours.preprocess()) == []
    [failed] = errors(ours.migrate())
    assert "[FILES_MAY_BE_UNCOMMITTED]" in failed
    assert ours.job("t").state is State.WRITES_UNBLOCKED
    # A day later, no commit will list it.
    os.utime(unfinished, (1, 1))
    # Only a user can determine whether a failed write or a Hive job on Spark wrote it.
    [paused] = errors(ours.migrate())
    assert "or they are of a write to it that failed" in paused
    assert "late_files" not in paused
    resume(ours, accept=True)
    assert errors(ours.migrate()) == []
    assert ids(ours) == ids(ours, "t_hive_archived") == [1, 2, 3, 4]


@soak.only
def test_archive_waits_for_the_commit_of_an_unfinished_write(
    ours: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours.to_probation("t", form=TargetFormat.DELTA)
    unfinished = leave(tmp_path / "t" / "day=mon", 5, name=DELTAS)
    looks: list[float] = []

    def end(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 2:
            commit_file(tmp_path / "t", unfinished)

    monkeypatch.setattr(f"{settlement.__name__}.sleep", end)
    ours.clock.turn(days=14)
    assert errors(ours.preprocess()) == []
    assert errors(ours.migrate()) == []
    assert len(looks) == 2
    assert ids(ours) == ids(ours, "t_hive_archived") == [1, 2, 3, 5]


def commit_file(table: Path, file: Path) -> None:
    """Write a Delta commit that adds a file, as the end of a write does."""
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
def test_files_replaced_by_a_concurrent_compaction_are_not_late(
    ours: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours.to_probation("t", form=TargetFormat.DELTA)
    append_late_files(ours)
    leave(tmp_path / "t" / "day=mon", 5)
    real = DeltaTarget.append_once

    def append_and_compact(target: DeltaTarget, *how: Any) -> None:
        real(target, *how)
        before = set((tmp_path / "t").rglob("*.parquet"))
        insert(ours, 6)
        ours.write("t", "OPTIMIZE {t}")
        # A recent file without a commit may belong to an unfinished write.
        for file in set((tmp_path / "t").rglob("*.parquet")) - before:
            os.utime(file, (1, 1))

    with monkeypatch.context() as patch:
        patch.setattr(DeltaTarget, "append_once", append_and_compact)
        assert errors(ours.shadow()) == []
    for _ in range(2):
        assert errors(ours.shadow()) == []
        assert ids(ours) == ids(ours, "t_hive") == [1, 2, 3, 5, 6]


@soak.only
def test_shadow_with_another_commit_protocol_adds_no_file_to_the_original_directories(
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


@soak.only  # tests/unit/test_fleet_late.py tests the decision.
@pytest.mark.parametrize("form", FORMATS)
def test_overwrite_that_removes_other_partitions_is_reported(ours: Fleet, form: TargetFormat) -> None:
    ours.to_probation("t", form=form)
    # A DELETE is intended.
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
    # The Hive copy has the removed rows.
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
    """Die after the effect number ``at``, or call ``before`` between its guard and the effect."""
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
def test_rows_are_appended_once_per_key(ours: Fleet, form: TargetFormat) -> None:
    ours.to_probation("t", form=form)

    def append(number: int, key: str) -> None:
        target = read_target(ours.warehouse, ours.name("t"), form)
        rows = target.rows().limit(1).selectExpr(f"{number} AS id", "at", "day")
        target.append_once(ours.warehouse, rows, key)

    for _ in range(2):
        append(4, "one")
    append(5, "two")
    assert ids(ours) == [1, 2, 3, 4, 5]
    # After the rows are written, and before they are visible.
    with effects(1), suppress(Crash):
        append(6, "three")
    append(6, "three")
    assert ids(ours) == [1, 2, 3, 4, 5, 6]
    named = ours.warehouse.named(ours.name("t"), form)
    properties = {row["key"] for row in ours.spark.sql(f"SHOW TBLPROPERTIES {named.sql}").collect()}
    assert properties.isdisjoint({"write.wap.enabled", "tableferry.staging"})
    # This worker read the target before another worker's commit.
    stale = read_target(ours.warehouse, ours.name("t"), form)
    append(7, "four")
    stale.append_once(ours.warehouse, stale.rows().limit(1).selectExpr("7 AS id", "at", "day"), "four")
    assert ids(ours) == [1, 2, 3, 4, 5, 6, 7]


@soak.only  # In make test, test_fleet_property.py has late files, and workers that die or are suspended.
@pytest.mark.parametrize("form", FORMATS)
def test_append_of_late_files_resumes_after_a_crash_at_any_change(
    ours: Fleet, tmp_path: Path, form: TargetFormat
) -> None:
    ours.to_probation("t", form=form)
    append_late_files(ours)
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
        # Another file arrives before the next run.
        leave(tmp_path / "t" / "day=mon", 300 + at, name=f"later-{at}")
        assert errors(ours.shadow()) == []
        assert ids(ours) == ids(ours, "t_hive") == expected, at
        if not reached:
            assert at > 12
            break


@soak.only
@pytest.mark.parametrize("form", FORMATS)
def test_shadow_run_suspended_after_the_guard_loses_no_row(ours: Fleet, form: TargetFormat) -> None:
    ours.to_probation("t", form=form)
    expected = [1, 2, 3]

    def run_another_worker() -> None:
        ours.clock.turn(minutes=ours.settings.lease_minutes + 1)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Warehouse, "effect", undisturbed)
            assert errors(shadow(ours.worker("quick"))) == []

    undisturbed = Warehouse.effect
    for at in range(20):
        insert(ours, 100 + at)
        expected = sorted([*expected, 100 + at])
        with effects(at, run_another_worker) as reached:
            ours.shadow()
        assert errors(ours.shadow()) == []
        assert ids(ours) == ids(ours, "t_hive") == expected, at
        if not reached:
            assert at >= 2
            break


@pytest.mark.parametrize("looked", soak.amount([True], [True, False]))
@soak.slow
def test_late_file_after_a_column_rename_pauses_the_job(ours: Fleet, tmp_path: Path, looked: bool) -> None:
    append_late_files(ours)
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
def test_late_row_of_a_null_partition_has_a_null_value(ours: Fleet, tmp_path: Path) -> None:
    append_late_files(ours)
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
def test_file_added_to_a_partition_that_shadow_rewrote_is_late(
    ours: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: TargetFormat
) -> None:
    """The job writes to the Hive copy by its name, so into the directory that the catalog lists."""

    def insert_into_hive(number: int) -> None:
        ours.spark.sql(f"INSERT INTO {ours.schema}.t_hive VALUES ({number}, NULL, 'mon')")

    ours.to_probation("t", form=form)
    ours.write("t", "UPDATE {t} SET at = NULL WHERE day = 'mon'")
    assert errors(ours.shadow()) == []
    insert_into_hive(4)
    append_late_files(ours)
    for _ in range(2):
        assert errors(ours.shadow()) == []
        assert ids(ours) == ids(ours, "t_hive") == [1, 2, 3, 4]
    # After the check, before the partition's directory is removed.
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
    # The file still exists for the user.
    assert ids(ours, "t_hive") == [1, 2, 3, 4]
    [file] = (tmp_path / "t_sync").glob(f"*/*/day=mon/{Path(left).name}")
    assert ours.spark.read.parquet(str(file)).select("id").collect() == [(5,)]


@pytest.mark.parametrize("form", soak.amount([TargetFormat.ICEBERG], FORMATS))
@soak.slow
def test_revert_without_the_folder_of_shadow_runs_keeps_every_row(
    ours: Fleet, tmp_path: Path, form: TargetFormat
) -> None:
    """The folder also contains the record of late files."""
    ours.to_probation("t", form=form)
    ours.write("t", "UPDATE {t} SET at = NULL WHERE day = 'mon'")
    assert errors(ours.shadow()) == []
    shutil.rmtree(tmp_path / "t_sync")
    assert errors(ours.revert("t")) == []
    assert ids(ours) == [1, 2, 3]


@soak.slow
def test_resume_repairs_a_hive_copy_that_missed_a_change(ours: Fleet) -> None:
    """The watermark is too high, for example because a Delta log was restored and got new commits."""
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
