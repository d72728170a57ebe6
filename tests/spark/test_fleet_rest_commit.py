"""pyiceberg adds files to tables of a REST catalog as Iceberg's add_files does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests import conditions, rest_catalog, soak
from tests.spark.test_fleet_iceberg_commit import DDL, DIFFERENT, PARTITIONED, TABLE, file_entries
from tests.spark.warehouses import NoAccess

from tableferry.fleet.copies import iceberg
from tableferry.fleet.copies.iceberg_files import manifest, rest_commit
from tableferry.fleet.copies.iceberg_files.data_files import Appended, Change
from tableferry.fleet.hive_tables.table_files import ListedFile, TableFiles
from tableferry.fleet.warehouse import hive, table_descriptions
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.prepared_copy import Member, members
from tableferry.fleet.warehouse.target_versions import NO_SNAPSHOT
from tableferry.spark.tables import TableName

CATALOG, SCHEMA = "by_rest", "fleet_rest_commit"
SOURCE = TableName(("spark_catalog", SCHEMA, "t"))
OURS, THEIRS = (TableName((CATALOG, SCHEMA, f"t_{whose}")) for whose in ("ours", "theirs"))


@pytest.fixture(scope="module")
def warehouse(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    with rest_catalog.serving(tmp_path_factory.mktemp("rest")) as address:
        settings = {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "rest", ".uri": address}
        for key, value in {**settings, ".cache-enabled": "false"}.items():
            spark.conf.set(f"spark.sql.catalog.{CATALOG}{key}", value)
        for catalog in ("spark_catalog", CATALOG):
            spark.sql(f"CREATE SCHEMA {catalog}.{SCHEMA}")
        yield Warehouse(spark, NoAccess())
        spark.sql(f"DROP SCHEMA {SCHEMA} CASCADE")


@pytest.fixture
def listed(warehouse: Warehouse, tmp_path: Path) -> Iterator[TableFiles]:
    """Create a Hive table of four files in two partitions, and two empty Iceberg tables."""
    for number, directory in enumerate(("p=7/On=2024-02-29/word=it's%3A é", "p=8/On=2024-03-01/word=b")):
        (tmp_path / directory).mkdir(parents=True)
        for part, rows in enumerate((TABLE.slice(0, 1), TABLE)):
            pq.write_table(rows, tmp_path / directory / f"{number}-{part}.parquet")
    spark = warehouse.spark
    spark.sql(
        f"CREATE EXTERNAL TABLE {SOURCE.sql} ({DDL}) PARTITIONED BY ({PARTITIONED}) "
        f"STORED AS parquet LOCATION '{tmp_path}'"
    )
    spark.sql(f"MSCK REPAIR TABLE {SOURCE.sql}")
    found = hive.list_table_files(warehouse, hive.require_hive_table(warehouse, SOURCE))
    for target in (OURS, THEIRS):
        spark.sql(iceberg.create_statement(found.table, target).replace("_iceberg'", f"_{target.table}'"))
    yield found
    for table in (OURS, THEIRS, SOURCE):
        spark.sql(f"DROP TABLE {table.sql}")


def append(
    warehouse: Warehouse,
    listed: TableFiles,
    files: list[ListedFile],
    after: str = NO_SNAPSHOT,
    gone: frozenset[Member] = frozenset(),
) -> Appended | None:
    change = Change(listed.table, listed.partitions, files, {"made": "now"}, after, gone)
    return rest_commit.append(warehouse, OURS, change)


@soak.slow
def test_entries_equal_those_of_add_files(warehouse: Warehouse, listed: TableFiles) -> None:
    iceberg._add_files(warehouse, SOURCE, THEIRS)
    appended = append(warehouse, listed, list(listed.listing.read))
    assert appended is not None
    assert appended.since is None
    assert [{**file, **_without(file)} for file in file_entries(warehouse, OURS)] == [
        {**file, **_without(file)} for file in file_entries(warehouse, THEIRS)
    ]
    ours, theirs = (
        sorted(row[0] for row in warehouse.spark.table(table.sql).selectExpr("to_json(struct(*))").collect())
        for table in (OURS, THEIRS)
    )
    assert ours == theirs
    properties = table_descriptions.properties(warehouse.spark, warehouse.iceberg(OURS))
    assert properties["made"] == "now"
    assert properties["current-snapshot-id"] == appended.snapshot


def _without(file: dict[str, object]) -> dict[str, object]:
    """Return the entry without the bounds that Iceberg 1.12 computes incorrectly."""
    return {
        what: {key: value for key, value in dict(file[what]).items() if key not in DIFFERENT}  # type: ignore[call-overload]
        for what in ("lower_bounds", "upper_bounds", "nan_value_counts")
    }


def test_one_commit_removes_missing_files_and_adds_new_ones(warehouse: Warehouse, listed: TableFiles) -> None:
    *first, last = listed.listing.read
    before = append(warehouse, listed, first)
    assert before is not None
    gone = frozenset(member for member in members(listed) if member[0] == first[0])
    after = append(warehouse, listed, [last], before.snapshot, gone)
    assert after is not None
    held = [file["file_path"] for file in file_entries(warehouse, OURS)]
    assert held == sorted(file.path for file in (*first[1:], last))
    # The newest snapshot adds one file, and its predecessor removes the other.
    options = {"start-snapshot-id": str(after.since), "end-snapshot-id": after.snapshot}
    added = warehouse.spark.read.options(**options).table(OURS.sql).select("_file").distinct().collect()
    assert [row[0] for row in added] == [last.path]
    # If a file to remove is missing, nothing is committed.
    with conditions.raises("FILES_TO_REMOVE_MISSING", count=0):
        append(warehouse, listed, [], after.snapshot, gone)
    assert [file["file_path"] for file in file_entries(warehouse, OURS)] == held


def test_worker_suspended_before_its_commit_adds_no_file_twice(
    warehouse: Warehouse, listed: TableFiles
) -> None:
    files, awake = list(listed.listing.read), []

    def other() -> None:
        awake.append(append(warehouse, listed, files))

    with conditions.raises("ICEBERG_COMMIT_LOST_RACE", table=OURS):
        append(replace(warehouse, guard=other), listed, files)
    assert awake[0] is not None
    assert len(file_entries(warehouse, OURS)) == len(files)
    # With another expected snapshot, nothing is committed.
    assert append(warehouse, listed, files) is None


def test_copy_without_write_access_is_left_to_spark(
    warehouse: Warehouse,
    listed: TableFiles,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError("no writing here")

    monkeypatch.setattr(manifest, "data_file", refuse)
    assert append(warehouse, listed, list(listed.listing.read)) is None
    assert "so Spark adds its files: no writing here" in caplog.text
    assert file_entries(warehouse, OURS) == []


def test_unreachable_files_and_catalogs_are_left_to_spark(
    warehouse: Warehouse, listed: TableFiles, caplog: pytest.LogCaptureFixture
) -> None:
    moved = [file._replace(path=f"{file.path}.moved") for file in listed.listing.read]
    assert append(warehouse, listed, moved) is None
    elsewhere = TableName((warehouse.iceberg_catalog, *OURS.parts[1:]))
    change = Change(listed.table, listed.partitions, moved, {"made": "now"})
    assert rest_commit.append(warehouse, elsewhere, change) is None
    assert caplog.text == ""
    spark, key = warehouse.spark, f"spark.sql.catalog.{CATALOG}.uri"
    address = spark.conf.get(key)
    try:
        spark.conf.set(key, "http://127.0.0.1:1")
        assert append(warehouse, listed, list(listed.listing.read)) is None
    finally:
        spark.conf.set(key, str(address))
    assert "this process doesn't reach 127.0.0.1, so Spark adds files there" in caplog.text
    assert file_entries(warehouse, OURS) == []
