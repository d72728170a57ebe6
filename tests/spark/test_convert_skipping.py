"""With our statistics, Spark and delta-rs skip files, and never a file with a matching row."""

from __future__ import annotations

import datetime as dt
import math
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import reduce
from itertools import islice
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from tests import soak

from tableferry import convert
from tableferry.spark.catalog import parallel_map
from tableferry.spark.session import settings as spark_settings

UTC = dt.UTC
MICROS = {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}
# Spark's reader of Parquet, below Delta too, takes row groups with a -0.0 for ones without a 0.0, and
# those whose writer left NaN out of the bounds for ones without it.
NO_PUSHDOWN = {"spark.sql.parquet.filterPushdown": "false"}
FILES = 6


def _columns(number: int) -> dict[str, pa.Array]:
    """Return the columns of a file, with values that no other file has."""
    day, instant = dt.date(1969, 12, 29), dt.datetime(1969, 12, 29, 23, 59, 59, 999_999, UTC)
    low, high = number * 10, number * 10 + 9
    digits = "9" * 26
    later = dt.timedelta(days=1)
    inner = [{"x": low, "deep": {"s": f"{number}a"}}, None, {"x": high, "deep": {"s": f"{number}z"}}]
    return {
        "number": pa.array([low, None, high], pa.int32()),
        "large": pa.array([2**60 + low, None, 2**60 + high]),
        "day": pa.array([day + number * later, None, day + number * later]),
        "text": pa.array(["ü" * 40 + chr(97 + number), None, "é" + chr(97 + number)]),
        "short": pa.array([f"{number}a", None, f"{number}z"]),
        "exact": pa.array(
            [Decimal(f"{digits}{digit:02}.5") for digit in (low, high)] + [None], pa.decimal128(38, 10)
        ),
        "moment": pa.array([instant + number * later, None, instant + number * later + later / 2]),
        "wall": pa.array([(instant + number * later).replace(tzinfo=None), None, None]),
        "inner": pa.array(inner, pa.struct([("x", pa.int32()), ("deep", pa.struct([("s", pa.string())]))])),
        "real": pa.array([float(low), None, float(high)]),
        "gaps": pa.array([None, None, None] if number else [1, 1, 1], pa.int32()),
    }


# Each filter finds rows in exactly one file.
PREDICATES = {
    "number": "number BETWEEN 21 AND 29",
    "number, outside": "number < 5",
    "large": f"large = {2**60 + 39}",
    "day": "day = DATE'1970-01-01'",
    "short": "short > '5'",
    "exact": f"exact = {'9' * 26}49.5BD",
    "moment": "moment < TIMESTAMP'1969-12-30 12:00:00Z'",
    "wall": "wall >= TIMESTAMP_NTZ'1970-01-03 12:00:00'",
    "inner.x": "inner.x = 30",
    "inner.deep.s": "inner.deep.s = '4z'",
    "nulls": "gaps IS NOT NULL",
    "two": "number > 19 AND inner.x < 25 AND number IS NOT NULL",
}


def _write(root: Path, spark: SparkSession, writer: str) -> None:
    root.mkdir()
    for number in range(FILES):
        pq.write_table(pa.table(_columns(number)), root / f"{number}.parquet")
    if writer == "spark":
        frames = [spark.read.parquet(str(root / f"{number}.parquet")) for number in range(FILES)]
        with spark_settings(spark, MICROS, "here"):
            reduce(lambda frame, other: frame.union(other), frames).write.parquet(str(root / "k=1"))
        for file in root.glob("*.parquet"):
            file.unlink()


@pytest.mark.parametrize("writer", ["arrow", "spark"])
@soak.slow
def test_files_are_skipped(spark: SparkSession, tmp_path: Path, writer: str) -> None:
    root = tmp_path / "t"
    _write(root, spark, writer)
    assert convert.run([str(root)]).ok

    frame = spark.read.format("delta").load(str(root))
    predicates = PREDICATES | ({"real": "real >= 58"} if writer == "spark" else {})
    scanned = dict(
        zip(
            predicates,
            parallel_map(lambda predicate: len(frame.where(predicate).inputFiles()), predicates.values()),
            strict=True,
        )
    )

    assert len(frame.inputFiles()) == FILES
    assert scanned == dict.fromkeys(predicates, 1)
    dataset = deltalake.DeltaTable(root).to_pyarrow_dataset()
    for name, value in (("number", 25), ("day", dt.date(1970, 1, 1)), ("short", "3b"), ("large", 2**60 + 5)):
        assert len(list(dataset.get_fragments(pc.field(name) == value))) == 1, name


MOMENTS = st.datetimes(dt.datetime(1583, 1, 1), dt.datetime(9999, 12, 30))
CHARACTERS = st.characters(codec="utf-8", exclude_characters="\x00")
VALUES: dict[str, tuple[str, pa.DataType, st.SearchStrategy[Any]]] = {
    "number": ("int", pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "large": ("bigint", pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "real": ("double", pa.float64(), st.floats() | st.sampled_from([-0.0, 0.0, math.nan, math.inf])),
    "single": ("float", pa.float32(), st.floats(width=32) | st.sampled_from([-0.0, math.nan])),
    "exact": (
        "decimal(38,2)",
        pa.decimal128(38, 2),
        st.integers(-(10**38) + 1, 10**38 - 1).map(lambda digits: Decimal(f"{digits}E-2")),
    ),
    "text": (
        "string",
        pa.string(),
        st.text(CHARACTERS, max_size=8)
        | st.text(CHARACTERS, min_size=31, max_size=70)
        | st.sampled_from(["z" * 32, "z" * 33, "\U0010ffff" * 40, "😀" * 17, "\uffff" * 33, "\x7f" * 40]),
    ),
    "day": ("date", pa.date32(), st.dates()),
    "moment": (
        "timestamp",
        pa.timestamp("us", "UTC"),
        MOMENTS.map(lambda predicate: predicate.replace(tzinfo=UTC)),
    ),
    "wall": ("timestamp_ntz", pa.timestamp("us"), MOMENTS),
    "inner": (
        "struct<x: int, y: struct<z: string>>",
        pa.struct([("x", pa.int32()), ("y", pa.struct([("z", pa.string())]))]),
        st.fixed_dictionaries(
            {
                "x": st.none() | st.integers(-9, 9),
                "y": st.none() | st.fixed_dictionaries({"z": st.none() | st.text(CHARACTERS, max_size=40)}),
            }
        ),
    ),
}
ARROW = pa.schema([(name, kind) for name, (_, kind, _) in VALUES.items()])
ROWS = st.lists(
    st.fixed_dictionaries({name: st.none() | values for name, (_, _, values) in VALUES.items()}),
    min_size=12,
    max_size=18,
)


def _leaves(row: dict[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Yield each leaf of a row: its name, its type in SQL, its value."""
    for name, (kind, _, _) in VALUES.items():
        if name != "inner":
            yield name, kind, row[name]
    inner = row["inner"] or {"x": None, "y": None}
    yield "inner.x", "int", inner["x"]
    yield "inner.y.z", "string", (inner["y"] or {"z": None})["z"]


def _literal(value: Any, kind: str) -> Column:
    # Spark's conversion from Python loses the zeros of early years, and time zones.
    if isinstance(value, dt.date):
        return F.lit(value.isoformat()).cast(kind)
    if isinstance(value, float | Decimal):
        return F.lit(str(value)).cast(kind)
    return F.lit(value).cast(kind)


COMPARED: dict[str, Callable[[Column, Column], Column]] = {
    "=": lambda column, value: column == value,
    "<=": lambda column, value: column <= value,
    ">=": lambda column, value: column >= value,
}


def _predicates(row: dict[str, Any]) -> Iterator[Column]:
    """Yield filters that match a row, so that a wrong bound of one column hides it."""
    for compared in COMPARED.values():
        parts = [
            F.col(name).isNull() if value is None else compared(F.col(name), _literal(value, kind))
            for name, kind, value in _leaves(row)
        ]
        yield reduce(lambda first, other: first & other, parts)


@soak.only  # tests/unit/test_convert_skipping.py tests the same bounds without Spark.
@soak.slow_examples(10)
@given(written=ROWS, by_spark=st.booleans(), files=st.integers(3, 6))
def test_no_row_is_hidden(
    spark: SparkSession, written: list[dict[str, Any]], by_spark: bool, files: int
) -> None:
    location = Path(tempfile.mkdtemp())
    try:
        _random_files(spark, location, written, by_spark, files)
        root, plain = location / "t", location / "plain"
        shutil.copytree(root, plain)
        done = convert.run([str(root)])
        assert done.ok, done.tables[0].error
        _assert_every_row(spark, root, plain, written)
    finally:
        shutil.rmtree(location)


def _random_files(
    spark: SparkSession, location: Path, written: list[dict[str, Any]], by_spark: bool, files: int
) -> None:
    root = location / ("arrow" if by_spark else "t")
    root.mkdir()
    rows = iter(written)
    size = -(-len(written) // files)
    while batch := list(islice(rows, size)):
        name = f"{len(list(root.iterdir()))}.parquet"
        pq.write_table(pa.Table.from_pylist(batch, ARROW), root / name, row_group_size=2)
    if by_spark:
        kinds = ", ".join(f"{name} {kind}" for name, (kind, _, _) in VALUES.items())
        with spark_settings(spark, MICROS, "here"):
            spark.read.schema(kinds).parquet(str(root)).repartition(files).write.parquet(str(location / "t"))


def _assert_every_row(spark: SparkSession, root: Path, plain: Path, written: list[dict[str, Any]]) -> None:
    delta = spark.read.format("delta").load(str(root))
    parquet = spark.read.schema(delta.schema).parquet(str(plain))
    predicates = [predicate for row in written for predicate in _predicates(row)]
    # Counted without a filter, so that no row group is skipped.
    counts = parquet.select(
        *(F.count_if(predicate).alias(str(number)) for number, predicate in enumerate(predicates))
    )
    [expected] = counts.collect()
    # Each filter is a separate scan with file skipping; one query for all is much cheaper.
    scans = [delta.where(predicate).select(F.lit(number)) for number, predicate in enumerate(predicates)]
    with spark_settings(spark, NO_PUSHDOWN, "here"):
        actual = Counter(row[0] for row in reduce(DataFrame.unionAll, scans).collect())
    assert [actual[number] for number in range(len(predicates))] == list(expected)
    assert min(expected) >= 1
