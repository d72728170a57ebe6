"""Equality of values, and verdicts, on real Spark."""

from __future__ import annotations

import json
import math
import shutil
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from tests import conditions, soak

from tableferry.verify import Verdict, render, verify, verify_tables
from tableferry.verify.measuring import Side, measure, pair
from tableferry.verify.verdict import ColumnDifference, RowDifference, ValueDifference


def values(spark: SparkSession, columns: str, *rows: str) -> DataFrame:
    """Return rows in SQL, with the names and types of ``columns``."""
    return spark.sql(f"SELECT * FROM VALUES {', '.join(rows)} AS t({columns})")


def differing_cases(source: DataFrame, target: DataFrame) -> set[str | None]:
    """Return the values of the column ``case`` for which the two sides differ, with one query."""
    verdict = verify(source, target, partition_columns=["case"])
    assert verdict.partition_columns == ("case",)
    return {difference.values[0] for difference in verdict.partition_differences}


def plain(value: Any) -> Any:
    """Return a Python value whose equality is Spark's ``=``, with nulls equal."""
    match value:
        case float():
            return "NaN" if math.isnan(value) else value + 0.0
        case dict():
            return "map", frozenset((plain(key), plain(member)) for key, member in value.items())
        case list() | tuple():
            return type(value).__name__, tuple(plain(member) for member in value)
    return value


STRINGS = st.none() | st.sampled_from(["", "a", "b"])
NUMBERS = st.none() | st.sampled_from([0, 1])
DOUBLES = st.none() | st.sampled_from([0.0, -0.0, math.nan, 1.0])
MAPS = st.none() | st.dictionaries(st.sampled_from(["a", "b", ""]), NUMBERS, max_size=2)
ROW = st.tuples(
    STRINGS,
    STRINGS,
    DOUBLES,
    st.none() | st.lists(STRINGS, max_size=2),
    st.none() | st.tuples(NUMBERS, STRINGS),
    MAPS,
    st.none() | st.lists(st.none() | st.tuples(MAPS, DOUBLES), max_size=2),
)
ROW_TYPE = (
    "case int, s string, t string, d double, a array<string>, r struct<x int, y string>, m map<string, int>, "
    "n array<struct<m map<string, int>, d double>>"
)


@st.composite
def nudged(draw: st.DrawFn) -> tuple[list[Any], list[Any]]:
    """Draw rows and the same rows in another order; in half of the cases one value, row or copy differs."""
    rows = draw(st.lists(ROW, max_size=3))
    others = list(draw(st.permutations(rows)))
    change = draw(st.sampled_from(["none", "none", "none", "value", "copy", "drop", "swap"]))
    if others and change == "value":
        row = list(others[0])
        at = draw(st.integers(0, len(row) - 1))
        row[at] = draw(ROW)[at]
        others[0] = tuple(row)
    elif others and change == "copy":
        others.append(others[0])
    elif others and change == "drop":
        others.pop()
    elif others and change == "swap":
        first, two, *rest = others[0]
        others[0] = (two, first, *rest)
    return rows, others


@soak.slow_examples(soak.amount(4, 15))
@given(st.lists(nudged(), min_size=30, max_size=40))
def test_verdict_equals_multiset_comparison(
    spark: SparkSession, cases: list[tuple[list[Any], list[Any]]]
) -> None:
    sides = [
        spark.createDataFrame([(at, *row) for at, case in enumerate(cases) for row in case[side]], ROW_TYPE)
        for side in (0, 1)
    ]
    expected = {
        str(at)
        for at, (rows, others) in enumerate(cases)
        if Counter(map(plain, rows)) != Counter(map(plain, others))
    }
    assert differing_cases(*sides) == expected


def test_distinct_values_differ(spark: SparkSession) -> None:
    groups: dict[str, list[Any]] = {
        "array<array<string>>": [
            None,
            [],
            [None],
            [[]],
            [[None]],
            [[], []],
            [None, None],
            [["a"], []],
            [[], ["a"]],
        ],
        "struct<x struct<y string, z string>, w array<int>>": [
            None,
            (None, None),
            (None, []),
            (None, [None]),
            ((None, None), None),
            ((None, "a"), None),
            (("a", None), None),
            (("", "a"), None),
        ],
        "map<string, map<string, int>>": [
            None,
            {},
            {"a": None},
            {"a": {}},
            {"a": {"b": None}},
            {"a": {"b": 1}},
            {"b": {"a": 1}},
            {"a": {"b": 1}, "b": {}},
            {"a": {}, "b": {"b": 1}},
        ],
        "array<map<int, array<string>>>": [
            [{}],
            [{}, {}],
            [{1: []}],
            [{1: [None]}],
            [{1: None}],
            [{1: []}, {}],
        ],
        "binary": [None, b"", b"\0", b"\0\0", b"0"],
        "string": [None, "", " ", "null", "NULL", "\0", "a", "A", "á", "a\u0301"],
    }
    for kind, members in groups.items():
        pairs = [(number, other) for number in range(len(members)) for other in range(len(members))]
        sides = [
            spark.createDataFrame(
                [(f"{p[0]}-{p[1]}", members[p[side]]) for p in pairs], f"case string, v {kind}"
            )
            for side in (0, 1)
        ]
        assert differing_cases(*sides) == {
            f"{number}-{other}" for number, other in pairs if number != other
        }, kind
    # Nulls that swap columns, and sums that an exclusive or treats as equal.
    columns = "case, a, b"
    left = ["('moved', NULL, 'a')", "('twice', 'x', 'x')", "('twice', 'x', 'x')", "('copies', 'x', 'x')"]
    right = [
        "('moved', 'a', NULL)",
        "('twice', 'y', 'y')",
        "('twice', 'y', 'y')",
        *["('copies', 'x', 'x')"] * 3,
    ]
    different_cases = differing_cases(values(spark, columns, *left), values(spark, columns, *right))
    assert different_cases == {"moved", "twice", "copies"}


def _mixed(*members: str) -> str:
    return f"to_variant_object(array({', '.join(f'CAST({member} AS VARIANT)' for member in members)}))"


def _object(**fields: str) -> str:
    members = ", ".join(f"'{name}', CAST({value} AS VARIANT)" for name, value in fields.items())
    return f"to_variant_object(map({members}))"


DAY, TEXT = "DATE'2024-01-31'", "'2024-01-31'"


def test_mixed_variants_are_compared_at_every_depth(spark: SparkSession) -> None:
    variants = [
        *(f"CAST({value} AS VARIANT)" for value in (DAY, TEXT, "1", "'1'", "NULL")),
        *(_mixed(first, second) for first in (DAY, TEXT) for second in (DAY, TEXT)),
        *(_mixed("1", value) for value in (DAY, TEXT, "X'41'", "'QQ=='")),
        *(_object(a=_mixed("1", value), b=TEXT) for value in (DAY, TEXT)),
        *(_mixed("1", _object(VARIANT=value)) for value in (DAY, TEXT)),
        *(_mixed(_object(a="1"), _object(a=value), _object(a=_mixed("1", value))) for value in (DAY, TEXT)),
        *(_mixed("1", _mixed("1", _mixed("1", _mixed("1", value)))) for value in (DAY, TEXT)),
    ]
    for shape in ("v", "map('k', array(named_struct('x', v)))"):
        rows = ", ".join(f"struct({at} AS n, {variant} AS v)" for at, variant in enumerate(variants))
        every = f"(SELECT n, {shape} AS v FROM (SELECT inline(array({rows}))))"
        sides = [
            spark.sql(
                f"SELECT concat(a.n, '-', b.n) AS case, {side}.v FROM {every} a JOIN {every} b ON a.n >= b.n"
            )
            for side in ("a", "b")
        ]
        assert differing_cases(*sides) == {
            f"{number}-{other}" for number in range(len(variants)) for other in range(number)
        }, shape
    orders = (
        f"parse_json('[1, {{{fields}}}]') AS v"
        for fields in ('"b": "x", "a": [1, "y"]', '"a": [1, "y"], "b": "x"')
    )
    assert verify(*(spark.sql(f"SELECT {variant}") for variant in orders)).matches


def test_variants_mixed_too_deep_are_not_equal(spark: SparkSession) -> None:
    deep = TEXT
    for _ in range(10):
        deep = _mixed("1", deep)
    same = spark.sql(f"SELECT 1 AS id, {deep} AS v")
    with conditions.raises("VARIANT_TOO_DEEP", levels=8):
        verify(same, same)
    assert verify(same, same, exclude=["v"]).matches


def test_different_types_are_reported_and_compared_by_value(spark: SparkSession) -> None:
    source = spark.sql(
        """SELECT 1 AS i, 1.50BD AS d, CAST(0.1 AS FLOAT) AS f, -0.0D AS z, DATE'2024-01-31' AS day,
        NAMED_STRUCT('X', 1, 'y', ARRAY(1.0BD)) AS r, MAP(1, 'a', 2, 'b') AS m, NULL AS nothing,
        CAST('A' AS STRING COLLATE UTF8_LCASE) AS c, INTERVAL 1 DAY AS span, MAKE_INTERVAL(1, 2) AS odd,
        PARSE_JSON('{"b": 1, "a": [1.5, null]}') AS v, CAST('x' AS BINARY) AS `a.b`, 7 AS ID"""
    )
    target = spark.sql(
        """SELECT 7 AS id, CAST('x' AS BINARY) AS `A.b`, PARSE_JSON('{"a": [1.5, null], "b": 1}') AS v,
        MAKE_INTERVAL(0, 14) AS odd, INTERVAL '24' HOUR AS span, 'A' AS c, CAST(NULL AS DATE) AS nothing,
        MAP(2L, 'b', 1L, 'a') AS m, NAMED_STRUCT('Y', ARRAY(CAST(1 AS DECIMAL(9, 4))), 'x', 1L) AS r,
        TIMESTAMP_NTZ'2024-01-31 00:00:00' AS day, 0.0D AS z, CAST(CAST(0.1 AS FLOAT) AS DOUBLE) AS f,
        CAST(1.5 AS DECIMAL(12, 4)) AS d, 1L AS i"""
    )
    verdict = verify(source, target)
    assert verdict.matches, render(verdict)
    assert {difference.column: difference.compared_as for difference in verdict.schema.types} == {
        "c": "string",
        "span": "interval day to second",
        "nothing": "date",
        "m": "map<bigint,string>",
        "r": "struct<X:bigint,y:array<decimal(9,4)>>",
        "day": "timestamp_ntz",
        "f": "double",
        "d": "decimal(12,4)",
        "i": "bigint",
    }
    assert "9 columns changed type and kept every value" in render(verdict)
    for change in (
        "MAP(2, 'b', 1, 'A') AS m",
        "'a' AS c",
        "NAMED_STRUCT('y', ARRAY(1.1BD), 'x', 1) AS r",
        'PARSE_JSON(\'{"b": 1, "a": ["1.5", null]}\') AS v',
    ):
        name = change.rsplit(" ", 1)[1]
        other = target.drop(name).crossJoin(spark.sql(f"SELECT {change}"))
        assert not verify(source, other).rows_match, change


def test_columns_without_exact_common_type_can_be_excluded(spark: SparkSession) -> None:
    source = spark.sql("SELECT 1 AS id, TIMESTAMP'2024-01-01' AS at, 'x' AS gone, 1 AS number")
    target = spark.sql("SELECT 1 AS ID, TIMESTAMP_NTZ'2024-01-01' AS At, '1' AS Number, 0 AS added")
    verdict = verify(source, target, keys=["id"])
    assert verdict.rows_match
    assert not verdict.matches
    assert verdict.excludable == ("gone", "added", "At", "Number")
    assert verdict.schema.types == (
        ColumnDifference("At", "timestamp", "timestamp_ntz", None),
        ColumnDifference("Number", "int", "string", None),
    )
    clean = verify(source, target, exclude=[name.upper() for name in verdict.excludable])
    assert clean.matches
    assert {name.lower() for name in clean.excluded} == {"gone", "added", "at", "number"}
    with conditions.raises("EXCLUDED_COLUMN_MISSING", column="gon"):
        verify(source, target, exclude=["gon"])
    for wrong in ("nope", "gone", "at"):
        with conditions.raises("KEY_NOT_COMPARED", column=wrong):
            verify(source, target, keys=[wrong])
    with conditions.raises("COLUMNS_DIFFER_BY_CASE"):
        verify(source, spark.sql("SELECT 1 AS id, 2 AS ID"))
    both = spark.sql("SELECT MAP(1, 2) AS m")
    with conditions.raises("KEY_NOT_ORDERABLE", type="map"):
        verify(both, both, keys=["m"])


@pytest.mark.parametrize("keys", [["id"], None])
def test_columns_without_equal_values_are_listed_first(spark: SparkSession, keys: list[str] | None) -> None:
    rows = "SELECT id, id % 3 AS kind, concat('{}', id) AS loaded, IF(id = {}, 'x', 'y') AS v FROM range(50)"
    verdict = verify(spark.sql(rows.format("old", 7)), spark.sql(rows.format("new", 8)), keys=keys)
    assert verdict.differ_everywhere == ("loaded",)
    assert verdict.excludable[0] == "loaded"
    assert render(verdict).split("\n\n")[1] == "No value is on both sides in: loaded"


def test_session_time_zone_does_not_change_verdict(spark: SparkSession) -> None:
    before = str(spark.conf.get("spark.sql.session.timeZone"))
    # Both instants are 02:30 in Berlin, on the night when the clocks go back.
    source = (
        "SELECT 1 AS id, TIMESTAMP'2024-10-27 00:30:00Z' AS at, ARRAY(TIMESTAMP'2024-01-01 00:00:00Z') AS l"
    )
    target = (
        "SELECT 1 AS id, TIMESTAMP'2024-10-27 01:30:00Z' AS at, ARRAY(TIMESTAMP'2024-01-01 00:00:00Z') AS l"
    )
    try:
        verdicts = []
        for zone in ("UTC", "Europe/Berlin", "America/New_York"):
            spark.conf.set("spark.sql.session.timeZone", zone)
            verdicts.append(
                verify(spark.sql(source), spark.sql(target), keys=["id"], partition_columns=["at"]).to_dict()
            )
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    assert verdicts[0] == verdicts[1] == verdicts[2]
    assert verdicts[0]["keys"]["rows"][0]["values"] == [
        {"column": "at", "source": "2024-10-27T00:30:00.000000Z", "target": "2024-10-27T01:30:00.000000Z"}
    ]
    assert verdicts[0]["partitions"]["total"] == 2


def test_different_rows_are_shown_in_pairs(spark: SparkSession) -> None:
    columns = "`the key`, `a.b`, `c``d`, m"
    source = values(
        spark,
        columns,
        "(1, 'same', 1.0D, MAP(1, 2, 3, 4))",
        "(2, '', DOUBLE('NaN'), MAP(1, 2))",
        "(3, 'gone', 1.0D, NULL)",
        "(NULL, 'null key', 1.0D, NULL)",
        "(5, 'twice', 1.0D, NULL)",
        "(5, 'twice', 1.0D, NULL)",
        "(5, 'other', 2.0D, NULL)",
    )
    target = values(
        spark,
        columns,
        "(1, 'same', 1.0D, MAP(3, 4, 1, 2))",
        "(2, NULL, DOUBLE('NaN'), MAP(1, 3))",
        "(4, 'new', 1.0D, NULL)",
        "(NULL, 'null key', -1.0D, NULL)",
        "(5, 'twice', 1.0D, NULL)",
        "(5, 'another', 2.0D, NULL)",
    )
    verdict = verify(source, target, keys=["THE KEY"], source_label="old", target_label="new")
    keys = verdict.keys
    assert keys is not None
    assert (keys.source_only, keys.target_only, keys.different) == (1, 1, 3)
    assert (keys.duplicated_source, keys.duplicated_target) == (1, 1)
    rows = list(keys.rows)
    assert rows[:4] == [
        RowDifference((None,), "different", (ValueDifference("c`d", "1.0", "-1.0"),)),
        RowDifference(
            ("2",),
            "different",
            (ValueDifference("a.b", "", None), ValueDifference("m", '{"1":2}', '{"1":3}')),
        ),
        RowDifference(("3",), "source-only"),
        RowDifference(("4",), "target-only"),
    ]
    # Key 5: one copy of 'twice' has gone, and 'other' became 'another'.
    assert {row.key for row in rows[4:]} == {("5",)}
    assert sorted(row.status for row in rows[4:]) == ["different", "source-only"]
    json.dumps(verdict.to_dict())
    text = render(verdict)
    assert text.startswith("old and new don't match: 7 rows against 6.")
    assert "2        a.b            ''       NULL" in text
    assert "(only in old)" in text
    many = spark.range(500).selectExpr("id", "id AS v")
    shifted = verify(many, many.selectExpr("id", "v + 1 AS v"), keys=["id"]).keys
    assert shifted is not None
    assert shifted.different == 500
    assert [row.key for row in shifted.rows] == [(str(at),) for at in range(20)]


def test_iceberg_table_is_read_by_its_catalog(spark: SparkSession, schema: str) -> None:
    spark.sql(f"CREATE TABLE {schema}.hive STORED AS PARQUET AS SELECT 1 AS id")
    spark.sql(f"CREATE TABLE ice.{schema}.new USING iceberg AS SELECT 1 AS id")
    assert verify_tables(spark, f"{schema}.hive", f"ice.{schema}.new").matches
    example = f"ice.{schema}.new"
    with conditions.raises("ICEBERG_TABLE_OUTSIDE_CATALOG", table=f"{schema}.new", example=example):
        verify_tables(spark, f"{schema}.hive", f"{schema}.new")


@soak.slow
def test_verify_compares_versions_and_partitions(spark: SparkSession, schema: str, tmp_path: Path) -> None:
    old, new, other = f"{schema}.old_orders", f"{schema}.new_orders", f"{schema}.`parquet_orders`"
    spark.sql(f"CREATE TABLE {old} (id INT, code CHAR(4), day DATE) USING delta")
    spark.sql(
        f"INSERT INTO {old} VALUES (1, 'a', DATE'2024-01-01'), (2, 'b', DATE'2024-01-02'), (3, 'c', NULL)"
    )
    spark.sql(f"CREATE TABLE {new} (id INT, code CHAR(4), Day DATE) USING delta PARTITIONED BY (Day)")
    spark.sql(f"INSERT INTO {new} SELECT * FROM {old}")
    spark.sql(f"INSERT INTO {old} VALUES (4, 'd', DATE'2024-01-02')")
    spark.sql(
        f"CREATE TABLE {other} USING parquet AS SELECT day, id, CAST(code AS STRING) AS code FROM {new}"
    )
    assert verify_tables(spark, f"{old}@1", f"{new}@1").matches
    later = verify_tables(spark, old, new, keys=["id"])
    assert not later.matches
    assert later.partition_columns == ("Day",)
    assert (later.partitions, later.differing_partitions) == (3, 1)
    assert later.partition_differences[0].values == ("2024-01-02",)
    assert later.to_dict()["target"]["label"] == new
    assert verify_tables(spark, old, new, exclude=["day"]).partition_columns == ()

    parquet = verify_tables(spark, new, other)
    assert parquet.matches
    assert parquet.schema.types == (ColumnDifference("code", "char(4)", "string", "string"),)

    folder = spark.sql(f"DESCRIBE DETAIL {new}").collect()[0]["location"]
    path = urlparse(folder).path
    assert verify_tables(spark, f"{old}@1", path).partition_columns == ("Day",)
    assert verify_tables(spark, f"delta.`{path}`@1", new).matches

    for source, condition in {
        f"{schema}.nothing": "TABLE_NOT_FOUND",
        "no_schema.nothing": "TABLE_NOT_FOUND",
        f"{schema}.nothing@3": "TABLE_NOT_FOUND",
        f"{tmp_path}/nothing": "TABLE_NOT_FOUND",
        f"delta.`{tmp_path}`": "TABLE_NOT_FOUND",
        f"{old}@9": "VERSION_NOT_READABLE",
        f"{other}@1": "TABLE_WITHOUT_VERSIONS",
    }.items():
        with conditions.raises(condition):
            verify_tables(spark, source, new)


def test_vacuumed_version_is_reported_in_one_line(spark: SparkSession, schema: str) -> None:
    name = f"{schema}.vacuumed"
    spark.sql(f"CREATE TABLE {name} USING delta AS SELECT 1 AS id")
    folder = Path(urlparse(spark.sql(f"DESCRIBE DETAIL {name}").collect()[0]["location"]).path)
    for file in folder.glob("*.parquet"):
        shutil.move(file, f"{file}.gone")
    with conditions.raises("DATA_FILE_MISSING"):
        verify_tables(spark, name, name)


@soak.slow
def test_verify_reads_each_table_once(
    spark: SparkSession, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        spark.sql(
            f"CREATE TABLE {schema}.{name} USING delta AS SELECT 1 AS id, '{name}' AS v, MAP(1, 2) AS m"
        )
    frames = [spark.table(f"{schema}.{name}") for name in ("one", "two")]
    asked: list[DataFrame] = []
    collect = type(frames[0]).collect

    def watched(frame: DataFrame) -> Any:
        asked.append(frame)
        return collect(frame)

    monkeypatch.setattr(type(frames[0]), "collect", watched)
    measure(pair(Side("one", frames[0]), Side("two", frames[1])))
    assert len(asked) == 1
    plan = asked[0]._jdf.queryExecution().optimizedPlan().toString()
    assert plan.count("Relation ") == 2, plan
    assert verify(frames[0], frames[0], keys=["id"]).keys is None
    assert len(asked) == 2
    verdict: Verdict = verify(frames[0], frames[1], keys=["id"])
    assert verdict.keys is not None
    # Tables that differ are read again: for keys, for rows to show, for columns without a common value.
    assert len(asked) == 6
