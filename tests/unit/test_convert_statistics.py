"""The `stats` of a file in Delta's log."""

from __future__ import annotations

import json
from typing import Any

from tableferry.formats.delta.statistics import statistics_json
from tableferry.formats.parquet.files import Bounds, FileSchema, Footer, Leaf
from tableferry.spark import types
from tableferry.spark.types import Array, DataType, Decimal, Field, Map, Primitive, Struct


def struct(**columns: DataType) -> Struct:
    return Struct(tuple(Field(name, kind) for name, kind in columns.items()))


def footer(rows: int, columns: Struct, **bounds: Bounds) -> Footer:
    """Return a footer whose leaves have these bounds; ``s__x`` is field x of s."""
    leaves = []
    for name in bounds:
        kind: DataType = columns
        for part in name.split("__"):
            assert isinstance(kind, Struct)
            kind = next(field.type for field in kind.fields if field.name == part)
        assert isinstance(kind, Primitive)
        leaves.append(Leaf(tuple(name.split("__")), kind))
    return Footer.of(rows, FileSchema(columns, tuple(leaves)), tuple(bounds.values()))


def written(table: Struct, actual: Footer, *partitions: str, indexed: int = 32) -> Any:
    return json.loads(statistics_json(table, partitions, indexed)(actual))


def test_bounds_and_null_counts_are_nested_like_delta() -> None:
    table = struct(a=types.LONG, s=struct(x=types.STRING, y=struct(z=Decimal(5, 2))))
    footer_ = footer(
        3,
        table,
        a=Bounds("1", "2", 0),
        s__x=Bounds('"a\\""', None, 1),
        s__y__z=Bounds("1.50", "1.50", 2),
    )
    assert statistics_json(table)(footer_) == (
        '{"numRecords":3,'
        '"minValues":{"a":1,"s":{"x":"a\\"","y":{"z":1.50}}},'
        '"maxValues":{"a":2,"s":{"y":{"z":1.50}}},'
        '"nullCount":{"a":0,"s":{"x":1,"y":{"z":2}}}}'
    )


def test_missing_footer_statistics_are_left_out() -> None:
    table = struct(a=types.LONG, l=Array(types.LONG), m=Map(types.STRING, types.LONG))
    footer_ = footer(3, table, a=Bounds(None, None, None))
    assert written(table, footer_) == {"numRecords": 3}


def test_column_missing_in_file_is_counted_as_null() -> None:
    table = struct(a=types.LONG, b=types.LONG, s=struct(x=types.LONG), l=Array(types.LONG))
    footer_ = footer(3, struct(a=types.LONG), a=Bounds("1", "2", 0))
    assert written(table, footer_)["nullCount"] == {"a": 0, "b": 3, "s": {"x": 3}, "l": 3}


def test_columns_without_delta_bounds_have_null_counts() -> None:
    table = struct(a=types.BOOLEAN, b=types.BINARY, v=types.VARIANT)
    footer_ = footer(
        2, table, a=Bounds("false", "true", 1), b=Bounds('"a"', '"b"', 0), v=Bounds(None, None, 2)
    )
    assert written(table, footer_) == {"numRecords": 2, "nullCount": {"a": 1, "b": 0, "v": 2}}


def test_only_first_leaves_have_statistics() -> None:
    table = struct(
        p=types.STRING,
        a=types.LONG,
        l=Array(struct(x=types.LONG, y=types.LONG)),
        s=struct(x=types.LONG, y=types.LONG),
        b=types.LONG,
    )
    same = Bounds("1", "1", 0)
    footer_ = footer(1, table, p=Bounds('"p"', '"p"', 0), a=same, s__x=same, s__y=same, b=same)
    # The array counts as a single column. The partition column doesn't count, even if the file has it.
    three = written(table, footer_, "P", indexed=3)
    assert three["minValues"] == {"a": 1, "s": {"x": 1}}
    assert three["nullCount"] == {"a": 0, "s": {"x": 0}}
    assert written(table, footer_, "p")["minValues"] == {"a": 1, "s": {"x": 1, "y": 1}, "b": 1}
    assert written(table, footer_, indexed=-1)["minValues"]["p"] == "p"
    assert written(table, footer_, indexed=0) == {"numRecords": 1}


def test_bounds_of_narrower_types_are_converted_to_table_type() -> None:
    file = struct(a=types.INTEGER, b=types.INTEGER, c=types.DATE, d=types.FLOAT)
    table = struct(a=types.LONG, b=Decimal(12, 2), c=types.TIMESTAMP_NTZ, d=types.DOUBLE)
    footer_ = footer(
        1,
        file,
        a=Bounds("1", "2", 0),
        b=Bounds("1", "2", 0),
        c=Bounds('"2024-01-01"', None, 0),
        d=Bounds("0.10000000149011612", "0.10000000149011612", 0),
    )
    assert written(table, footer_)["minValues"] == {
        "a": 1,
        "b": 1,
        "c": "2024-01-01T00:00:00.000",
        "d": 0.10000000149011612,
    }


def test_bounds_of_another_type_are_left_out() -> None:
    file = struct(a=types.STRING, b=struct(x=types.LONG), c=types.LONG)
    table = struct(a=types.LONG, b=types.LONG, c=struct(x=types.LONG))
    footer_ = footer(2, file, a=Bounds('"1"', '"2"', 0), b__x=Bounds("1", "2", 0), c=Bounds("1", "2", 0))
    assert written(table, footer_) == {"numRecords": 2, "nullCount": {"a": 0}}


def test_statistics_use_column_spelling_of_table() -> None:
    footer_ = footer(2, struct(Id=types.LONG), Id=Bounds("1", "2", 0))
    assert written(struct(id=types.LONG), footer_)["minValues"] == {"id": 1}


def test_empty_file_has_no_bounds() -> None:
    table = struct(a=types.LONG, b=types.LONG)
    footer_ = footer(0, struct(a=types.LONG), a=Bounds(None, None, 0))
    assert written(table, footer_) == {"numRecords": 0, "nullCount": {"a": 0, "b": 0}}


def test_statistics_distinguish_file_schemas() -> None:
    write = statistics_json(struct(a=types.LONG, b=types.LONG))
    first = footer(1, struct(a=types.LONG), a=Bounds("1", "1", 0))
    two = footer(1, struct(b=types.LONG), b=Bounds("2", "2", 0))
    assert [json.loads(write(file))["minValues"] for file in (first, two, first)] == [
        {"a": 1},
        {"b": 2},
        {"a": 1},
    ]
