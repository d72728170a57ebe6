"""Ranges contain every key; a type that Spark and Python may sort differently has no ranges."""

from __future__ import annotations

import itertools
from datetime import date, timedelta
from random import Random

import pytest
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
)

from tableferry.pipelines.cdc.key_ranges import (
    KeyRanges,
    _split_into_ranges,
    _write_keys,
    _write_lowest_sequence,
)


def test_number_ranges_contain_every_value_and_do_not_overlap() -> None:
    random = Random(7)
    values = {str(random.randrange(-(2**63), 2**63)) for _ in range(1_000)}
    found = _split_into_ranges(values, LongType())
    assert found is not None
    assert len(found) == 16
    bounds = [(int(low), int(high)) for low, high in found]
    assert all(any(low <= int(value) <= high for low, high in bounds) for value in values)
    assert all(high < low for (_, high), (low, _) in itertools.pairwise(bounds))
    assert _split_into_ranges({"5"}, IntegerType()) == [("5", "5")]
    assert _split_into_ranges(set(), IntegerType()) == []


def test_text_ranges_follow_byte_order() -> None:
    values = {"Z", "a", "é", "\uffee", "\U0001f600"}
    assert sorted(values) == sorted(values, key=lambda value: value.encode())
    found = _split_into_ranges(values, StringType())
    assert found == [(f"'{value}'", f"'{value}'") for value in sorted(values)]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ({"it's"}, StringType()),
        ({"a\\b"}, StringType()),
        ({"a\nb"}, StringType()),
        ({"\ufffd"}, StringType()),
        ({"x" * 201}, StringType()),
        ({"a"}, StringType("UTF8_LCASE")),
        ({"1.0"}, DecimalType(3, 1)),
        ({"2026-01-01 00:00:00"}, TimestampType()),
        ({"+12026-01-01"}, DateType()),
    ],
)
def test_value_with_ambiguous_literal_or_order_has_no_ranges(values: set[str], kind: DataType) -> None:
    assert _split_into_ranges(values, kind) is None


def test_date_ranges_follow_the_calendar() -> None:
    days = {(date(2026, 1, 1) + timedelta(days=day)).isoformat() for day in range(40)}
    found = _split_into_ranges(days, DateType())
    assert found is not None
    assert (found[0][0], found[-1][1]) == ("DATE'2026-01-01'", "DATE'2026-02-09'")
    assert len(found) == 14


def test_row_condition_has_alias_and_accepts_null_keys() -> None:
    ranges = KeyRanges(3, {"id": [("1", "2"), ("9", "9")], "a`b": [("'x'", "'y'")]}, frozenset({"id"}))
    assert ranges.row_condition("t") == (
        "(t.`id` BETWEEN 1 AND 2 OR t.`id` BETWEEN 9 AND 9 OR t.`id` IS NULL) AND "
        "(t.`a``b` BETWEEN 'x' AND 'y')"
    )
    assert KeyRanges().row_condition() == "true"


def test_log_condition_starts_at_lowest_sequence_of_batch() -> None:
    ranges = KeyRanges(3, {"id": [("1", "2")]}, lowest_sequence="CAST(7 AS bigint)")
    assert ranges.log_condition() == "__sequence >= CAST(7 AS bigint) AND (`id` BETWEEN 1 AND 2)"
    assert (
        KeyRanges(3, lowest_sequence="CAST(7 AS bigint)").log_condition() == "__sequence >= CAST(7 AS bigint)"
    )
    assert KeyRanges().log_condition() == "true"


@pytest.mark.parametrize(
    ("sequences", "kind", "expected"),
    [
        ({"10", "9", "-2"}, LongType(), "CAST(-2 AS bigint)"),
        ({"10", "9"}, StringType(), "CAST('10' AS string)"),
        ({"1700000000000001", "-5"}, TimestampType(), "TIMESTAMP_MICROS(-5)"),
        # An event without a sequence comes first, so every event may be newer.
        ({"10", None}, LongType(), None),
        ({"1.5"}, DecimalType(3, 1), None),
        (set(), LongType(), None),
    ],
)
def test_lowest_sequence_is_written_for_types_with_certain_order(
    sequences: set[str | None], kind: DataType, expected: str | None
) -> None:
    assert _write_lowest_sequence(sequences, kind) == expected


def test_keys_are_written_as_literals_of_their_types_or_not_at_all() -> None:
    kinds = [IntegerType(), StringType(), DecimalType(38, 2), BooleanType()]
    assert _write_keys({("1", "a", "2.50", "true")}, kinds) == [
        ["CAST(1 AS int)", "CAST('a' AS string)", "CAST('2.50' AS decimal(38,2))", "CAST('true' AS boolean)"]
    ]
    assert _write_keys({(None, "a")}, kinds[:2]) == [["CAST(NULL AS int)", "CAST('a' AS string)"]]
    assert _write_keys({("1", "it's"), ("2", "a")}, kinds[:2]) is None
    assert _write_keys({("2026-01-01 00:00:00",)}, [TimestampType()]) is None
