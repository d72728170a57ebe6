"""File skipping by statistics of footers loses no row."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Context
from decimal import Decimal as Number
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.parquet_to_delta import commit
from tests.soak import amount

EXACT = Context(prec=60)
INSTANTS = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31))
CHARACTERS = st.text(st.sampled_from("a'~\x7fé\ud7ff\ue000\uffff😀\U0010ffff"), max_size=12)
CASES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "n": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "u": (pa.uint32(), st.integers(0, 2**32 - 1)),
    "x": (pa.float64(), st.floats()),
    "s": (
        pa.string(),
        st.builds(str.__add__, st.sampled_from(("", "a" * 31, "😀" * 16, "\U0010ffff" * 33)), CHARACTERS),
    ),
    "m": (
        pa.decimal128(38, 2),
        st.integers(-(10**38) + 1, 10**38 - 1).map(lambda value: Number(value).scaleb(-2, EXACT)),
    ),
    "o": (pa.decimal128(9, 4), st.decimals(-99999, 99999, places=4)),
    "d": (pa.date32(), st.dates()),
    "at": (pa.timestamp("us", "UTC"), INSTANTS.map(lambda value: value.replace(tzinfo=UTC))),
    "ntz": (pa.timestamp("us"), INSTANTS),
    "b": (pa.bool_(), st.booleans()),
}
ROWS = st.lists(
    st.fixed_dictionaries({name: st.none() | values for name, (_, values) in CASES.items()}),
    min_size=1,
    max_size=3,
)
OPERATORS: dict[str, Callable[[Any, Any], pa.BooleanArray]] = {
    "=": pc.equal,
    "<=": pc.less_equal,
    ">=": pc.greater_equal,
}


def literal(value: Any, type: pa.DataType) -> str:
    """Write a value as DataFusion reads it exactly."""
    match value:
        case str():
            return "'" + value.replace("'", "''") + "'"
        case bool():
            return str(value)
        case datetime():
            zone = 'Some("UTC")' if type.tz else "None"
            return f"arrow_cast({pa.scalar(value, type).value}, 'Timestamp(Microsecond, {zone})')"
        case date():
            return f"arrow_cast({pa.scalar(value, type).value}, 'Date32')"
        case Number():
            return f"CAST('{value}' AS DECIMAL({type.precision}, {type.scale}))"
        case float():
            text = repr(value).replace("inf", "Infinity")
            return f"CAST('{text}' AS DOUBLE)"
        case _:
            return f"CAST('{value}' AS BIGINT)"


@settings(max_examples=amount(3, 10))
@given(st.lists(ROWS, min_size=3, max_size=3))
def test_delta_rs_finds_every_row(files: list[list[dict[str, Any]]]) -> None:
    schema = pa.schema([(name, type) for name, (type, _) in CASES.items()])
    tables = [pa.Table.from_pylist(rows, schema) for rows in files]
    everything = pa.concat_tables(tables)
    with TemporaryDirectory() as folder:
        for number, table in enumerate(tables):
            pq.write_table(table, Path(folder, f"{number}.parquet"), row_group_size=2)
        commit(Path(folder))
        engine = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(folder))
        for name, (type, _) in CASES.items():
            for value in {repr(row[name]): row[name] for rows in files for row in rows}.values():
                if value is None or value == 0 or (isinstance(value, float) and math.isnan(value)):
                    # Engines order zeros and NaN differently.
                    continue
                for sign, compare in OPERATORS.items():
                    if type == pa.float64() and sign != "=":
                        continue
                    asked = f"SELECT count(*) AS rows FROM t WHERE {name} {sign} {literal(value, type)}"
                    actual = pa.table(engine.execute(asked).read_all())["rows"][0].as_py()
                    assert actual == pc.sum(compare(everything[name], pa.scalar(value, type))).as_py(), asked
