"""A copy is made and compared while people write; when they are locked out, only what came since is read."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
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
from pyspark.sql import SparkSession
from tests import soak
from tests.spark.fleets import Fleet, errors, fleet

from tableferry import session
from tableferry.fleet import job_run
from tableferry.fleet.job import PauseReason, State
from tableferry.fleet.pausing import resumed
from tableferry.fleet.warehouse import comparing, hive, iceberg
from tableferry.fleet.warehouse.access_metastore import MetastoreAccess
from tableferry.fleet.warehouse.comparing import RowsDiffer
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.name_mapping import MAPPING
from tableferry.fleet.warehouse.prepared import Prepared, members
from tableferry.fleet.warehouse.preparing import prepare
from tableferry.fleet.warehouse.shadow import trying
from tableferry.hive.partitions import NULL
from tableferry.tables import TableName

ROWS = 3
DAYS = {"a": "a", "b c": "b c", "x%2F+é": "x/+é", NULL: None}
"""Partitions' directories, each with its value."""


@dataclass
class Writers:
    """Who writes files into a Hive table's directory, and knows what rows are in it."""

    spark: SparkSession
    table: TableName
    folder: Path
    files: dict[Path, list[int]] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=lambda: count(100_000))

    def create(self) -> None:
        self.spark.sql(
            f"CREATE EXTERNAL TABLE {self.table.sql} (id BIGINT, double_id BIGINT) "
            f"PARTITIONED BY (day STRING) STORED AS PARQUET LOCATION '{self.folder}'"
        )

    def write(self, path: Path, seconds: int | None = None) -> None:
        """Write a file, or write one again: always as many bytes, by other ids."""
        ids = [next(self.numbers) for _ in range(ROWS)]
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = {"id": pa.array(ids, pa.int64()), "double_id": pa.array([2 * i for i in ids], pa.int64())}
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
        """Write one of the files again, by its name."""
        if self.files:
            self.write(sorted(self.files)[at % len(self.files)], seconds)

    def remove(self, at: int) -> None:
        if self.files:
            path = sorted(self.files)[at % len(self.files)]
            path.unlink()
            del self.files[path]

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """What must be in the table."""
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


def warehouse_of(ours: Fleet) -> Warehouse:
    return replace(ours.warehouse, prepared=Prepared())


def relisted(warehouse: Warehouse, source: TableName) -> None:
    hive.listed(warehouse, hive.demand(warehouse, source))


def beside(table: TableName) -> TableName:
    return TableName((*table.parts[:-1], f"{table.table}_iceberg"))


def files_of(warehouse: Warehouse, target: TableName) -> list[str]:
    query = f"SELECT file_path FROM {warehouse.iceberg(target).sql}.files ORDER BY 1"
    return [row[0] for row in warehouse.spark.sql(query).collect()]


def age(writers: Writers) -> None:
    """Let the files be so old that nobody writes one again in the same second."""
    for number, path in enumerate(writers.files):
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def test_only_what_changed_since_is_compared(ours: Fleet, writers: Writers) -> None:
    warehouse, source, target = warehouse_of(ours), writers.table, beside(writers.table)
    age(writers)
    assert prepare(warehouse, source, target) == ROWS * len(DAYS)
    relisted(warehouse, source)
    assert iceberg.make(warehouse, source, target) == len(DAYS)
    assert comparing.demand_same_as_copy(warehouse, source, target) == 0
    # One comes, one is written again by its name, one goes.
    writers.add("a")
    writers.again(1)
    writers.remove(0)
    relisted(warehouse, source)
    assert iceberg.make(warehouse, source, target) == len(DAYS)
    assert comparing.demand_same_as_copy(warehouse, source, target) == 2 * ROWS
    assert sorted(files_of(warehouse, target)) == sorted(f"file:{path}" for path in writers.files)
    rows = warehouse.spark.table(warehouse.iceberg(target).sql).collect()
    assert sorted(map(tuple, rows), key=repr) == writers.rows
    # So does what is dropped with its partition.
    warehouse.spark.sql(f"ALTER TABLE {source.sql} DROP PARTITION (day = 'b c')")
    relisted(warehouse, source)
    left = iceberg.make(warehouse, source, target)
    assert left == sum(path.parent.name != "day=b c" for path in writers.files)
    assert len(files_of(warehouse, target)) == left
    assert comparing.demand_same_as_copy(warehouse, source, target) == 0


def test_a_file_that_is_written_again_in_the_same_second_is_compared_again(
    ours: Fleet, writers: Writers
) -> None:
    warehouse, source, target = warehouse_of(ours), writers.table, beside(writers.table)
    relisted(warehouse, source)
    listed = warehouse.prepared.listed if warehouse.prepared else None
    assert listed is not None
    now = listed.at // 1_000_000
    writers.again(0, seconds=now)
    assert prepare(warehouse, source, target) == ROWS * len(DAYS)
    writers.again(0, seconds=now)
    relisted(warehouse, source)
    iceberg.make(warehouse, source, target)
    assert comparing.demand_same_as_copy(warehouse, source, target) >= ROWS
    number = writers.rows[0][0]
    iceberg_rows = warehouse.spark.table(warehouse.iceberg(target).sql)
    assert iceberg_rows.where(f"id = {number}").count() == 1, "its bounds are those of what it was"


@pytest.mark.parametrize("way", ["files", "mapping"])
def test_what_somebody_does_to_the_copy_is_found(ours: Fleet, writers: Writers, way: str) -> None:
    warehouse, source, target = warehouse_of(ours), writers.table, beside(writers.table)
    age(writers)
    prepare(warehouse, source, target)
    name = warehouse.iceberg(target).sql
    if way == "files":
        warehouse.spark.sql(f"INSERT INTO {name} VALUES (1, 2, 'a')")
    else:
        # A column's values are all null from now on.
        mapping = iceberg.properties_of(warehouse, target)[MAPPING].replace("double_id", "nothing")
        warehouse.spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('{MAPPING}' = '{mapping}')")
    with pytest.raises(RowsDiffer):
        comparing.demand_same_as_copy(warehouse, source, target)


class Rights(MetastoreAccess):
    """Notes when rights are taken."""

    def __init__(self, spark: SparkSession) -> None:
        super().__init__(spark)
        self.taken = 0

    def rights_to_write(self, table: TableName) -> Mapping[str, Any]:
        return {"w": "INSERT"}

    def take(self, table: TableName, rights: Mapping[str, Any]) -> None:
        self.taken += 1

    def give_back(self, table: TableName, rights: Mapping[str, Any]) -> None:
        pass


def test_nobody_is_locked_out_of_a_table_whose_rows_would_differ(ours: Fleet, tmp_path: Path) -> None:
    """Iceberg takes milliseconds for microseconds (1.12)."""
    ours.warehouse = replace(ours.warehouse, access=(rights := Rights(ours.spark)))
    (tmp_path / "t").mkdir()
    at = pa.array([1_700_000_000_000], pa.timestamp("ms", "UTC"))
    pq.write_table(pa.table({"at": at}), tmp_path / "t" / "a.parquet")
    ours.spark.sql(
        f"CREATE EXTERNAL TABLE {ours.name('t').sql} (at TIMESTAMP) STORED AS PARQUET "
        f"LOCATION '{tmp_path / 't'}'"
    )
    ours.add("t")
    assert errors(ours.preprocess()) == []
    ours.notify()
    ours.clock.turn(days=14)
    [error] = errors(ours.migrate())
    assert "the files of" in error
    job = ours.job("t")
    assert job.pause_reason.startswith(PauseReason.ROWS_DIFFER.value)
    assert (job.state, rights.taken) == (State.READY, 0)


def test_a_table_that_leaves_files_out_is_compared_as_a_whole(ours: Fleet, tmp_path: Path) -> None:
    source, folder = ours.name("t"), tmp_path / "t"
    folder.mkdir()
    for number, name in enumerate(["a.parquet", "b.other"]):
        pq.write_table(pa.table({"id": pa.array([number], pa.int64())}), folder / name)
    ours.spark.sql(
        f"CREATE TABLE {source.sql} (id BIGINT) USING parquet OPTIONS (pathGlobFilter '*.parquet') "
        f"LOCATION '{folder}'"
    )
    assert ours.spark.table(source.sql).count() == 1
    with pytest.raises(RowsDiffer):
        prepare(warehouse_of(ours), source, beside(source))


def test_a_table_without_a_file_is_compared_too(ours: Fleet, writers: Writers) -> None:
    warehouse, source, target = warehouse_of(ours), writers.table, beside(writers.table)
    while writers.files:
        writers.remove(0)
    prepare(warehouse, source, target)
    assert warehouse.prepared is not None
    assert warehouse.prepared.compared is not None
    writers.add("a")
    relisted(warehouse, source)
    assert iceberg.make(warehouse, source, target) == 1
    assert comparing.demand_same_as_copy(warehouse, source, target) == ROWS


def test_rows_of_files_are_those_that_the_table_has(ours: Fleet, tmp_path: Path) -> None:
    """Columns that files spell otherwise, lack or have beside; partitions elsewhere, of numbers and dates."""
    source, folder = ours.name("odd"), tmp_path / "odd"
    ours.spark.sql(
        f"CREATE EXTERNAL TABLE {source.sql} (Id BIGINT, name VARCHAR(5), at TIMESTAMP, "
        f"inner STRUCT<a: INT, b: ARRAY<STRING>>, later INT) PARTITIONED BY (n INT, day DATE, word STRING) "
        f"STORED AS PARQUET LOCATION '{folder}'"
    )
    inner = pa.struct([("A", pa.int32()), ("b", pa.list_(pa.string()))])
    seven = pa.array([7], pa.int32())
    instant = pa.array([1_700_000_000_000_000], pa.timestamp("us", "UTC"))
    shapes: list[dict[str, Any]] = [
        {"ID": [1, 2], "NAME": ["a", None], "extra": [1, 2]},
        {"id": [3], "inner": pa.array([{"A": 1, "b": ["x", None]}], inner), "later": seven},
        {
            "id": pa.array([None], pa.int64()),
            "at": instant,
        },
    ]
    places = [
        ("n = 7, day = DATE'2026-01-02', word = 'a b+c%20é'", folder / "n=007" / "x y+z%20é"),
        (f"n = '{NULL}', day = '{NULL}', word = '{NULL}'", folder / f"n={NULL}"),
        ("n = -1, day = DATE'1969-12-31', word = ''' \"'", tmp_path / "elsewhere [1]"),
    ]
    for spec, place in places:
        place.mkdir(parents=True)
        for at, shape in enumerate(shapes):
            pq.write_table(pa.table(shape), place / f"f {at}.parquet")
        ours.spark.sql(f"ALTER TABLE {source.sql} ADD PARTITION ({spec}) LOCATION '{place}'")
    warehouse = warehouse_of(ours)
    listed = hive.listed(warehouse, hive.demand(warehouse, source))
    files = members(listed)
    assert len(files) == 9
    frame = comparing.rows_of_files(warehouse, listed, files)
    table = ours.spark.table(source.sql)
    assert [name.lower() for name in frame.columns] == [name.lower() for name in table.columns]
    assert sorted(map(repr, frame.collect())) == sorted(map(repr, table.select(*frame.columns).collect()))
    some = [member for member in files if "n=7" in member[1]]
    rows = comparing.rows_of_files(warehouse, listed, some).collect()
    assert {row["word"] for row in rows} == {"a b+c%20é"}
    assert len(rows) == 4


# What writers do, to which file, and before which of the run's calls.
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
    """Call something before each step of a run, and before what a step of preparing a copy does."""

    def hooked(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **how: Any) -> Any:
            before(type(given[0]).__name__ if name == "perform" else name)
            return real(*given, **how)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for module, name in (
            (hive, "listed"),
            (iceberg, "make"),
            (comparing, "demand_same_as_copy"),
            (job_run, "perform"),
        ):
            patch.setattr(module, name, hooked(name, getattr(module, name)))
        # It's the same for all of them, and takes its time.
        patch.setattr(trying, "try_shadow", lambda *_: None)
        yield


def test_every_row_is_there_whatever_is_written_meanwhile(
    spark: SparkSession, schema: str, tmp_path: Path
) -> None:
    numbers = count()

    @soak.slow_examples(soak.amount(3, 60))
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
            # Who writes after the renaming comes late, which isn't what this is about.
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
                        # Who writes it again in the second of the mark isn't found by any listing.
                        writers.again(which, seconds=second)
                    case "remove":
                        writers.remove(which)

        try:
            ours.add(name)
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
            # By their bounds too.
            target = ours.warehouse.iceberg(ours.name(name)).sql
            for wanted in writers.rows:
                assert spark.table(target).where(f"id = {wanted[0]}").count() == 1
        finally:
            ours.store.close()

    with session.settings(spark, {"hive.exec.dynamic.partition.mode": "nonstrict"}, "the test"):
        scenario()
