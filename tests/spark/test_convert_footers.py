"""Schemas and statistics of footers, compared with Spark and with CONVERT TO DELTA."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal as Number
from functools import reduce
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F
from tests import soak
from tests.footers import read_footer
from tests.parquet_to_delta import commit, files_of, footers_of

from tableferry.formats.delta.statistics import statistics_json
from tableferry.formats.parquet.files import Footer, Unreadable
from tableferry.formats.parquet.schema_merge import merge
from tableferry.spark import types
from tableferry.spark.types import Struct

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


MESSAGES = [
    "optional int32 a (INTEGER(8,true));",
    "optional int32 a (INTEGER(16,false)); required int32 b (UINT_8);",
    "optional int32 a (INTEGER(32,false)); optional int64 b (INTEGER(64,false));",
    "optional int32 a (DATE); optional boolean b; optional float c; optional double d;",
    "optional int32 a (DECIMAL(9,2)); optional int64 b (DECIMAL(18,2));",
    "optional binary a (DECIMAL(38,2)); optional fixed_len_byte_array(5) b (DECIMAL(11,2));",
    "optional fixed_len_byte_array(1) a (DECIMAL(2,2)); optional binary b (DECIMAL(5,2));",
    "optional int64 a (TIMESTAMP(MILLIS,true)); optional int64 b (TIMESTAMP(MILLIS,false));",
    "optional int64 a (TIMESTAMP(MICROS,false)); optional int64 b (TIMESTAMP_MICROS); optional int96 c;",
    "optional binary a; optional binary b (UTF8); optional binary c (ENUM); optional binary d (JSON);",
    "optional binary a (BSON); optional fixed_len_byte_array(7) b;",
    "optional int32 a (UNKNOWN); optional int64 b (UNKNOWN); optional binary c (UNKNOWN);",
    "optional boolean a (UNKNOWN); optional fixed_len_byte_array(3) b (UNKNOWN);",
    "repeated int32 a;",
    "repeated group a {optional int32 b;}",
    "optional int32 a; repeated group b {optional int64 c (INTEGER(64,false));}",
    "optional group a (LIST) {repeated int32 element;}",
    "optional group a (LIST) {repeated group array {optional int32 b;}}",
    "optional group a (LIST) {repeated group a_tuple {optional int32 b;}}",
    "optional group a (LIST) {repeated group list {optional int32 b;}}",
    "optional group a (LIST) {repeated group list {optional int32 b; optional int32 c;}}",
    "optional group a (LIST) {repeated group list {repeated int32 b;}}",
    "optional group a (LIST) {repeated group list {optional group element (LIST) "
    "{repeated group list {optional int32 element;}}}}",
    "optional group a (LIST) {repeated group element (LIST) {repeated int32 array;}}",
    "optional group a (LIST) {repeated group bag {optional group array_element {optional int32 x;}}}",
    "optional group a (LIST) {repeated group element (MAP) "
    "{repeated group map {required int32 key; optional int32 value;}}}",
    "repeated group a (LIST) {repeated group list {optional int32 element;}}",
    "repeated group a (MAP) {repeated group map {required int32 key; optional int32 value;}}",
    "optional group a (MAP) {repeated group key_value {required binary key (UTF8); optional int32 value;}}",
    "optional group a (MAP_KEY_VALUE) {repeated group map {required binary key; required int32 value;}}",
    "optional group a (MAP) {repeated group key_value {optional binary key (UTF8); optional int32 v;}}",
    "optional group a {optional int32 b; required group c {required int64 d;}}",
    "required group a {required int32 b;}",
    "optional group a (VARIANT(1)) {required binary metadata; required binary value;}",
    "optional group a (VARIANT(1)) {required binary value; required binary metadata;}",
    "optional group a (VARIANT(1)) "
    "{required binary metadata; optional binary value; optional int64 typed_value;}",
    "optional group a {optional group v (VARIANT(1)) {required binary metadata; required binary value;}}",
]
ILLEGAL = [
    "optional binary a (DECIMAL(39,2));",
    "optional fixed_len_byte_array(20) a (DECIMAL(39,2));",
    "optional int32 a (TIME(MILLIS,true));",
    "optional int64 a (TIME(MICROS,true));",
    "optional int64 a (TIME(MICROS,false));",
    "optional int64 a (TIME(NANOS,false));",
    "optional int64 a (TIMESTAMP(NANOS,true));",
    "optional fixed_len_byte_array(12) a (INTERVAL);",
    "optional fixed_len_byte_array(16) a (UUID);",
    "optional fixed_len_byte_array(2) a (FLOAT16);",
    "optional binary a (GEOMETRY(OGC:CRS84));",
    "optional binary a (GEOGRAPHY(OGC:CRS84,SPHERICAL));",
    "optional group a (LIST) {optional group list {optional int32 b;}}",
    "optional group a (MAP) {repeated group key_value {required binary key (UTF8);}}",
    "optional group a (MAP) {repeated int32 x;}",
    "optional group a (UNKNOWN) {optional int32 b;}",
    "optional group a (VARIANT(2)) {required binary metadata; required binary value;}",
    "optional int32 a; optional int32 A;",
    "optional group s {optional int32 a; optional int32 A;}",
    "optional group a (LIST) {repeated group list {optional int32 a; optional int32 A;}}",
]


def write_message(spark: SparkSession, columns: str, path: Path) -> None:
    """Write an empty file with a schema in the notation of Parquet's tools."""
    jvm: Any = spark._jvm
    message = jvm.org.apache.parquet.schema.MessageTypeParser.parseMessageType(f"message m {{{columns}}}")
    target = jvm.org.apache.hadoop.fs.Path(path.as_uri())
    jvm.org.apache.parquet.hadoop.example.ExampleParquetWriter.builder(target).withType(
        message
    ).build().close()


def loose(kind: types.DataType) -> types.DataType:
    """Return the type with all fields nullable, as Spark reads it."""
    match kind:
        case Struct():
            return Struct(tuple(types.Field(field.name, loose(field.type)) for field in kind.fields))
        case types.Array():
            return types.Array(loose(kind.element))
        case types.Map():
            return types.Map(loose(kind.key), loose(kind.value))
        case _:
            return kind


@pytest.mark.parametrize("columns", MESSAGES)
def test_footer_schema_equals_spark_schema(spark: SparkSession, tmp_path: Path, columns: str) -> None:
    path = tmp_path / "a.parquet"
    write_message(spark, columns, path)
    footer = read_footer(str(path))
    assert isinstance(footer, Footer), footer
    spark_s = types.from_json(spark.read.parquet(str(path)).schema.json())
    assert loose(footer.schema.columns) == loose(spark_s)


@pytest.mark.parametrize("columns", ILLEGAL)
def test_types_unreadable_for_spark_are_refused(spark: SparkSession, tmp_path: Path, columns: str) -> None:
    path = tmp_path / "a.parquet"
    write_message(spark, columns, path)
    with pytest.raises(Exception, match=r"Parquet|PARQUET|DECIMAL|UNSUPPORTED|Invalid|ALREADY_EXISTS"):
        spark.read.parquet(str(path)).schema.json()
    footer = read_footer(str(path))
    assert isinstance(footer, Unreadable)
    assert footer.reason.startswith("has ")
    assert "write it again" in footer.reason


SAMPLE = """
    SELECT * FROM VALUES
    (1Y, -2S, 3, 4L, float(0.1), -1e-10D, 1.50,
        cast('-12345678901234567890123456789012345.678' AS decimal(38, 3)),
        date'1500-01-01', timestamp'1960-01-01 00:00:00.123456', timestamp_ntz'1960-01-01 00:00:00.123456',
        'short', x'00ff', true, named_struct('x', 1, 'y', named_struct('z', 'a')), array(1), map('a', 1),
        double('NaN'), double('Infinity'), 0.0D, cast(0 AS decimal(30, 10))),
    (null, null, null, null, null, null, null, null, null, null, null,
        concat(repeat('é', 40), 'x'), null, null, null, null, null, 1.0D, 1.0D, -0.0D, 1),
    (5Y, 7S, 30, 40L, float(-0.3), 2.5D, -1.50, 1, date'2024-01-01', timestamp'2024-01-01 00:00:00.123999',
        timestamp_ntz'2024-01-01 00:00:00.123999', repeat('😀', 40), x'01', false,
        named_struct('x', null, 'y', null), array(1, null), map('a', null), 2.0D, 2.0D, 0.0D, 1)
    AS t(b, s, i, l, f, d, dec, dec38, da, ts, ntz, st, bin, bo, stru, arr, ma, nan, inf, zero, dec10)
"""


def flat(section: Any, path: tuple[str, ...] = ()) -> dict[str, Any]:
    if not isinstance(section, dict):
        return {".".join(path): section}
    return {key: it for name, inner in section.items() for key, it in flat(inner, (*path, name)).items()}


@contextmanager
def set_to(spark: SparkSession, **settings: str) -> Iterator[None]:
    """Set options of ``spark.sql.`` temporarily; ``__`` is a dot."""
    names = {f"spark.sql.{name.replace('__', '.')}": value for name, value in settings.items()}
    for name, value in names.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name in names:
            spark.conf.unset(name)


def single(number: Any) -> float:
    """Return a number as a 32-bit float."""
    unpacked: tuple[float] = struct.unpack("f", struct.pack("f", number))
    return unpacked[0]


def later(text: str) -> str:
    """Return the text of a timestamp, a millisecond later."""
    return (datetime.fromisoformat(text.rstrip("Z")) + timedelta(milliseconds=1)).isoformat(
        timespec="milliseconds"
    ) + ("Z" if text.endswith("Z") else "")


@pytest.mark.parametrize("writer", ["spark", "arrow"])
@soak.slow
def test_statistics_equal_native_command(spark: SparkSession, tmp_path: Path, writer: str) -> None:
    """Check equality, except for nulls of arrays and maps, ends of timestamps, and bounds of floats."""
    root = tmp_path / writer
    with set_to(spark, parquet__outputTimestampType="TIMESTAMP_MICROS"):
        spark.sql(SAMPLE).coalesce(1).write.parquet(str(tmp_path / "spark"))
    if writer == "arrow":
        root.mkdir()
        table = pq.read_table(next((tmp_path / "spark").glob("*.parquet")))
        pq.write_table(table.replace_schema_metadata(None), root / "a.parquet")
    (footer,) = footers_of(root)
    spark.sql(f"CONVERT TO DELTA parquet.`{root}`")
    log = (root / "_delta_log" / f"{0:020}.json").read_text().splitlines()
    native = {key: it for line in log for key, it in json.loads(line).items()}
    table_schema = types.from_json(native["metaData"]["schemaString"])
    assert loose(footer.schema.columns) == table_schema

    theirs = json.loads(native["add"]["stats"], parse_float=Number)
    ours = json.loads(statistics_json(table_schema)(footer), parse_float=Number)
    assert ours["numRecords"] == theirs["numRecords"] == 3

    nulls = flat(theirs["nullCount"])
    assert (nulls.pop("arr"), nulls.pop("ma")) == (1, 1)
    assert flat(ours["nullCount"]) == nulls

    lowest, highest = flat(theirs["minValues"]), flat(theirs["maxValues"])
    for name in ("ts", "ntz"):
        highest[name] = later(highest[name])
    assert (highest.pop("inf"), highest.pop("nan"), lowest.pop("nan")) == ("Infinity", "NaN", 1)
    mine_low, mine_high = flat(ours["minValues"]), flat(ours["maxValues"])
    if writer == "arrow":
        for name in ("f", "d", "zero", "inf"):
            lowest.pop(name)
            highest.pop(name, None)
    else:
        # The log has the float's value as a double, so that a double column loses no rows.
        for bounds in (lowest, highest):
            bounds["f"] = Number(repr(single(bounds["f"])))
    assert mine_low == lowest
    assert mine_high == highest


INSTANTS = [
    datetime(1, 1, 1),
    datetime(1582, 10, 4, 23, 59, 59, 999_999),
    datetime(1969, 12, 31, 23, 59, 59, 999_001),
    datetime(2024, 1, 1, 0, 0, 0, 1),
    datetime(2024, 1, 1, 0, 0, 0, 999),
    datetime(9999, 12, 31, 23, 59, 59, 999_999),
]
# For each column the type of Arrow, the type of SQL, and values.
CASES: dict[str, tuple[pa.DataType, str, list[Any]]] = {
    "n": (pa.int64(), "bigint", [-(2**63), -1, 0, 2**53 + 1, 2**63 - 1]),
    "u": (pa.uint32(), "bigint", [0, 2**31 - 1, 2**31, 2**32 - 1]),
    "x": (pa.float64(), "double", [math.nan, math.inf, -math.inf, 0.0, -0.0, 5e-324, -1e300, 0.1]),
    "y": (pa.float32(), "float", [math.nan, math.inf, 0.0, -0.0, single(0.1), single(-1e30)]),
    "s": (
        pa.string(),
        "string",
        [
            start + end
            for start in ("", "a" * 31, "😀" * 16, "\U0010ffff" * 33)
            for end in ("", "a", "~~", "\x7f\x7f", "é\ud7ff", "\uffff", "😀\U0010ffff")
        ],
    ),
    "m": (
        pa.decimal128(38, 2),
        "decimal(38,2)",
        [
            Number(text)
            for text in ("-" + "9" * 36 + ".99", "9" * 36 + ".98", "9" * 36 + ".99", "0.01", "-0.01")
        ],
    ),
    "o": (pa.decimal128(9, 4), "decimal(9,4)", [Number(text) for text in ("-99999.9999", "0.0001", "1.5")]),
    "d": (pa.date32(), "date", [date(1, 1, 1), date(1582, 10, 4), date(1969, 12, 31), date(9999, 12, 31)]),
    "at": (pa.timestamp("us", "UTC"), "timestamp", [value.replace(tzinfo=UTC) for value in INSTANTS]),
    "ntz": (pa.timestamp("us"), "timestamp_ntz", INSTANTS),
    "b": (pa.bool_(), "boolean", [True, False]),
}


def literal(value: Any, sql: str) -> Column:
    match value:
        case str():
            return F.lit(value)
        case datetime():
            text = value.replace(tzinfo=None).isoformat(sep=" ")
        case float():
            text = "Infinity" if value == math.inf else "-Infinity" if value == -math.inf else repr(value)
        case _:
            text = str(value)
    return F.expr(f"cast('{text}' AS {sql})")


def one_by_one(rows: DataFrame, questions: Sequence[Column]) -> list[int]:
    """Count the rows of many filters, each filter separately but in one job."""
    asked = [
        rows.where(question).agg(F.count("*").alias("rows")).withColumn("number", F.lit(number))
        for number, question in enumerate(questions)
    ]
    counted = reduce(lambda frame, other: frame.union(other), asked).collect()
    return [row["rows"] for row in sorted(counted, key=lambda row: row["number"])]


def test_every_filter_finds_rows_of_parquet_files(spark: SparkSession, tmp_path: Path) -> None:
    """Query each value in files of all writers; few files have the value.

    Spark must not use the files' own statistics here: with them it loses NaN in Arrow's files,
    converted or not.
    """
    chance = Random(4)
    arrow, mr = tmp_path / "arrow", tmp_path / "mr"
    arrow.mkdir()
    schema = pa.schema([(name, case[0]) for name, case in CASES.items()])
    present: dict[str, dict[str, Any]] = {name: {} for name in CASES}
    for number in range(soak.amount(2, 3)):
        rows = [{name: chance.choice([None, *case[2]]) for name, case in CASES.items()} for _ in range(2)]
        for row in rows:
            for name, value in row.items():
                present[name][repr(value)] = value
        pq.write_table(pa.Table.from_pylist(rows, schema), arrow / f"{number}.parquet", row_group_size=1)
        with set_to(spark, parquet__outputTimestampType="TIMESTAMP_MICROS"):
            frame = spark.read.parquet(str(arrow / f"{number}.parquet"))
            frame.coalesce(1).write.mode("append").parquet(str(mr))
    questions = []
    for name, values in present.items():
        column = F.col(name)
        for value in values.values():
            if value is not None:
                asked = literal(value, CASES[name][1])
                questions += [column == asked, column <= asked, column >= asked]
        questions += [column.isNull(), column.isNotNull()]
    questions = questions[:: soak.amount(6, 1)]
    truth = spark.read.parquet(str(arrow))
    expected = list(truth.agg(*(F.count(F.when(question, 1)) for question in questions)).collect()[0])
    assert max(expected) > min(expected)
    with set_to(spark, parquet__filterPushdown="false", codegen__wholeStage="false"):
        for folder in (arrow, mr):
            commit(folder)
            assert one_by_one(spark.read.format("delta").load(str(folder)), questions) == expected


PAIRS: list[tuple[pa.DataType, Any, Any, str, bool]] = [
    (pa.int64(), 1, 2, "bigint", True),
    (pa.uint64(), 1, 2**64 - 1, "decimal(20,0)", True),
    (pa.decimal128(38, 2), Number("1.50"), Number(10**35 + 1), "decimal(38,2)", True),
    (pa.date32(), date(1969, 1, 1), date(2024, 1, 1), "date", True),
    (
        pa.timestamp("us", "UTC"),
        datetime(1969, 1, 1, 0, 0, 0, 1, UTC),
        datetime(2024, 1, 1, 0, 0, 0, 1, UTC),
        "timestamp",
        True,
    ),
    (pa.timestamp("ms"), datetime(1969, 1, 1), datetime(2024, 1, 1), "timestamp_ntz", True),
    (pa.string(), "a" * 50, "b" * 50, "string", True),
    (pa.float64(), 1.0, 2.0, "double", False),
]


@pytest.mark.parametrize(
    ("type", "low", "high", "sql", "by_arrow"), PAIRS, ids=lambda parameter: str(parameter)[:14]
)
@soak.slow
def test_filter_skips_files_without_the_value(
    spark: SparkSession, tmp_path: Path, type: pa.DataType, low: Any, high: Any, sql: str, by_arrow: bool
) -> None:
    """The other file isn't a Parquet file any more when it is read."""
    for number, value in enumerate((low, high)):
        pq.write_table(pa.table({"c": pa.array([value, None], type)}), tmp_path / f"{number}.parquet")
        if not by_arrow:
            frame = spark.read.parquet(str(tmp_path / f"{number}.parquet"))
            frame.coalesce(1).write.parquet(str(tmp_path / str(number)))
            (part,) = (tmp_path / str(number)).glob("*.parquet")
            part.replace(tmp_path / f"{number}.parquet")
    commit(tmp_path)
    other = tmp_path / "1.parquet"
    other.write_bytes(b"x" * other.stat().st_size)
    rows = spark.read.format("delta").load(str(tmp_path)).where(F.col("c") == literal(low, sql)).count()
    assert rows == 1


WIDENED: list[tuple[pa.DataType, Any, pa.DataType, Any]] = [
    (pa.int8(), -128, pa.int64(), 2**62),
    (pa.int32(), -(2**31), pa.int64(), -(2**63)),
    (pa.int32(), 2**31 - 1, pa.float64(), 0.5),
    (pa.float32(), single(0.1), pa.float64(), 0.1),
    (pa.int16(), -32768, pa.decimal128(12, 2), Number("9999999999.99")),
    (pa.int64(), -(2**63), pa.decimal128(22, 2), Number("0.25")),
    (pa.decimal128(5, 2), Number("-999.99"), pa.decimal128(10, 4), Number("1.2345")),
    (pa.date32(), date(1969, 1, 2), pa.timestamp("us"), datetime(1969, 1, 2, 3, 4, 5, 678901)),
    (pa.uint8(), 255, pa.int32(), -1),
    (pa.uint32(), 2**32 - 1, pa.int64(), -1),
    (pa.null(), None, pa.int64(), 7),
    (pa.null(), None, pa.int8(), 7),
    (pa.null(), None, pa.float64(), 0.5),
    (pa.null(), None, pa.date32(), date(2024, 1, 2)),
    (
        pa.timestamp("ms", "UTC"),
        datetime(1969, 1, 2, tzinfo=UTC),
        pa.timestamp("us", "UTC"),
        datetime(2024, 1, 1, tzinfo=UTC),
    ),
]


def by_spark(spark: SparkSession, root: Path, where: Column | None = None) -> list[Any]:
    rows = spark.read.format("delta").load(str(root))
    return [row[0] for row in (rows if where is None else rows.where(where)).select("c").collect()]


def by_delta_rs(root: Path) -> list[Any]:
    result = (
        deltalake.QueryBuilder().register("t", deltalake.DeltaTable(str(root))).execute("SELECT c FROM t")
    )
    return pa.table(result).column("c").to_pylist()  # type: ignore[no-any-return]


def plain(values: Iterable[Any]) -> list[Any]:
    """Return comparable values: numbers by value, timestamps without zone."""
    zoneless = (value.replace(tzinfo=None) if isinstance(value, datetime) else value for value in values)
    return sorted(
        zoneless, key=lambda value: (value is None, str(value) if isinstance(value, str) else value or 0)
    )


@pytest.mark.parametrize(
    ("narrow", "low", "wide", "high"),
    WIDENED[:: soak.amount(3, 1)],
    ids=lambda parameter: str(parameter)[:18],
)
@soak.slow
def test_widened_files_are_read_correctly_by_spark_and_delta_rs(
    spark: SparkSession, tmp_path: Path, narrow: pa.DataType, low: Any, wide: pa.DataType, high: Any
) -> None:
    for shape in ("dictionary", "plain"):
        root = tmp_path / shape
        root.mkdir()
        for number, (type, value) in enumerate(((narrow, low), (wide, high))):
            table = pa.table({"c": pa.array([value, None], type)})
            options = {"use_dictionary": shape == "dictionary", "store_decimal_as_integer": shape == "plain"}
            pq.write_table(table, root / f"{number}.parquet", **options)
        column = commit(root).fields[0]
        expected = [parameter for parameter in (low, high) if parameter is not None]
        if isinstance(low, date) and not isinstance(low, datetime):
            expected[0] = datetime(low.year, low.month, low.day)
        nulls = 4 - len(expected)
        for values in (by_spark(spark, root), by_delta_rs(root)):
            assert plain(parameter for parameter in values if parameter is not None) == plain(expected)
            assert values.count(None) == nulls
        for value in expected:
            sql = str(column.type)
            assert plain(by_spark(spark, root, F.col("c") == literal(value, sql))) == plain([value])


def test_spark_misreads_files_that_merge_refuses(spark: SparkSession, tmp_path: Path) -> None:
    """An unsigned number in a table with a wider decimal column."""
    pq.write_table(pa.table({"c": pa.array([2**32 - 1], pa.uint32())}), tmp_path / "a.parquet")
    commit(tmp_path, Struct((types.Field("c", types.Decimal(22, 2)),)))
    with pytest.raises(Exception, match=r"FAILED_READ_FILE|CONVERT|convert"):
        by_spark(spark, tmp_path)
    with set_to(spark, parquet__enableVectorizedReader="false"):
        assert by_spark(spark, tmp_path) == [Number(-1)]


def test_spark_cannot_read_untyped_nulls_as_strings(spark: SparkSession, tmp_path: Path) -> None:
    """So such a file is refused if other files have strings, although it has no value."""
    pq.write_table(pa.table({"c": pa.array([None], pa.null())}), tmp_path / "a.parquet")
    commit(tmp_path, Struct((types.Field("c", types.STRING),)))
    with pytest.raises(Exception, match="PARQUET_COLUMN_DATA_TYPE_MISMATCH"):
        by_spark(spark, tmp_path)


def test_schema_is_merged_from_files_of_spark_and_other_writers(spark: SparkSession, tmp_path: Path) -> None:
    """Spark's comments are kept, even if another writer's file is first."""
    pq.write_table(pa.table({"id": pa.array([1], pa.int32()), "code": ["a"]}), tmp_path / "a.parquet")
    comment = {"comment": "the key"}
    frame = spark.createDataFrame([(2, "b")], "id bigint, code string")
    frame = frame.withColumn("id", F.col("id").alias("id", metadata=comment))
    frame.coalesce(1).write.mode("append").parquet(str(tmp_path))
    merged = merge(
        (footer.schema, file.path)
        for footer, file in zip(footers_of(tmp_path), files_of(tmp_path), strict=True)
    )
    assert merged.columns == Struct(
        (types.Field("id", types.LONG, metadata=comment), types.Field("code", types.STRING))
    )
    assert [str(widening) for widening in merged.widenings] == ["`id` from int to bigint"]
