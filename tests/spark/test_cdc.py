from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests import soak
from tests.conditions import raises
from tests.spark.tables import rows_of, schema_folder

from tableferry.errors import TableError
from tableferry.pipelines.cdc.change_feed import build_feed_events
from tableferry.pipelines.cdc.fold import Fold
from tableferry.pipelines.cdc.key_ranges import LogSize
from tableferry.pipelines.cdc.scd2_history_events import build_history_events
from tableferry.pipelines.engines.streaming import cdc_batches
from tableferry.pipelines.engines.streaming.cdc_batches import apply_events
from tableferry.pipelines.engines.streaming.table_creation import create_tables
from tableferry.pipelines.model.flows import CdcSettings, ScdType, Target, event_log_name
from tableferry.pipelines.state import run_once_flows
from tableferry.spark.catalog import SPARK_ERRORS
from tableferry.spark.tables import TableName

FEED = "userId int, name string, city string, operation string, sequenceNum bigint"
USERS = [
    (124, "Raul", "Oaxaca", "INSERT", 1),
    (123, "Isabel", "Monterrey", "INSERT", 1),
    (125, "Mercedes", "Tijuana", "INSERT", 2),
    (126, "Lily", "Cancun", "INSERT", 2),
    (123, None, None, "DELETE", 6),
    (125, "Mercedes", "Guadalajara", "UPDATE", 6),
    (125, "Mercedes", "Mexicali", "UPDATE", 5),
    (123, "Isabel", "Chihuahua", "UPDATE", 5),
]
DOCUMENTED = CdcSettings(
    keys=("userId",),
    sequence_by="sequenceNum",
    scd_type=1,
    apply_as_deletes="operation = 'DELETE'",
    except_column_list=("operation", "sequenceNum"),
)


def apply_batches(spark: SparkSession, target: Target, *batches: DataFrame) -> None:
    assert target.cdc is not None
    for batch in batches:
        events = build_feed_events(batch, target.cdc)
        create_tables(spark, target, events.schema)
        apply_events(events, target.name, target.cdc)


def users_target(schema: str, **changes: Any) -> Target:
    return Target(TableName((schema, "users")), replace(DOCUMENTED, **changes))


def read_rows(spark: SparkSession, target: Target) -> set[tuple[Any, ...]]:
    actual = rows_of(schema_folder(spark, target.name.parts[-2]) / target.name.table)
    assert len(set(actual)) == len(actual)
    return set(actual)


def count_commits(spark: SparkSession, target: Target) -> list[int]:
    folder = schema_folder(spark, target.name.parts[-2])
    logs = (folder / name.table / "_delta_log" for name in (target.name, event_log_name(target.name)))
    return [len(list(log.glob("*.json"))) for log in logs]


def test_scd_type_1_matches_documented_example(spark: SparkSession, schema: str) -> None:
    target = users_target(schema)
    apply_batches(spark, target, spark.createDataFrame(USERS, FEED))
    assert read_rows(spark, target) == {
        (124, "Raul", "Oaxaca"),
        (125, "Mercedes", "Guadalajara"),
        (126, "Lily", "Cancun"),
    }
    before = count_commits(spark, target)
    apply_batches(spark, target, spark.createDataFrame(USERS, FEED))
    assert count_commits(spark, target) == before


@pytest.mark.parametrize(
    "sequence_by",
    [
        "timestamp_micros(sequenceNum)",
        pytest.param("lpad(sequenceNum, 3, '0')", marks=soak.only),
        pytest.param("date_add(DATE '2026-01-01', CAST(sequenceNum AS INT))", marks=soak.only),
        pytest.param("CAST(sequenceNum AS DECIMAL(9, 2))", marks=soak.only),
        pytest.param("CAST(timestamp_micros(sequenceNum) AS TIMESTAMP_NTZ)", marks=soak.only),
    ],
)
@soak.slow
def test_late_events_are_ordered_by_sequence_of_any_type(
    spark: SparkSession, schema: str, sequence_by: str
) -> None:
    target = users_target(schema, sequence_by=sequence_by)
    assert target.cdc is not None
    late = [(125, "Mercedes", "Mexicali", "UPDATE", 5), (123, "Isabel", "Chihuahua", "UPDATE", 5)]
    for number, users_then in enumerate([[user for user in USERS if user not in late], late]):
        events = build_feed_events(spark.createDataFrame(users_then, FEED), target.cdc)
        create_tables(spark, target, events.schema)
        apply_events(events, target.name, target.cdc, batch_number=number)
    assert read_rows(spark, target) == {
        (124, "Raul", "Oaxaca"),
        (125, "Mercedes", "Guadalajara"),
        (126, "Lily", "Cancun"),
    }


def test_truncate_matches_documented_example(spark: SparkSession, schema: str) -> None:
    target = users_target(schema, apply_as_truncates="operation = 'TRUNCATE'")
    apply_batches(spark, target, spark.createDataFrame([*USERS, (None, None, None, "TRUNCATE", 3)], FEED))
    assert read_rows(spark, target) == {(125, "Mercedes", "Guadalajara")}


@soak.slow
def test_scd_type_2_matches_documented_example(spark: SparkSession, schema: str) -> None:
    target = users_target(schema, scd_type=2)
    apply_batches(spark, target, spark.createDataFrame(USERS, FEED))
    assert read_rows(spark, target) == {
        (123, "Isabel", "Monterrey", 1, 5),
        (123, "Isabel", "Chihuahua", 5, 6),
        (124, "Raul", "Oaxaca", 1, None),
        (125, "Mercedes", "Tijuana", 2, 5),
        (125, "Mercedes", "Mexicali", 5, 6),
        (125, "Mercedes", "Guadalajara", 6, None),
        (126, "Lily", "Cancun", 2, None),
    }
    before = count_commits(spark, target)
    apply_batches(spark, target, spark.createDataFrame(USERS[3:6], FEED))
    assert count_commits(spark, target) == before


def test_scd_type_2_without_tracked_city_matches_documented_example(spark: SparkSession, schema: str) -> None:
    target = users_target(schema, scd_type=2, track_history_except_column_list=("city",))
    apply_batches(spark, target, spark.createDataFrame(USERS, FEED))
    assert read_rows(spark, target) == {
        (123, "Isabel", "Chihuahua", 1, 6),
        (124, "Raul", "Oaxaca", 1, None),
        (125, "Mercedes", "Guadalajara", 2, None),
        (126, "Lily", "Cancun", 2, None),
    }


@soak.only  # test_cdc_property.py has such events too.
@pytest.mark.parametrize("scd", [1, 2])
def test_events_with_equal_sequence_give_same_row_in_either_order(
    spark: SparkSession, schema: str, scd: ScdType
) -> None:
    frame = spark.sql(
        """SELECT id, v, named_struct('d', date'2020-01-01', 'n', 1) AS s, extra
        FROM VALUES (1, map('a', 1, 'b', 2), null), (1, map('a', 3), 'e') AS t(id, v, extra)"""
    )
    ends = []
    cdc = CdcSettings(keys=("id",), sequence_by="struct(s.d, s.n)", scd_type=scd, except_column_list=("s",))
    for turn in (["e", None], [None, "e"]):
        target = Target(TableName((schema, f"ties_{turn[0]}")), cdc)
        for extra in turn:
            part = frame.where("extra = 'e'") if extra else frame.where("extra IS NULL").drop("extra")
            apply_batches(spark, target, part)
        columns = ["id", "v", "extra"]
        ends.append([tuple(row) for row in spark.table(target.name.sql).select(*columns).collect()])
    assert ends[0] == ends[1]
    assert len(ends[0]) == 1


@soak.slow
def test_tables_gain_columns_and_refuse_incompatible_types(spark: SparkSession, schema: str) -> None:
    cdc = CdcSettings(("ID",), "s", scd_type=1, ignore_null_updates=True, except_column_list=("s",))
    target = Target(TableName((schema, "grows")), cdc)
    apply_batches(spark, target, spark.sql("SELECT 1 AS id, 10L AS a, 1 AS s"))
    apply_batches(spark, target, spark.sql("SELECT 'n' AS N, 2 AS S, 1 AS Id"))
    apply_batches(spark, target, spark.sql("SELECT 2 AS id, 20 AS A, null AS n, 1 AS s"))
    assert read_rows(spark, target) == {(1, 10, "n"), (2, 20, None)}
    with raises("COLUMN_TYPE_DOES_NOT_FIT", column="a", table_type="bigint", new_type="string"):
        apply_batches(spark, target, spark.sql("SELECT 1 AS id, 'ten' AS a, 3 AS s"))


@pytest.mark.parametrize("scd", [1, pytest.param(2, marks=soak.slow)])
def test_struct_fields_are_added_to_nested_columns(spark: SparkSession, schema: str, scd: ScdType) -> None:
    cdc = CdcSettings(("id",), "seq", scd_type=scd, except_column_list=("seq",))
    target = Target(TableName((schema, f"nested_{scd}")), cdc)
    narrow = (
        "named_struct('a', {n}, 'in', array(named_struct('x', {n})), 'm', map('k', named_struct('x', {n})))"
    )
    wide = (
        "named_struct('in', array(named_struct('y', 'y{n}', 'x', {n})), 'b', 'b{n}', 'A', {n}, "
        "'m', map('k', named_struct('x', {n}, 'y', 'y{n}')))"
    )

    def event(key: int, sequence: int, value: str) -> DataFrame:
        return spark.sql(f"SELECT {key} AS id, {value.format(n=sequence)} AS s, {sequence} AS seq")

    # The last event is late and lacks the added fields.
    batches = [event(1, 1, narrow).union(event(2, 1, narrow)), event(1, 3, wide), event(1, 2, narrow)]
    apply_batches(spark, target, *batches, event(3, 4, "NULL"))
    columns = ["id", "s.a", "s.in[0].x", "s.in[0].y", "s.m.k.x", "s.m.k.y", "s.b"]
    found = [tuple(row) for row in spark.table(target.name.sql).selectExpr(*columns).collect()]
    closed = [(1, n, n, None, n, None, None) for n in (1, 2)] if scd == 2 else []
    current = [(1, 3, 3, "y3", 3, "y3", "b3"), (2, 1, 1, None, 1, None, None), (3, *[None] * 6)]
    assert sorted(found, key=repr) == sorted([*closed, *current], key=repr)
    before = count_commits(spark, target)
    apply_batches(spark, target, event(1, 3, wide))
    assert count_commits(spark, target) == before


@soak.slow
def test_struct_field_of_incompatible_type_is_refused(spark: SparkSession, schema: str) -> None:
    cdc = CdcSettings(("id",), "seq", scd_type=1, except_column_list=("seq",))
    target = Target(TableName((schema, "nested")), cdc)
    apply_batches(spark, target, spark.sql("SELECT 1 AS id, named_struct('a', 1) AS s, 1 AS seq"))
    with raises("COLUMN_TYPE_DOES_NOT_FIT", column="s", new_type="struct<`a`: string>"):
        apply_batches(spark, target, spark.sql("SELECT 1 AS id, named_struct('a', 'x') AS s, 2 AS seq"))


def test_event_without_sequence_fails_with_its_keys(spark: SparkSession, schema: str) -> None:
    target = users_target(schema)
    with raises("EVENT_WITHOUT_SEQUENCE", keys=re.compile('"userId":7')):
        apply_batches(spark, target, spark.createDataFrame([(7, "n", "c", "INSERT", None)], FEED))
    assert read_rows(spark, target) == set()


def test_where_uses_columns_that_target_excludes(spark: SparkSession) -> None:
    cdc = replace(DOCUMENTED, where="sequenceNum < 6", column_list=("`CITY`",), except_column_list=())
    events = build_feed_events(spark.createDataFrame(USERS, FEED), cdc)
    assert events.columns == ["userId", "city", "__sequence", "__operation", "__exact"]
    assert events.count() == 6


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"keys": ("id",)}, "CDC_COLUMNS_UNKNOWN] cdcSettings.keys names id"),
        ({"column_list": ("x", "name")}, "cdcSettings.column_list names x"),
        ({"track_history_column_list": ("operation",)}, "track_history_column_list names operation"),
        ({"scd_type": 2, "apply_as_truncates": "true"}, "apply_as_truncates works with scd_type 1 only"),
        ({"sequence_by": "nothing"}, "CDC_EXPRESSION_INVALID"),
        ({"sequence_by": "name", "column_list": ("__rank",)}, "names __rank"),
    ],
)
def test_invalid_cdc_settings_are_refused(spark: SparkSession, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(TableError, match=message):
        build_feed_events(spark.createDataFrame(USERS, FEED), replace(DOCUMENTED, **changes))


def test_reserved_column_names_are_refused(spark: SparkSession) -> None:
    frame = spark.createDataFrame(USERS, FEED).withColumnRenamed("city", "__end_at")
    assert "__end_at" in build_feed_events(frame, DOCUMENTED).columns
    with raises("RESERVED_COLUMN_IN_FEED", column="__end_at"):
        build_feed_events(frame, replace(DOCUMENTED, scd_type=2))


def test_target_is_created_with_partitions_properties_comment_and_path(
    spark: SparkSession, schema: str, tmp_path: Path
) -> None:
    target = replace(
        users_target(schema, scd_type=2),
        partition_columns=("city",),
        properties={"delta.enableChangeDataFeed": "true"},
        comment="it's the users'",
        path=str(tmp_path / "users"),
    )
    apply_batches(spark, target, spark.createDataFrame(USERS[:1], FEED))
    detail = spark.sql(f"DESCRIBE DETAIL {target.name.sql}").head()
    assert detail is not None
    assert detail["location"].endswith(str(tmp_path / "users"))
    assert detail["partitionColumns"] == ["city"]
    assert detail["description"] == "it's the users'"
    assert detail["properties"]["delta.enableChangeDataFeed"] == "true"


@soak.slow
def test_apply_events_runs_in_foreach_batch(spark: SparkSession, schema: str, tmp_path: Path) -> None:
    target = users_target(schema, scd_type=2)
    source = f"{schema}.feed"
    spark.createDataFrame(USERS[:5], FEED).write.saveAsTable(source, format="delta")
    spark.createDataFrame(USERS[5:], FEED).write.insertInto(source)
    cdc = replace(DOCUMENTED, scd_type=2)

    def fold(batch: DataFrame, _: int) -> None:
        apply_events(batch, target.name, cdc)

    stream = build_feed_events(spark.readStream.table(source), cdc)
    create_tables(spark, target, stream.schema)
    query = (
        stream.writeStream.foreachBatch(fold)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert len(read_rows(spark, target)) == 7


def apply_numbered(
    spark: SparkSession, target: Target, *batches: tuple[int, list[Any]], **crash: str
) -> None:
    """Apply numbered batches; ``crash`` names the commit before which the last batch raises `Crash`."""

    def before(what: str) -> None:
        if crash and what.startswith(crash["at"]):
            raise Crash(what)

    assert target.cdc is not None
    for number, users_of_batch in batches:
        events = build_feed_events(spark.createDataFrame(users_of_batch, FEED), target.cdc)
        create_tables(spark, target, events.schema)
        apply_events(events, target.name, target.cdc, batch_number=number, before_commit=before)


class Crash(Exception):
    """Simulates the death of the process."""


@pytest.mark.parametrize("scd", soak.amount([2], [1, 2]))
@soak.slow
def test_first_copy_is_completed_after_crash_before_rows(
    spark: SparkSession, schema: str, scd: ScdType
) -> None:
    target = users_target(schema, scd_type=scd)
    whole = replace(target, name=TableName((schema, "whole")))
    apply_numbered(spark, whole, (0, USERS))
    with pytest.raises(Crash):
        apply_numbered(spark, target, (0, USERS), at="rows of")
    assert read_rows(spark, target) == set()
    events = spark.table(event_log_name(target.name).sql)
    logged = events.count()
    apply_numbered(spark, target, (0, USERS))
    assert read_rows(spark, target) == read_rows(spark, whole)
    # The events that were logged before the crash aren't logged again.
    assert spark.table(event_log_name(target.name).sql).count() == logged


@pytest.mark.parametrize("point", ["events of", "rows of"])
@pytest.mark.parametrize("scd", soak.amount([2], [1, 2]))
@soak.slow
def test_concurrent_events_count_during_first_copy(
    spark: SparkSession, schema: str, scd: ScdType, point: str
) -> None:
    columns = "userId int, name string, city string, __START_AT bigint, __END_AT bigint"
    legacy = spark.createDataFrame([(*row, None) for row in COPIED], columns)
    target = users_target(schema, scd_type=scd)
    assert target.cdc is not None
    events = build_history_events(legacy, target.cdc)
    create_tables(spark, target, events.schema)

    def append_late_events(what: str) -> None:
        if what.startswith(point) and spark.table(target.name.sql).isEmpty():
            apply_numbered(spark, target, (1, LATE))

    apply_events(events, target.name, target.cdc, copied_rows=legacy, before_commit=append_late_events)
    assert read_rows(spark, target) == read_rows(spark, create_target_with_late_events(spark, target))


@pytest.mark.parametrize("scd", soak.amount([2], [1, 2]))
@soak.slow
def test_concurrent_events_count_during_first_batch(
    spark: SparkSession, schema: str, scd: ScdType, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = users_target(schema, scd_type=scd)
    create_tables(spark, target, build_feed_events(spark.createDataFrame(LATE, FEED), DOCUMENTED).schema)
    compute_rows = Fold.compute_rows

    def append_late_events(fold: Fold, touched: DataFrame | None, log: DataFrame) -> DataFrame:
        made = compute_rows(fold, touched, log)
        if touched is None:
            made = made.localCheckpoint()
            apply_numbered(spark, target, (1, LATE))
        return made

    monkeypatch.setattr(Fold, "compute_rows", append_late_events)
    apply_numbered(spark, target, (0, [(*row[:3], "INSERT", row[3]) for row in COPIED]))
    assert read_rows(spark, target) == read_rows(spark, create_target_with_late_events(spark, target))


COPIED = [(124, "Raul", "Oaxaca", 1), (123, "Isabel", "Monterrey", 1), (125, "Mercedes", "Tijuana", 1)]
LATE = [(123, None, None, "DELETE", 6), (125, "Mercedes", "Mexicali", "UPDATE", 5)]


def create_target_with_late_events(spark: SparkSession, target: Target) -> Target:
    whole = replace(target, name=TableName((*target.name.parts[:-1], "whole")))
    apply_numbered(spark, whole, (1, [(*row[:3], "INSERT", row[3]) for row in COPIED]), (2, LATE))
    assert len(read_rows(spark, whole)) == (2 if target.cdc == DOCUMENTED else 4)
    return whole


@soak.slow
def test_repeated_batch_is_logged_twice_and_changes_no_row(spark: SparkSession, schema: str) -> None:
    target = users_target(schema, scd_type=2)
    apply_numbered(spark, target, (0, USERS[:4]))
    with pytest.raises(Crash):
        apply_numbered(spark, target, (1, USERS[4:]), at="rows of")
    apply_numbered(spark, target, (1, USERS[4:]))
    assert spark.table(event_log_name(target.name).sql).count() == len(USERS) + len(USERS[4:])
    before = read_rows(spark, target)
    assert len(before) == 7
    versions = count_commits(spark, target)
    apply_numbered(spark, target, (2, USERS))
    assert read_rows(spark, target) == before
    assert count_commits(spark, target)[0] == versions[0]


@soak.only  # In `make test`, test_cdc_property.py compacts logs and crashes there.
def test_compaction_deletes_only_superseded_events(spark: SparkSession, schema: str) -> None:
    target = users_target(schema)
    log = event_log_name(target.name)
    # A log may contain only the newest event of each key.
    apply_numbered(spark, target, (0, USERS[:4]))
    for number in range(1, 6):
        both = [(124, f"v{number}", "c", "UPDATE", number + 10), (123, None, None, "DELETE", number + 10)]
        apply_numbered(spark, target, (number, both))
    last = cdc_batches.COMPACTED_EVERY - 1
    with pytest.raises(Crash):
        apply_numbered(spark, target, (last, [(125, "late", "c", "UPDATE", 1)]), at="compacting")
    expected = {(124, "v5", "c"), (125, "Mercedes", "Tijuana"), (126, "Lily", "Cancun")}
    assert read_rows(spark, target) == expected
    # Other runs append events during the compaction.
    fold = Fold(DOCUMENTED, spark.table(log.sql).schema)
    new = [
        fold.build_batch(
            build_feed_events(spark.createDataFrame([(key, "new", "c", "INSERT", 1)], FEED), DOCUMENTED)
        )
        for key in (127, 128, 129)
    ]
    with ThreadPoolExecutor(1) as pool:
        appended = [pool.submit(cdc_batches._append_to_log, fold, events, log) for events in new]
        cdc_batches._compact_log(spark, fold, log, is_large=False)
        for append in appended:
            append.result()
    # If an append conflicted, the superseded events remain until this compaction.
    cdc_batches._compact_log(spark, fold, log, is_large=False)
    newest = {(row["userId"], row["__sequence"]) for row in spark.table(log.sql).collect()}
    assert newest == {(123, 15), (124, 15), (125, 2), (126, 2), (127, 1), (128, 1), (129, 1)}
    apply_numbered(spark, target, (last, [(127, "new", "c", "INSERT", 1)]))
    assert len(spark.table(log.sql).inputFiles()) == 1
    assert read_rows(spark, target) == {*expected, (127, "new", "c")}
    # After compaction a delete still outranks late events.
    apply_numbered(spark, target, (5, [(123, "late", "c", "UPDATE", 14)]))
    assert read_rows(spark, target) == {*expected, (127, "new", "c")}


@soak.slow
def test_compaction_of_large_log_rewrites_only_added_files(
    spark: SparkSession, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        cdc_batches, "_COMPACTION_SETTINGS", dict.fromkeys(cdc_batches._COMPACTION_SETTINGS, "1")
    )
    target = users_target(schema, scd_type=2)
    assert target.cdc is not None
    log, files = event_log_name(target.name).sql, []
    for number in range(4):
        events = build_feed_events(
            spark.createDataFrame(USERS[2 * number : 2 * number + 2], FEED), target.cdc
        )
        create_tables(spark, target, events.schema)
        # The log is large from its first byte on, and every second batch compacts it.
        batch = number if number % 2 == 0 else cdc_batches.COMPACTED_EVERY - 1
        apply_events(events, target.name, target.cdc, batch_number=batch, log_size=LogSize(large_bytes=0))
        files.append(set(spark.table(log).inputFiles()))
    assert len(files[1]) == 1
    assert files[1] < files[3]
    assert len(files[3]) == 2
    [detail] = spark.sql(f"DESCRIBE DETAIL {log}").collect()
    assert detail["clusteringColumns"] == ["userId"]
    assert spark.sql(f"DESCRIBE HISTORY {log}").where("operation = 'CLUSTER BY'").count() == 1
    assert len(read_rows(spark, target)) == 7


def test_append_fails_after_log_was_interrupted(spark: SparkSession, schema: str, tmp_path: Path) -> None:
    target = users_target(schema)
    apply_numbered(spark, target, (0, USERS[:1]))
    log, begun, go = event_log_name(target.name), tmp_path / "begun", tmp_path / "go"

    def wait(name: str) -> str:
        begun.touch()
        while not go.exists():
            time.sleep(0.01)
        return name

    slow = spark.createDataFrame(USERS[3:4], FEED).withColumn(
        "name", F.udf(wait, "string", useArrow=False)("name")
    )
    fold = Fold(DOCUMENTED, spark.table(log.sql).schema)
    with ThreadPoolExecutor(1) as pool:
        sleeping = pool.submit(
            cdc_batches._append_to_log, fold, fold.build_batch(build_feed_events(slow, DOCUMENTED)), log
        )
        while not begun.exists() and not sleeping.done():
            time.sleep(0.01)
        run_once_flows.fail_pending_writes(spark, log, 1)
        go.touch()
        with pytest.raises(SPARK_ERRORS, match="DELTA_METADATA_CHANGED"):
            sleeping.result()
    assert spark.table(log.sql).count() == 1
