"""A fleet with tables in S3, which this process accesses only with the Hadoop of Spark's driver."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.sql import SparkSession
from tests import conditions, object_stores, soak
from tests.fleet_steps import drop_copy
from tests.object_stores import Bucket, Weather
from tests.spark.fleets import Fleet, errors, fleet, hive_table
from tests.spark.test_fleet_late import leave
from tests.spark.test_fleet_preparation import Copying

from tableferry.fleet.copies import delta, hadoop_log
from tableferry.fleet.copies.comparison import RowsDiffer
from tableferry.fleet.copies.iceberg import create_statement
from tableferry.fleet.copies.iceberg_files import iceberg_commit
from tableferry.fleet.copies.iceberg_files.data_files import Change
from tableferry.fleet.jobs.job import State, TargetFormat
from tableferry.fleet.warehouse import hive, target_versions
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.spark import session
from tableferry.spark.catalog import SPARK_ERRORS
from tableferry.spark.tables import TableName
from tableferry.storage.hadoop import Hadoop

ICEBERG, DELTA = TargetFormat


class Death(BaseException):
    """A worker dies."""


@pytest.fixture(scope="module")
def weather(s3_port: int) -> Iterator[Weather]:
    """Provide the control of failures and delays of requests to S3."""
    with object_stores.moto(s3_port) as (_, seen):
        yield seen


@pytest.fixture
def lake(weather: Weather, s3_port: int, schema: str) -> Bucket:
    """Provide a bucket for the test."""
    return object_stores.s3(f"http://127.0.0.1:{s3_port}", schema.replace("_", "-"))


@pytest.fixture
def ours(spark: SparkSession, schema: str, lake: Bucket, tmp_path: Path) -> Iterator[Fleet]:
    """Provide a fleet with one Hive table, `t`, in three partitions."""
    with session.settings(spark, {"hive.exec.dynamic.partition.mode": "nonstrict"}, "the test"):
        place = lake.uri.replace("s3://", "s3a://")
        hive_table(spark, f"{schema}.t", f"{place}/t", [(1, "mon"), (2, "tue"), (3, None)])
        made = fleet(spark, schema, tmp_path)
        yield made
        made.store.close()


def ids(ours: Fleet, table: str = "t") -> list[int]:
    return sorted(row[0] for row in ours.rows(table))


def data_files(lake: Bucket) -> list[str]:
    return [name for name in lake.names() if name.startswith("t/day=") and not name.endswith("/")]


@pytest.mark.parametrize("form", [ICEBERG, pytest.param(DELTA, marks=soak.slow)])
def test_table_in_an_object_store_is_migrated_shadowed_and_closed(
    ours: Fleet, lake: Bucket, form: TargetFormat
) -> None:
    before = {name: lake.get(name) for name in data_files(lake)}
    ours.to_probation("t", form=form)
    ours.write("t", "INSERT INTO {t} VALUES (4, NULL, 'mon'), (5, NULL, 'wed')")
    assert errors(ours.shadow()) == []
    assert ids(ours, "t_hive") == ids(ours) == [1, 2, 3, 4, 5]
    # The files of the trial before the switch are removed.
    assert not any(name.startswith("t_sync_try/") for name in lake.names())
    ours.to_archive("t")
    assert sum("/tableferry-" in name or name.startswith("t_sync/") for name in lake.names()) > 0, (
        "shadow wrote nothing, so closing has nothing to remove"
    )
    ours.mark("t")
    ours.clock.turn(days=8)
    assert errors(ours.close()) == []
    assert ids(ours) == [1, 2, 3, 4, 5]
    assert not any("/tableferry-" in name or name.startswith("t_sync/") for name in lake.names())
    assert {name: lake.get(name) for name in before} == before


@pytest.mark.parametrize("form", [ICEBERG, DELTA])
@soak.slow
def test_reverted_table_can_be_migrated_again(ours: Fleet, lake: Bucket, form: TargetFormat) -> None:
    ours.to_probation("t", form=form)
    ours.write("t", "INSERT INTO {t} VALUES (4, NULL, 'mon'), (5, NULL, 'wed')")
    assert errors(ours.revert("t")) == []
    assert ours.job("t").state is State.ICEBERG_DROPPED
    assert not any(name.startswith("t/_delta_log/0") for name in lake.names())
    ours.spark.sql(f"INSERT INTO {ours.name('t').sql} VALUES (6, NULL, 'mon')")
    assert ids(ours) == [1, 2, 3, 4, 5, 6]
    ours.add("again", form=form)
    ours.spark.sql(f"ALTER TABLE {ours.schema}.t RENAME TO {ours.schema}.again")
    ours.preprocess()
    ours.notify()
    ours.clock.turn(days=14)
    assert errors(ours.migrate()) == []
    assert ids(ours, "again") == [1, 2, 3, 4, 5, 6]


@soak.slow
@pytest.mark.parametrize("form", [ICEBERG, DELTA])
def test_late_file_in_an_object_store_pauses_its_table(
    ours: Fleet, lake: Bucket, tmp_path: Path, form: TargetFormat
) -> None:
    ours.to_probation("t", form=form)
    assert errors(ours.shadow()) == []
    lake.put("t/day=mon/000000_0_copy_1", leave(tmp_path / "late", 7).read_bytes())
    [paused] = errors(ours.shadow())
    assert "000000_0_copy_1" in paused
    assert ours.job("t").pause_reason.startswith("WRITTEN_LATE: ")


@soak.slow
def test_iceberg_copy_needs_one_request_for_each_file(ours: Fleet, lake: Bucket, weather: Weather) -> None:
    warehouse, source = ours.warehouse, ours.name("t")
    table = hive.require_hive_table(warehouse, source)
    listed = hive.list_table_files(warehouse, table)
    target = TableName((*source.parts[:-1], "t_iceberg"))
    ours.spark.sql(create_statement(table, warehouse.iceberg(target)))
    asked = len(weather.requests)
    assert iceberg_commit.append(warehouse, target, Change(table, listed.partitions, listed.listing.read, {}))
    bucket = lake.uri.removeprefix("s3://")
    about = [request for request in weather.requests[asked:] if "/t/day=" in request]
    assert sorted(about) == sorted(f"GET /{bucket}/{name}" for name in data_files(lake))
    assert ours.rows(target) == ours.rows("t")
    # Iceberg's own reader finds the same bounds and counts.
    metrics = "SELECT file_path, record_count, value_counts, null_value_counts, lower_bounds, upper_bounds"
    ice = warehouse.iceberg(target).sql
    added = ours.spark.sql(f"{metrics} FROM {ice}.files ORDER BY 1").collect()
    ours.spark.sql(f"DELETE FROM {ice} WHERE true")
    ours.spark.sql(
        f"CALL ice.system.add_files(table => '{ice}', source_table => '{source}', "
        "check_duplicate_files => false)"
    )
    assert ours.spark.sql(f"{metrics} FROM {ice}.files ORDER BY 1").collect() == added


@pytest.fixture
def two_minutes_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let files look so old that a rewrite changes their modification time in seconds."""
    monkeypatch.setattr(hive, "time", SimpleNamespace(time_ns=lambda: time.time_ns() + 120 * 10**9))


@pytest.mark.usefixtures("two_minutes_later")
@soak.slow
def test_delta_copy_in_an_object_store_is_compared_before_writes_are_blocked(
    ours: Fleet, lake: Bucket, weather: Weather
) -> None:
    table = ours.name("t").sql
    ours.spark.sql(f"INSERT INTO {table} VALUES (4, NULL, 'a b'), (5, NULL, 'x%2F+é')")
    copying = Copying.of(ours, ours.name("t"), DELTA)
    before = lake.names()
    assert copying.ahead() == 5
    assert lake.names() == before
    ours.spark.sql(f"INSERT INTO {table} VALUES (6, NULL, 'a b')")
    [new] = set(data_files(lake)) - set(before)
    asked = len(weather.requests)
    assert copying.make() == 6
    assert copying.compare() == 1
    asked_for = {request.partition(" ")[2] for request in weather.requests[asked:]}
    assert [
        name for name in data_files(lake) if f"/{lake.uri.removeprefix('s3://')}/{name}" in asked_for
    ] == [new]
    assert copying.rows == ours.rows("t")
    [_, *adds] = [json.loads(line) for line in lake.get(f"t/_delta_log/{0:020}.json").splitlines()][2:]
    assert [json.loads(add["add"]["stats"])["numRecords"] for add in adds] == [1] * 6
    assert {name for name in lake.names() if "_delta_log" not in name} == {*before, new}


@pytest.mark.usefixtures("two_minutes_later")
@soak.slow
def test_foreign_change_of_a_delta_copy_is_found(ours: Fleet, lake: Bucket) -> None:
    copying = Copying.of(ours, ours.name("t"), DELTA)
    copying.ahead()
    copying.make()
    assert copying.compare() == 0
    ours.spark.sql(f"DELETE FROM {copying.readable} WHERE id = 1")
    with pytest.raises(RowsDiffer):
        copying.compare()


@soak.slow
def test_log_of_another_process_stays(ours: Fleet, lake: Bucket) -> None:
    source = ours.name("t")
    listed = hive.list_table_files(ours.warehouse, hive.require_hive_table(ours.warehouse, source))
    drafted = delta.draft_commit(ours.warehouse, listed)
    assert drafted is not None
    a_copy(ours)
    theirs = lake.get(f"t/_delta_log/{0:020}.json")
    with conditions.raises("LOG_WRITTEN_BY_ANOTHER_PROCESS"):
        hadoop_log.write(ours.warehouse, listed.table.location, drafted.draft)
    assert lake.get(f"t/_delta_log/{0:020}.json") == theirs


def test_worker_without_its_claim_writes_no_log(ours: Fleet, lake: Bucket) -> None:
    listed = hive.list_table_files(ours.warehouse, hive.require_hive_table(ours.warehouse, ours.name("t")))
    drafted = delta.draft_commit(ours.warehouse, listed)
    assert drafted is not None

    def lost() -> None:
        raise Death

    with pytest.raises(Death):
        hadoop_log.write(replace(ours.warehouse, guard=lost), listed.table.location, drafted.draft)
    assert not any("_delta_log" in name for name in lake.names())
    hadoop_log.write(ours.warehouse, listed.table.location, drafted.draft)
    assert delta.is_log_unchanged(ours.warehouse, listed.table, drafted.draft)


@soak.slow
def test_empty_table_becomes_a_delta_table(ours: Fleet, lake: Bucket) -> None:
    hive_table(ours.spark, f"{ours.schema}.empty", lake.uri.replace("s3://", "s3a://") + "/empty", [])
    ours.to_probation("empty", form=DELTA)
    ours.write("empty", "INSERT INTO {t} VALUES (1, NULL, 'mon')")
    assert errors(ours.shadow()) == []
    assert ours.rows("empty_hive") == ours.rows("empty") == [(1, None, "mon")]


@soak.slow
def test_delta_log_with_later_commits_stays_unchanged(ours: Fleet, lake: Bucket) -> None:
    copy = a_copy(ours)
    ours.spark.sql(f"INSERT INTO {copy.sql} VALUES (4, NULL, 'mon')")
    logged = {name: lake.get(name) for name in lake.names() if "_delta_log/0" in name}
    with conditions.raises("COPY_WRITTEN_AFTER_SYNC", version=1):
        drop_copy(ours.warehouse, ours.name("t"), copy, DELTA, "0")
    assert {name: lake.get(name) for name in lake.names() if "_delta_log/0" in name} == logged
    assert ids(ours, "copy") == [1, 2, 3, 4]


@soak.slow
def test_interrupted_write_of_a_delta_log_is_resumed(ours: Fleet, lake: Bucket, weather: Weather) -> None:
    copy, calls = a_copy(ours), 0

    def guard() -> None:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise Death

    with pytest.raises(Death):
        drop_copy(replace(ours.warehouse, guard=guard), ours.name("t"), copy, DELTA, "0")
    # No process commits or reads half of a log now.
    with pytest.raises(SPARK_ERRORS):
        ours.spark.sql(f"INSERT INTO {copy.sql} VALUES (4, NULL, 'mon')")
    drop_copy(ours.warehouse, ours.name("t"), copy, DELTA, "0")
    assert not any("_delta_log/0" in name for name in lake.names())
    assert ids(ours) == [1, 2, 3]


# The number of checks of the claim that the worker survives. The first one precedes all changes.
@pytest.mark.parametrize("lives", soak.amount((1, 2), range(5)))
@soak.slow
def test_interrupted_recreation_of_a_copy_is_resumed(ours: Fleet, lake: Bucket, lives: int) -> None:
    source, copy, left = ours.name("t"), ours.name("copy"), lives
    delta.create_copy(ours.warehouse, source, copy)
    ours.spark.sql(f"INSERT INTO {source.sql} VALUES (4, NULL, 'mon')")

    def guard() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise Death

    with pytest.raises(Death):
        delta.create_copy(replace(ours.warehouse, guard=guard), source, copy)
    delta.create_copy(ours.warehouse, source, copy)
    assert ids(ours, "copy") == ids(ours) == [1, 2, 3, 4]


@soak.slow
def test_suspended_worker_removes_nothing_of_a_newer_log(ours: Fleet, lake: Bucket) -> None:
    source, copy, calls = ours.name("t"), a_copy(ours), 0

    def guard() -> None:
        nonlocal calls
        calls += 1
        if calls == 2:  # It has taken the version, and is suspended before it removes the other files.
            drop_copy(ours.warehouse, ours.name("t"), copy, DELTA, "0")
            delta.create_copy(ours.warehouse, source, copy)

    with conditions.raises("LOG_REMOVED_BY_ANOTHER_PROCESS"):
        drop_copy(replace(ours.warehouse, guard=guard), ours.name("t"), copy, DELTA, "0")
    assert ids(ours, "copy") == [1, 2, 3]


def test_writer_that_commits_first_keeps_the_table(ours: Fleet, lake: Bucket) -> None:
    copy = a_copy(ours)

    def guard() -> None:
        # Immediately before the version is taken.
        if target_versions.current_version(ours.warehouse, copy, DELTA) == "0":
            ours.spark.sql(f"INSERT INTO {copy.sql} VALUES (4, NULL, 'mon')")

    with conditions.raises("COPY_WRITTEN_AFTER_SYNC", version=1):
        drop_copy(replace(ours.warehouse, guard=guard), ours.name("t"), copy, DELTA, "0")
    assert ids(ours, "copy") == [1, 2, 3, 4]


def test_hadoop_error_is_reported_in_a_sentence(spark: SparkSession, weather: Weather) -> None:
    hadoop = Hadoop(spark)
    with conditions.raises("HADOOP_REQUEST_FAILED", path="s3a://nobodys/t", failure="can't be listed"):
        hadoop.names("s3a://nobodys/t")
    with conditions.raises("HADOOP_REQUEST_FAILED", path="nosuch://lake/t", failure="can't be removed"):
        hadoop.remove("nosuch://lake/t")


def a_copy(ours: Fleet) -> TableName:
    """Create a Delta copy of the table, as a migration does before the switch."""
    source, copy = ours.name("t"), ours.name("copy")
    table = hive.require_hive_table(ours.warehouse, source)
    ours.spark.sql(f"CONVERT TO DELTA parquet.`{table.location}` PARTITIONED BY (day STRING)")
    ours.spark.sql(f"CREATE TABLE {copy.sql} USING delta LOCATION '{table.location}'")
    return copy


@soak.slow
def test_worker_without_its_claim_removes_nothing(ours: Fleet) -> None:
    copy = a_copy(ours)

    def lost() -> None:
        raise Death

    with pytest.raises(Death):
        drop_copy(Warehouse(ours.spark, ours.warehouse.access, guard=lost), ours.name("t"), copy, DELTA, "0")
    assert ids(ours, "copy") == [1, 2, 3]
