"""Valid and damaged footers of any content; pyarrow reads the expected values of valid ones."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, date, datetime
from decimal import Decimal as Number
from itertools import product
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from thrift.protocol.TCompactProtocol import TCompactProtocolAccelerated
from thrift.transport.TTransport import TMemoryBuffer

from tableferry.formats.parquet.elements import root
from tableferry.formats.parquet.file_metadata import decode_after_schema, decode_schema
from tableferry.formats.parquet.files import Footer, Unreadable
from tableferry.formats.parquet.footers import ALL_LEAVES, SchemaCache, decode
from tableferry.formats.parquet.row_groups import RowGroupReader, RowGroups

VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int8(): st.integers(-(2**7), 2**7 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.uint32(): st.integers(0, 2**32 - 1),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.bool_(): st.booleans(),
    pa.string(): st.text(max_size=300),
    pa.binary(): st.binary(max_size=10),
    pa.binary(3): st.binary(min_size=3, max_size=3),
    pa.date32(): st.dates(),
    pa.timestamp("us", "UTC"): st.datetimes(
        datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC)
    ),
    pa.decimal128(38, 2): st.decimals(-(10**30), 10**30, places=2),
}


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    rows = draw(st.integers(0, 8))
    columns: dict[str, pa.Array] = {}
    for name in draw(
        st.lists(st.text(min_size=1, max_size=140), min_size=1, max_size=5, unique_by=str.lower)
    ):
        type = draw(st.sampled_from(list(VALUES)))
        values = draw(st.lists(st.none() | VALUES[type], min_size=rows, max_size=rows))
        match draw(st.sampled_from(("flat", "flat", "struct", "list"))):
            case "struct":
                values, type = (
                    [None if value is None else {"x": value} for value in values],
                    pa.struct([("x", type)]),
                )
            case "list":
                values, type = [[value] for value in values], pa.list_(type)
        assume("\0" not in name)
        columns[name] = pa.array(values, type)
    return pa.table(columns)


OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "row_group_size": st.integers(1, 8),
        "use_dictionary": st.booleans(),
        "write_page_index": st.booleans(),
        "write_statistics": st.booleans(),
        "version": st.sampled_from(("1.0", "2.4", "2.6")),
        "data_page_version": st.sampled_from(("1.0", "2.0")),
        "compression": st.sampled_from(("none", "snappy", "zstd")),
        "store_decimal_as_integer": st.booleans(),
        "store_schema": st.booleans(),
        "write_page_checksum": st.booleans(),
    },
)


def file_of(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def footer_of(data: bytes) -> bytes:
    return data[-8 - int.from_bytes(data[-8:-4], "little") : -8]


def row_groups_of(footer: bytes) -> RowGroups:
    """Read the statistics of all leaves, including those in arrays."""
    schema, end = decode_schema(footer)
    reader = RowGroupReader(root(schema), range(sum(element.type is not None for element in schema)))
    return reader.read(decode_after_schema(footer, end).row_groups)


@given(tables(), OPTIONS)
def test_statistics_equal_pyarrow_statistics(table: pa.Table, options: dict[str, Any]) -> None:
    data = file_of(table, **options)
    metadata = pq.read_metadata(io.BytesIO(data))
    groups = row_groups_of(footer_of(data))
    assert len(groups.rows) == metadata.num_row_groups
    for number, rows in enumerate(groups.rows):
        group = metadata.row_group(number)
        assert rows == group.num_rows
        for column, statistics in enumerate(groups.statistics):
            theirs = group.column(column).statistics
            assert statistics.nulls[number] == (theirs.null_count if theirs else None)
            for mine, other in (
                (statistics.lowest[number], theirs and theirs.min_raw),
                (statistics.highest[number], theirs and theirs.max_raw),
            ):
                assert (mine is None) == (other is None)
                match other:
                    case bytes():
                        assert mine == other
                    case bool():
                        assert mine == bytes([other])
                    case int():
                        assert mine is not None
                        assert int.from_bytes(mine, "little", signed=True) == other
                    case float():
                        type = pa.float32() if mine and len(mine) == 4 else pa.float64()
                        assert mine == pa.array([other], type).buffers()[1].to_pybytes()


@pytest.mark.parametrize("groups", [1, 3])
def test_byte_stream_split_is_detected_in_all_columns(groups: int) -> None:
    for encodings in product(("PLAIN", "BYTE_STREAM_SPLIT"), repeat=3):
        values = pa.table({name: pa.array([0.5, None, 1.5], pa.float64()) for name in "xyz"})
        options = {"column_encoding": dict(zip("xyz", encodings, strict=True)), "use_dictionary": False}
        footer = footer_of(file_of(values, row_group_size=3 // groups, **options))
        expected = {number for number, encoding in enumerate(encodings) if encoding != "PLAIN"}
        assert row_groups_of(footer).split == expected


@contextmanager
def decoder_in_python() -> Iterator[None]:
    """Decode without Thrift's compiled module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr("thrift.protocol.fastbinary")
        patch.setitem(sys.modules, "thrift.protocol.fastbinary", None)
        assert TCompactProtocolAccelerated(TMemoryBuffer(b""))._fast_decode is None
        yield


@given(tables(), OPTIONS)
def test_python_decoder_equals_compiled_decoder(table: pa.Table, options: dict[str, Any]) -> None:
    footer = footer_of(file_of(table, **options))
    compiled = row_groups_of(footer), decode(footer)
    with decoder_in_python():
        assert (row_groups_of(footer), decode(footer)) == compiled


@given(tables(), OPTIONS)
def test_files_written_by_pyarrow_are_read(table: pa.Table, options: dict[str, Any]) -> None:
    footer = decode(footer_of(file_of(table, **options)))
    assert isinstance(footer, Footer), footer
    assert footer.rows == table.num_rows
    assert len(footer.bounds) == len(footer.schema.leaves)


ROWS = 20
SAMPLE = footer_of(
    file_of(
        pa.table(
            {
                "id": pa.array(range(ROWS)),
                "name": [f"item {number}" for number in range(ROWS)],
                "at": pa.array([datetime(2024, 1, 1, tzinfo=UTC)] * ROWS),
                "day": pa.array([date(2024, 1, 1)] * ROWS),
                "amount": pa.array([Number(1)] * ROWS, pa.decimal128(12, 2)),
                "nested": [{"a": 1, "b": {"c": "x"}}] * ROWS,
                "list": [[1, 2]] * ROWS,
                "map": pa.array([[("a", 1)]] * ROWS, pa.map_(pa.string(), pa.int32())),
                "unsigned": pa.array([1] * ROWS, pa.uint64()),
            }
        ),
        row_group_size=7,
    )
)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    data = bytearray(SAMPLE)
    for _ in range(draw(st.integers(1, 6))):
        offset = draw(st.integers(0, len(data)))
        match draw(st.sampled_from(("set", "flip", "cut", "insert", "copy", "end"))):
            case "set":
                data[offset : offset + 1] = draw(st.binary(min_size=1, max_size=1))
            case "flip" if offset < len(data):
                data[offset] ^= 1 << draw(st.integers(0, 7))
            case "cut":
                del data[offset : offset + draw(st.sampled_from((1, 2, 5, 50)))]
            case "insert":
                data[offset:offset] = draw(st.binary(max_size=9))
            case "copy":
                other = draw(st.integers(0, len(data)))
                data[offset : offset + 20] = data[other : other + 20]
            case "end":
                del data[max(offset, 1) :]
    return bytes(data)


# A run shares this object between files, so a file must not affect the next one.
CACHES = {leaves: SchemaCache(leaves) for leaves in (0, 3, ALL_LEAVES)}


@given(damaged(), st.sampled_from(list(CACHES)))
def test_damaged_footer_is_read_or_refused_after_other_footers(data: bytes, leaves: int) -> None:
    footer = decode(data, CACHES[leaves])
    assert footer == decode(data, SchemaCache(leaves))
    match footer:
        case Unreadable():
            assert footer.reason.isprintable()
        case Footer():
            assert footer.rows >= 0
            assert len(footer.bounds) == min(len(footer.schema.leaves), leaves)
            assert all(bound.nulls is None or 0 <= bound.nulls <= footer.rows for bound in footer.bounds)
    sound = decode(SAMPLE, CACHES[leaves])
    assert isinstance(sound, Footer)
    assert sound == decode(SAMPLE, SchemaCache(leaves))


@given(st.binary(max_size=200))
def test_random_bytes_are_refused(data: bytes) -> None:
    assert isinstance(decode(data), Footer | Unreadable)


@pytest.mark.parametrize(
    "data",
    [
        b"\x15\x04\x19\xfc\xff\xff\xff\xff\x07",
        b"\x15\x04\x18\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
        b"\x1c" * 100_000,
        b"\x19" * 100_000,
        b"\x15" + b"\xff" * 100_000,
        b"\x15\x04\x19\x2c" + b"\x48\x01r\x15\xfe\xff\xff\xff\x0f\x00" * 2,
    ],
    ids=["long list", "long string", "nested structs", "nested lists", "long number", "many children"],
)
@pytest.mark.parametrize("decoder", [nullcontext, decoder_in_python], ids=["compiled", "in Python"])
def test_huge_declared_sizes_use_no_memory(
    decoder: Callable[[], AbstractContextManager[None]], data: bytes
) -> None:
    with decoder():
        footer = decode(data)
    assert isinstance(footer, Unreadable)
    assert footer.reason.startswith("has a broken footer")


@given(damaged())
def test_python_decoder_reads_or_refuses_damaged_footer(data: bytes) -> None:
    with decoder_in_python():
        assert isinstance(decode(data), Footer | Unreadable)
