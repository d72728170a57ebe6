"""Files are listed alike by the file system and by a Spark job, which lists them through Spark Connect."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession
from tests import object_stores
from tests.spark.warehouses import NoAccess

from tableferry.errors import TableError
from tableferry.fleet.warehouse import files, storage
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.files import list_files

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
    """Draw files below a directory, each with its size; some are empty."""
    chance = Random(seed)
    drawn = {}
    for _ in range(60):
        folders = chance.choices(FOLDERS, k=chance.randrange(4))
        drawn["/".join([*folders, chance.choice(NAMES)])] = chance.randrange(4)
    return list(drawn.items())


def by_spark(
    warehouse: Warehouse, locations: list[str], monkeypatch: pytest.MonkeyPatch
) -> list[files.ListedFile]:
    with monkeypatch.context() as patched:
        patched.setattr(storage, "in_process", lambda spark: False)
        return list_files(warehouse, locations)


@pytest.mark.parametrize("seed", range(3))
def test_a_disk_and_spark_say_the_same(
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
    # Java can't name it.
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/t/\xff")).write_bytes(b"x")
    table, file = f"file:{tmp_path}/t", f"file:{tmp_path}/elsewhere/part-9"
    for locations in ([table], [f"{table}/k=1", table, f"file:{tmp_path}/absent"], [file], []):
        found = list_files(warehouse, locations)
        assert found == by_spark(warehouse, locations, monkeypatch)
        assert found or table not in locations


@pytest.mark.parametrize("seed", range(2))
def test_an_object_store_and_spark_say_the_same(
    warehouse: Warehouse, s3_port: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with object_stores.moto(s3_port) as (address, weather):
        lake = object_stores.s3(address, "lake")
        place = lake.uri.replace("s3://", "s3a://")
        for path, size in paths(seed):
            lake.put(f"t/{path}", b"x" * size)
        before = len(weather.requests)
        found = list_files(warehouse, [f"{place}/t"])
        # It asks for no file by itself.
        assert not [request for request in weather.requests[before:] if "/t/" in request]
        assert found == by_spark(warehouse, [f"{place}/t"], monkeypatch)
        assert len(found) > 10
        assert list_files(warehouse, [f"{place}/absent"]) == []


def test_what_can_t_be_listed_is_said(warehouse: Warehouse, s3_port: int) -> None:
    with object_stores.moto(s3_port), pytest.raises(TableError, match="s3a://nobodys/t can't be listed"):
        list_files(warehouse, ["s3a://nobodys/t"])
