"""Tables with more columns than statistics: all files have statistics of the same columns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tableferry import convert
from tableferry.formats.delta.statistics import INDEXED

COLUMNS = [f"c{number:02}" for number in range(INDEXED + 8)]


def write(root: Path, name: str, first: int, columns: list[str]) -> None:
    """Write a file of three rows whose values identify their column."""
    root.mkdir(exist_ok=True)
    values = {column: [first + COLUMNS.index(column) * 1000 + row for row in range(3)] for column in columns}
    pq.write_table(pa.table(values), root / name, row_group_size=1)


def no_session() -> Any:
    raise AssertionError("a folder needs no Spark")


def statistics(root: Path, version: int = 0) -> dict[str, dict[str, Any]]:
    lines = (root / "_delta_log" / f"{version:020}.json").read_text().splitlines()
    adds = [action["add"] for action in map(json.loads, lines) if "add" in action]
    return {add["path"]: json.loads(add["stats"]) for add in adds}


def expected(first: int, columns: list[str]) -> dict[str, Any]:
    lows = {column: first + COLUMNS.index(column) * 1000 for column in columns}
    return {
        "numRecords": 3,
        "minValues": lows,
        "maxValues": {column: low + 2 for column, low in lows.items()},
        "nullCount": dict.fromkeys(columns, 0),
    }


@pytest.mark.parametrize("indexed", [None, INDEXED + 3, -1, 0])
def test_column_order_of_files_does_not_change_statistics_columns(
    tmp_path: Path, indexed: int | None
) -> None:
    root = tmp_path / "t"
    write(root, "a.parquet", 0, COLUMNS)
    write(root, "b.parquet", 100, COLUMNS[::-1])
    write(root, "c.parquet", 200, COLUMNS)
    properties = {} if indexed is None else {"delta.dataSkippingNumIndexedCols": str(indexed)}
    [done] = convert.run([str(root)], properties=properties, resolve=no_session).tables
    assert done.outcome == "converted", done
    count = INDEXED if indexed is None else len(COLUMNS) if indexed < 0 else indexed
    for path, first in (("a.parquet", 0), ("b.parquet", 100), ("c.parquet", 200)):
        found = statistics(root)[path]
        if count:
            assert found == expected(first, COLUMNS[:count])
        else:
            assert found == {"numRecords": 3}


def test_synced_files_have_same_statistics_columns(tmp_path: Path) -> None:
    root = tmp_path / "t"
    write(root, "a.parquet", 0, COLUMNS)
    assert convert.run([str(root)], resolve=no_session).ok
    write(root, "b.parquet", 100, COLUMNS[::-1])
    assert convert.sync([str(root)], resolve=no_session).ok
    assert statistics(root, 1) == {"b.parquet": expected(100, COLUMNS[:INDEXED])}


def test_partition_columns_in_files_do_not_use_statistics_slots(tmp_path: Path) -> None:
    for day in ("1", "2"):
        (tmp_path / "t" / f"c00={day}").mkdir(parents=True)
        write(tmp_path / "t" / f"c00={day}", "a.parquet", 0, COLUMNS)
    assert convert.run([str(tmp_path / "t")], resolve=no_session).ok
    found = statistics(tmp_path / "t")
    assert found == dict.fromkeys(
        ("c00=1/a.parquet", "c00=2/a.parquet"), expected(0, COLUMNS[1 : INDEXED + 1])
    )
