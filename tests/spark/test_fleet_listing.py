"""Tableferry lists the same files and partitions as Spark does through Spark Connect.

It lists files with the file system's API, and partitions with the session's catalog.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession
from tests import conditions, object_stores, soak
from tests.spark.warehouses import NoAccess

from tableferry.fleet.hive_tables import table_storage
from tableferry.fleet.hive_tables.table_files import ListedFile
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.hive_files import list_files
from tableferry.formats.hive import catalog_partitions, session_catalog
from tableferry.formats.hive.catalog_partitions import list_partitions
from tableferry.formats.hive.partitions import NULL, PartitionColumn
from tableferry.spark.tables import TableName
from tableferry.spark.types import INTEGER, STRING

FOLDERS = (
    "k=1",
    "k=a%20b",
    "_k=1",
    "_hidden",
    ".staging",
    "é [x]",
    "a{b}+c",
    "ts=2020-01-01 00%3A00",
)
NAMES = (
    "part-0",
    "part 1.parquet",
    "_SUCCESS",
    "_a=1",
    ".part-0.crc",
    "x._COPYING_",
    "_common_metadata",
    "😀",
    "%25",
)


@pytest.fixture
def warehouse(spark: SparkSession) -> Warehouse:
    return Warehouse(spark, NoAccess())


def paths(seed: int) -> list[tuple[str, int]]:
    """Draw paths below a directory, each with its size; some files are empty."""
    chance = Random(seed)
    drawn = {}
    for _ in range(60):
        folders = chance.choices(FOLDERS, k=chance.randrange(4))
        drawn["/".join([*folders, chance.choice(NAMES)])] = chance.randrange(4)
    return list(drawn.items())


def by_spark(warehouse: Warehouse, locations: list[str], monkeypatch: pytest.MonkeyPatch) -> list[ListedFile]:
    with monkeypatch.context() as patched:
        patched.setattr(table_storage, "in_process", lambda spark: False)
        return list_files(warehouse, locations)


@pytest.mark.parametrize("seed", range(3))
def test_listing_of_a_local_directory_equals_sparks(
    warehouse: Warehouse, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path, size in paths(seed):
        (tmp_path / "t" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "t" / path).write_bytes(b"x" * size)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/part-9").write_bytes(b"xyz")
    os.symlink(tmp_path / "elsewhere", tmp_path / "t/k=2")
    os.symlink(tmp_path / "elsewhere/part-9", tmp_path / "t/linked")
    os.symlink(tmp_path / "nothing", tmp_path / "t/broken")
    # Java can't represent this name.
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/t/\xff")).write_bytes(b"x")
    table, file = f"file:{tmp_path}/t", f"file:{tmp_path}/elsewhere/part-9"
    for locations in ([table], [f"{table}/k=1", table, f"file:{tmp_path}/absent"], [file], []):
        found = list_files(warehouse, locations)
        assert found == by_spark(warehouse, locations, monkeypatch)
        assert found or table not in locations


@pytest.mark.parametrize("seed", range(2))
def test_listing_of_an_object_store_equals_sparks(
    warehouse: Warehouse, s3_port: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with object_stores.moto(s3_port) as (address, weather):
        lake = object_stores.s3(address, "lake")
        place = lake.uri.replace("s3://", "s3a://")
        for path, size in paths(seed):
            lake.put(f"t/{path}", b"x" * size)
        before = len(weather.requests)
        found = list_files(warehouse, [f"{place}/t"])
        # No single file is requested.
        assert not [request for request in weather.requests[before:] if "/t/" in request]
        assert found == by_spark(warehouse, [f"{place}/t"], monkeypatch)
        assert len(found) > 10
        assert list_files(warehouse, [f"{place}/absent"]) == []


def test_unlistable_directory_is_reported(warehouse: Warehouse, s3_port: int) -> None:
    with (
        object_stores.moto(s3_port),
        conditions.raises("DIRECTORIES_NOT_LISTABLE", folders=["s3a://nobodys/t"]),
    ):
        list_files(warehouse, ["s3a://nobodys/t"])


@pytest.fixture
def schema(spark: SparkSession) -> Iterator[str]:
    spark.sql("CREATE SCHEMA listed")
    yield "listed"
    spark.sql("DROP SCHEMA listed CASCADE")


@soak.slow
def test_partitions_of_the_session_catalog_equal_those_of_sql(
    spark: SparkSession, schema: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = (PartitionColumn("Day", INTEGER), PartitionColumn("city", STRING))
    name, root = TableName(("spark_catalog", schema, "t")), f"file:{tmp_path}/t"
    spark.sql(
        f"CREATE EXTERNAL TABLE {name.sql} (id BIGINT) PARTITIONED BY (Day INT, city STRING) "
        f"STORED AS PARQUET LOCATION '{root}'"
    )
    assert list_partitions(spark, name, root, columns) == []
    cities = ("a b", "x/y=z", "100%", "%2F", "São", "😀", "a,b", "it''s", "", None)
    for at, city in enumerate(cities):
        value = "NULL" if city is None else f"'{city}'"
        spark.sql(f"INSERT INTO {name.sql} VALUES ({at}, {at % 3 - 1}, {value})")
    # One is in the directory of another partition, and the location of the other looks escaped.
    for at, place in enumerate(("t/Day=0/city=a b", "else where/%41+")):
        spark.sql(
            f"ALTER TABLE {name.sql} ADD PARTITION (Day = {at + 7}, city = 'q') LOCATION '{tmp_path}/{place}'"
        )
    found = session_catalog.partitions(spark, name)
    assert found is not None
    # Spark writes an empty string as a null; these two rows have different days.
    assert len(found) == len(cities) + 2
    assert {NULL, "x%2Fy%3Dz", "São"} <= {partition.spec.partition("/city=")[2] for partition in found}
    assert f"file:{tmp_path}/else where/%41+" in {partition.location for partition in found}
    with monkeypatch.context() as patched:
        patched.setattr(session_catalog, "in_process", lambda spark: False)
        by_sql = list_partitions(spark, name, root, columns)
    assert sorted(found) == sorted(by_sql)
    with monkeypatch.context() as patched:
        patched.setattr(catalog_partitions, "_specs", None)
        # No SQL statement runs.
        assert list_partitions(spark, name, root, columns) == found
