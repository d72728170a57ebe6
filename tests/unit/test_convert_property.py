"""A converted table has the rows of its files, and statistics hide no row, for any directory."""

from __future__ import annotations

import datetime as dt
import json
import math
import shutil
import tempfile
from collections import Counter
from decimal import Decimal
from operator import ge, le
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests import conditions
from tests.soak import amount

from tableferry import convert

UTC = dt.UTC

# Each column with the types that files may have for it, and values that fit all of them.
COLUMNS: dict[str, tuple[list[pa.DataType], st.SearchStrategy[Any]]] = {
    "number": ([pa.int8(), pa.int16(), pa.int32(), pa.int64()], st.integers(-128, 127)),
    "large": ([pa.int64()], st.integers(-(2**63), 2**63 - 1)),
    "real": ([pa.float32(), pa.float64()], st.floats(width=32)),
    "exact": (
        [pa.decimal128(12, 2), pa.decimal128(38, 2)],
        st.decimals("-9999999999.99", "9999999999.99", places=2, allow_nan=False),
    ),
    "text": ([pa.string(), pa.large_string()], st.text(max_size=40)),
    "day": ([pa.date32()], st.dates()),
    "moment": (
        [pa.timestamp("us", "UTC")],
        st.datetimes(dt.datetime(1, 1, 1), dt.datetime(9999, 12, 30), timezones=st.just(UTC)),
    ),
    "yes": ([pa.bool_()], st.booleans()),
    "raw": ([pa.binary()], st.binary(max_size=8)),
    "inner": (
        [pa.struct([("x", pa.int32()), ("y", pa.string())])],
        st.fixed_dictionaries({"x": st.none() | st.integers(-9, 9), "y": st.none() | st.text(max_size=3)}),
    ),
    "several": ([pa.list_(pa.int32())], st.lists(st.none() | st.integers(-9, 9), max_size=3)),
}
# delta-rs finds no file with a control character in its name, in logs of any writer.
NAMES = st.text(
    st.characters(exclude_characters="/", exclude_categories=("Cs", "Cc")), min_size=1, max_size=12
).filter(lambda name: name[0] not in "._" and name not in (".", ".."))
PARTITIONS: dict[str, st.SearchStrategy[Any]] = {
    "p_int": st.none() | st.integers(-(2**31), 2**31 - 1),
    "p_long": st.none() | st.integers(2**31, 2**63 - 1),
    "p_date": st.none() | st.dates(dt.date(1000, 1, 1)),
    "p_text": st.none() | NAMES.map(lambda name: "x" + name),
}


class File(NamedTuple):
    """A file to write: path, columns and rows."""

    path: str
    partition: dict[str, Any]
    schema: pa.Schema
    rows: list[dict[str, Any]]
    group: int


@st.composite
def files(draw: st.DrawFn) -> list[File]:
    levels = draw(st.lists(st.sampled_from(sorted(PARTITIONS)), max_size=2, unique=True))
    written = []
    for number in range(draw(st.integers(1, 4))):
        names = draw(st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=5, unique=True))
        fields = [pa.field(name, draw(st.sampled_from(COLUMNS[name][0]))) for name in names]
        row = st.fixed_dictionaries({name: st.none() | COLUMNS[name][1] for name in names})
        rows = draw(st.lists(row, max_size=6))
        partition = {level: draw(PARTITIONS[level]) for level in levels}
        folders = "".join(f"{level}={_escaped(value)}/" for level, value in partition.items())
        # A file with a colon in its name is refused, because Spark can't read it.
        path = f"{folders}{number}{draw(NAMES).replace(':', '.')}"
        written.append(File(path, partition, pa.schema(fields), rows, draw(st.integers(1, 4))))
    return written


def _escaped(value: Any) -> str:
    # Hive escapes special characters of a path by their UTF-8 octets.
    return "__HIVE_DEFAULT_PARTITION__" if value is None else quote(str(value), safe=" ")


def _normal(value: Any) -> Any:
    match value:
        case float() if math.isnan(value):
            return "NaN"
        case float():
            return value + 0.0
        case dict():
            return tuple((key, _normal(item)) for key, item in sorted(value.items()))
        case list():
            return tuple(map(_normal, value))
        case _:
            return value


def _expected(written: list[File]) -> Counter[Any]:
    columns = {name: None for file in written for name in file.schema.names}
    # A level with only nulls has no type; a level of numbers has the widest type.
    return Counter(_normal({**columns, **row, **file.partition}) for file in written for row in file.rows)


def _found(root: Path) -> Counter[Any]:
    table = pa.table(deltalake.DeltaTable(root).to_pyarrow_table())
    return Counter(_normal(row) for row in table.to_pylist())


@settings(max_examples=amount(20, 150), suppress_health_check=list(HealthCheck))
@given(files(), st.sampled_from((convert.Statistics.FOOTERS, convert.Statistics.SCAN)))
@example(
    [File("00", {}, pa.schema([("real", pa.float32())]), [{"real": 0.0}, {"real": math.inf}], group=1)],
    convert.Statistics.SCAN,
)
def test_converted_table_has_rows_of_its_files(written: list[File], statistics: convert.Statistics) -> None:
    root = Path(tempfile.mkdtemp())
    try:
        for file in written:
            (root / file.path).parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(
                pa.Table.from_pylist(file.rows, file.schema), root / file.path, row_group_size=file.group
            )

        done = convert.run([str(root)], statistics=statistics)

        if not _share_columns(written):
            conditions.check(done.tables[0].error, "FILES_OF_SEVERAL_TABLES", table=root)
            assert not (root / "_delta_log").exists()
            return
        assert done.ok, done.tables[0].error
        assert _found(root) == _expected(written)
        for line in (root / "_delta_log" / "00000000000000000000.json").read_text().split("\n")[:-1]:
            if add := json.loads(line, parse_float=Decimal).get("add"):
                _require_true(json.loads(add["stats"], parse_float=Decimal), _file(written, add, root))
    finally:
        shutil.rmtree(root)


def _share_columns(written: list[File]) -> bool:
    """Return whether the files are connected by common columns."""
    connected, left = {*written[0].schema.names}, written[1:]
    while near := [file for file in left if not connected.isdisjoint(file.schema.names)]:
        connected |= {name for file in near for name in file.schema.names}
        left = [file for file in left if file not in near]
    return not left


def _file(written: list[File], add: dict[str, Any], root: Path) -> File:
    [data_file] = (file for file in written if file.path == unquote(add["path"]))
    assert (root / data_file.path).stat().st_size == add["size"]
    return data_file


def _require_true(stats: dict[str, Any], file: File) -> None:
    assert stats["numRecords"] == len(file.rows)
    for name in file.schema.names:
        values = [row[name] for row in file.rows]
        counted = stats.get("nullCount", {}).get(name, {})
        if not isinstance(counted, dict):
            assert counted == sum(value is None for value in values)
        if name == "inner":
            continue
        # One bound may be missing: JSON has no infinity.
        for bounds, holds in (("minValues", le), ("maxValues", ge)):
            if name in stats.get(bounds, {}):
                bound = stats[bounds][name]
                # A reader of decimals reads the shortest digits of a double as a different number.
                bound = _value(float(bound) if name == "real" else bound)
                assert all(holds(bound, _value(value)) for value in values if value is not None)


def _value(value: Any) -> Any:
    match value:
        case dt.datetime():
            return value
        case dt.date():
            return value.isoformat()
        case str() if value.endswith("Z") and len(value) >= 24 and value[4:5] == "-":
            return dt.datetime.fromisoformat(value)
        case int() | float():
            return Decimal(value)
        case _:
            return value
