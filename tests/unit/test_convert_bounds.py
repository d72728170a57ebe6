"""Bounds in Delta's log: never narrower than the data, and as narrow as the footer allows."""

from __future__ import annotations

import io
import json
import math
import struct
from collections.abc import Callable
from copy import deepcopy
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal as Number
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from thrift.protocol.TBase import TBase
from thrift.Thrift import TType

from tableferry.formats.parquet.bounds import counts_nulls, kind
from tableferry.formats.parquet.elements import Annotation, Element
from tableferry.formats.parquet.file_metadata import decode_after_schema, decode_schema
from tableferry.formats.parquet.files import Bounds, Footer, Unreadable
from tableferry.formats.parquet.footers import decode
from tableferry.formats.parquet.trusted_writers import Trust, trust

ALL = Trust(numbers=True, floats=True, strings=True, decimals=True, nulls=True, ancient=True)
NUMBERS = Trust()
RIGHT = ALL._replace(floats=False)
NOTHING = Trust(numbers=False)
MR = "parquet-mr version 1.16.0 (build 7e8dd8e8fbcd5d0d35e8a6a8b6d5d6c4d3b6f9b1)"


def footer_of(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    data = sink.getvalue()
    return data[-8 - int.from_bytes(data[-8:-4], "little") : -8]


def bounds(values: list[Any], type: pa.DataType, **options: Any) -> Bounds:
    footer = decode(footer_of(pa.table({"c": pa.array(values, type)}), **options))
    assert isinstance(footer, Footer), footer
    return footer.bounds[0]


def texts(element: Element, lowest: bytes, highest: bytes, believed: Trust = ALL) -> Any:
    reads = kind(element, believed)
    if reads is None:
        return None
    lows, highs = reads.values([lowest]), reads.values([highest])
    assert lows
    assert highs
    return reads.texts(lows[0], highs[0])


@pytest.mark.parametrize(
    ("values", "type", "lowest", "highest"),
    [
        ([-128, 127], pa.int8(), "-128", "127"),
        ([-(2**63), 2**63 - 1], pa.int64(), "-9223372036854775808", "9223372036854775807"),
        ([0, 255], pa.uint8(), "0", "255"),
        ([1, 2**32 - 1], pa.uint32(), "1", "4294967295"),
        ([1, 2**64 - 1], pa.uint64(), "1", "18446744073709551615"),
        ([Number("-1.50"), Number("0.05")], pa.decimal128(5, 2), "-1.50", "0.05"),
        ([Number("-0.001"), Number("0.000")], pa.decimal128(3, 3), "-0.001", "0.000"),
        ([Number(-7), Number(10**37)], pa.decimal128(38, 0), "-7", "1" + "0" * 37),
        ([Number("0." + "9" * 38)], pa.decimal128(38, 38), "0." + "9" * 38, "0." + "9" * 38),
        ([date(1, 1, 1), date(9999, 12, 31)], pa.date32(), '"0001-01-01"', '"9999-12-31"'),
        ([date(1969, 12, 31)], pa.date32(), '"1969-12-31"', '"1969-12-31"'),
        ([b"a"], pa.binary(), None, None),
        ([True, False], pa.bool_(), None, None),
        ([1.5], pa.float64(), None, None),
        (["", "b"], pa.string(), '""', '"b"'),
        (['"\\\n\x00\u2028'], pa.string(), '"\\"\\\\\\n\\u0000\u2028"', '"\\"\\\\\\n\\u0000\u2028"'),
    ],
)
def test_bounds_by_type(
    values: list[Any], type: pa.DataType, lowest: str | None, highest: str | None
) -> None:
    assert bounds([*values, None], type) == Bounds(lowest, highest, 1)
    if pa.types.is_decimal(type) and type.precision <= 18:
        as_integer = bounds([*values, None], type, store_decimal_as_integer=True)
        assert as_integer == Bounds(lowest, highest, 1)


@pytest.mark.parametrize(
    ("micros", "lowest", "highest"),
    [
        (0, "1970-01-01T00:00:00.000", "1970-01-01T00:00:00.000"),
        (-1, "1969-12-31T23:59:59.999", "1970-01-01T00:00:00.000"),
        (1, "1970-01-01T00:00:00.000", "1970-01-01T00:00:00.001"),
        (1_704_067_199_999_001, "2023-12-31T23:59:59.999", "2024-01-01T00:00:00.000"),
        (-62_135_596_800_000_000, "0001-01-01T00:00:00.000", "0001-01-01T00:00:00.000"),
        (253_402_300_799_999_999, "9999-12-31T23:59:59.999", None),
        (-62_135_596_800_000_001, None, "0001-01-01T00:00:00.000"),
        (2**63 - 1, None, None),
        (-(2**63), None, None),
    ],
)
def test_timestamp_bounds_enclose_values_in_milliseconds(
    micros: int, lowest: str | None, highest: str | None
) -> None:
    for zone, mark in (("UTC", "Z"), (None, "")):
        actual = bounds([micros], pa.timestamp("us", zone))
        assert actual.lowest == (lowest and f'"{lowest}{mark}"')
        assert actual.highest == (highest and f'"{highest}{mark}"')


@given(st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)))
def test_timestamp_bounds_are_within_a_millisecond_of_values(at: datetime) -> None:
    actual = bounds([at.replace(tzinfo=UTC)], pa.timestamp("us", "UTC"))
    assert actual.lowest is not None
    assert actual.highest is not None
    lowest, highest = (datetime.fromisoformat(json.loads(text)[:-1]) for text in actual[:2] if text)
    assert lowest <= at <= highest
    assert highest - lowest == (timedelta(milliseconds=1) if at.microsecond % 1000 else timedelta())


@pytest.mark.parametrize(
    ("text", "lowest", "highest"),
    [
        ("a" * 32, "a" * 32, "a" * 32),
        ("a" * 33, "a" * 32, "a" * 32 + "\x7f"),
        ("é" * 33, "é" * 32, "é" * 32 + "\U0010ffff"),
        # A surrogate pair counts as two units for the highest value, and isn't split.
        ("😀" * 17, "😀" * 17, "😀" * 16 + "\U0010ffff"),
        ("a" + "😀" * 33, "a" + "😀" * 31, "a" + "😀" * 16 + "\U0010ffff"),
        ("😀" * 16, "😀" * 16, "😀" * 16),
        # The highest bound is above every possible suffix.
        ("a" * 32 + "\U0010ffff" + "b", "a" * 32, "a" * 32 + "\U0010ffff" + "\x7f"),
        ("a" * 32 + "\x7f", "a" * 32, "a" * 32 + "\U0010ffff"),
        ("\U0010ffff" * 40, "\U0010ffff" * 32, None),
        ("\U0010ffff" * 20, "\U0010ffff" * 20, "\U0010ffff" * 20),
    ],
)
def test_long_string_bounds_are_truncated_like_delta(text: str, lowest: str, highest: str | None) -> None:
    actual = bounds([text], pa.string())
    assert actual.lowest is not None
    assert json.loads(actual.lowest) == lowest
    assert (actual.highest and json.loads(actual.highest)) == highest


@given(st.lists(st.text(st.sampled_from("a~\x7fé\ud7ff\ue000\uffff😀\U0010ffff"), max_size=80), min_size=1))
def test_truncated_string_bounds_hold_in_utf_8_order(values: list[str]) -> None:
    actual = bounds(values, pa.string())
    # Writers limit the length of bounds.
    if actual.lowest is not None:
        assert all(json.loads(actual.lowest).encode() <= value.encode() for value in values)
    if actual.highest is not None:
        assert all(value.encode() <= json.loads(actual.highest).encode() for value in values)


STRING = Element("c", "optional", Annotation("STRING"), "BINARY")


def test_invalid_utf_8_strings_have_no_bounds() -> None:
    assert texts(STRING, b"a", b"b\xff") == ('"a"', None)
    assert texts(STRING, b"\xed\xa0\x80", b"\xff") == (None, None)


def test_crossed_bounds_are_ignored() -> None:
    number = Element("c", "optional", None, "INT32")
    assert texts(number, struct.pack("<i", 2), struct.pack("<i", 1)) == (None, None)
    assert texts(STRING, b"b", b"a") == (None, None)


DOUBLE = Element("c", "optional", None, "DOUBLE")


def doubles(lowest: float, highest: float) -> Any:
    return texts(DOUBLE, struct.pack("<d", lowest), struct.pack("<d", highest))


def test_doubles_with_nan_have_no_bounds() -> None:
    assert doubles(1.0, math.nan) == (None, None)
    assert doubles(math.nan, math.nan) == (None, None)
    assert doubles(math.nan, 1.0) == (None, None)
    assert doubles(-math.inf, 1e300) == (None, "1e+300")
    assert doubles(-1e-9, math.inf) == ("-1e-09", None)


def test_zero_bounds_include_both_signs() -> None:
    assert doubles(0.0, -0.0) == ("-0.0", "0.0")
    assert doubles(-0.0, 0.0) == ("-0.0", "0.0")


def test_float_bounds_are_written_as_exact_doubles() -> None:
    single = Element("c", "optional", None, "FLOAT")
    actual = texts(single, struct.pack("<f", -0.1), struct.pack("<f", 0.1))
    assert actual == ("-0.10000000149011612", "0.10000000149011612")


MODERN = ALL._replace(ancient=False)


@pytest.mark.parametrize(
    ("writer", "keys", "expected"),
    [
        (MR, {b"org.apache.spark.version": b"4.1.4"}, ALL),
        (MR, {}, MODERN),
        (MR, {b"org.apache.spark.version": b"2.4.8"}, MODERN),
        (MR, {b"org.apache.spark.version": b"3.5.0", b"org.apache.spark.legacyDateTime": b""}, MODERN),
        ("parquet-mr version 1.17.1 (build x)", {}, MODERN),
        ("parquet-mr version 1.18.0 (build x)", {}, MODERN._replace(floats=False)),
        ("parquet-mr version 1.10.1", {}, MODERN),
        ("parquet-mr version 1.10.99.7.1.7.0-551 (build x)", {}, MODERN),
        *(
            (old, {}, Trust(nulls=True, ancient=False))
            for old in ("parquet-mr version 1.9.0", "parquet-mr version 1.8.1 (build x)", "parquet-mr")
        ),
        ("parquet-mr-trino version 478 (build n/a)", {}, RIGHT._replace(ancient=False)),
        ("parquet-mr compatible Photon version 0.3 (build 15.4)", {}, RIGHT._replace(ancient=False)),
        ("parquet-mr compatible Photon", {b"org.apache.spark.version": b"3.5.0"}, RIGHT),
        ("parquet-cpp-arrow version 26.0.1", {}, RIGHT),
        ("parquet-cpp-arrow version 11.0.0", {}, RIGHT),
        ("parquet-cpp-arrow version 10.0.1", {}, NUMBERS),
        ("parquet-cpp-arrow version 4.0.0-SNAPSHOT", {}, NUMBERS),
        ("parquet-rs version 53.3.0", {}, RIGHT),
        ("parquet-rs version 12.0.0", {}, NUMBERS),
        ("delta-rs version py-1.6.6", {}, RIGHT),
        ("DuckDB version v2.0.0 (build d54cbbe3df)", {}, RIGHT),
        ("DuckDB version v1.4.1 (build b390a7c376)", {}, NUMBERS),
        ("DuckDB", {}, NUMBERS),
        ("Polars", {}, NUMBERS),
        ("Polars (python) version 2.1.0 (build 7f902bd3)", {}, RIGHT),
        ("Polars (python) version 2.0.9 (build 7f902bd3)", {}, NUMBERS),
        ("fastparquet-python version 2026.9.0 (build 0)", {}, NUMBERS),
        *(
            (unknown, {}, NOTHING)
            for unknown in (
                *("", "Arrow2 - Native Rust implementation of Arrow", "parquet-go version 18.1.0"),
                *(
                    "parquet-cpp version 1.3.2",
                    "parquet-mr-athena version 3",
                    "impala version 4.1.0 (build x)",
                ),
                *("parquet-cpp-arrow-fork version 26.0.1", "cudf", "?"),
            )
        ),
    ],
)
def test_writer_decides_which_bounds_are_trusted(
    writer: str, keys: dict[bytes, bytes], expected: Trust
) -> None:
    assert trust(writer, keys) == expected


def test_legacy_calendar_dates_have_no_bounds() -> None:
    old = ALL._replace(ancient=False)
    day = Element("c", "optional", Annotation("DATE"), "INT32")
    assert texts(day, struct.pack("<i", -141_428), struct.pack("<i", -141_427), old) == (None, '"1582-10-15"')
    at = Element("c", "optional", Annotation("TIMESTAMP", unit="MICROS"), "INT64")
    before, after = (struct.pack("<q", -2_208_988_800_000_000 + step) for step in (-1, 0))
    assert texts(at, before, after, old) == (None, '"1900-01-01T00:00:00.000Z"')
    assert texts(at, before, after)[0] == '"1899-12-31T23:59:59.999Z"'


def test_trust_is_decided_per_column_type() -> None:
    decimal = Annotation("DECIMAL", precision=9)
    columns = {
        "string": STRING,
        "bytes": Element("c", "optional", decimal, "BINARY"),
        "fixed": Element("c", "optional", decimal, "FIXED_LEN_BYTE_ARRAY", 4),
        "decimal": Element("c", "optional", decimal, "INT32"),
        "double": Element("c", "optional", None, "DOUBLE"),
    }

    def believed(trusted: Trust) -> tuple[set[str], set[str]]:
        return (
            {name for name, element in columns.items() if kind(element, trusted)},
            {name for name, element in columns.items() if counts_nulls(element, trusted)},
        )

    assert believed(ALL) == (set(columns), set(columns))
    assert believed(NUMBERS) == ({"decimal", "double"}, {"decimal", "double"})
    assert believed(NUMBERS._replace(strings=True)) == (
        {"string", "decimal", "double"},
        {"decimal", "double"},
    )
    assert believed(NUMBERS._replace(nulls=True)) == ({"decimal", "double"}, set(columns))
    assert believed(NOTHING) == (set(), set())


class I8(int):
    """An integer that Thrift writes as i8."""


class I32(int):
    """An integer that Thrift writes as i32."""


def encoded(value: Any) -> tuple[int, bytes]:
    """Encode a value and its type as Thrift does."""
    match value:
        case bool():
            return 1 if value else 2, b""
        case I8():
            return 3, value.to_bytes(1, signed=True)
        case int():
            return 5 if isinstance(value, I32) else 6, number((value << 1) ^ (value >> 63))
        case bytes():
            return 8, number(len(value)) + value
        case list():
            items = [encoded(member) for member in value]
            kind = items[0][0] if items else 12
            return 9, bytes((0xF0 | kind,)) + number(len(items)) + b"".join(data for _, data in items)
        case dict():
            fields = b""
            for key, member in value.items():
                kind, data = encoded(member)
                fields += bytes((kind,)) + number(key << 1) + data
            return 12, fields + b"\0"
    raise AssertionError(value)


def number(value: int) -> bytes:
    return bytes((value,)) if value < 128 else bytes((value & 127 | 128,)) + number(value >> 7)


INTEGERS = {TType.BYTE: I8, TType.I32: I32}


def fields_of(struct: TBase) -> dict[int, Any]:
    """Return a struct's fields by their numbers."""

    def plain(value: Any, kind: int, parameters: Any) -> Any:
        match value:
            case TBase():
                return fields_of(value)
            case list():
                return [plain(item, *parameters[:2]) for item in value]
            case _:
                return INTEGERS[kind](value) if kind in INTEGERS else value

    specification = {name: (id, kind, more) for id, kind, name, more, _ in filter(None, struct.thrift_spec)}
    fields = ((*specification[name], value) for name, value in vars(struct).items())
    return {number: plain(value, kind, parameters) for number, kind, parameters, value in fields}


def sample() -> dict[int, Any]:
    footer = footer_of(
        pa.table(
            {
                "n": pa.array([1, 2]),
                "u": pa.array([1, 2], pa.uint32()),
                "s": ["a", "b"],
                "x": [1.5, 2.5],
                "m": pa.array([Number(1), Number(2)], pa.decimal128(30, 0)),
            }
        )
    )
    schema, end = decode_schema(footer)
    return {SCHEMA: [fields_of(element) for element in schema], **fields_of(decode_after_schema(footer, end))}


SCHEMA, ROWS, GROUPS, CREATED_BY, ORDERS = 2, 3, 4, 6, 7
SAMPLE = sample()
OLD_HIGHEST, OLD_LOWEST, NULLS, HIGHEST, LOWEST, NANS = 1, 2, 3, 5, 6, 9


def edited(edit: Callable[[dict[int, Any]], object]) -> Footer | Unreadable:
    """Read the edited footer of the sample."""
    footer = deepcopy(SAMPLE)
    edit(footer)
    return decode(encoded(footer)[1])


def lowest(footer: Footer | Unreadable) -> list[str | None]:
    assert isinstance(footer, Footer), footer
    return [bound.lowest for bound in footer.bounds]


def of_all(edit: Callable[[dict[int, Any]], object]) -> Callable[[dict[int, Any]], object]:
    """Edit each column's statistics."""
    return lambda footer: [edit(chunk[3][12]) for chunk in footer[GROUPS][0][1]]


def test_unchanged_footer_keeps_its_bounds() -> None:
    assert lowest(edited(lambda footer: None)) == ["1", "1", '"a"', None, "1"]


def test_bounds_without_column_order_are_trusted_for_signed_numbers_only() -> None:
    def as_of_old(statistics: dict[int, Any]) -> None:
        statistics[OLD_LOWEST], statistics[OLD_HIGHEST] = statistics.pop(LOWEST), statistics.pop(HIGHEST)

    def older(footer: dict[int, Any]) -> None:
        of_all(as_of_old)(footer)
        del footer[ORDERS]

    assert lowest(edited(older)) == ["1", None, None, None, None]
    # If a footer has both, the deprecated bounds are used where the new ones are invalid.
    assert lowest(edited(lambda footer: footer.pop(ORDERS))) == ["1", None, None, None, None]
    unknown = edited(lambda footer: footer.update({ORDERS: [{7: {}}] * 5}))
    assert lowest(unknown) == ["1", None, None, None, None]


def test_float_bounds_require_a_nan_count_of_zero() -> None:
    def counted(nans: int) -> Callable[[dict[int, Any]], object]:
        return of_all(lambda statistics: statistics.update({NANS: nans}))

    def in_total_order(footer: dict[int, Any]) -> None:
        counted(0)(footer)
        footer[ORDERS][3] = {2: {}}

    assert lowest(edited(counted(0)))[3] == "1.5"
    assert lowest(edited(counted(1)))[3] is None
    assert lowest(edited(in_total_order)) == ["1", "1", '"a"', "1.5", "1"]


@pytest.mark.parametrize(
    ("writer", "expected"),
    [
        (b"parquet-mr version 1.16.0 (build x)", ["1", "1", '"a"', "1.5", "1"]),
        (b"parquet-mr version 1.18.0 (build x)", ["1", "1", '"a"', None, "1"]),
        (b"parquet-mr version 1.8.1 (build x)", ["1", "1", None, None, None]),
        (b"Polars", ["1", "1", None, None, None]),
        (b"", [None] * 5),
    ],
)
def test_bounds_depend_on_the_writer(writer: bytes, expected: list[str | None]) -> None:
    assert lowest(edited(lambda footer: footer.update({CREATED_BY: writer}))) == expected


def nulls(footer: Footer | Unreadable) -> list[int | None]:
    assert isinstance(footer, Footer), footer
    return [bound.nulls for bound in footer.bounds]


def test_nulls_depend_on_the_writer() -> None:
    assert nulls(edited(lambda footer: None)) == [0] * 5
    assert nulls(edited(lambda footer: footer.update({CREATED_BY: b"Polars"}))) == [0, 0, None, 0, None]
    assert nulls(edited(lambda footer: footer.update({CREATED_BY: b"unknown"}))) == [None] * 5


def test_contradictory_chunk_statistics_are_ignored() -> None:
    def say(count: int) -> Callable[[dict[int, Any]], object]:
        return of_all(lambda statistics: statistics.update({NULLS: count}))

    for count in (2, 3, -1):
        actual = edited(say(count))
        assert (lowest(actual), nulls(actual)) == ([None] * 5, [None] * 5), count
    assert nulls(edited(say(1))) == [1] * 5


def test_impossible_null_counts_are_ignored() -> None:
    for nulls in (-1, 3):
        actual = edited(of_all(lambda statistics, nulls=nulls: statistics.update({NULLS: nulls})))  # type: ignore[misc]
        assert isinstance(actual, Footer)
        assert actual.bounds == (Bounds(None, None, None),) * 5
    for rows in (-2, 3):
        actual = edited(lambda footer, rows=rows: footer.update({ROWS: rows}))  # type: ignore[misc]
        assert isinstance(actual, Unreadable)
        assert "row groups don't have the recorded number of rows" in actual.reason
    twice = edited(lambda footer: footer[GROUPS].append(footer[GROUPS][0]))
    assert isinstance(twice, Unreadable)


def test_unknown_logical_type_is_refused() -> None:
    footer = edited(lambda footer: footer[SCHEMA][1].update({10: {30: {}}}))
    assert isinstance(footer, Unreadable)
    assert footer.reason.startswith(
        "has column `n` of type INT64 (unknown logical type), which Spark can't read"
    )


def test_chunk_of_another_column_is_refused() -> None:
    def swapped(footer: dict[int, Any]) -> None:
        chunks = footer[GROUPS][0][1]
        chunks[0], chunks[1] = chunks[1], chunks[0]

    def renamed(footer: dict[int, Any]) -> None:
        footer[GROUPS][0][1][0][3][3] = [b"other"]

    for edit in (swapped, renamed):
        footer = edited(edit)
        assert isinstance(footer, Unreadable)
        assert "a row group whose columns aren't the schema's" in footer.reason


def test_bounds_with_wrong_length_are_ignored() -> None:
    short = edited(of_all(lambda statistics: statistics.update({LOWEST: b"1"})))
    assert lowest(short) == [None, None, '"1"', None, None]


def test_row_group_without_bounds_removes_bounds_of_file() -> None:
    def grown(footer: dict[int, Any]) -> None:
        footer[ROWS] = 4
        footer[GROUPS].append(deepcopy(footer[GROUPS][0]))
        del footer[GROUPS][1][1][0][3][12]
        for key in (LOWEST, HIGHEST, OLD_LOWEST, OLD_HIGHEST):
            footer[GROUPS][1][1][2][3][12].pop(key, None)

    actual = edited(grown)
    assert lowest(actual) == [None, "1", None, None, "1"]
    assert isinstance(actual, Footer)
    assert [bound.nulls for bound in actual.bounds] == [None, 0, 0, 0, 0]
