"""Footers read in Spark's tasks equal footers read in this process."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests import conditions, soak

from tableferry import convert
from tableferry.convert import Reader, readers
from tableferry.convert.catalog.batches import batch_size
from tableferry.convert.catalog.tasks import Unreached, read
from tableferry.convert.discovery import listing
from tableferry.formats.parquet import data_scan, directory_footers
from tableferry.formats.parquet.files import Footer, Unreadable
from tableferry.formats.parquet.footers import ALL_LEAVES
from tableferry.spark import session
from tableferry.spark.provider import SparkProvider

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STATISTICS = "spark.databricks.delta.import.batchSize.statsCollection"
SCHEMAS = "spark.databricks.delta.import.batchSize.schemaInference"


def plain(number: int) -> pa.Table:
    return pa.table(
        {
            "id": pa.array([number, None], pa.int64()),
            "price": [number / 3, float("nan")],
            "name": [f"item\n{number}", "ä" * 50],
            "at": pa.array([datetime(2024, 1, 1, 0, 0, number % 60), None], pa.timestamp("us", "UTC")),
            "d": [date(1, 1, 1), date(9999, 12, 31)],
            "amount": pa.array([Decimal("1.05"), Decimal("-99999999.99")], pa.decimal128(10, 2)),
            "ok": [True, False],
        }
    )


def nested(number: int) -> pa.Table:
    inner = {"x": number, "y": {"z": ["a"]}}
    return pa.table({"s": [inner, None], "list": [[number], []], "m": pa.array([[("k", 1)], None], MAP)})


MAP = pa.map_(pa.string(), pa.int16())


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with files of several schemas, and unreadable files."""
    root = tmp_path_factory.mktemp("lake")

    def write(path: str, table: pa.Table, **options: Any) -> None:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, root / path, **options)

    for number in range(40):
        write(f"p={number % 4}/{number:02}.parquet", nested(number) if number % 7 == 3 else plain(number))
    write("p=1/groups.parquet", plain(7), row_group_size=1)
    write("p=1/none.parquet", plain(7).slice(0, 0))
    write("p=2/int96.parquet", plain(7), use_deprecated_int96_timestamps=True)
    write("p=2/nanos.parquet", pa.table({"t": pa.array([1], pa.timestamp("ns"))}))
    write("p=2/bare.parquet", plain(7), write_statistics=False)
    write("p=3/unsigned.parquet", pa.table({"u": pa.array([1], pa.uint64())}))
    (root / "p=0" / "note.txt").write_text("not Parquet")
    (root / "p=0" / "nothing").write_bytes(b"")
    whole = (root / "p=0" / "00.parquet").read_bytes()
    (root / "p=3" / "cut.parquet").write_bytes(whole[:-20])
    (root / "p=3" / "broken.parquet").write_bytes(whole[:-60] + b"\xff" * 40 + whole[-20:])
    return root


@pytest.mark.parametrize("leaves", [0, 2, ALL_LEAVES])
@soak.slow
def test_task_reader_equals_process_reader(spark: SparkSession, lake: Path, leaves: int) -> None:
    files = list(listing.list_files(lake))
    # A file that was deleted after the listing, and one that was rewritten.
    files.insert(5, files[5]._replace(path="p=0/gone.parquet"))
    files[8] = files[8]._replace(size=1)
    here = list(directory_footers.read(lake, files, leaves=leaves))
    assert sum(isinstance(result, Unreadable) for result in here) == 7
    by = partial(directory_footers.read, leaves=leaves)
    results = list(read(spark, str(lake), files, by, 20))
    assert results == here
    schemas = [result.schema for result in results if isinstance(result, Footer)]
    assert len(set(map(id, schemas))) == len(set(schemas)) == 3


def test_task_scan_equals_process_scan(spark: SparkSession, lake: Path) -> None:
    files = listing.list_files(lake)
    paths = frozenset({("id",), ("price",), ("name",), ("at",), ("s", "x")})
    here = list(data_scan.read(lake, files, paths=paths))
    assert sum(isinstance(result, Footer) and "null" not in result.packed for result in here) > 40
    spark_provider = SparkProvider(spark, lambda: spark)
    for reader in (Reader.SPARK, Reader.AUTO, Reader.PROCESS):
        assert list(readers.scan(lake, files, spark_provider, reader, paths)) == here, reader


def jobs(spark: SparkSession) -> int:
    return max(spark.sparkContext.statusTracker().getJobIdsForGroup(), default=-1) + 1


@pytest.mark.parametrize(
    ("settings", "leaves", "batches"),
    [({STATISTICS: "20"}, ALL_LEAVES, 3), ({STATISTICS: "20"}, 0, 1), ({SCHEMAS: "30"}, 0, 2)],
)
def test_batch_size_follows_settings(
    spark: SparkSession, lake: Path, settings: dict[str, str], leaves: int, batches: int
) -> None:
    files = listing.list_files(lake)
    assert len(files) == 50
    with session.settings(spark, settings, "the test"):
        before = jobs(spark)
        asked = readers.read_footers(
            lake, files, SparkProvider(spark, lambda: spark), Reader.SPARK, leaves=leaves
        )
        footers = list(asked)
        assert jobs(spark) - before == batches
    assert footers == list(directory_footers.read(lake, files, leaves=leaves))


def test_batch_size_defaults_to_delta_settings(spark: SparkSession) -> None:
    assert batch_size(spark, statistics=True) == 50_000
    assert batch_size(spark, statistics=False) == 1_000_000
    with session.settings(spark, {STATISTICS: "7", SCHEMAS: "5"}, "the test"):
        assert (batch_size(spark, statistics=True), batch_size(spark, statistics=False)) == (5, 5)
    with (
        session.settings(spark, {SCHEMAS: "0"}, "the test"),
        conditions.raises("READER_SETTING_INVALID", setting=SCHEMAS, value="0"),
    ):
        batch_size(spark, statistics=False)


def test_process_reader_uses_batches(
    spark: SparkSession, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = listing.list_files(lake)
    sizes = []

    def counted(root: Path, batch: Any, *, leaves: int) -> Iterator[Footer | Unreadable]:
        sizes.append(len(batch))
        return reading_all(root, batch, leaves=leaves)

    reading_all = directory_footers.read
    monkeypatch.setattr(directory_footers, "read", counted)
    with session.settings(spark, {STATISTICS: "20"}, "the test"):
        footers = readers.read_footers(
            lake, files, SparkProvider(spark, lambda: spark), Reader.AUTO, leaves=ALL_LEAVES
        )
        assert list(footers) == list(reading_all(lake, files))
    assert sizes == [20, 20, 10]


@pytest.fixture
def only_here(tmp_path: Path) -> Iterator[Path]:
    """Return a path that is valid only in this process."""
    for number in range(3):
        (tmp_path / f"p={number}").mkdir()
        pq.write_table(plain(number), tmp_path / f"p={number}" / "a.parquet")
    opened = os.open(tmp_path, os.O_RDONLY)
    os.dup2(opened, 900, inheritable=False)
    os.close(opened)
    yield Path("/proc/self/fd/900")
    os.close(900)


def test_tasks_report_unreachable_folder(spark: SparkSession, only_here: Path) -> None:
    files = listing.list_files(only_here)
    with pytest.raises(Unreached) as caught:
        list(read(spark, str(only_here), files, directory_footers.read, 20))
    conditions.check(
        caught.value, "TASKS_WITHOUT_FOLDER", folder="/proc/self/fd/900", machine=re.compile(".")
    )
    report = convert.run([str(only_here)], spark, reader=Reader.SPARK)
    assert [table.outcome for table in report.tables] == ["refused"]
    conditions.check(report.tables[0].error, "TASKS_WITHOUT_FOLDER")
    assert not (only_here / "_delta_log").exists()


def test_process_reads_folder_that_tasks_cannot_reach(
    spark: SparkSession, only_here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "SPARK_PAYS_FROM", 1)
    report = convert.run([str(only_here)], spark)
    assert report.ok, report
    assert deltalake.DeltaTable(only_here.resolve()).count() == 6


@pytest.mark.parametrize(("many", "ran"), [(50, 1), (51, 0)])
def test_active_session_reads_many_files(
    spark: SparkSession, lake: Path, monkeypatch: pytest.MonkeyPatch, many: int, ran: int
) -> None:
    monkeypatch.setattr(readers, "SPARK_PAYS_FROM", many)
    before = jobs(spark)
    report = convert.run([str(lake)], spark, dry_run=True)
    conditions.check(report.tables[0].error, "UNREADABLE_FILES", files=re.compile("is not a Parquet file"))
    assert jobs(spark) - before == ran


def test_both_readers_write_the_same_commit(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(6):
        (tmp_path / f"p={number % 2}").mkdir(exist_ok=True)
        pq.write_table(plain(number), tmp_path / f"p={number % 2}" / f"{number}.parquet")
    logs = []
    for reader in (Reader.PROCESS, Reader.SPARK):
        assert convert.run([str(tmp_path)], spark, reader=reader, verify=reader is Reader.SPARK).ok
        log = (tmp_path / "_delta_log" / f"{0:020}.json").read_text().splitlines()
        logs.append([line for line in log if line.startswith('{"add"')])
        convert.undo(str(tmp_path))
    assert logs[0] == logs[1]
    assert len(logs[0]) == 6
