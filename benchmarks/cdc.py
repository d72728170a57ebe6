"""Measure AUTO CDC against a bare MERGE: a batch, many batches, the initial copy, and a wide table.

python benchmarks/cdc.py
python benchmarks/cdc.py --keys 10000 1000000 10000000 --batches 10 --copies 1
python benchmarks/cdc.py --batches 100 1000 --scd 1
python benchmarks/cdc.py --events 15000 --batches 10
python benchmarks/cdc.py --keys 2000 --columns 500 --batches 10

The first takes five minutes on two cores; the others may take hours.

For each size, the benchmark creates a legacy table and copies it: by a bare INSERT, and as the initial copy
of a CDC target. Then a stream reads a feed, one commit per batch, and merges it into that target. Another
stream reads the same feed and runs the usual MERGE in `foreachBatch`: of the newest event of each key (SCD
type 1), or of two rows for each event (SCD type 2). Neither MERGE handles late or repeated events, or events
after a delete. The two streams take turns, some batches each, so that other load on the machine affects both.
Times are medians of the function in `foreachBatch`.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import deltalake
from arro3.core import Array, DataType, Table

from tableferry.pipelines.cdc import change_feed
from tableferry.pipelines.cdc.key_ranges import LogSize
from tableferry.pipelines.cdc.scd2_history_events import build_history_events
from tableferry.pipelines.engines.streaming import cdc_batches, table_creation
from tableferry.pipelines.model.flows import CdcSettings, ScdType, Target, event_log_name
from tableferry.spark import session
from tableferry.spark.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "bench"
_TURN = 10


@dataclass(frozen=True)
class Size:
    """The size of a table and of its feed."""

    scd: ScdType
    keys: int
    columns: int
    batches: int
    events: int

    def __str__(self) -> str:
        return (
            f"SCD {self.scd}, {self.keys:,} keys, {self.columns} columns, {self.batches:,} batches of "
            f"{self.events:,} events"
        )

    @property
    def settings(self) -> CdcSettings:
        """The settings of the CDC target."""
        return CdcSettings(
            ("id",), "at", self.scd, apply_as_deletes="op = 'delete'", except_column_list=("op", "at")
        )


@dataclass
class Measured:
    """Seconds: of each copy, and of each batch in its order."""

    size: Size
    inserts: list[float] = field(default_factory=list)
    copies: list[float] = field(default_factory=list)
    merges: list[float] = field(default_factory=list)
    folds: list[float] = field(default_factory=list)
    files: list[int] = field(default_factory=list)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--keys", type=int, nargs="*", default=[150_000])
    parser.add_argument("--batches", type=int, nargs="*", default=[20])
    parser.add_argument("--events", type=int, nargs="*", default=[20], help="in each batch")
    parser.add_argument("--columns", type=int, nargs="*", default=[5], help="columns without the key")
    parser.add_argument("--scd", type=int, nargs="*", choices=(1, 2), default=[1, 2])
    parser.add_argument("--copies", type=int, default=3, help="how often the copy is made")
    arguments = parser.parse_args()
    print(machine(), flush=True)
    measured = []
    with tempfile.TemporaryDirectory(prefix="tableferry-bench-") as scratch:
        spark = session.resolve(Path(scratch, "warehouse"), say=lambda line: None)
        sizes = [
            Size(scd, keys, columns, count, events)
            for columns in arguments.columns
            for keys in arguments.keys
            for scd in arguments.scd
            for events in arguments.events
            for count in arguments.batches
        ]
        measure(spark, Path(scratch, "warm-up"), Size(sizes[0].scd, 1_000, 3, _TURN, 5), 1)
        for number, size in enumerate(sizes):
            measured.append(measure(spark, Path(scratch, str(number)), size, arguments.copies))
            print(f"{size}: {line(measured[-1])}", flush=True)
        session.stop(spark)
    print(f"\n{copies(measured)}\n\n{streams(measured)}\n\n{machine()}")


def measure(spark: SparkSession, folder: Path, size: Size, copies: int) -> Measured:
    """Copy a legacy table, and stream a feed into the copies."""
    found = Measured(size)
    spark.sql(f"CREATE SCHEMA {SCHEMA}")
    legacy = make(spark, size)
    ours, bare = (TableName((SCHEMA, name)) for name in ("ours", "bare"))
    target = Target(ours, cdc=size.settings)
    for _ in range(copies):
        for table in (ours, bare, event_log_name(ours)):
            spark.sql(f"DROP TABLE IF EXISTS {table.sql}")
        spark.sql(f"CREATE TABLE {bare.sql} ({', '.join(ddl(legacy))}) USING DELTA")
        insert = f"INSERT INTO {bare.sql} SELECT * FROM {SCHEMA}.legacy"
        found.inserts.append(seconds(partial(spark.sql, insert)))
        events = build_history_events(legacy, size.settings)
        table_creation.create_tables(spark, target, events.schema)
        found.copies.append(
            seconds(partial(cdc_batches.apply_events, events, ours, size.settings, copied_rows=legacy))
        )
    folds = folding(ours, size.settings)
    merges = (bare_scd1 if size.scd == 1 else bare_scd2)(spark, bare, size)
    feed = Feed(spark, folder, size)
    log = folder.parent / "warehouse" / "warehouse" / f"{SCHEMA}.db" / event_log_name(ours).table
    for first in range(0, size.batches, _TURN):
        feed.commit(range(first, min(first + _TURN, size.batches)))
        found.merges += feed.stream("bare", merges)
        found.folds += feed.stream("ours", folds)
        found.files.append(len(deltalake.DeltaTable(str(log)).file_uris()))
    compare(spark, ours, bare, size)
    spark.sql(f"DROP SCHEMA {SCHEMA} CASCADE")
    return found


def folding(target: TableName, settings: CdcSettings) -> Callable[[DataFrame, int], None]:
    """Return a function for ``foreachBatch`` that folds a feed's rows into a target."""
    log_size = LogSize()

    def fold(batch: DataFrame, number: int) -> None:
        cdc_batches.apply_events(
            change_feed.build_feed_events(batch, settings),
            target,
            settings,
            batch_number=number,
            log_size=log_size,
        )

    return fold


def make(spark: SparkSession, size: Size) -> DataFrame:
    """Make the legacy table: each second key of SCD type 2 has an interval before the one that is open."""
    values = [f"c{number}" for number in range(size.columns)]
    made = ", ".join(
        f"concat('{name} ', id) AS {name}" if number % 2 else f"id * {number + 3} AS {name}"
        for number, name in enumerate(values)
    )
    rows = f"SELECT id, {made} FROM range(0, {size.keys}, 1, 2)"
    if size.scd == 2:
        rows = f"""SELECT rows.*, 0L AS __START_AT, IF(id % 2 = 0, NULL, 1L) AS __END_AT FROM ({rows}) rows
            UNION ALL SELECT rows.*, 1L, NULL FROM ({rows}) rows WHERE id % 2 = 1"""
    spark.sql(f"CREATE TABLE {SCHEMA}.legacy USING DELTA AS {rows}")
    return spark.table(f"{SCHEMA}.legacy")


def ddl(frame: DataFrame) -> list[str]:
    return [f"`{name}` {kind}" for name, kind in frame.dtypes]


class Feed:
    """A Delta table of events, and the streams that read it."""

    def __init__(self, spark: SparkSession, folder: Path, size: Size) -> None:
        self._spark, self._folder, self._size = spark, folder, size
        self._chance = random.Random(7)

    def commit(self, numbers: Sequence[int]) -> None:
        """Commit batches of events of different keys: a tenth are deletes, a tenth are of new keys."""
        for number in numbers:
            ids = self._chance.sample(range(int(self._size.keys * 1.1) + 1), self._size.events)
            operations = ["delete" if self._chance.random() < 0.1 else "upsert" for _ in ids]
            columns = {
                "id": Array(ids, type=DataType.int64()),
                **{
                    f"c{at}": Array([f"new {number}"] * len(ids), type=DataType.utf8())
                    if at % 2
                    else Array([number + at] * len(ids), type=DataType.int64())
                    for at in range(self._size.columns)
                },
                "op": Array(operations, type=DataType.utf8()),
                "at": Array(
                    [10 + number * self._size.events + place for place in range(len(ids))],
                    type=DataType.int64(),
                ),
            }
            table = Table.from_arrays(list(columns.values()), names=list(columns))
            deltalake.write_deltalake(self._folder / "feed", table, mode="append")

    def stream(self, name: str, work: Callable[[DataFrame, int], None]) -> list[float]:
        """Let a stream process all commits, one per batch, and return the seconds of each batch."""
        taken: list[float] = []

        def timed(batch: DataFrame, number: int) -> None:
            taken.append(seconds(lambda: work(batch, number)))

        query = (
            self._spark.readStream.format("delta")
            .option("maxFilesPerTrigger", 1)
            .load(str(self._folder / "feed"))
            .writeStream.trigger(availableNow=True)
            .option("checkpointLocation", str(self._folder / name))
            .foreachBatch(timed)
            .start()
        )
        query.awaitTermination()
        return taken


def bare_scd1(spark: SparkSession, table: TableName, size: Size) -> Callable[[DataFrame, int], None]:
    """Merge the newest event of each key."""
    names = ["id", *(f"c{number}" for number in range(size.columns))]
    sets = ", ".join(f"{name} = s.{name}" for name in names)

    def merge(batch: DataFrame, _: int) -> None:
        batch.createOrReplaceTempView("bare_batch")
        batch.sparkSession.sql(
            f"""MERGE INTO {table.sql} t USING {NEWEST} s ON t.id = s.id
            WHEN MATCHED AND s.op = 'delete' THEN DELETE WHEN MATCHED THEN UPDATE SET {sets}
            WHEN NOT MATCHED AND s.op <> 'delete' THEN
            INSERT ({", ".join(names)}) VALUES ({", ".join(f"s.{name}" for name in names)})"""
        )

    return merge


NEWEST = (
    "(SELECT * EXCEPT (n) FROM (SELECT *, row_number() OVER (PARTITION BY id ORDER BY at DESC) AS n "
    "FROM bare_batch) WHERE n = 1)"
)


def bare_scd2(spark: SparkSession, table: TableName, size: Size) -> Callable[[DataFrame, int], None]:
    """Close the open row of each key and insert the new one, each a row of the MERGE's source."""
    names = ["id", *(f"c{number}" for number in range(size.columns))]

    def merge(batch: DataFrame, _: int) -> None:
        batch.createOrReplaceTempView("bare_batch")
        batch.sparkSession.sql(
            f"""MERGE INTO {table.sql} t USING (
                SELECT id AS merge_key, * FROM {NEWEST}
                UNION ALL SELECT NULL AS merge_key, * FROM {NEWEST} WHERE op <> 'delete'
            ) s ON t.id = s.merge_key AND t.__END_AT IS NULL
            WHEN MATCHED THEN UPDATE SET __END_AT = s.at
            WHEN NOT MATCHED AND s.merge_key IS NULL THEN INSERT ({", ".join(names)}, __START_AT)
            VALUES ({", ".join(f"s.{name}" for name in names)}, s.at)"""
        )

    return merge


def compare(spark: SparkSession, ours: TableName, bare: TableName, size: Size) -> None:
    """Check that both targets have the same rows; the feed has no event that they treat differently."""
    names = ", ".join(spark.table(bare.sql).columns)
    for left, right in ((ours, bare), (bare, ours)):
        rows = spark.sql(f"SELECT {names} FROM {left.sql} EXCEPT ALL SELECT {names} FROM {right.sql}").take(3)
        assert not rows, f"{size}: {left} has {rows}, and {right} hasn't"


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def line(found: Measured) -> str:
    parts = [f"copy {median(found.copies) / median(found.inserts):.1f} times an INSERT"]
    if found.folds:
        parts.append(f"batch {median(found.folds):.2f} s, {ratio(found):.1f} times a MERGE")
    return ", ".join(parts)


def ratio(found: Measured) -> float:
    return sum(found.folds) / sum(found.merges)


def copies(measured: Sequence[Measured]) -> str:
    """Write a table of the copies."""
    rows = [["copy of", "bare INSERT", "first copy", "times"], ["---", "---:", "---:", "---:"]]
    for found in measured:
        size, bare, ours = found.size, median(found.inserts), median(found.copies)
        what = f"SCD {size.scd}, {size.keys:,} keys, {size.columns} columns"
        rows.append([what, f"{bare:.2f} s", f"{ours:.2f} s", f"{ours / bare:.1f}"])
    return markdown(rows)


def streams(measured: Sequence[Measured]) -> str:
    """Write a table of the batches: a MERGE, a fold, their ratio, and the folds over the run in tenths."""
    heads = ["into", "bare MERGE", "batch", "times", "first to last tenth of the run", "log's files"]
    rows = [heads, ["---", *["---:"] * (len(heads) - 1)]]
    for found in measured:
        if not found.folds:
            continue
        tenth = max(len(found.folds) // 10, 1)
        parts = [
            f"{median(found.folds[at : at + tenth]):.2f} / {median(found.merges[at : at + tenth]):.2f}"
            for at in range(0, tenth * min(10, len(found.folds)), tenth)
        ]
        rows.append(
            [
                str(found.size),
                f"{median(found.merges):.2f} s",
                f"{median(found.folds):.2f} s",
                f"{ratio(found):.1f}",
                ", ".join(parts),
                f"{found.files[0]} to {max(found.files)}",
            ]
        )
    return markdown(rows)


def markdown(rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def machine() -> str:
    versions = [f"{name} {metadata.version(name)}" for name in ("pyspark", "delta-spark")]
    parts = [f"{os.cpu_count()} cores", platform.machine(), f"Python {platform.python_version()}", *versions]
    return ", ".join([*parts, f"load {os.getloadavg()[0]:.1f}"])


if __name__ == "__main__":
    main()
