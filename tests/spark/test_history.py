from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests import soak
from tests.conditions import raises
from tests.oracle import Event, scd1, scd2

from tableferry.pipelines.cdc.change_feed import build_feed_events
from tableferry.pipelines.cdc.scd2_history_events import build_history_events
from tableferry.pipelines.cdc.unrepresentable_rows import (
    find_future_ends,
    find_unrepresentable_rows,
    remove_unrepresentable_rows,
)
from tableferry.pipelines.engines.streaming.cdc_batches import apply_events
from tableferry.pipelines.engines.streaming.table_creation import create_tables
from tableferry.pipelines.model.flows import CdcSettings, Target
from tableferry.spark.tables import TableName

LEGACY = "id int, v string, note string, __START_AT int, __END_AT int"
SCD2 = CdcSettings(
    keys=("id",),
    sequence_by="at",
    scd_type=2,
    where="at > 0",
    apply_as_deletes="gone",
    except_column_list=("at", "gone", "note"),
    ignore_null_updates=True,
)


def apply_batches(
    spark: SparkSession, schema: str, cdc: CdcSettings, *batches: DataFrame
) -> list[tuple[Any, ...]]:
    target = Target(TableName((schema, "t")), cdc)
    for batch in batches:
        create_tables(spark, target, batch.schema)
        apply_events(batch, target.name, cdc)
    return sorted((tuple(row) for row in spark.table(target.name.sql).collect()), key=repr)


@soak.slow
def test_history_is_rebuilt_exactly_and_live_events_continue_it(spark: SparkSession, schema: str) -> None:
    legacy = [
        (1, "a", "n1", 1, 3),
        (1, "a", "n2", 5, 7),
        (1, "b", "n3", 7, None),
        (2, "same", "n", 1, 2),
        (2, "same", "n", 2, 4),
        (2, None, None, 4, 6),
        (2, "c", "m", 6, 8),
        (None, "null key", "n", 2, None),
        (3, "open", "n", 1, None),
    ]
    events = build_history_events(spark.createDataFrame(legacy, LEGACY), SCD2)
    closed = events.where("__operation = 'delete'").selectExpr("id", "__sequence").sort("id", "__sequence")
    assert closed.collect() == [(1, 3), (2, 8)]
    assert apply_batches(spark, schema, SCD2, events) == sorted(legacy, key=repr)

    feed = spark.createDataFrame(
        [(1, None, 9, False), (2, "back", 10, False), (3, None, 11, True), (3, "again", 12, False)],
        "id int, v string, at int, gone boolean",
    ).selectExpr("*", "'fed' AS note")
    rows = apply_batches(spark, schema, SCD2, build_feed_events(feed, SCD2))
    assert rows == sorted(
        [
            *legacy[:7],
            (None, "null key", "n", 2, None),
            (3, "open", "n", 1, 11),
            (2, "back", None, 10, None),
            (3, "again", None, 12, None),
        ],
        key=repr,
    )


@soak.slow
def test_stream_of_rows_gives_same_events_as_batch(spark: SparkSession, schema: str) -> None:
    rows = spark.createDataFrame(
        [
            (1, "a", "n", 1, 3),
            (1, "b", "n", 3, 5),
            (1, "c", "n", 7, None),
            (None, "d", "n", 2, 4),
            (2, "e", "n", 1, 4),
            # An unrepresentable row: the row above still gets its delete.
            (2, "empty", "n", 4, 4),
            (3, "twin", "n", 1, 2),
            (3, "twin", "n", 1, 2),
        ],
        LEGACY,
    )
    rows.write.format("delta").saveAsTable(f"{schema}.legacy")
    batch, stream = spark.read.table(f"{schema}.legacy"), spark.readStream.table(f"{schema}.legacy")

    kept = remove_unrepresentable_rows(batch, SCD2)
    events = build_history_events(remove_unrepresentable_rows(stream, SCD2, batch), SCD2, kept)
    query = events.writeStream.format("memory").queryName("streamed").trigger(availableNow=True).start()
    query.awaitTermination()
    streamed = spark.table("streamed").collect()
    assert sorted(streamed, key=repr) == sorted(build_history_events(kept, SCD2).collect(), key=repr)
    assert sorted((row.id or 0, row["__sequence"]) for row in streamed if row["__operation"] == "delete") == [
        (0, 4),
        (1, 5),
        (2, 4),
    ]


@soak.slow
def test_live_events_may_arrive_before_history(spark: SparkSession, schema: str) -> None:
    columns = "id int, v string, __START_AT int, __END_AT int"
    legacy = spark.createDataFrame([(1, "a", 1, 3), (1, "a", 3, 5)], columns)
    cdc = CdcSettings(keys=("id",), sequence_by="at", scd_type=2, except_column_list=("at",))
    live = spark.createDataFrame([(1, "a", 5), (1, "z", 4), (1, "a", 0)], "id int, v string, at int")
    rows = apply_batches(spark, schema, cdc, build_feed_events(live, cdc), build_history_events(legacy, cdc))
    expected = scd2(
        [
            Event((1,), 1, values={"v": "a"}, exact=True),
            Event((1,), 3, values={"v": "a"}, exact=True),
            Event((1,), 5, "delete", exact=True),
            Event((1,), 5, values={"v": "a"}),
            Event((1,), 4, values={"v": "z"}),
            Event((1,), 0, values={"v": "a"}),
        ],
        ["v"],
    )
    intervals = [(interval.values["v"], interval.start, interval.end) for interval in expected]
    assert intervals == [("a", 0, 1), ("a", 1, 3), ("a", 3, 4), ("z", 4, 5), ("a", 5, None)]
    assert rows == sorted(((1, *interval) for interval in intervals), key=repr)


def test_unrepresentable_rows_are_listed_with_their_reason(spark: SparkSession) -> None:
    legacy = spark.createDataFrame(
        [
            (1, "kept", "2020-01-01", "2020-02-01"),
            (1, "no start", None, "2020-01-01"),
            (1, "empty", "2020-01-01", "2020-01-01"),
            (1, "backwards", "2020-03-01", "2020-01-01"),
            (1, "kept", "2020-02-01", None),
            (None, "twin", "2020-01-01", "2020-02-01"),
            (None, "twin", "2020-01-01", None),
            (2, "overlaps", "2020-01-01", "2020-06-01"),
            (2, "overlaps", "2020-02-01", "2020-03-01"),
            (2, "overlaps", "2020-05-01", "2020-08-01"),
            (2, "kept", "2020-08-01", None),
            (3, "overlaps", "2020-01-01", None),
            (3, "overlaps", "2020-02-01", "2020-03-01"),
            (4, "kept", "2020-02-01", "2020-03-01"),
        ],
        "id int, v string, __START_AT string, __END_AT string",
    ).selectExpr("id", "v", "date(__START_AT) AS __START_AT", "timestamp(__END_AT) AS __END_AT")
    reasons = {
        "no start": "the interval has no start",
        "empty": "interval is empty (start = end)",
        "backwards": "ends before it starts",
        "twin": "another row of the key has the same start",
        "overlaps": "overlaps another interval of its key",
    }
    listed = [(row["v"], row["__reason"]) for row in find_unrepresentable_rows(legacy, SCD2).collect()]
    assert sorted(listed) == sorted((v, reasons[v]) for v in [*reasons, "twin", *["overlaps"] * 4])
    rest = remove_unrepresentable_rows(legacy, SCD2)
    assert rest.columns == legacy.columns
    assert {row["v"] for row in rest.collect()} == {"kept"}
    assert rest.count() == 4


def test_rows_ending_in_future_are_counted_with_mapping_that_opens_them(
    spark: SparkSession,
) -> None:
    rows = [(1, "2020-01-01"), (2, "9999-12-31"), (3, "9999-12-31"), (4, None)]
    legacy = spark.createDataFrame(rows, "id int, ends string").selectExpr(
        "id", "'v' AS v", "DATE'2019-01-01' AS __START_AT", "date(ends) AS __END_AT"
    )
    counted = find_future_ends(legacy, SCD2)
    assert counted
    assert (counted.count, counted.mapping) == (2, "NULLIF(end, DATE'9999-12-31') AS __END_AT")
    mapped = legacy.withColumnRenamed("__END_AT", "end").selectExpr("*", counted.mapping)
    assert find_future_ends(mapped.drop("end"), SCD2) is None

    several = legacy.selectExpr(
        "id", "v", "__START_AT", "__END_AT + INTERVAL 12 HOUR - INTERVAL 1 DAY * id AS __END_AT"
    )
    counted = find_future_ends(several.where("id <> 1"), SCD2)
    assert counted
    assert counted.mapping == "CASE WHEN end < TIMESTAMP'9999-12-28 12:00:00' THEN end END AS __END_AT"
    assert find_future_ends(legacy.drop("__START_AT", "__END_AT"), replace(SCD2, scd_type=1)) is None
    assert find_future_ends(legacy.withColumn("__END_AT", F.lit(9)), SCD2) is None


def test_scd_type_1_lists_repeated_keys(spark: SparkSession) -> None:
    legacy = spark.createDataFrame([(1, "a"), (None, "b"), (None, "c"), (2, "d")], "id int, v string")
    cdc = CdcSettings(keys=("ID",), sequence_by="at", scd_type=1)
    rows = find_unrepresentable_rows(legacy, cdc).collect()
    assert sorted(row["v"] for row in rows) == ["b", "c"]
    assert {row["__reason"] for row in rows} == {"another row has the same key"}
    assert remove_unrepresentable_rows(legacy, cdc).count() == 2


@pytest.mark.parametrize("ignore", soak.amount([True], [False, True]))
@soak.slow
def test_scd_type_1_rows_without_sequence_lose_to_every_live_event(
    spark: SparkSession, schema: str, ignore: bool
) -> None:
    legacy = spark.createDataFrame(
        [(1, "a", "n"), (2, None, "n"), (3, "c", None)], "id int, v string, note string"
    )
    cdc = CdcSettings(
        keys=("id",),
        sequence_by="at",
        scd_type=1,
        apply_as_deletes="v = 'gone'",
        except_column_list=("at",),
        ignore_null_updates=ignore,
    )
    live = spark.createDataFrame([(1, None, -5), (3, "gone", -4)], "id int, v string, at int")
    expected = scd1(
        [
            Event((1,), None, values={"v": "a", "note": "n"}, exact=True),
            Event((2,), None, values={"note": "n"}, exact=True),
            Event((3,), None, values={"v": "c"}, exact=True),
            Event((1,), -5),
            Event((3,), -4, "delete"),
        ],
        ["v", "note"],
        ignore_nulls=ignore,
    )
    rows = apply_batches(spark, schema, cdc, build_history_events(legacy, cdc), build_feed_events(live, cdc))
    assert rows == [(*key, *row.values()) for key, row in sorted(expected.items())]


def test_scd_type_1_events_get_sequence_of_legacy_table(spark: SparkSession) -> None:
    cdc = CdcSettings(keys=("id",), sequence_by="at + 1", scd_type=1, except_column_list=("at",))
    legacy = spark.createDataFrame(
        [(1, 6, 3, None), (2, 7, 3, 4)], "id int, at int, __START_AT int, __END_AT int"
    )
    by_column = build_history_events(legacy.select("id", "at"), cdc)
    assert by_column.columns == ["id", "at", "__sequence", "__operation", "__exact"]
    assert sorted(row["__sequence"] for row in by_column.collect()) == [7, 8]
    mapped = build_history_events(legacy.drop("__END_AT"), cdc)
    assert mapped.columns == by_column.columns
    assert [row["__sequence"] for row in mapped.collect()] == [3, 3]
    assert [row["__sequence"] for row in build_history_events(legacy.select("id"), cdc).collect()] == [
        None,
        None,
    ]
    closed = build_history_events(legacy, cdc).where("__operation = 'delete'").collect()
    assert [(row["id"], row["__sequence"]) for row in closed] == [(2, 4)]


def test_scd_type_2_requires_both_validity_columns_and_keys(spark: SparkSession) -> None:
    legacy = spark.createDataFrame([(1, 1)], "id int, __START_AT int")
    with raises("VALIDITY_COLUMNS_MISSING", columns="__END_AT"):
        build_history_events(legacy, SCD2)
    with raises("LEGACY_KEYS_MISSING", keys=["id"]):
        find_unrepresentable_rows(legacy.drop("id"), SCD2)
