"""Conversions by Spark and by ours: types, merged schemas, statistics."""

from __future__ import annotations

import datetime as dt
import re
import struct
from decimal import Decimal
from pathlib import Path
from typing import Any

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
    native_refusal,
    ours,
    twins,
)

from tableferry import convert
from tableferry.spark.session import settings

UTC = dt.UTC
NESTED_SQL = "struct<x: int, y: string, deep: struct<z: decimal(38,0), w: timestamp>>"
COLUMNS: dict[str, tuple[str, pa.DataType]] = {
    "yes": ("boolean", pa.bool_()),
    "tiny": ("tinyint", pa.int8()),
    "small": ("smallint", pa.int16()),
    "number": ("int", pa.int32()),
    "large": ("bigint", pa.int64()),
    "single": ("float", pa.float32()),
    "real": ("double", pa.float64()),
    "price": ("decimal(9,2)", pa.decimal128(9, 2)),
    "cost": ("decimal(18,4)", pa.decimal128(18, 4)),
    "exact": ("decimal(38,2)", pa.decimal128(38, 2)),
    "text": ("string", pa.string()),
    "raw": ("binary", pa.binary()),
    "day": ("date", pa.date32()),
    "moment": ("timestamp", pa.timestamp("us", "UTC")),
    "wall": ("timestamp_ntz", pa.timestamp("us")),
    "inner": (
        NESTED_SQL,
        pa.struct(
            [
                ("x", pa.int32()),
                ("y", pa.string()),
                ("deep", pa.struct([("z", pa.decimal128(38, 0)), ("w", pa.timestamp("us", "UTC"))])),
            ]
        ),
    ),
    "several": ("array<int>", pa.list_(pa.int32())),
    "pairs": ("map<string, int>", pa.map_(pa.string(), pa.int32())),
}
ARROW = pa.schema([(name, kind) for name, (_, kind) in COLUMNS.items()])
SQL = ", ".join(f"{name} {kind}" for name, (kind, _) in COLUMNS.items())

# Longer than stored bounds, in characters, UTF-16 units and bytes; no bound is above the last one.
LONG, SMILES, LAST = "ä" * 31 + "😀" * 3, "😀" * 40, "\U0010ffff" * 40
OLD, EARLY = dt.datetime(1582, 10, 16, 1, 2, 3, 999_999), dt.datetime(1969, 12, 31, 23, 59, 59, 999_001)
LEAP, LATE = dt.datetime(2024, 2, 29, 12, 0, 0, 1), dt.datetime(9999, 12, 30, 23, 59, 59, 999_999)
NULLS = dict.fromkeys(COLUMNS)


def row(sign: int, text: str, real: float, moment: dt.datetime, inner: Any = None) -> dict[str, Any]:
    """Return a row with the lowest or highest value of each type."""
    minus = "-" if sign < 0 else ""
    return {
        "yes": sign > 0,
        "tiny": sign * 127,
        "small": sign * 32767,
        "number": sign * (2**31 - 1),
        "large": sign * (2**63 - 1),
        "single": real,
        "real": real,
        "price": Decimal(f"{minus}9999999.99"),
        "cost": Decimal(f"{minus}99999999999999.9999"),
        "exact": Decimal(minus + "9" * 36 + ".01"),
        "text": text,
        "raw": text.encode(),
        "day": moment.date(),
        "moment": moment.replace(tzinfo=UTC),
        "wall": moment,
        "inner": inner,
        "several": [1, None] if sign > 0 else [],
        "pairs": [("a", 1), ("b", None)] if sign > 0 else None,
    }


def nested(sign: int, text: str, moment: dt.datetime) -> dict[str, Any]:
    deep = {"z": sign * (10**38 - 1), "w": moment.replace(tzinfo=UTC)}
    return {"x": sign, "y": text, "deep": deep}


FILES = (
    [row(-1, "", -0.0, EARLY, nested(-1, LONG, EARLY)), row(1, LONG, 1.5, LEAP, nested(1, "b", LATE)), NULLS],
    [
        row(-1, SMILES, 1e-300, OLD, {"x": None, "y": None, "deep": None}),
        row(1, LAST, 0.0, LATE),
        row(1, "z" * 33, 0.1, LATE),
    ],
    [row(1, 'x\u2028"\\\n\x00', float("nan"), EARLY, nested(1, "", EARLY)), row(1, "y", 2.0, EARLY)],
    [row(1, "y", float("inf"), EARLY), row(-1, "y", float("-inf"), EARLY)],
    [NULLS, NULLS],
)


def by_arrow(root: Path) -> None:
    root.mkdir()
    for number, rows in enumerate(FILES):
        pq.write_table(pa.Table.from_pylist(rows, ARROW), root / f"{number}.parquet", row_group_size=2)


def by_spark(spark: SparkSession, folder: Path, timestamps: str, root: Path) -> None:
    by_arrow(folder / "arrow")
    with settings(spark, {"spark.sql.parquet.outputTimestampType": timestamps}, "here"):
        for number in range(len(FILES)):
            frame = spark.read.schema(SQL).parquet(str(folder / "arrow" / f"{number}.parquet"))
            frame.coalesce(1).write.mode("append").parquet(str(root))


# Delta truncates highest values to milliseconds, and its readers add one; ours are correct for all readers.
LATER = {
    f"{earlier}{zone}": f"{later}{zone}"
    for zone in ("", "Z")
    for earlier, later in (
        ("1969-12-31T23:59:59.999", "1970-01-01T00:00:00.000"),
        ("2024-02-29T12:00:00.000", "2024-02-29T12:00:00.001"),
        ("9999-12-30T23:59:59.999", "9999-12-31T00:00:00.000"),
    )
}


def _later(column: str, *numbers: int) -> set[str]:
    zone = "" if column == "wall" else "Z"
    pairs = [pair for pair in LATER.items() if pair[0].endswith("Z") == bool(zone)]
    return {f"maxValues.{column}: {pairs[index][1]} for {pairs[index][0]}" for index in numbers}


def _lacks(column: str, lowest: list[str], highest: list[str]) -> set[str]:
    return {
        *(f"minValues.{column}: nothing for {path}" for path in lowest),
        *(f"maxValues.{column}: nothing for {path}" for path in highest),
    }


# Footers have no null counts of arrays and maps.
UNCOUNTED = {
    f"nullCount.{column_name}: nothing for {count}"
    for column_name in ("pairs", "several")
    for count in (0, 1, 2)
}
LATER_WALL = _later("wall", 0, 1, 2)
LATER_INSTANTS = _later("moment", 0, 1, 2) | _later("inner.deep.w", 0, 2)
# Writers other than parquet-mr leave NaN out of bounds; in Spark it is the greatest value.
NO_FLOATS = {
    line
    for column in ("single", "real")
    for line in _lacks(column, ["-0.0", "0.0", "2.0", "-Infinity"], ["1.5", "0.1", "NaN", "Infinity"])
}
# What parquet-mr wrote has bounds where no NaN is among the values, and JSON has no infinite numbers; a
# float is written with all its digits, as it is when it's compared with a double.
SOME_FLOATS = {
    "maxValues.single: 0.10000000149011612 for 0.1",
    *_lacks("single", ["2.0", "-Infinity"], ["NaN", "Infinity"]),
    *_lacks("real", ["2.0", "-Infinity"], ["NaN", "Infinity"]),
}
# No writer records bounds of 96-bit timestamps; the native command reads the values.
NO_INSTANTS = _lacks(
    "moment",
    ["1582-10-16T01:02:03.999Z", "1969-12-31T23:59:59.999Z"],
    [instant for instant in LATER if instant[-1] == "Z"],
) | _lacks(
    "inner.deep.w", ["1969-12-31T23:59:59.999Z"], ["1969-12-31T23:59:59.999Z", "9999-12-30T23:59:59.999Z"]
)


@soak.slow
def test_arrow_files_match_native_command(spark: SparkSession, tmp_path: Path) -> None:
    both = twins(tmp_path, by_arrow)

    our_log, other = converted(spark, both)

    assert differences(our_log, other) == UNCOUNTED | LATER_WALL | LATER_INSTANTS | NO_FLOATS
    assert assert_same_rows(spark, both).total() == 12


@pytest.mark.parametrize(
    ("timestamps", "instants"), [("INT96", NO_INSTANTS), ("TIMESTAMP_MICROS", LATER_INSTANTS)]
)
@soak.slow
def test_spark_files_match_native_command(
    spark: SparkSession, tmp_path: Path, timestamps: str, instants: set[str]
) -> None:
    both = twins(tmp_path, lambda root: by_spark(spark, tmp_path, timestamps, root))

    our_log, other = converted(spark, both)

    assert differences(our_log, other) == UNCOUNTED | LATER_WALL | instants | SOME_FLOATS
    assert assert_same_rows(spark, both).total() == 12


@pytest.mark.parametrize("writer", ["arrow", "spark"])
@soak.slow
def test_scan_statistics_match_native_command(spark: SparkSession, tmp_path: Path, writer: str) -> None:
    def make(root: Path) -> None:
        if writer == "arrow":
            by_arrow(root)
        else:
            by_spark(spark, tmp_path, "INT96", root)

    both = twins(tmp_path, make)

    our_log, other = converted(spark, both, statistics=convert.Statistics.SCAN)

    # For an INT96 before 1900, the reader's settings determine the timestamp.
    old = _lacks("moment", ["1582-10-16T01:02:03.999Z"], []) if writer == "spark" else set()
    assert differences(our_log, other) == UNCOUNTED | LATER_WALL | LATER_INSTANTS | SOME_FLOATS | old


@pytest.mark.parametrize("writer", soak.amount(["spark"], ["arrow", "spark"]))
@soak.slow
def test_first_32_columns_match_native_command(spark: SparkSession, tmp_path: Path, writer: str) -> None:
    def make(root: Path) -> None:
        columns: dict[str, Any] = {f"c{number:02}": [number, None] for number in range(29)}
        columns["s"] = [{"a": 1, "b": {"c": 2, "d": [1]}, "e": 3}, None]
        root.mkdir()
        pq.write_table(pa.table(columns | {"t": [1, 2]}), root / "a.parquet")
        if writer == "spark":
            # They don't include partition columns.
            spark.read.parquet(str(root)).coalesce(1).write.parquet(str(root / "c=1"))
            (root / "a.parquet").unlink()

    both = twins(tmp_path, make)

    our_log, other = converted(spark, both, "c int" if writer == "spark" else "")

    assert differences(our_log, other) == {"nullCount.s.b.d: nothing for 1"}
    [add] = our_log.adds.values()
    assert len(add["stats"]["minValues"]) == 30
    assert add["stats"]["minValues"]["s"] == {"a": 1, "b": {"c": 2}}
    assert assert_same_rows(spark, both).total() == 2


@soak.only
def test_empty_files_match_native_command(spark: SparkSession, tmp_path: Path) -> None:
    """With statistics the native command drops empty files; ours keeps all listed files."""

    def make(root: Path) -> None:
        root.mkdir()
        pq.write_table(pa.table({"id": [1]}), root / "a.parquet")
        pq.write_table(pa.table({"id": pa.array([], pa.int64())}), root / "empty.parquet")
        nothing = {"id": pa.array([], pa.int64()), "only": pa.array([], pa.int32())}
        pq.write_table(pa.table(nothing), root / "none.parquet")

    both = twins(tmp_path, make)

    our_log, other = converted(spark, both)

    assert differences(our_log, other) == {"empty.parquet: added", "none.parquet: added"}
    assert assert_same_rows(spark, both).total() == 1


@soak.only
def test_merged_schemas_match_native_command(spark: SparkSession, tmp_path: Path) -> None:
    def make(root: Path) -> None:
        root.mkdir()
        schema = pa.schema(
            [
                pa.field("id", pa.int16(), nullable=False),
                ("only", pa.int8()),
                ("s", pa.struct([pa.field("x", pa.int8(), nullable=False)])),
            ]
        )
        two = pa.schema(
            [
                ("text", pa.string()),
                pa.field("id", pa.int32(), nullable=False),
                ("s", pa.struct([("y", pa.int8()), ("x", pa.int32())])),
                ("l", pa.list_(pa.field("element", pa.int32(), nullable=False))),
            ]
        )
        pq.write_table(
            pa.Table.from_pylist([{"id": 1, "only": 1, "s": {"x": 1}}], schema), root / "a.parquet"
        )
        rows = [{"id": 2**31 - 1, "text": "q", "s": {"x": 2**31 - 1, "y": 1}, "l": [1]}]
        pq.write_table(pa.Table.from_pylist(rows, two), root / "b.parquet")
        unusual = {
            "id": pa.array([3], pa.int32()),
            "u8": pa.array([255], pa.uint8()),
            "u16": pa.array([65535], pa.uint16()),
            "u32": pa.array([2**32 - 1], pa.uint32()),
            "u64": pa.array([2**64 - 1], pa.uint64()),
            "millis": pa.array([-1], pa.timestamp("ms", "UTC")),
            "wall": pa.array([-1], pa.timestamp("ms")),
            "large": pa.array(["a"], pa.large_string()),
            "coded": pa.array(["a"]).dictionary_encode(),
            "fixed": pa.array([b"abc"], pa.binary(3)),
            "json": pa.array(["{}"], pa.json_()),
            "nothing": pa.array([None], pa.null()),
        }
        pq.write_table(pa.table(unusual), root / "c.parquet")
        numbers = pa.array([1, 2], pa.int32())
        instants = pa.array([-1, None], pa.timestamp("us"))
        old = pa.table({"id": numbers, "old": instants, "nothing": numbers})
        pq.write_table(old, root / "d.parquet", use_deprecated_int96_timestamps=True)

    both = twins(tmp_path, make)

    schema, other = converted(spark, both)

    assert differences(schema, other) == {
        # Footers have no bounds below arrays and of 96 bits, and Arrow records none for untyped nulls.
        *("nullCount.l: nothing for 0", "nullCount.nothing: nothing for 1", "nullCount.old: nothing for 1"),
        *_lacks("old", ["1969-12-31T23:59:59.999Z"], ["1969-12-31T23:59:59.999Z"]),
    }
    assert schema.protocol["readerFeatures"] == {"timestampNtz"}
    assert schema.columns[:5] == ["id", "only", "s", "text", "l"]
    assert assert_same_rows(spark, both).total() == 5


@soak.slow
def test_spark_column_metadata_matches_native_command(
    spark: SparkSession, schema: str, tmp_path: Path
) -> None:
    """Comments are kept, lengths are not. The native command finds no directory with a ``char``."""
    kinds = "id int COMMENT 'the id', v varchar(4) COMMENT 'vv', s struct<x: int COMMENT 'in'>, c char(3)"
    spark.sql(f"CREATE TABLE {schema}.annotated ({kinds}) USING parquet")
    spark.sql(f"INSERT INTO {schema}.annotated VALUES (1, 'bb', struct(1), 'a')")
    annotated = spark.table(f"{schema}.annotated").coalesce(1)
    both = twins(tmp_path / "without", lambda root: annotated.drop("c").write.parquet(str(root)))

    our_log, other = converted(spark, both)

    assert differences(our_log, other) == set()
    fields = {field["name"]: field["metadata"] for field in our_log.metadata["schemaString"]["fields"]}
    assert fields == {
        "id": {"comment": "the id"},
        "v": {"comment": "vv"},
        "s": {},
    }
    assert_same_rows(spark, both)

    both = twins(tmp_path / "with", lambda root: annotated.write.parquet(str(root)))
    assert "TABLE_OR_VIEW_NOT_FOUND" in native_refusal(spark, both.native)
    assert ours(both.ours).outcome == "converted"
    assert_our_rows(spark, both)


def test_variant_columns_match_native_command(spark: SparkSession, tmp_path: Path) -> None:
    """Spark reads it; delta-rs 1.6.6 fails on both tables, because the fields aren't nullable."""
    query = spark.sql("SELECT id, parse_json('{\"a\": 1}') AS v FROM VALUES (1), (2) AS t(id)").coalesce(1)
    both = twins(tmp_path, lambda root: query.write.parquet(str(root)))

    our_log, other = converted(spark, both)

    assert differences(our_log, other) == set()
    assert our_log.protocol["readerFeatures"] == {"variantType"}
    for root in (both.ours, both.native):
        rows = spark.sql(f"SELECT id, to_json(v) FROM delta.`{root}`").collect()
        assert rows == [(1, '{"a":1}'), (2, '{"a":1}')]
        with pytest.raises(pa.ArrowInvalid, match="non-nullable field 'value'"):
            deltars_rows(root)


class _Geometry(pa.ExtensionType):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__(pa.binary(), "geoarrow.wkb")

    def __arrow_ext_serialize__(self) -> bytes:
        return b"{}"

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: Any, serialized: Any) -> Any:
        return cls()


def test_geometry_columns_match_native_command(spark: SparkSession, tmp_path: Path) -> None:
    def make(root: Path) -> None:
        root.mkdir()
        point = pa.array([struct.pack("<BIdd", 1, 1, 1.0, 2.0)])
        pa.register_extension_type(_Geometry())
        try:
            geometry = pa.ExtensionArray.from_storage(_Geometry(), point)
            pq.write_table(pa.table({"g": geometry}), root / "a.parquet")
        finally:
            pa.unregister_extension_type("geoarrow.wkb")

    both = twins(tmp_path, make)
    assert "Illegal Parquet type: BINARY (GEOMETRY)" in native_refusal(spark, both.native)

    result = ours(both.ours)

    assert result.outcome == "refused"
    conditions.check(result.error, "UNREADABLE_FILES", files=re.compile(r"`g` of type BINARY \(GEOMETRY\)"))
    assert content(both.ours) == content(both.plain)
