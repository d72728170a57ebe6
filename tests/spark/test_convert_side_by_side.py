"""Conversions by Spark and by ours: files, partitions, history, refusals.

Tests of our conversion without Spark are in tests/unit/test_convert_*.py. Only a soak runs tests that both
have.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests import conditions, soak
from tests.spark.side_by_side import (
    assert_our_rows,
    assert_same_rows,
    content,
    converted,
    deltars_rows,
    differences,
    log,
    native,
    native_refusal,
    ours,
    rows,
    spark_rows,
    twins,
)

from tableferry import convert
from tableferry.spark.catalog import SPARK_ERRORS
from tableferry.spark.session import settings


def write(root: Path, *paths: str, **columns: Any) -> Path:
    """Write a Parquet file to each path; each has a different ``id`` unless columns are given."""
    for number, path in enumerate(paths):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(columns or {"id": [number]}), root / path)
    return root


def _data(root: Path) -> dict[str, bytes | None]:
    return {name: data for name, data in content(root).items() if not name.startswith("_delta_log")}


# Characters that a URI escapes or keeps, ambiguous characters, and no suffix.
NAMES = (
    *("a=b.parquet", "plain", "100%.parquet", "100%25 %41.parquet", "a b  c.parquet", "late.tmp"),
    *("q?x#y&z+w.parquet", "[x]{y}*^|<>.parquet", "it's `so`, (very);!~@$.parquet", 'back\\sl"ash'),
    *("ü é 😀.parquet", "e\u0301.parquet", "\u00a0\u2028\u3000.parquet", "\u200b\ufeff.parquet"),
    *("\ue000\ufffe.parquet", "\x80\x9f.parquet", "日本/x.parquet", "sub/x:y/z.parquet"),
)


IMMEDIATELY = {"spark.databricks.delta.retentionDurationCheck.enabled": "false"}


@soak.slow
def test_file_names_match_native_command(spark: SparkSession, tmp_path: Path) -> None:
    both = twins(tmp_path, lambda root: write(root, *NAMES))

    our_log, other = converted(spark, both)

    assert differences(our_log, other) == set()
    assert len(our_log.adds) == len(assert_same_rows(spark, both)) == len(NAMES)
    # Spark compares the paths of the log with those on disk as strings; different ones lose their files.
    before = _data(both.ours)
    with settings(spark, IMMEDIATELY, "here"):
        spark.sql(f"VACUUM delta.`{both.ours}` RETAIN 0 HOURS").collect()
    assert _data(both.ours) == before
    table = deltalake.DeltaTable(both.ours)
    assert table.vacuum(0, enforce_retention_duration=False, full=True) == []


@soak.only
def test_listed_files_match_native_command(spark: SparkSession, tmp_path: Path) -> None:
    elsewhere = write(tmp_path / "elsewhere", "inside.parquet", id=[77])

    def make(root: Path) -> None:
        write(root, "_key1=1/a.parquet", "_key1=2/b.parquet", "_key1=2/plain/c.parquet")
        hidden = ("_key1=2/_h.parquet", "_key1=2/.h.parquet", "_folder/x.parquet", ".folder/x")
        write(root, *hidden, id=[99])
        (root / "_SUCCESS").touch()
        (root / "_key1=9").mkdir()
        (root / "void" / "void").mkdir(parents=True)
        (root / "_key1=3").symlink_to(elsewhere)
        (root / "_key1=4").mkdir()
        (root / "_key1=4" / "linked").symlink_to(elsewhere / "inside.parquet")

    both = twins(tmp_path, make)

    our_log, other = converted(spark, both, "_key1 int")

    assert differences(our_log, other) == set()
    assert {path: values["_key1"] for path, values in our_log.values.items()} == {
        "_key1=1/a.parquet": "1",
        "_key1=2/b.parquet": "2",
        "_key1=2/plain/c.parquet": "2",
        "_key1=3/inside.parquet": "3",
        "_key1=4/linked": "4",
    }
    assert assert_same_rows(spark, both).total() == 5


@soak.only
def test_streaming_sink_files_match_native_command(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "in", "a.parquet", id=[1, 2, 3])

    def make(root: Path) -> None:
        stream = spark.readStream.schema("id long").parquet(str(tmp_path / "in")).writeStream
        stream = stream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        stream.trigger(availableNow=True).start(str(root), "parquet").awaitTermination()
        write(root, "uncommitted.parquet", id=[99])

    both = twins(tmp_path, make)
    for copy in (both.native, both.plain):
        for batch in (copy / "_spark_metadata").glob("[0-9]*"):
            batch.write_text(batch.read_text().replace(f"{both.ours}/", f"{copy}/"))

    our_log, other = converted(spark, both)

    assert differences(our_log, other) == set()
    assert assert_same_rows(spark, both).total() == 3


@soak.slow
def test_partition_values_match_native_command(spark: SparkSession, tmp_path: Path) -> None:
    null = "__HIVE_DEFAULT_PARTITION__"
    folders = (
        "d=2024-01-05/l=9999999999/i=007/s=x/x=0.25/b=true/f=1e1",
        "d=2024-1-5/l=-1/i=+5/s=a=b%2F%25 ü😀%3D/x=1.50/b=FALSE/f=NaN",
        "d=1500-01-01/l=+7/i=-2147483648/s=007/x=9999.99/b=false/f=-0.0",
        f"d={null}/l={null}/i={null}/s={null}/x={null}/b={null}/f={null}",
    )
    both = twins(tmp_path, lambda root: write(root, *(f"{folder}/a.parquet" for folder in folders)))

    our_log, other = converted(
        spark, both, "d date, l bigint, i int, s string, x decimal(6,2), b boolean, f double"
    )

    assert [values["i"] for values in our_log.values.values()].count("007") == 1
    # Our commits have one spelling for each day and each boolean.
    assert len(differences(our_log, other)) == 1
    [path] = (path for path in our_log.adds if our_log.values[path] != other.values[path])
    mine, theirs = our_log.values[path], other.values[path]
    assert {key: (mine[key], theirs[key]) for key in mine if mine[key] != theirs[key]} == {
        "d": ("2024-01-05", "2024-1-5"),
        "b": ("false", "FALSE"),
    }
    assert assert_same_rows(spark, both).total() == 4
    assert spark.read.format("delta").load(str(both.ours)).where("i = 7 AND s = 'x'").count() == 1


@soak.only
def test_decimal_partitions_match_native_command(spark: SparkSession, tmp_path: Path) -> None:
    """delta-rs can't open a table with too few digits; from Parquet, Spark reads 0.15."""
    both = twins(tmp_path, lambda root: write(root, "x=1.5/a.parquet", "x=-3/a.parquet"))

    our_log, other = converted(spark, both, "x decimal(6,2)")

    assert [values["x"] for values in our_log.values.values()] == ["-3.00", "1.50"]
    assert sorted(values["x"] for values in other.values.values()) == ["-3", "1.5"]
    expected = {"(('id', 0), ('x', Decimal('1.50')))": 1, "(('id', 1), ('x', Decimal('-3.00')))": 1}
    assert spark_rows(spark, both.ours) == spark_rows(spark, both.native) == expected
    engine = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(both.ours))
    assert rows(pa.table(engine.execute("SELECT * FROM t").read_all())) == expected
    with pytest.raises(deltalake.exceptions.DeltaError, match="Failed to parse value"):
        deltalake.DeltaTable(both.native)


@soak.only
def test_undeclared_partition_columns_match_native_command(spark: SparkSession, tmp_path: Path) -> None:
    """The native command needs the columns; ours infers the same table from the names."""
    paths = ("d=2024-01-05/l=9999999999/i=7/s=x/a.parquet", "d=2024-01-06/l=1/i=8/s=7/a.parquet")
    both = twins(tmp_path, lambda root: write(root, *paths))

    assert "Expecting 0 partition column(s): []" in native_refusal(spark, both.native)
    assert ours(both.ours).outcome == "converted"
    native(spark, both.native, "d date, l bigint, i int, s string")

    assert differences(log(both.ours), log(both.native)) == set()
    assert_same_rows(spark, both)


@soak.only
def test_column_in_path_and_file_matches_native_command(spark: SparkSession, tmp_path: Path) -> None:
    both = twins(tmp_path, lambda root: write(root, "day=2/a.parquet", a=[1], day=[9], b=[2]))

    our_log, other = converted(spark, both, "day int")

    assert differences(our_log, other) == set()
    assert our_log.columns == other.columns == ["a", "day", "b"]
    assert assert_same_rows(spark, both) == {"(('a', 1), ('b', 2), ('day', 2))": 1}


@soak.only
def test_history_and_second_conversion_match_native_command(spark: SparkSession, tmp_path: Path) -> None:
    both = twins(tmp_path, lambda root: write(root, "k=1/a.parquet", "k=2/b.parquet"))
    our_log, other = converted(spark, both, "k int")

    message = (
        *("version", "operation", "operationParameters", "operationMetrics"),
        *("isolationLevel", "isBlindAppend", "userMetadata"),
    )
    mine, theirs = (
        spark.sql(f"DESCRIBE HISTORY delta.`{root}`").select(*message).collect()
        for root in (both.ours, both.native)
    )
    assert mine == theirs
    assert mine[0]["operationParameters"] == {
        "numFiles": "2",
        "partitionedBy": '["k"]',
        "collectStats": "true",
        "sourceFormat": "parquet",
    }
    # CONVERT TO DELTA records read version -1, at which delta-rs's history() fails.
    assert our_log.info.keys() == other.info.keys() - {"txnId", "readVersion"}

    before = content(both.ours), content(both.native)
    native(spark, both.native, "k int")
    # Each recognises the other's table as Delta.
    native(spark, both.ours, "k int")
    assert ours(both.native).outcome == ours(both.ours).outcome == "already"
    assert (content(both.ours), content(both.native)) == before
    # A later file, which a second conversion by Spark leaves out silently.
    write(both.native, "k=3/late.parquet")
    native(spark, both.native, "k int")
    assert ours(both.native).outcome == "refused"


@soak.slow
def test_conversion_without_statistics_matches_native_command(spark: SparkSession, tmp_path: Path) -> None:
    def make(root: Path) -> None:
        write(root, "a.parquet", "b.parquet")
        write(root, "empty.parquet", id=pa.array([], pa.int64()))

    both = twins(tmp_path, make)

    our_log, other = converted(spark, both, statistics=convert.Statistics.NONE)

    assert differences(our_log, other) == set()
    assert our_log.info["operationParameters"] == other.info["operationParameters"]
    assert not any("stats" in add for add in our_log.adds.values())
    assert assert_same_rows(spark, both).total() == 2


class Refusal(NamedTuple):
    """A directory that neither engine converts: the native error, and our condition."""

    make: Callable[[Path], object]
    by: str
    native: str
    condition: str
    parameters: Mapping[str, object]


def _void(root: Path) -> None:
    (root / "void" / "void").mkdir(parents=True)
    (root / "_SUCCESS").touch()


def _text(root: Path) -> None:
    (write(root, "a.parquet") / "README").write_text("hello, this is no Parquet")


def _zero(root: Path) -> None:
    (write(root, "a.parquet") / "zero.parquet").touch()


def _cut(root: Path) -> None:
    write(root, "a.parquet", "cut.parquet")
    (root / "cut.parquet").write_bytes((root / "a.parquet").read_bytes()[:-9])


def _of(**columns: Any) -> Callable[[Path], object]:
    return lambda root: write(root, "a.parquet", **columns)


def _two(first: Any, other: Any) -> Callable[[Path], object]:
    return lambda root: (write(root, "a.parquet", id=first), write(root, "b.parquet", id=other))


def _at(*paths: str) -> Callable[[Path], object]:
    return lambda root: write(root, *paths)


def _unreadable(*parts: str) -> tuple[str, Mapping[str, object]]:
    """Return our condition for a file, with each of these parts in the message."""
    every = "".join(f"(?=.*{re.escape(part)})" for part in parts)
    return "UNREADABLE_FILES", {"files": re.compile(f"(?s)^{every}")}


BLANK = ("COLUMN_NAMES_NEED_MAPPING", {"columns": ["`a b`"]})
COUNT = (
    "Expecting {} partition column(s): [{}], but found {} partition column(s): [{}] "
    "from parsing the file name"
)
REFUSED = {
    "no file": Refusal(_void, "", "No file found in the directory", "NO_PARQUET_FILES", {}),
    "text": Refusal(_text, "", "README is not a Parquet file", *_unreadable("README is not a Parquet file")),
    "0 bytes": Refusal(
        _zero, "", "zero.parquet is not a Parquet file", *_unreadable("zero.parquet", "0 bytes")
    ),
    "cut": Refusal(_cut, "", "cut.parquet is not a Parquet file", *_unreadable("cut.parquet", "truncated")),
    "too few": Refusal(
        _at("k=1/a.parquet"),
        "k int, l int",
        COUNT.format(2, "`k`, `l`", 1, "`k`"),
        "PARTITION_COLUMNS_MISMATCH",
        {
            "expected_count": 2,
            "expected": "[`k`, `l`]",
            "found_count": 1,
            "found": "[`k`]",
            "file": re.compile("k=1/a.parquet"),
        },
    ),
    "none": Refusal(
        _at("a.parquet"),
        "k int",
        COUNT.format(1, "`k`", 0, ""),
        "PARTITION_COLUMNS_MISMATCH",
        {
            "expected_count": 1,
            "expected": "[`k`]",
            "found_count": 0,
            "found": "[]",
            "file": re.compile("a.parquet"),
        },
    ),
    "mixed depth": Refusal(
        _at("a.parquet", "k=1/a.parquet"),
        "k int",
        COUNT.format(1, "`k`", 0, ""),
        "PARTITION_COLUMNS_MISMATCH",
        {"expected_count": 1, "expected": "[`k`]", "found_count": 0, "found": "[]"},
    ),
    "other name": Refusal(
        _at("k=1/a.parquet"),
        "z int",
        "Expecting partition column `z`, but found partition column `k` from parsing the file name",
        "PARTITION_COLUMN_MISMATCH",
        {"expected": "z", "found": "k"},
    ),
    "no number": Refusal(
        _at("k=1/a.parquet", "k=one/a.parquet"),
        "k int",
        "Failed to cast partition value `one`",
        "PARTITION_VALUE_INVALID",
        {"value": "one", "type": "int", "column": "k", "file": re.compile("k=one/a.parquet")},
    ),
    "no date": Refusal(
        _at("k=2024-02-30/a.parquet"),
        "k date",
        "Failed to cast partition value `2024-02-30`",
        "PARTITION_VALUE_INVALID",
        {"value": "2024-02-30", "type": "date", "column": "k"},
    ),
    "blank": Refusal(_of(**{"a b": [1]}), "", "DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES", *BLANK),
    "blank partition": Refusal(
        _at("a b=1/a.parquet"), "`a b` int", "DELTA_INVALID_PARTITION_COLUMN_NAME", *BLANK
    ),
    "two types": Refusal(
        _two([1], ["1"]),
        "",
        "Failed to merge fields 'id' and 'id'",
        "COLUMN_TYPES_CONFLICT",
        {
            "column": "id",
            "type": "bigint",
            "file": "a.parquet",
            "other_type": "string",
            "other": "b.parquet",
        },
    ),
    "case in one file": Refusal(_of(id=[1], ID=[1]), "", "", *_unreadable("a.parquet", "`id`", "`ID`")),
    "nanoseconds": Refusal(
        _of(id=pa.array([1], pa.timestamp("ns"))),
        "",
        "PARQUET_TYPE_ILLEGAL",
        *_unreadable("a.parquet", "`id`", "TIMESTAMP(NANOS", "microseconds"),
    ),
    "time of day": Refusal(
        _of(id=pa.array([1], pa.time64("us"))),
        "",
        "DELTA_UNSUPPORTED_DATA_TYPES",
        *_unreadable("`id`", "TIME(MICROS"),
    ),
    "half a float": Refusal(
        _of(id=pa.array([1], pa.float16())), "", "PARQUET_TYPE_ILLEGAL", *_unreadable("`id`", "FLOAT16")
    ),
    "uuid": Refusal(
        _of(id=pa.array([b"x" * 16], pa.uuid())), "", "PARQUET_TYPE_ILLEGAL", *_unreadable("`id`", "UUID")
    ),
}


@pytest.mark.parametrize("refusal", REFUSED.values(), ids=REFUSED)
@soak.slow
def test_both_engines_refuse_invalid_folders(spark: SparkSession, tmp_path: Path, refusal: Refusal) -> None:
    both = twins(tmp_path, refusal.make)
    before = content(both.plain)

    assert refusal.native in native_refusal(spark, both.native, refusal.by)
    result = ours(both.ours, refusal.by or None)

    assert result.outcome == "refused"
    conditions.check(result.error, refusal.condition, **refusal.parameters)
    assert content(both.ours) == before
    assert content(both.native).keys() - before.keys() == {"_delta_log", "_delta_log/_staged_commits"}


def test_both_engines_refuse_missing_directory(spark: SparkSession, tmp_path: Path) -> None:
    assert "doesn't exist" in native_refusal(spark, tmp_path / "missing")
    missing = ours(tmp_path / "missing")
    assert missing.outcome == "failed"
    conditions.check(missing.error, "FOLDER_MISSING", folder=tmp_path / "missing")
    assert list(tmp_path.iterdir()) == []


INT, FLOAT = pa.int32(), pa.float32()
TIMES = ("at=2024-01-01 10%3A00%3A00/a.parquet", "at=2024-01-01 11%3A00%3A00.5/a.parquet")
ONLY_OURS: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "int and long": (_two(pa.array([1], INT), [2**40]), "", "Failed to merge fields"),
    "float and double": (_two(pa.array([1.5], FLOAT), [0.1]), "", "Failed to merge fields"),
    "decimals": (
        _two(pa.array([1], pa.decimal128(5, 2)), pa.array([1], pa.decimal128(20, 3))),
        "",
        "Failed to merge fields",
    ),
    "int and double": (_two(pa.array([2**31 - 1], INT), [0.1]), "", "Failed to merge fields"),
    "a partition of timestamps": (_at(*TIMES), "at timestamp", "Syntax error at or near 'CONVERT'"),
    "a colon first in the path": (_at("k=a:b/a.parquet"), "k string", "URISyntaxException"),
}


@pytest.mark.parametrize(("make", "by", "message"), ONLY_OURS.values(), ids=ONLY_OURS)
@soak.slow
def test_tableferry_converts_folders_that_native_command_refuses(
    spark: SparkSession, tmp_path: Path, make: Callable[[Path], object], by: str, message: str
) -> None:
    both = twins(tmp_path, make)

    assert message in native_refusal(spark, both.native, by)
    result = ours(both.ours, by or None)

    assert result.outcome == "converted", result.error
    assert assert_our_rows(spark, both).total() == sum(path.is_file() for path in both.plain.rglob("*"))
    if message == "URISyntaxException":
        assert result.plan is not None
        assert "VACUUM" in " ".join(result.plan.notes)
        with pytest.raises(SPARK_ERRORS, match="URISyntaxException"):
            spark.sql(f"VACUUM delta.`{both.ours}`").collect()


def test_empty_partition_value_is_null(spark: SparkSession, tmp_path: Path) -> None:
    """Spark neither reads nor converts such a directory."""
    both = twins(tmp_path, lambda root: write(root, "k=/a.parquet", "k=x/a.parquet"))

    assert "Empty partition column value in 'k='" in native_refusal(spark, both.native, "k string")
    assert ours(both.ours).outcome == "converted"

    expected = {"(('id', 0), ('k', None))": 1, "(('id', 1), ('k', 'x'))": 1}
    assert spark_rows(spark, both.ours) == deltars_rows(both.ours) == expected


def test_names_that_require_column_mapping_match_native_command(spark: SparkSession, tmp_path: Path) -> None:
    both = twins(tmp_path, lambda root: write(root, "k k=1/a.parquet", **{"a b": [1], "s": [{"x,y": 2}]}))

    result = ours(both.ours, column_mapping=True)

    assert result.outcome == "converted", result.error
    assert_our_rows(spark, both, deltars=False)


@soak.only
def test_both_engines_treat_names_that_differ_only_in_case(spark: SparkSession, tmp_path: Path) -> None:
    """The native command uses one of the two names: Spark reads both files by it, delta-rs loses values."""

    def make(root: Path) -> None:
        write(root, "a.parquet", id=[1])
        write(root, "b.parquet", ID=[2])

    both = twins(tmp_path, make)
    native(spark, both.native)

    result = ours(both.ours)

    assert result.outcome == "refused"
    conditions.check(
        result.error,
        "COLUMN_SPELLED_DIFFERENTLY",
        column="id",
        file="a.parquet",
        other_column="ID",
        other="b.parquet",
    )
    assert spark_rows(spark, both.native).total() == 2
    assert sum("None" in row for row in deltars_rows(both.native)) == 1


@soak.only
def test_non_ascii_octets_in_directory_names_match_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Ours decodes an umlaut of Arrow and Python; Spark decodes each octet as a character."""
    both = twins(tmp_path, lambda root: write(root, "k=%C3%BC/a.parquet"))

    our_log, other = converted(spark, both, "k string")

    assert (our_log.values, other.values) == (
        {"k=%25C3%25BC/a.parquet": {"k": "ü"}},
        {"k=%25C3%25BC/a.parquet": {"k": "Ã¼"}},
    )
    assert deltars_rows(both.ours) == spark_rows(spark, both.ours) == {"(('id', 0), ('k', 'ü'))": 1}
