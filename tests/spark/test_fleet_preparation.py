"""A copy is created and compared before writes are blocked; then only later changes are read."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import orc
from pyspark.sql import SparkSession
from tests import conditions, soak
from tests.fleet_steps import step_run
from tests.spark.fleets import Fleet, errors, fleet

from tableferry.access.metastore_access import MetastoreAccess
from tableferry.convert import overlay
from tableferry.convert.converted_table import write_checkpoint
from tableferry.convert.perform import write_first_checkpoint
from tableferry.fleet.copies import comparison, delta, iceberg
from tableferry.fleet.copies.comparison import RowsDiffer
from tableferry.fleet.copies.iceberg_files.name_mapping import MAPPING
from tableferry.fleet.copies.preparation import compare_ahead, prepare
from tableferry.fleet.hive_tables.table_files import ListedFile, TableFiles
from tableferry.fleet.jobs.job import Job, PauseReason, State, TargetFormat
from tableferry.fleet.jobs.pauses import resumed
from tableferry.fleet.jobs.steps import RecordFiles, Step, TryShadow, UnblockWrites
from tableferry.fleet.late_files import file_record
from tableferry.fleet.late_files.file_record import FileRecord, RecordedFiles
from tableferry.fleet.modes import job_run
from tableferry.fleet.modes.performer import perform
from tableferry.fleet.queue.changes import ClaimLost
from tableferry.fleet.shadow_runs import trial
from tableferry.fleet.warehouse import hive, job_tables, table_descriptions
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.hive_files import list_files, listing
from tableferry.fleet.warehouse.prepared_copy import PreparedCopy, members
from tableferry.formats.hive.partitions import NULL
from tableferry.spark import session
from tableferry.spark.tables import TableName

ROWS = 3
DAYS = {"a": "a", "b c": "b c", "x%2F+é": "x/+é", NULL: None}
"""Partitions' directories, each with its value."""


@dataclass
class Writers:
    """Writers of files in a Hive table's directory, with the expected rows."""

    spark: SparkSession
    table: TableName
    folder: Path
    stored: str = "PARQUET"
    files: dict[Path, list[int]] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=lambda: count(100_000))

    def create(self) -> None:
        self.spark.sql(
            f"CREATE EXTERNAL TABLE {self.table.sql} (id BIGINT, double_id BIGINT) "
            f"PARTITIONED BY (day STRING) STORED AS {self.stored} LOCATION '{self.folder}'"
        )

    def write(self, path: Path, seconds: int | None = None) -> None:
        """Write or rewrite a file with new ids; its size is always the same."""
        ids = [next(self.numbers) for _ in range(ROWS)]
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = {"id": pa.array(ids, pa.int64()), "double_id": pa.array([2 * i for i in ids], pa.int64())}
        if self.stored == "ORC":
            orc.write_table(pa.table(rows), path)
        else:
            pq.write_table(pa.table(rows), path, compression="none")
        if seconds is not None:
            os.utime(path, (seconds, seconds))
        self.files[path] = ids

    def add(self, day: str) -> None:
        self.write(self.folder / f"day={day}" / f"part-{next(self.numbers)}.parquet")
        spec = "day = NULL" if DAYS[day] is None else f"day = '{DAYS[day]}'"
        spec = f"day = '{NULL}'" if DAYS[day] is None else spec
        location = self.folder / f"day={day}"
        self.spark.sql(
            f"ALTER TABLE {self.table.sql} ADD IF NOT EXISTS PARTITION ({spec}) LOCATION '{location}'"
        )

    def again(self, at: int, seconds: int | None = None) -> None:
        """Rewrite one of the files with the same name."""
        if self.files:
            self.write(sorted(self.files)[at % len(self.files)], seconds)

    def remove(self, at: int) -> None:
        if self.files:
            path = sorted(self.files)[at % len(self.files)]
            path.unlink()
            del self.files[path]

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """The expected rows of the table."""
        days = {path: DAYS[path.parent.name.removeprefix("day=")] for path in self.files}
        found = [(number, 2 * number, days[path]) for path, ids in self.files.items() for number in ids]
        return sorted(found, key=repr)


@pytest.fixture
def ours(spark: SparkSession, schema: str, tmp_path: Path) -> Iterator[Fleet]:
    ours = fleet(spark, schema, tmp_path)
    yield ours
    ours.store.close()


@pytest.fixture
def writers(ours: Fleet, tmp_path: Path) -> Writers:
    writers = Writers(ours.spark, ours.name("t"), tmp_path / "t")
    writers.create()
    for day in DAYS:
        writers.add(day)
    return writers


ICEBERG, DELTA = TargetFormat.ICEBERG, TargetFormat.DELTA
BOTH = pytest.mark.parametrize("form", [ICEBERG, DELTA])


@dataclass
class Copying:
    """A run that creates and compares a table's copy, step by step."""

    warehouse: Warehouse
    source: TableName
    form: TargetFormat

    @classmethod
    def of(cls, ours: Fleet, source: TableName, form: TargetFormat) -> Copying:
        return cls(replace(ours.warehouse, prepared=PreparedCopy()), source, form)

    @property
    def target(self) -> TableName:
        return TableName((*self.source.parts[:-1], f"{self.source.table}_{self.form.value}"))

    @property
    def readable(self) -> str:
        """The name of the copy in Spark."""
        name = self.warehouse.named(self.target, self.form)
        return name.sql

    @property
    def prepared(self) -> PreparedCopy:
        assert self.warehouse.prepared is not None
        return self.warehouse.prepared

    def ahead(self) -> int:
        """Run the steps before writes are blocked."""
        if self.form is ICEBERG:
            return prepare(self.warehouse, self.source, self.target)
        return compare_ahead(self.warehouse, self.source)

    def make(self) -> int:
        """Create the copy, as a run does while writes are blocked."""
        hive.list_table_files(self.warehouse, hive.require_hive_table(self.warehouse, self.source))
        make = iceberg.create_copy if self.form is ICEBERG else delta.create_copy
        return make(self.warehouse, self.source, self.target)

    def compare(self) -> int:
        return comparison.require_copy_has_same_rows(self.warehouse, self.source, self.target)

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        return sorted(map(tuple, self.warehouse.spark.table(self.readable).collect()), key=repr)

    @property
    def files(self) -> list[str]:
        """The names of the copy's files."""
        if self.form is ICEBERG:
            read = self.warehouse.spark.sql(f"SELECT file_path FROM {self.readable}.files")
        else:
            read = self.warehouse.spark.table(self.readable).select("_metadata.file_path").distinct()
        return sorted(row[0].rpartition("/")[2] for row in read.collect())


def age(writers: Writers) -> None:
    """Let the files look so old that a rewrite changes their modification time in seconds."""
    for number, path in enumerate(writers.files):
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def beside(folder: Path) -> list[str]:
    """Return the directories of trials next to a table's directory."""
    return [path.name for path in folder.parent.iterdir() if "trial" in path.name]


@pytest.mark.parametrize(
    ("form", "stored"),
    [
        pytest.param(ICEBERG, "PARQUET", marks=soak.slow),
        pytest.param(DELTA, "PARQUET", marks=soak.slow),
        (ICEBERG, "ORC"),
    ],
)
def test_only_later_changes_are_compared_while_writes_are_blocked(
    ours: Fleet, tmp_path: Path, form: TargetFormat, stored: str
) -> None:
    writers = Writers(ours.spark, ours.name("t"), tmp_path / "t", stored)
    writers.create()
    for day in DAYS:
        writers.add(day)
    copying = Copying.of(ours, writers.table, form)
    age(writers)
    assert copying.ahead() == ROWS * len(DAYS)
    assert copying.make() == len(DAYS)
    assert copying.compare() == 0
    # One file is added, one is rewritten with the same name, one is removed.
    writers.add("a")
    writers.again(1)
    writers.remove(0)
    assert copying.make() == len(DAYS)
    assert copying.compare() == 2 * ROWS
    assert copying.files == sorted(path.name for path in writers.files)
    assert copying.rows == writers.rows
    assert beside(writers.folder) == []


@pytest.mark.parametrize(
    "change",
    [
        *(pytest.param(change, marks=soak.slow) for change in ("none", "one comes", "one goes")),
        "one is stray",
    ],
)
def test_many_files_are_recorded_before_writes_are_blocked(
    ours: Fleet, writers: Writers, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_record, "_MANY", len(DAYS))
    copying = Copying.of(ours, writers.table, DELTA)
    warehouse, table = copying.warehouse, hive.require_hive_table(copying.warehouse, writers.table)
    hive.list_table_files(warehouse, table)
    FileRecord.begin(warehouse, table.name)
    begun = copying.prepared.recorded
    assert begun is not None
    added: list[int] = []
    add = FileRecord.add

    def counted(self: FileRecord, files: Collection[ListedFile], **how: Any) -> None:
        added.append(len(files))
        add(self, files, **how)

    monkeypatch.setattr(FileRecord, "add", counted)
    match change:
        case "one comes":
            writers.add("a")
        case "one goes":
            writers.remove(0)
        case "one is stray":
            # Its files remain, and no partition contains them.
            ours.spark.sql(f"ALTER TABLE {writers.table.sql} DROP PARTITION (day = 'a')")
    listed = hive.list_table_files(warehouse, table)

    def recorded() -> FileRecord:
        file_record.record_files(RecordFiles(table.name), step_run(warehouse))
        properties = hive.require_hive_table(ours.warehouse, writers.table).properties
        record = FileRecord.of(warehouse, properties)
        assert record is not None
        return record

    made = recorded()
    assert recorded() == made, "a repeated step changes nothing"
    assert made.files() == RecordedFiles(frozenset(listed.listing.files), frozenset())
    assert made.stray() == frozenset(listed.listing.stray)
    assert len(listed.listing.stray) == (change == "one is stray")
    assert (made.folder == begun.folder) == (change in ("none", "one comes"))
    every = len(DAYS)
    expected = {"none": [], "one comes": [1], "one goes": [every - 1], "one is stray": [every]}
    assert added == expected[change]


@soak.slow
@pytest.mark.parametrize("true", [True, False])
def test_checkpoint_of_a_long_log_is_written_after_the_switch(
    ours: Fleet, writers: Writers, true: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overlay, "MANY", 1)
    checkpoint = writers.folder / "_delta_log" / f"{0:020}.checkpoint.parquet"
    given_back: list[bool] = []

    def looking(step: Step, *others: Any) -> Job:
        if isinstance(step, UnblockWrites):
            given_back.append(checkpoint.exists())
        return perform(step, *others)

    def write(root: Path) -> None:
        write_first_checkpoint(root)
        assert checkpoint.exists()
        if not true:
            actions = pq.read_table(checkpoint)
            pq.write_table(actions.slice(0, len(actions) - 1), checkpoint)

    monkeypatch.setattr(job_run, "perform", looking)
    monkeypatch.setattr(overlay, "write_first_checkpoint", write)
    ours.to_probation("t", form=DELTA)
    assert given_back == [False]
    # A checkpoint that differs from the commit is removed.
    assert checkpoint.exists() is true
    assert (checkpoint.parent / "_last_checkpoint").exists() is true
    assert sorted(ours.rows("t"), key=repr) == writers.rows


def test_dropped_partition_is_removed_from_an_iceberg_copy(ours: Fleet, writers: Writers) -> None:
    copying = Copying.of(ours, writers.table, ICEBERG)
    age(writers)
    copying.ahead()
    ours.spark.sql(f"ALTER TABLE {writers.table.sql} DROP PARTITION (day = 'b c')")
    assert copying.make() == len(DAYS) - 1
    assert copying.compare() == 0
    assert copying.files == sorted(path.name for path in writers.files if path.parent.name != "day=b c")


@BOTH
@soak.slow
def test_file_rewritten_in_the_same_second_is_compared_again(
    ours: Fleet, writers: Writers, form: TargetFormat
) -> None:
    copying = Copying.of(ours, writers.table, form)
    now = int(time.time())
    writers.again(0, seconds=now)
    assert copying.ahead() == ROWS * len(DAYS)
    writers.again(0, seconds=now)
    copying.make()
    assert copying.compare() >= ROWS
    number = writers.rows[0][0]
    found = ours.spark.table(copying.readable).where(f"id = {number}")
    assert found.count() == 1, "the copy has the bounds of the old file"


@pytest.mark.parametrize("way", ["files", "mapping"])
def test_foreign_change_of_an_iceberg_copy_is_found(ours: Fleet, writers: Writers, way: str) -> None:
    copying = Copying.of(ours, writers.table, ICEBERG)
    age(writers)
    copying.ahead()
    name = copying.readable
    if way == "files":
        ours.spark.sql(f"INSERT INTO {name} VALUES (1, 2, 'a')")
    else:
        # A column's values are all null from now on.
        properties = table_descriptions.properties(
            copying.warehouse.spark, copying.warehouse.iceberg(copying.target)
        )
        mapping = properties[MAPPING].replace("double_id", "nothing")
        ours.spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('{MAPPING}' = '{mapping}')")
    with pytest.raises(RowsDiffer):
        copying.compare()


@pytest.mark.parametrize("way", ["delete", "commit", "checkpoint", "entry"])
@soak.slow
def test_foreign_change_of_a_delta_copy_is_found(ours: Fleet, writers: Writers, way: str) -> None:
    copying = Copying.of(ours, writers.table, DELTA)
    age(writers)
    copying.ahead()
    copying.make()
    log = writers.folder / "_delta_log"
    first, checkpoint = log / f"{0:020}.json", log / f"{0:020}.checkpoint.parquet"
    match way:
        case "delete":
            ours.spark.sql(f"DELETE FROM {copying.readable} WHERE id = {writers.rows[0][0]}")
        case "commit":
            first.write_text(first.read_text().replace('"day":"a"', '"day":"z"'))
        case "checkpoint":
            write_checkpoint(writers.folder)
            assert copying.compare() == 0, "the log has the drafted commit"
            actions = pq.read_table(checkpoint)
            pq.write_table(actions.slice(0, len(actions) - 1), checkpoint)
        case "entry":
            ours.spark.sql(f"DROP TABLE {copying.readable}")
            ours.spark.sql(
                f"CREATE TABLE {copying.readable} (id BIGINT, double_id BIGINT, day STRING) USING delta"
            )
    # A Spark session caches the logs that it has read.
    jvm = ours.spark._jvm
    assert jvm is not None
    jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    with pytest.raises(RowsDiffer):
        copying.compare()


@BOTH
@pytest.mark.parametrize("change", ["column", "options"])
@soak.slow
def test_table_with_changed_read_options_is_compared_again(
    ours: Fleet, tmp_path: Path, form: TargetFormat, change: str
) -> None:
    source = ours.name("t")
    ours.spark.sql(
        f"CREATE TABLE {source.sql} (id BIGINT, day STRING DEFAULT 'a') USING parquet "
        f"LOCATION '{tmp_path / 't'}'"
    )
    ours.spark.sql(f"INSERT INTO {source.sql} VALUES (1, 'b'), (2, DEFAULT)")
    copying = Copying.of(ours, source, form)
    assert copying.ahead() == 2
    if change == "column":
        ours.spark.sql(f"ALTER TABLE {source.sql} ADD COLUMNS (later INT)")
    else:
        ours.spark.sql(f"ALTER TABLE {source.sql} SET SERDEPROPERTIES ('compression' = 'zstd')")
    copying.make()
    assert copying.compare() == 2


class Rights(MetastoreAccess):
    """Records when rights are revoked."""

    def __init__(self, spark: SparkSession) -> None:
        super().__init__(spark)
        self.taken = 0

    def rights_to_write(self, table: TableName) -> Mapping[str, Any]:
        return {"w": "INSERT"}

    def take(self, table: TableName, rights: Mapping[str, Any]) -> None:
        self.taken += 1

    def give_back(self, table: TableName, rights: Mapping[str, Any]) -> None:
        pass


@soak.slow
def test_writers_are_not_blocked_if_rows_would_differ(ours: Fleet, tmp_path: Path) -> None:
    """Iceberg 1.12 reads milliseconds as microseconds."""
    ours.warehouse = replace(ours.warehouse, access=(rights := Rights(ours.spark)))
    (tmp_path / "t").mkdir()
    ours.spark.sql(
        f"CREATE EXTERNAL TABLE {ours.name('t').sql} (at TIMESTAMP) STORED AS PARQUET "
        f"LOCATION '{tmp_path / 't'}'"
    )
    ours.add("t")
    assert errors(ours.preprocess()) == []
    # A preflight would refuse it.
    at = pa.array([1_700_000_000_000], pa.timestamp("ms", "UTC"))
    pq.write_table(pa.table({"at": at}), tmp_path / "t" / "a.parquet")
    ours.notify()
    ours.clock.turn(days=14)
    [error] = errors(ours.migrate())
    assert "the files of" in error
    job = ours.job("t")
    assert job.pause_reason.startswith(PauseReason.ROWS_DIFFER.value)
    assert (job.state, rights.taken) == (State.READY, 0)


@soak.slow
def test_writers_are_not_blocked_if_rows_would_differ_in_delta(ours: Fleet, tmp_path: Path) -> None:
    """Spark reads a partition's time in the session's time zone, and the log stores it in UTC."""
    ours.warehouse = replace(ours.warehouse, access=(rights := Rights(ours.spark)))
    zone = {"spark.sql.session.timeZone": "America/New_York"}
    with session.settings(ours.spark, zone, "the test"):
        ours.spark.sql(
            f"CREATE EXTERNAL TABLE {ours.name('t').sql} (id INT) PARTITIONED BY (at TIMESTAMP) "
            f"STORED AS PARQUET LOCATION '{tmp_path / 't'}'"
        )
        ours.spark.sql(
            f"INSERT INTO {ours.name('t').sql} PARTITION (at = TIMESTAMP'2026-01-01 10:00:00') VALUES (1)"
        )
        ours.add("t", form=DELTA)
        assert errors(ours.preprocess()) == []
        ours.notify()
        ours.clock.turn(days=14)
        [error] = errors(ours.migrate())
    assert "the files of" in error
    job = ours.job("t")
    assert job.pause_reason.startswith(PauseReason.ROWS_DIFFER.value)
    assert (job.state, rights.taken) == (State.READY, 0)
    assert not (tmp_path / "t" / "_delta_log").exists()
    assert beside(tmp_path / "t") == []


class TestWhereSparkReadsNoSingleFile:
    """Hive's readers read whole partitions, so whole partitions are compared."""

    @pytest.fixture
    def copying(self, ours: Fleet, tmp_path: Path) -> Copying:
        copying = Copying.of(ours, ours.name("t"), ICEBERG)
        ours.spark.sql(
            f"CREATE EXTERNAL TABLE {copying.source.sql} (id BIGINT) PARTITIONED BY (month INT, day STRING) "
            f"STORED AS AVRO LOCATION '{tmp_path / 't'}'"
        )
        for day in "abc":
            self.insert(copying, day, 3)
        for path in (tmp_path / "t").rglob("part-*"):
            os.utime(path, (1_700_000_000, 1_700_000_000))
        return copying

    def insert(self, copying: Copying, day: str, rows: int) -> None:
        copying.warehouse.spark.sql(
            f"INSERT INTO {copying.source.sql} PARTITION (month = 1, day = '{day}') "
            f"SELECT /*+ COALESCE(1) */ id FROM range({rows})"
        )

    @soak.slow
    def test_changed_partitions_are_compared(self, copying: Copying, tmp_path: Path) -> None:
        assert copying.ahead() == 9
        copying.make()
        assert copying.compare() == 0
        self.insert(copying, "b", 2)
        [gone] = (tmp_path / "t").glob("month=1/day=c/part-*")
        gone.unlink()
        copying.make()
        assert copying.compare() == 3 + 2
        assert copying.rows == sorted(
            [(n, 1, "a") for n in range(3)] + [(n, 1, "b") for n in (0, 1, 2, 0, 1)]
        )

    @pytest.mark.parametrize(
        ("writes", "ahead", "blocked"), [pytest.param(1, 6 + 4, 0, marks=soak.slow), (9, 6, 3 + 4)]
    )
    def test_busy_partitions_are_compared_later(
        self, copying: Copying, writes: int, ahead: int, blocked: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        compare, left = comparison.require_same_rows, iter(range(writes))

        def writing(*given: Any) -> int:
            if next(left, None) is not None:
                self.insert(copying, "b", 1)
            return compare(*given)

        monkeypatch.setattr(comparison, "require_same_rows", writing)
        assert copying.ahead() == ahead
        left = iter(())
        copying.make()
        assert copying.compare() == blocked
        assert copying.prepared.busy == frozenset()

    @soak.slow
    def test_null_partition_causes_a_comparison_of_all_partitions(self, copying: Copying) -> None:
        assert copying.ahead() == 9
        copying.warehouse.spark.sql(
            f"INSERT INTO {copying.source.sql} PARTITION (month = 1, day) SELECT 7 AS id, NULL AS day"
        )
        copying.make()
        assert copying.compare() == 9 + 1


def test_table_with_other_files_in_spark_is_compared_as_a_whole(ours: Fleet, tmp_path: Path) -> None:
    source, folder = ours.name("t"), tmp_path / "t"
    folder.mkdir()
    pq.write_table(pa.table({"id": pa.array([1], pa.int64())}), folder / "a.parquet")
    ours.spark.sql(f"CREATE EXTERNAL TABLE {source.sql} (id BIGINT) STORED AS PARQUET LOCATION '{folder}'")
    table = hive.require_hive_table(ours.warehouse, source)
    listed = TableFiles(table, (), listing(ours.warehouse, table, ()), 0)
    assert comparison.is_comparable_by_file(ours.warehouse, listed)
    # Spark reads this file, but Tableferry's listing leaves it out.
    (folder / "empty").touch()
    assert not comparison.is_comparable_by_file(ours.warehouse, listed)


@BOTH
def test_table_without_files_is_compared_too(ours: Fleet, writers: Writers, form: TargetFormat) -> None:
    copying = Copying.of(ours, writers.table, form)
    while writers.files:
        writers.remove(0)
    assert copying.ahead() == 0
    writers.add("a")
    assert copying.make() == 1
    assert copying.compare() == ROWS


def test_trial_of_a_killed_run_is_removed(ours: Fleet, writers: Writers) -> None:
    copying = Copying.of(ours, writers.table, DELTA)
    left = writers.folder.with_name("_tableferry_trial_t") / "0" / "_delta_log" / "0.json"
    for step in (copying.ahead, copying.make):
        left.parent.mkdir(parents=True)
        left.write_text("{}")
        step()
        assert beside(writers.folder) == []
    # A run that resumes after a crash compares everything.
    left.parent.mkdir(parents=True)
    second = Copying.of(ours, writers.table, DELTA)
    hive.list_table_files(second.warehouse, hive.require_hive_table(second.warehouse, writers.table))
    assert second.compare() == ROWS * len(DAYS)
    assert beside(writers.folder) == []


def test_trial_is_hidden_and_always_removed(
    ours: Fleet, writers: Writers, monkeypatch: pytest.MonkeyPatch
) -> None:
    copying = Copying.of(ours, writers.table, DELTA)
    before = list_files(ours.warehouse, [str(writers.folder.parent)])

    def dying(warehouse: Warehouse, *_: Any) -> None:
        assert beside(writers.folder) == ["_tableferry_trial_t"]
        assert list_files(warehouse, [str(writers.folder.parent)]) == before
        assert not (writers.folder / "_delta_log").exists()
        raise KeyboardInterrupt

    monkeypatch.setattr(comparison, "read_file_rows", dying)
    with pytest.raises(KeyboardInterrupt):
        copying.ahead()
    assert beside(writers.folder) == []


@soak.slow
def test_trial_finds_files_in_directories_with_odd_names(ours: Fleet, tmp_path: Path) -> None:
    writers = Writers(ours.spark, ours.name("t"), tmp_path / "a b+%20é#[1]{x}" / "t %25=?")
    writers.create()
    writers.add("x%2F+é")
    writers.write(writers.folder / "day=x%2F+é" / "f %20+#é.parquet")
    copying = Copying.of(ours, writers.table, DELTA)
    assert copying.ahead() == 2 * ROWS
    assert beside(writers.folder) == []


def test_worker_without_its_claim_leaves_no_trial(ours: Fleet, writers: Writers) -> None:
    copying = Copying.of(ours, writers.table, DELTA)

    def lost() -> None:
        raise ClaimLost("it is another's")

    copying.warehouse = replace(copying.warehouse, guard=lost)
    with pytest.raises(ClaimLost):
        copying.ahead()
    assert beside(writers.folder) == []


def test_table_without_room_for_a_trial_is_compared_while_writes_are_blocked(
    ours: Fleet, writers: Writers
) -> None:
    copying = Copying.of(ours, writers.table, DELTA)
    writers.folder.with_name("_tableferry_trial_t").write_text("of another process")
    assert copying.ahead() == 0
    copying.make()
    assert copying.compare() == ROWS * len(DAYS)


def test_rows_of_single_files_equal_the_tables_rows(ours: Fleet, tmp_path: Path) -> None:
    """Columns are spelled differently, missing or additional; some partitions are outside the directory."""
    source, folder = ours.name("odd"), tmp_path / "odd"
    ours.spark.sql(
        f"CREATE EXTERNAL TABLE {source.sql} (Id BIGINT, name VARCHAR(5), code CHAR(4), at TIMESTAMP, "
        # The inner data frames use the same names.
        f"inner STRUCT<a: INT, b: ARRAY<STRING>>, later INT, directory INT, k0 STRING, c1 INT) "
        f"PARTITIONED BY (n INT, day DATE, word STRING, moment TIMESTAMP, amount DECIMAL(5, 2), yes BOOLEAN, "
        f"scheme STRING) STORED AS PARQUET LOCATION '{folder}'"
    )
    inner = pa.struct([("A", pa.int32()), ("b", pa.list_(pa.string()))])
    seven = pa.array([7], pa.int32())
    instant = pa.array([1_700_000_000_000_000], pa.timestamp("us", "UTC"))
    shapes: list[dict[str, Any]] = [
        {"ID": [1, 2], "NAME": ["a", None], "code": ["x", None], "extra": [1, 2], "k0": ["b", None]},
        {"id": [3], "inner": pa.array([{"A": 1, "b": ["x", None]}], inner), "later": seven},
        {
            "id": pa.array([None], pa.int64()),
            "at": instant,
        },
    ]
    places = [
        (
            "n = 7, day = DATE'2026-01-02', word = 'a b+c%20é', moment = '2026-01-02 03:04:05.6', "
            "amount = 1.50, yes = true, scheme = 's'",
            folder / "n=007" / "x y+z%20é",
        ),
        (
            ", ".join(
                f"{name} = '{NULL}'" for name in ("n", "day", "word", "moment", "amount", "yes", "scheme")
            ),
            folder / f"n={NULL}",
        ),
        (
            "n = -1, day = DATE'1969-12-31', word = ''' \"', moment = '1969-12-31', amount = -7, "
            "yes = false, scheme = 't'",
            tmp_path / "elsewhere [1]",
        ),
    ]
    for spec, place in places:
        place.mkdir(parents=True)
        for at, shape in enumerate(shapes):
            pq.write_table(pa.table(shape), place / f"f {at}.parquet")
        ours.spark.sql(f"ALTER TABLE {source.sql} ADD PARTITION ({spec}) LOCATION '{place}'")
    warehouse = replace(ours.warehouse, prepared=PreparedCopy())
    listed = hive.list_table_files(warehouse, hive.require_hive_table(warehouse, source))
    files = members(listed)
    assert len(files) == 9
    frame = comparison.read_file_rows(warehouse, listed, files)
    table = ours.spark.table(source.sql)
    assert [name.lower() for name in frame.columns] == [name.lower() for name in table.columns]
    assert sorted(map(repr, frame.collect())) == sorted(map(repr, table.select(*frame.columns).collect()))
    some = [member for member in files if "n=7" in member[1]]
    rows = comparison.read_file_rows(warehouse, listed, some).collect()
    assert {row["word"] for row in rows} == {"a b+c%20é"}
    assert len(rows) == 4


@soak.slow
def test_files_removed_after_the_sessions_listing_cause_no_failure(ours: Fleet, tmp_path: Path) -> None:
    writers = Writers(ours.spark, ours.name("t"), tmp_path / "t")
    writers.create()
    writers.add("a")
    assert ours.rows("t") == writers.rows

    def replace_the_first(name: str) -> None:
        writers.write(tmp_path / "t" / "day=a" / name)
        writers.remove(0)

    ours.add("t", form=ICEBERG)
    replace_the_first("q.parquet")
    assert errors(ours.preprocess()) == []
    replace_the_first("r.parquet")
    trial.try_shadow(TryShadow(ours.name("t")), step_run(ours.warehouse))


def test_column_added_after_the_comparison_is_compared(ours: Fleet, tmp_path: Path) -> None:
    """A session caches the columns of tables in Spark's own formats, so both sides would lack the column."""
    source, copy = ours.name("t"), ours.name("t_delta")
    ours.spark.sql(
        f"CREATE TABLE {source.sql} (id INT, day STRING) USING parquet PARTITIONED BY (day) "
        f"LOCATION '{tmp_path / 't'}'"
    )
    ours.spark.sql(f"INSERT INTO {source.sql} VALUES (1, 'a')")
    warehouse = replace(
        ours.warehouse, prepared=PreparedCopy(), table_cache=job_tables.JobTableCache((source, copy))
    )
    assert compare_ahead(warehouse, source) == 1
    other = session.beside(ours.spark)
    assert other is not None
    other.sql(f"ALTER TABLE {source.sql} ADD COLUMNS (late STRING)")
    other.sql(f"INSERT INTO {source.sql} VALUES (2, 'late', 'a')")
    hive.list_table_files(warehouse, hive.read_layout(warehouse, source))
    delta.create_copy(warehouse, source, copy)
    # The next transition reads all of the job's tables, and the fence lists the files.
    job_tables.kinds(warehouse, (source, copy))
    hive.list_table_files(warehouse, hive.read_layout(warehouse, source))
    with conditions.raises("TABLE_ROWS_DIFFER", comparison=re.compile("late")):
        comparison.require_copy_has_same_rows(warehouse, source, copy)


# The change by a writer, its file, and the call of the run before which it happens.
EVENTS = st.lists(
    st.tuples(
        st.integers(0, 16),
        st.sampled_from(["add", "again", "coarse", "remove"]),
        st.integers(0, 7),
    ),
    max_size=6,
)


@contextmanager
def calling(before: Callable[[str], None]) -> Iterator[None]:
    """Call a function before each step of a run, and before the calls that prepare a copy."""

    def hooked(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **how: Any) -> Any:
            before(type(given[0]).__name__ if name == "perform" else name)
            return real(*given, **how)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for module, name in (
            (hive, "list_table_files"),
            (iceberg, "create_copy"),
            (delta, "create_copy"),
            (delta, "draft_commit"),
            (comparison, "require_copy_has_same_rows"),
            (comparison, "require_draft_has_same_rows"),
            (job_run, "perform"),
        ):
            patch.setattr(module, name, hooked(name, getattr(module, name)))
        # It's the same for all examples, and slow.
        patch.setattr(trial, "try_shadow", lambda _, run: run.job)
        yield


@pytest.mark.parametrize(("form", "by_file"), [(ICEBERG, True), (ICEBERG, False), (DELTA, True)])
@soak.slow
def test_no_row_is_lost_with_any_concurrent_writes(
    spark: SparkSession, schema: str, tmp_path: Path, form: TargetFormat, by_file: bool
) -> None:
    numbers = count()

    @soak.slow_examples(soak.amount(3, 20))
    @given(EVENTS)
    def scenario(events: list[tuple[int, str, int]]) -> None:
        number = next(numbers)
        folder = tmp_path / f"run_{number}"
        folder.mkdir()
        ours = fleet(spark, schema, folder)
        name = f"t{number}"
        writers = Writers(spark, ours.name(name), folder / "t")
        writers.create()
        for day in DAYS:
            writers.add(day)
        age(writers)
        calls, blocked, late = count(), False, False
        second = 1_800_000_000 + number

        def before(call: str) -> None:
            nonlocal blocked, late
            at = next(calls)
            blocked = blocked or call == "BlockWrites"
            # Files that are written after the switch are late files, which other tests cover.
            late = call == "Rename" or (late and call != "RepeatPreflight")
            if late:
                return
            for when, what, which in events:
                if when != at:
                    continue
                match what:
                    case "add":
                        writers.add(list(DAYS)[which % len(DAYS)])
                    case "again":
                        writers.again(which)
                    case "coarse" if not blocked:
                        # No listing finds a rewrite in the same second as the mark.
                        writers.again(which, seconds=second)
                    case "remove":
                        writers.remove(which)

        try:
            ours.add(name, form=form)
            assert errors(ours.preprocess()) == []
            ours.notify()
            ours.clock.turn(days=14)
            with calling(before):
                ours.migrate()
            for _ in range(4):
                if ours.job(name).migration_paused:
                    ours.store.edit(resumed(ours.job(name)), ours.clock())
                ours.migrate()
            assert ours.job(name).state is State.WRITES_UNBLOCKED, ours.job(name).pause_reason
            assert ours.rows(name) == writers.rows
            # Also with the files' bounds.
            target = ours.warehouse.named(ours.name(name), form).sql
            for wanted in writers.rows:
                assert spark.table(target).where(f"id = {wanted[0]}").count() == 1
            assert beside(writers.folder) == []
        finally:
            ours.store.close()

    settings = {"hive.exec.dynamic.partition.mode": "nonstrict"}
    # Hive's readers can't read single files.
    settings["spark.sql.hive.convertMetastoreParquet"] = str(by_file).lower()
    with session.settings(spark, settings, "the test"):
        scenario()
