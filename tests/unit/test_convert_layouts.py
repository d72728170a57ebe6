"""What was learned from some row groups reads others of their kind, whatever their values are."""

from __future__ import annotations

import random
import string
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from typing import Any

import pyarrow as pa
import pytest
from tests import soak
from tests.unit.test_convert_fuzz import columns_of, file_of, footer_of, plainly

SPLIT = "BYTE_STREAM_SPLIT"


def table(chance: random.Random, rows: int, text: Callable[[random.Random], str]) -> pa.Table:
    def some(value: Callable[[], Any]) -> list[Any]:
        return [value() if chance.random() < 0.9 else None for _ in range(rows)]

    return pa.table(
        {
            "id": pa.array(some(lambda: chance.getrandbits(chance.randrange(1, 63))), pa.int64()),
            "name": pa.array(some(lambda: text(chance)), pa.string()),
            "day": pa.array(some(lambda: date(2024, 1, 1) + timedelta(chance.randrange(9999))), pa.date32()),
            "list": pa.array(some(lambda: [chance.random()]), pa.list_(pa.float64())),
            "nested": pa.array(some(lambda: {"x": text(chance)}), pa.struct([("x", pa.string())])),
            "bytes": pa.array(some(lambda: text(chance).encode()), pa.binary()),
        }
    )


def short(chance: random.Random) -> str:
    return "".join(chance.choices(string.printable, k=chance.randrange(100)))


def long(chance: random.Random) -> str:
    return short(chance) * chance.choice((0, 1, 30, 80))


def footers(text: Callable[[random.Random], str], **options: Any) -> Iterator[bytes]:
    chance = random.Random(5)
    while True:
        yield footer_of(file_of(table(chance, 40, text), row_group_size=10, **options))


@pytest.mark.parametrize("wanted", [0, 2, 99])
@pytest.mark.parametrize("text", [short, long])
@pytest.mark.parametrize(
    "options",
    [{}, {"write_page_index": True}, {"use_dictionary": False, "data_page_version": "2.0"}],
    ids=str,
)
def test_row_groups_are_known_once_some_were_seen(
    options: dict[str, Any], text: Callable[[random.Random], str], wanted: int
) -> None:
    files = footers(text, **options)
    columns, *_ = columns_of(next(files), wanted)
    counts = []
    some = soak.amount(20, 40)
    for _ in range(some):
        footer = next(files)
        _, reader, count = columns_of(footer, wanted)
        found = columns.groups(reader, count)
        counts.append(count)
        each = plainly(footer, wanted)
        assert list(found.rows) == [group.rows[0] for group in each]
        for column, raw in enumerate(found.raws):
            assert list(raw.lowest) == [group.raws[column].lowest[0] for group in each]
            assert list(raw.nulls) == [group.raws[column].nulls[0] for group in each]
    assert sum(counts) == 4 * some
    assert columns.missed < 40


@pytest.mark.parametrize("wanted", [0, 1, 2, 3])
def test_split_bytes_are_seen_in_all_columns(wanted: int) -> None:
    def footer(first: str, second: str) -> bytes:
        split = {"x": first, "y": "PLAIN", "z": second}
        values = pa.table({name: pa.array([0.5, None, 1.5], pa.float64()) for name in split})
        return footer_of(file_of(values, use_dictionary=False, column_encoding=split, row_group_size=1))

    columns, *_ = columns_of(footer("PLAIN", "PLAIN"), wanted)
    for _ in range(10):
        for first, second in (("PLAIN", "PLAIN"), ("PLAIN", SPLIT), (SPLIT, "PLAIN"), (SPLIT, SPLIT)):
            _, reader, count = columns_of(footer(first, second), wanted)
            expected = {0} if first == SPLIT else set()
            expected |= {2} if second == SPLIT else set()
            assert columns.groups(reader, count).split == expected
