"""Iceberg metrics of files match their data."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableferry.formats.parquet.iceberg_blockers import Expected, blockers
from tableferry.formats.parquet.iceberg_metrics import End, Metrics, MetricsReader, read_end


def metrics_of(path: Path, table: pa.Table, **options: Any) -> Metrics:
    """Write a file, and read its metrics; its columns have the ids 1, 2, …."""
    pq.write_table(table, path, **options)
    reader = MetricsReader({(name,): number for number, name in enumerate(table.column_names, 1)}, 100)
    # Patterns are learned from the first ones.
    found = [reader.read(read_end(str(path), path.stat().st_size)) for _ in range(4)]
    assert found[0] is not None
    assert found == found[:1] * 4
    return found[0]


@given(st.lists(st.none() | st.text(max_size=40), min_size=1, max_size=9), st.integers(1, 9))
def test_string_metrics_enclose_values(
    tmp_path_factory: pytest.TempPathFactory, values: list[str | None], group: int
) -> None:
    path = tmp_path_factory.mktemp("metrics") / "a.parquet"
    found = metrics_of(path, pa.table({"c": pa.array(values, pa.string())}), row_group_size=group)
    there = [value.encode() for value in values if value is not None]
    assert (found.rows, found.values, found.nulls) == (
        len(values),
        {1: len(values)},
        {1: len(values) - len(there)},
    )
    if 1 in found.lowest:
        assert all(found.lowest[1] <= value for value in there)
        assert len(found.lowest[1].decode()) <= 16
    if 1 in found.highest:
        assert all(value <= found.highest[1] for value in there)
        assert len(found.highest[1].decode()) <= 16
    if not any("\U0010ffff" in (value or "") for value in values) and there:
        assert (1 in found.lowest, 1 in found.highest) == (True, True)


@given(st.text(min_size=1, max_size=40))
def test_binary_bounds_are_cut_at_utf_8_characters(
    tmp_path_factory: pytest.TempPathFactory, value: str
) -> None:
    path = tmp_path_factory.mktemp("metrics") / "a.parquet"
    found = metrics_of(path, pa.table({"c": pa.array([value.encode()], pa.binary())}))
    # A table may read them as strings, and Iceberg can't read a part of a character.
    assert found.lowest[1].decode() <= value
    assert 1 not in found.highest or value <= found.highest[1].decode()


@given(st.lists(st.none() | st.floats(), min_size=1, max_size=9), st.integers(1, 9))
def test_column_with_nan_has_no_bounds(
    tmp_path_factory: pytest.TempPathFactory, values: list[float | None], group: int
) -> None:
    path = tmp_path_factory.mktemp("metrics") / "a.parquet"
    found = metrics_of(path, pa.table({"c": pa.array(values, pa.float64())}), row_group_size=group)
    there = [value for value in values if value is not None]
    assert found.nulls == {1: sum(value is None for value in values)}
    for bounds, sign in ((found.lowest, 1), (found.highest, -1)):
        if 1 in bounds:
            (bound,) = struct.unpack("<d", bounds[1])
            assert all(sign * bound <= sign * value for value in there)


def test_metrics_of_zero_include_both_signs(tmp_path: Path) -> None:
    pq.write_table(pa.table({"c": [0.0, None]}), path := tmp_path / "a.parquet")
    end = read_end(str(path), path.stat().st_size)
    assert isinstance(end, bytes)
    writer = pq.read_metadata(path).created_by.encode()
    found = MetricsReader({("c",): 1}, 100).read(
        end.replace(writer, b"parquet-mr version 1.16.0".ljust(len(writer)))
    )
    assert found is not None
    assert (found.lowest, found.highest) == ({1: struct.pack("<d", -0.0)}, {1: struct.pack("<d", 0.0)})


def test_column_without_null_count_has_no_bounds(tmp_path: Path) -> None:
    pq.write_table(pa.table({"c": pa.array([1, None], pa.int64())}), path := tmp_path / "a.parquet")
    end = read_end(str(path), path.stat().st_size)
    assert isinstance(end, bytes)
    # Thrift writes the difference from the previous field's number: the null count is 3, the field before it
    # 2.
    counted, uncounted = b"\x16\x02\x28", b"\x38"
    assert end.count(counted) == 1
    found = MetricsReader({("c",): 1}, 100).read(end.replace(counted, uncounted))
    assert found is not None
    assert (found.rows, found.nulls, found.lowest, found.highest) == (2, {}, {}, {})


@pytest.mark.parametrize(("unit", "each"), [("ms", 1000), ("us", 1)])
def test_timestamp_metrics_are_microseconds(tmp_path: Path, unit: str, each: int) -> None:
    at = pa.array([datetime(1969, 1, 1), datetime(2024, 1, 1)], pa.timestamp(unit, "UTC"))
    found = metrics_of(tmp_path / "a.parquet", pa.table({"at": at}))
    bounds = [int.from_bytes(side[1], "little", signed=True) for side in (found.lowest, found.highest)]
    assert bounds == [value.value * each for value in at]


def test_timestamps_beyond_microseconds_have_no_bounds(tmp_path: Path) -> None:
    at = pa.array([0, 2**62], pa.timestamp("ms", "UTC"))
    found = metrics_of(tmp_path / "a.parquet", pa.table({"at": at}))
    assert (found.lowest, found.highest) == ({1: bytes(8)}, {})


def test_empty_file_has_sizes_and_no_bounds(tmp_path: Path) -> None:
    found = metrics_of(tmp_path / "a.parquet", pa.table({"c": pa.array([], pa.int64())}))
    assert (found.rows, found.lowest, found.highest) == (0, {}, {})


def test_changed_or_foreign_file_has_no_metrics(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"c": [1]}), path)
    reader = MetricsReader({("c",): 1}, 100)
    assert reader.read(read_end(str(path), path.stat().st_size + 1)) is None
    path.write_bytes(b"nothing")
    assert reader.read(read_end(str(path), 7)) is None


def test_arrays_and_maps_have_only_sizes_and_later_columns_have_no_metrics(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.parquet"
    parts = pa.struct([("x", pa.int32()), ("tags", pa.list_(pa.string()))])
    table = pa.table(
        {
            "before": pa.array([1, 2], pa.int32()),
            "list": pa.array([[1, None], None], pa.list_(pa.int32())),
            "map": pa.array([[("k", 1.5)], []], pa.map_(pa.string(), pa.float64())),
            "deep": pa.array([[{"x": 1, "tags": ["a"]}], None], pa.list_(parts)),
            "after": pa.array([3, None], pa.int32()),
            "late": pa.array([5, 6], pa.int32()),
        }
    )
    pq.write_table(table, path, row_group_size=1)
    paths = [
        ("before",), ("list", "element"), ("map", "key"), ("map", "value"), ("deep", "element", "x"),
        ("deep", "element", "tags", "element"), ("Odd",), ("after",), ("late",),
    ]  # fmt: skip
    reader = MetricsReader({path: number for number, path in enumerate(paths, 1)}, 8)
    found = reader.read(read_end(str(path), path.stat().st_size))
    assert found is not None
    footer = pq.read_metadata(path)
    sizes = [
        sum(footer.row_group(group).column(column).total_compressed_size for group in range(2))
        for column in range(footer.num_columns)
    ]
    assert found.sizes == dict(zip((1, 2, 3, 4, 5, 6, 8), sizes, strict=False))
    assert (found.values, found.nulls) == ({1: 2, 8: 2}, {1: 0, 8: 1})
    assert (found.lowest, found.highest) == (
        {1: b"\1\0\0\0", 8: b"\3\0\0\0"},
        {1: b"\2\0\0\0", 8: b"\3\0\0\0"},
    )
    assert found.lacks == {7}


def blocker(end: End, expected: Expected) -> str:
    """Return the blocker of the only file; empty if it has none."""
    [found] = blockers([end], expected)
    assert found != ""
    return found or ""


def only_blocker(end: End, columns: list[str], scales: Mapping[tuple[str, ...], int] | None = None) -> str:
    return blocker(end, Expected(columns, scales=scales or {}))


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        (pa.array([1], pa.int32()), "int", ""),
        (pa.array([1], pa.int8()), "tinyint", ""),
        (pa.array([1], pa.int32()), "bigint", ""),
        (pa.array([1], pa.float32()), "double", ""),
        (pa.array([Decimal("1.0")], pa.decimal128(4, 1)), "decimal", ""),
        (pa.array(["a"]), "string", ""),
        (pa.array([[1]], pa.list_(pa.int32())), "array", ""),
        (pa.array([1], pa.int32()), "double", "INT32, which Iceberg can't read as double"),
        (pa.array([1], pa.int64()), "decimal", "INT64, which Iceberg can't read as decimal"),
        (
            pa.array([1], pa.uint64()),
            "decimal",
            "INT64 (INTEGER(64,false)), which Iceberg can't read as decimal",
        ),
        (
            pa.array([1], pa.date32()),
            "timestamp_ntz",
            "INT32 (DATE), which Iceberg can't read as timestamp_ntz",
        ),
    ],
)
def test_types_that_iceberg_cannot_widen_are_blockers(
    tmp_path: Path, values: pa.Array, kind: str, expected: str
) -> None:
    pq.write_table(pa.table({"X": values}), path := tmp_path / "x.parquet")
    end = read_end(str(path), path.stat().st_size)
    found = blocker(end, Expected(["x"], {("x",): kind}))
    assert found.removeprefix("stores X as ").startswith(expected)
    assert bool(found) == bool(expected)


def numbered(name: str, number: int | None, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, metadata={"PARQUET:field_id": str(number)} if number is not None else None)


@pytest.mark.parametrize(
    ("numbers", "other"),
    [
        ((1, 2, 3, 4), ""),
        ((1, None, 3, 4), "B"),
        ((2, 1, 3, 4), "a"),
        ((1, 2, 4, 3), "xs"),
        ((1, 2, 3, 7), "xs.element"),
        ((0, 1, 2, 3), "a"),
        ((None, None, None, None), ""),
    ],
)
def test_field_ids_that_differ_from_the_table_are_blockers(
    tmp_path: Path, numbers: tuple[int | None, ...], other: str
) -> None:
    a, b, xs, element = numbers
    fields = [
        numbered("a", a, pa.int32()),
        numbered("B", b, pa.int32()),
        numbered("xs", xs, pa.list_(numbered("element", element, pa.int32()))),
    ]
    pq.write_table(pa.table([[1], [2], [[3]]], schema=pa.schema(fields)), path := tmp_path / "x.parquet")
    ids = {("a",): 1, ("b",): 2, ("xs",): 3, ("xs", "element"): 4}
    found = blocker(read_end(str(path), path.stat().st_size), Expected(["a", "b", "xs"], ids=ids))
    assert bool(found) == bool(other)
    assert f"field ids, by which Iceberg finds columns, and {other} would be" in found or not other


def test_extra_column_with_the_id_of_another_column_is_a_blocker(tmp_path: Path) -> None:
    schema = pa.schema([numbered("a", 1, pa.int32()), numbered("c", 2, pa.int32())])
    pq.write_table(pa.table([[1], [2]], schema=schema), path := tmp_path / "x.parquet")
    end = read_end(str(path), path.stat().st_size)
    for number, has in ((2, True), (3, False)):
        found = blocker(end, Expected(["a", "b"], ids={("a",): 1, ("b",): number}))
        assert ("and c would be" in found) is has


def test_missing_column_with_default_is_a_blocker(tmp_path: Path) -> None:
    pq.write_table(pa.table({"Id": [1], "xs": [[1]]}), path := tmp_path / "x.parquet")
    end = read_end(str(path), path.stat().st_size)
    found = blocker(end, Expected(["id", "xs", "c"], defaults={"id": "1", "XS": "array()"}))
    assert found == ""
    found = blocker(end, Expected(["id", "xs", "c"], defaults={"c": "5"}))
    assert found.startswith("lacks c, which is 5 there, and would be null in Iceberg")


def test_decimals_of_another_scale_are_blockers(tmp_path: Path) -> None:
    number = pa.array([Decimal("1.250")], pa.decimal128(9, 3))
    table = pa.table({"Price": number, "deep": pa.StructArray.from_arrays([number], ["In"])})
    pq.write_table(table, path := tmp_path / "x.parquet")
    end = read_end(str(path), path.stat().st_size)
    names, scales = ["price", "deep"], {("price",): 3, ("deep", "in"): 3}
    assert only_blocker(end, names, scales) == ""
    assert only_blocker(end, names, scales | {("price",): 2}) == (
        "stores Price with 3 decimal places, where the table has 2, and Iceberg would read other numbers: "
        "rewrite it, or leave the table in Hive"
    )
    assert only_blocker(end, names, scales | {("deep", "in"): 4}).startswith("stores deep.In with 3 ")
    # Columns that the table doesn't have are not read.
    assert only_blocker(end, [], {}) == ""


@pytest.mark.parametrize(
    ("values", "kind", "spark", "expected"),
    [
        ([-141_428, None], pa.date32(), {"version": "2.4.8"}, "has values in c before October 1582"),
        ([0, -141_427], pa.date32(), {"version": "2.4.8"}, ""),
        ([-141_428], pa.date32(), {"version": "3.5.1", "legacyDateTime": ""}, "has values in c before"),
        ([-141_428], pa.date32(), {"version": "4.1.0"}, ""),
        ([-141_428], pa.date32(), {}, ""),
        ([-12_219_292_800_000_001], pa.timestamp("us", "UTC"), {"version": "2.3"}, "has values in c before"),
        ([-12_219_292_800_000_000], pa.timestamp("us", "UTC"), {"version": "2.3"}, ""),
        ([-141_428], pa.int32(), {"version": "2.4.8"}, ""),
    ],
)
def test_dates_of_another_calendar_are_blockers(
    tmp_path: Path, values: list[int | None], kind: pa.DataType, spark: dict[str, str], expected: str
) -> None:
    keys = {f"org.apache.spark.{key}": value for key, value in spark.items()}
    table = pa.table({"a": [""] * len(values), "c": pa.array(values, kind)}).replace_schema_metadata(keys)
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, row_group_size=1)
    assert only_blocker(read_end(str(path), path.stat().st_size), ["c"]).startswith(expected)
    assert (only_blocker(read_end(str(path), path.stat().st_size), ["c"]) == "") is (expected == "")
    assert only_blocker(read_end(str(path), path.stat().st_size), ["a"]) == ""


@pytest.mark.parametrize(
    ("kind", "nested", "expected"),
    [
        (pa.timestamp("ms", "UTC"), False, "has instants in milliseconds in c, which Iceberg reads as"),
        (pa.timestamp("ms"), True, "has instants in milliseconds in c.element, which Iceberg reads as"),
        (pa.timestamp("us", "UTC"), False, ""),
        (pa.int64(), True, ""),
    ],
)
def test_types_that_iceberg_misreads_are_blockers(
    tmp_path: Path, kind: pa.DataType, nested: bool, expected: str
) -> None:
    column = pa.array([[1]], pa.list_(kind)) if nested else pa.array([1], kind)
    pq.write_table(pa.table({"c": column}), path := tmp_path / "x.parquet")
    end = read_end(str(path), path.stat().st_size)
    assert only_blocker(end, ["C"]).startswith(expected)
    assert bool(only_blocker(end, ["C"])) == bool(expected)
    # Columns that the table doesn't have are not read.
    assert only_blocker(end, ["other"]) == ""


def test_file_that_is_not_parquet_is_a_blocker(tmp_path: Path) -> None:
    (path := tmp_path / "x.parquet").write_bytes(b"nothing of the kind")
    assert only_blocker(read_end(str(path), 19), ["c"]).startswith("is not a Parquet file")
    # The file was rewritten or removed after the listing.
    assert only_blocker(read_end(str(path), 18), ["c"]) == ""
    assert only_blocker(read_end(str(tmp_path / "gone.parquet"), 18), ["c"]) == ""
