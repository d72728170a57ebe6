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
from tableferry.pipelines.cdc.change_feed import feed_events
from tableferry.pipelines.cdc.fold import Fold
from tableferry.pipelines.cdc.key_ranges import Sizes
from tableferry.pipelines.cdc.scd2_history_events import history_events
from tableferry.pipelines.engines.streaming import cdc_batches
from tableferry.pipelines.engines.streaming.cdc_batches import apply, create_tables
from tableferry.pipelines.model.flows import CdcSettings, ScdType, Target, log_name
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


def fill(spark: SparkSession, target: Target, *batches: DataFrame) -> None:
    assert target.cdc is not None
    for batch in batches:
        events = feed_events(batch, target.cdc)
        create_tables(spark, target, events.schema)
        apply(events, target.name, target.cdc)


def users(schema: str, **changes: Any) -> Target:
    return Target(TableName((schema, "users")), replace(DOCUMENTED, **changes))


def rows(spark: SparkSession, target: Target) -> set[tuple[Any, ...]]:
    actual = rows_of(schema_folder(spark, target.name.parts[-2]) / target.name.table)
    assert len(set(actual)) == len(actual)
    return set(actual)


def commits(spark: SparkSession, target: Target) -> list[int]:
    folder = schema_folder(spark, target.name.parts[-2])
    logs = (folder / name.table / "_delta_log" for name in (target.name, log_name(target.name)))
    return [len(list(log.glob("*.json"))) for log in logs]


def test_the_documented_scd_type_1(spark: SparkSession, schema: str) -> None:
    target = users(schema)
    fill(spark, target, spark.createDataFrame(USERS, FEED))
    assert rows(spark, target) == {
        (124, "Raul", "Oaxaca"),
        (125, "Mercedes", "Guadalajara"),
        (126, "Lily", "Cancun"),
    }
    before = commits(spark, target)
    fill(spark, target, spark.createDataFrame(USERS, FEED))
    assert commits(spark, target) == before


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
def test_events_come_late_whatever_orders_them(spark: SparkSession, schema: str, sequence_by: str) -> None:
    target = users(schema, sequence_by=sequence_by)
    assert target.cdc is not None
    late = [(125, "Mercedes", "Mexicali", "UPDATE", 5), (123, "Isabel", "Chihuahua", "UPDATE", 5)]
    for number, users_then in enumerate([[user for user in USERS if user not in late], late]):
        events = feed_events(spark.createDataFrame(users_then, FEED), target.cdc)
        create_tables(spark, target, events.schema)
        apply(events, target.name, target.cdc, number=number)
    assert rows(spark, target) == {
        (124, "Raul", "Oaxaca"),
        (125, "Mercedes", "Guadalajara"),
        (126, "Lily", "Cancun"),
    }


def test_the_documented_truncate(spark: SparkSession, schema: str) -> None:
    target = users(schema, apply_as_truncates="operation = 'TRUNCATE'")
    fill(spark, target, spark.createDataFrame([*USERS, (None, None, None, "TRUNCATE", 3)], FEED))
    assert rows(spark, target) == {(125, "Mercedes", "Guadalajara")}


@soak.slow
def test_the_documented_scd_type_2(spark: SparkSession, schema: str) -> None:
    target = users(schema, scd_type=2)
    fill(spark, target, spark.createDataFrame(USERS, FEED))
    assert rows(spark, target) == {
        (123, "Isabel", "Monterrey", 1, 5),
        (123, "Isabel", "Chihuahua", 5, 6),
        (124, "Raul", "Oaxaca", 1, None),
        (125, "Mercedes", "Tijuana", 2, 5),
        (125, "Mercedes", "Mexicali", 5, 6),
        (125, "Mercedes", "Guadalajara", 6, None),
        (126, "Lily", "Cancun", 2, None),
    }
    before = commits(spark, target)
    fill(spark, target, spark.createDataFrame(USERS[3:6], FEED))
    assert commits(spark, target) == before


def test_the_documented_scd_type_2_with_a_column_that_is_not_tracked(
    spark: SparkSession, schema: str
) -> None:
    target = users(schema, scd_type=2, track_history_except_column_list=("city",))
    fill(spark, target, spark.createDataFrame(USERS, FEED))
    assert rows(spark, target) == {
        (123, "Isabel", "Chihuahua", 1, 6),
        (124, "Raul", "Oaxaca", 1, None),
        (125, "Mercedes", "Guadalajara", 2, None),
        (126, "Lily", "Cancun", 2, None),
    }


@soak.only  # test_cdc_property.py has such events, too.
@pytest.mark.parametrize("scd", [1, 2])
def test_two_events_of_one_instant_end_alike_in_either_order(
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
            fill(spark, target, part)
        columns = ["id", "v", "extra"]
        ends.append([tuple(row) for row in spark.table(target.name.sql).select(*columns).collect()])
    assert ends[0] == ends[1]
    assert len(ends[0]) == 1


@soak.slow
def test_tables_gain_columns_and_refuse_other_types(spark: SparkSession, schema: str) -> None:
    cdc = CdcSettings(("ID",), "s", scd_type=1, ignore_null_updates=True, except_column_list=("s",))
    target = Target(TableName((schema, "grows")), cdc)
    fill(spark, target, spark.sql("SELECT 1 AS id, 10L AS a, 1 AS s"))
    fill(spark, target, spark.sql("SELECT 'n' AS N, 2 AS S, 1 AS Id"))
    fill(spark, target, spark.sql("SELECT 2 AS id, 20 AS A, null AS n, 1 AS s"))
    assert rows(spark, target) == {(1, 10, "n"), (2, 20, None)}
    with raises("COLUMN_TYPE_DOES_NOT_FIT", column="a", table_type="bigint", new_type="string"):
        fill(spark, target, spark.sql("SELECT 1 AS id, 'ten' AS a, 3 AS s"))


@pytest.mark.parametrize("scd", [1, pytest.param(2, marks=soak.slow)])
def test_fields_are_added_to_columns_of_nested_types(spark: SparkSession, schema: str, scd: ScdType) -> None:
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

    # The last event is late, and as narrow as the first ones.
    batches = [event(1, 1, narrow).union(event(2, 1, narrow)), event(1, 3, wide), event(1, 2, narrow)]
    fill(spark, target, *batches, event(3, 4, "NULL"))
    columns = ["id", "s.a", "s.in[0].x", "s.in[0].y", "s.m.k.x", "s.m.k.y", "s.b"]
    found = [tuple(row) for row in spark.table(target.name.sql).selectExpr(*columns).collect()]
    closed = [(1, n, n, None, n, None, None) for n in (1, 2)] if scd == 2 else []
    current = [(1, 3, 3, "y3", 3, "y3", "b3"), (2, 1, 1, None, 1, None, None), (3, *[None] * 6)]
    assert sorted(found, key=repr) == sorted([*closed, *current], key=repr)
    before = commits(spark, target)
    fill(spark, target, event(1, 3, wide))
    assert commits(spark, target) == before


@soak.slow
def test_fields_of_other_types_are_refused_in_nested_columns(spark: SparkSession, schema: str) -> None:
    cdc = CdcSettings(("id",), "seq", scd_type=1, except_column_list=("seq",))
    target = Target(TableName((schema, "nested")), cdc)
    fill(spark, target, spark.sql("SELECT 1 AS id, named_struct('a', 1) AS s, 1 AS seq"))
    with raises("COLUMN_TYPE_DOES_NOT_FIT", column="s", new_type="struct<`a`: string>"):
        fill(spark, target, spark.sql("SELECT 1 AS id, named_struct('a', 'x') AS s, 2 AS seq"))


def test_an_event_without_a_sequence_is_named(spark: SparkSession, schema: str) -> None:
    target = users(schema)
    with raises("EVENT_WITHOUT_SEQUENCE", keys=re.compile('"userId":7')):
        fill(spark, target, spark.createDataFrame([(7, "n", "c", "INSERT", None)], FEED))
    assert rows(spark, target) == set()


def test_the_feeds_settings_see_columns_that_the_target_leaves_out(spark: SparkSession) -> None:
    cdc = replace(DOCUMENTED, where="sequenceNum < 6", column_list=("`CITY`",), except_column_list=())
    events = feed_events(spark.createDataFrame(USERS, FEED), cdc)
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
def test_settings_that_do_not_fit_are_refused(
    spark: SparkSession, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(TableError, match=message):
        feed_events(spark.createDataFrame(USERS, FEED), replace(DOCUMENTED, **changes))


def test_reserved_names_are_refused(spark: SparkSession) -> None:
    frame = spark.createDataFrame(USERS, FEED).withColumnRenamed("city", "__end_at")
    assert "__end_at" in feed_events(frame, DOCUMENTED).columns
    with raises("RESERVED_COLUMN_IN_FEED", column="__end_at"):
        feed_events(frame, replace(DOCUMENTED, scd_type=2))


def test_a_target_is_created_as_it_is_described(spark: SparkSession, schema: str, tmp_path: Path) -> None:
    target = replace(
        users(schema, scd_type=2),
        partition_columns=("city",),
        properties={"delta.enableChangeDataFeed": "true"},
        comment="it's the users'",
        path=str(tmp_path / "users"),
    )
    fill(spark, target, spark.createDataFrame(USERS[:1], FEED))
    detail = spark.sql(f"DESCRIBE DETAIL {target.name.sql}").head()
    assert detail is not None
    assert detail["location"].endswith(str(tmp_path / "users"))
    assert detail["partitionColumns"] == ["city"]
    assert detail["description"] == "it's the users'"
    assert detail["properties"]["delta.enableChangeDataFeed"] == "true"


@soak.slow
def test_it_runs_within_foreach_batch(spark: SparkSession, schema: str, tmp_path: Path) -> None:
    target = users(schema, scd_type=2)
    source = f"{schema}.feed"
    spark.createDataFrame(USERS[:5], FEED).write.saveAsTable(source, format="delta")
    spark.createDataFrame(USERS[5:], FEED).write.insertInto(source)
    cdc = replace(DOCUMENTED, scd_type=2)

    def fold(batch: DataFrame, _: int) -> None:
        apply(batch, target.name, cdc)

    stream = feed_events(spark.readStream.table(source), cdc)
    create_tables(spark, target, stream.schema)
    query = (
        stream.writeStream.foreachBatch(fold)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert len(rows(spark, target)) == 7


def applied(spark: SparkSession, target: Target, *batches: tuple[int, list[Any]], **crash: str) -> None:
    """Fold batches by their number; where ``crash`` names a commit, the last batch dies before it."""

    def before(what: str) -> None:
        if crash and what.startswith(crash["at"]):
            raise Crash(what)

    assert target.cdc is not None
    for number, users_of_batch in batches:
        events = feed_events(spark.createDataFrame(users_of_batch, FEED), target.cdc)
        create_tables(spark, target, events.schema)
        apply(events, target.name, target.cdc, number=number, before=before)


class Crash(Exception):
    """Stands for a process that dies."""


@pytest.mark.parametrize("scd", soak.amount([2], [1, 2]))
@soak.slow
def test_a_first_copy_that_dies_before_its_rows_is_made_good(
    spark: SparkSession, schema: str, scd: ScdType
) -> None:
    target = users(schema, scd_type=scd)
    whole = replace(target, name=TableName((schema, "whole")))
    applied(spark, whole, (0, USERS))
    with pytest.raises(Crash):
        applied(spark, target, (0, USERS), at="rows of")
    assert rows(spark, target) == set()
    events = spark.table(log_name(target.name).sql)
    logged = events.count()
    applied(spark, target, (0, USERS))
    assert rows(spark, target) == rows(spark, whole)
    # Not a second copy of what is logged already.
    assert spark.table(log_name(target.name).sql).count() == logged


@pytest.mark.parametrize("point", ["events of", "rows of"])
@pytest.mark.parametrize("scd", soak.amount([2], [1, 2]))
@soak.slow
def test_events_of_another_run_count_whenever_they_come_into_a_first_copy(
    spark: SparkSession, schema: str, scd: ScdType, point: str
) -> None:
    columns = "userId int, name string, city string, __START_AT bigint, __END_AT bigint"
    legacy = spark.createDataFrame([(*row, None) for row in COPIED], columns)
    target = users(schema, scd_type=scd)
    assert target.cdc is not None
    events = history_events(legacy, target.cdc)
    create_tables(spark, target, events.schema)

    def overtaken(what: str) -> None:
        if what.startswith(point) and spark.table(target.name.sql).isEmpty():
            applied(spark, target, (1, LATE))

    apply(events, target.name, target.cdc, copied=legacy, before=overtaken)
    assert rows(spark, target) == rows(spark, late_after_copied(spark, target))


@pytest.mark.parametrize("scd", soak.amount([2], [1, 2]))
@soak.slow
def test_events_of_another_run_count_whenever_they_come_into_a_first_batch(
    spark: SparkSession, schema: str, scd: ScdType, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = users(schema, scd_type=scd)
    create_tables(spark, target, feed_events(spark.createDataFrame(LATE, FEED), DOCUMENTED).schema)
    rows_of_log = Fold.rows

    def overtaken(fold: Fold, touched: DataFrame | None, log: DataFrame) -> DataFrame:
        made = rows_of_log(fold, touched, log)
        if touched is None:
            made = made.localCheckpoint()
            applied(spark, target, (1, LATE))
        return made

    monkeypatch.setattr(Fold, "rows", overtaken)
    applied(spark, target, (0, [(*row[:3], "INSERT", row[3]) for row in COPIED]))
    assert rows(spark, target) == rows(spark, late_after_copied(spark, target))


COPIED = [(124, "Raul", "Oaxaca", 1), (123, "Isabel", "Monterrey", 1), (125, "Mercedes", "Tijuana", 1)]
LATE = [(123, None, None, "DELETE", 6), (125, "Mercedes", "Mexicali", "UPDATE", 5)]


def late_after_copied(spark: SparkSession, target: Target) -> Target:
    whole = replace(target, name=TableName((*target.name.parts[:-1], "whole")))
    applied(spark, whole, (1, [(*row[:3], "INSERT", row[3]) for row in COPIED]), (2, LATE))
    assert len(rows(spark, whole)) == (2 if target.cdc == DOCUMENTED else 4)
    return whole


@soak.slow
def test_a_batch_that_comes_again_is_in_the_log_twice_and_in_the_target_once(
    spark: SparkSession, schema: str
) -> None:
    target = users(schema, scd_type=2)
    applied(spark, target, (0, USERS[:4]))
    with pytest.raises(Crash):
        applied(spark, target, (1, USERS[4:]), at="rows of")
    applied(spark, target, (1, USERS[4:]))
    assert spark.table(log_name(target.name).sql).count() == len(USERS) + len(USERS[4:])
    before = rows(spark, target)
    assert len(before) == 7
    versions = commits(spark, target)
    applied(spark, target, (2, USERS))
    assert rows(spark, target) == before
    assert commits(spark, target)[0] == versions[0]


@soak.only  # In make test test_cdc_property.py compacts logs, and dies there.
def test_a_log_is_compacted_and_loses_only_what_is_superseded(spark: SparkSession, schema: str) -> None:
    target = users(schema)
    log = log_name(target.name)
    # An older release kept the newest event of each key alone, in the same columns.
    applied(spark, target, (0, USERS[:4]))
    for number in range(1, 6):
        both = [(124, f"v{number}", "c", "UPDATE", number + 10), (123, None, None, "DELETE", number + 10)]
        applied(spark, target, (number, both))
    last = cdc_batches.COMPACTED_EVERY - 1
    with pytest.raises(Crash):
        applied(spark, target, (last, [(125, "late", "c", "UPDATE", 1)]), at="compacting")
    expected = {(124, "v5", "c"), (125, "Mercedes", "Tijuana"), (126, "Lily", "Cancun")}
    assert rows(spark, target) == expected
    # Others append while it is compacted.
    fold = Fold(DOCUMENTED, spark.table(log.sql).schema)
    new = [
        fold.batch(feed_events(spark.createDataFrame([(key, "new", "c", "INSERT", 1)], FEED), DOCUMENTED))
        for key in (127, 128, 129)
    ]
    with ThreadPoolExecutor(1) as pool:
        appended = [pool.submit(cdc_batches._append, fold, events, log) for events in new]
        cdc_batches._compact(spark, fold, log, large=False)
        for append in appended:
            append.result()
    # Where one came meanwhile, what is superseded was left for the next time.
    cdc_batches._compact(spark, fold, log, large=False)
    newest = {(row["userId"], row["__sequence"]) for row in spark.table(log.sql).collect()}
    assert newest == {(123, 15), (124, 15), (125, 2), (126, 2), (127, 1), (128, 1), (129, 1)}
    applied(spark, target, (last, [(127, "new", "c", "INSERT", 1)]))
    assert len(spark.table(log.sql).inputFiles()) == 1
    assert rows(spark, target) == {*expected, (127, "new", "c")}
    # A delete that was compacted still outranks what comes late.
    applied(spark, target, (5, [(123, "late", "c", "UPDATE", 14)]))
    assert rows(spark, target) == {*expected, (127, "new", "c")}


@soak.slow
def test_of_a_large_log_only_what_is_new_is_rewritten(
    spark: SparkSession, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cdc_batches, "_COMPACTING", dict.fromkeys(cdc_batches._COMPACTING, "1"))
    target = users(schema, scd_type=2)
    assert target.cdc is not None
    log, files = log_name(target.name).sql, []
    for number in range(4):
        events = feed_events(spark.createDataFrame(USERS[2 * number : 2 * number + 2], FEED), target.cdc)
        create_tables(spark, target, events.schema)
        # The log counts as large from its first byte on, and each second batch compacts it.
        batch = number if number % 2 == 0 else cdc_batches.COMPACTED_EVERY - 1
        apply(events, target.name, target.cdc, number=batch, sizes=Sizes(least=0))
        files.append(set(spark.table(log).inputFiles()))
    assert len(files[1]) == 1
    assert files[1] < files[3]
    assert len(files[3]) == 2
    [detail] = spark.sql(f"DESCRIBE DETAIL {log}").collect()
    assert detail["clusteringColumns"] == ["userId"]
    assert spark.sql(f"DESCRIBE HISTORY {log}").where("operation = 'CLUSTER BY'").count() == 1
    assert len(rows(spark, target)) == 7


def test_an_append_that_sleeps_while_the_log_is_emptied_fails(
    spark: SparkSession, schema: str, tmp_path: Path
) -> None:
    target = users(schema)
    applied(spark, target, (0, USERS[:1]))
    log, begun, go = log_name(target.name), tmp_path / "begun", tmp_path / "go"

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
        sleeping = pool.submit(cdc_batches._append, fold, fold.batch(feed_events(slow, DOCUMENTED)), log)
        while not begun.exists() and not sleeping.done():
            time.sleep(0.01)
        run_once_flows.fail_pending_writes(spark, log, 1)
        go.touch()
        with pytest.raises(SPARK_ERRORS, match="DELTA_METADATA_CHANGED"):
            sleeping.result()
    assert spark.table(log.sql).count() == 1
