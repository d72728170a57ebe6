"""Statistics from a scan of the data: equal to correct footers, and more."""

from __future__ import annotations

import json
import re
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import conditions
from tests.footers import read_footer
from tests.soak import amount
from tests.unit.test_convert_skipping import CASES, ROWS

from tableferry import convert
from tableferry.convert.discovery import listing
from tableferry.errors import SessionError
from tableferry.formats.parquet import data_scan, directory_footers
from tableferry.formats.parquet.files import Bounds, Footer, Unreadable


def no_session() -> NoReturn:
    raise SessionError("no Java here")


def scanned(path: Path, *columns: str) -> dict[str, Bounds]:
    """Scan one file; return each leaf's statistics by its path."""
    [footer] = data_scan.read(
        path.parent,
        [file for file in listing.list_files(path.parent) if file.path == path.name],
        paths=frozenset(tuple(column.split("/")) for column in columns),
    )
    assert isinstance(footer, Footer), footer
    return {
        "/".join(leaf.path): bounds for leaf, bounds in zip(footer.schema.leaves, footer.bounds, strict=True)
    }


@settings(max_examples=amount(25, 400), deadline=None)
@given(ROWS, st.integers(1, 3))
def test_scan_equals_correct_footer_statistics(rows: list[dict[str, Any]], group: int) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        schema = pa.schema([(column, kind) for column, (kind, _) in CASES.items()])
        pq.write_table(pa.Table.from_pylist(rows, schema), folder / "a.parquet", row_group_size=group)
        files = listing.list_files(folder)
        paths = frozenset((column,) for column in CASES)
        [footer], [scan] = directory_footers.read(folder, files), data_scan.read(folder, files, paths=paths)
    assert isinstance(footer, Footer)
    assert isinstance(scan, Footer)
    assert (scan.rows, scan.schema) == (footer.rows, footer.schema)
    for leaf, stated, other in zip(footer.schema.leaves, footer.bounds, scan.bounds, strict=True):
        assert stated.nulls == other.nulls, leaf
        # Arrow's footers don't record NaN.
        if leaf.path != ("x",):
            assert stated == other, leaf


def test_scan_covers_each_type(tmp_path: Path) -> None:
    inner = {"x": 3, "y": {"z": "deep"}}
    late = datetime(2024, 5, 6, 7, 8, 9, 123_456, UTC)
    table = pa.table(
        {
            "float": [1.5, None, -0.0],
            "nan": [1.0, float("nan"), 2.0],
            "wide": pa.array(
                [Decimal("-1.00"), Decimal("99999999999999999999999999999999999.99"), None], WIDE
            ),
            "at": pa.array([late, None, late], pa.timestamp("ms", "UTC")),
            "category": pa.array(["b", "a", None]).dictionary_encode(),
            "s": [inner, None, {"x": None, "y": {"z": None}}],
            "s.x": [7, 8, 9],
            "bytes": [b"a", b"b", None],
            "yes": [True, None, None],
            "list": [[1], None, []],
            "took": pa.array([1, 2, None], pa.duration("s")),
            "unsigned": pa.array([2**64 - 1, 0, None], pa.uint64()),
            "nothing": pa.array([None, None, None], pa.string()),
            "left out": [1, 2, 3],
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    names = [name for name in table.column_names if name != "left out"]
    assert scanned(tmp_path / "a.parquet", *names, "s/x", "s/y/z") == {
        "float": Bounds("-0.0", "1.5", 1),
        "nan": Bounds(None, None, 0),
        "wide": Bounds("-1.00", f"{'9' * 35}.99", 1),
        "at": Bounds('"2024-05-06T07:08:09.123Z"', '"2024-05-06T07:08:09.123Z"', 1),
        "category": Bounds('"a"', '"b"', 1),
        "s/x": Bounds("3", "3", 2),
        "s/y/z": Bounds('"deep"', '"deep"', 2),
        "s.x": Bounds("7", "9", 0),
        "bytes": Bounds(None, None, 1),
        "yes": Bounds(None, None, 2),
        "took": Bounds("1", "2", 1),
        "unsigned": Bounds("0", str(2**64 - 1), 1),
        "nothing": Bounds(None, None, 3),
        "left out": Bounds(None, None, None),
    }


WIDE = pa.decimal128(38, 2)


def test_scan_bounds_old_timestamps_without_rebase(tmp_path: Path) -> None:
    moments = [datetime(1700, 1, 1), datetime(2024, 1, 1)]
    pq.write_table(pa.table({"t": moments}), tmp_path / "new.parquet")
    pq.write_table(pa.table({"t": moments}), tmp_path / "old.parquet", use_deprecated_int96_timestamps=True)
    assert scanned(tmp_path / "new.parquet", "t")["t"].lowest == '"1700-01-01T00:00:00.000"'
    assert scanned(tmp_path / "old.parquet", "t")["t"] == Bounds(None, '"2024-01-01T00:00:00.000Z"', 0)


@pytest.mark.parametrize("spark", [b"2.4.8", b"3.5.1"])
@pytest.mark.parametrize("read", ["footer", "scan"])
def test_scan_omits_bounds_of_legacy_calendar_dates(tmp_path: Path, spark: bytes, read: str) -> None:
    """Arrow keeps the keys of the file whose rows it rewrites, and Spark uses them."""
    keys = {b"org.apache.spark.version": spark, b"org.apache.spark.legacyDateTime": b""}
    schema = pa.schema({"day": pa.date32(), "young": pa.date32(), "at": pa.timestamp("us", "UTC")}, keys)
    day, young = date(1000, 1, 1), date(2026, 1, 1)
    rows = [{"day": day, "young": young, "at": datetime(1000, 1, 1, tzinfo=UTC)}]
    path = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_pylist(rows, schema), path)

    if read == "scan":
        bounds = scanned(path, "day", "young", "at")
    else:
        footer = read_footer(str(path))
        assert isinstance(footer, Footer)
        leaves = zip(footer.schema.leaves, footer.bounds, strict=True)
        bounds = {leaf.path[0]: bound for leaf, bound in leaves}

    assert {name: (bound.lowest, bound.highest) for name, bound in bounds.items()} == {
        "day": (None, None),
        "young": ('"2026-01-01"', '"2026-01-01"'),
        "at": (None, None),
    }


def stats(root: Path) -> dict[str, Any]:
    lines = (root / "_delta_log" / f"{0:020}.json").read_text().splitlines()
    [add] = [json.loads(line)["add"] for line in lines if '"add"' in line]
    statistics: dict[str, Any] = json.loads(add["stats"])
    return statistics


def test_table_is_converted_with_scan(tmp_path: Path) -> None:
    """Its writer is unknown, so footers have no trusted statistics."""
    root = tmp_path / "t"
    root.mkdir()
    table = pa.table({f"c{number}": [number, None] for number in range(40)})
    pq.write_table(table, root / "a.parquet")
    data = (root / "a.parquet").read_bytes()
    (root / "a.parquet").write_bytes(data.replace(b"parquet-cpp-arrow", b"parquet-unknown-x"))

    planned = convert.run([str(root)], statistics=convert.Statistics.SCAN, dry_run=True, resolve=no_session)
    plan = planned.tables[0].plan
    assert plan is not None
    assert not (root / "_delta_log").exists()
    assert convert.run([str(root)], resolve=no_session).ok
    assert stats(root) == {"numRecords": 2}
    convert.undo(str(root), resolve=no_session)
    assert convert.run([str(root)], statistics=convert.Statistics.SCAN, resolve=no_session).ok
    statistics = stats(root)
    assert statistics["numRecords"] == 2
    assert (
        statistics["minValues"] == statistics["maxValues"] == {f"c{number}": number for number in range(32)}
    )
    assert statistics["nullCount"] == {f"c{number}": 1 for number in range(32)}


def test_scan_names_unreadable_file(tmp_path: Path) -> None:
    root = tmp_path / "t"
    root.mkdir()
    pq.write_table(pa.table({"a": list(range(1000))}), root / "a.parquet", use_dictionary=False)
    data = bytearray((root / "a.parquet").read_bytes())
    data[4:200] = bytes(196)
    (root / "a.parquet").write_bytes(data)
    [failed] = convert.run([str(root)], statistics=convert.Statistics.SCAN, resolve=no_session).tables
    assert failed.outcome == "refused"
    conditions.check(
        failed.error,
        "UNREADABLE_FILES",
        table=root,
        files=re.compile(r"^a\.parquet can't be read \(.*with --statistics footers"),
    )
    assert not (root / "_delta_log").exists()


def test_scan_reports_missing_rows(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1, 2]}), tmp_path / "a.parquet")
    files = listing.list_files(tmp_path)
    [footer] = directory_footers.read(tmp_path, files, leaves=0)
    assert isinstance(footer, Footer)
    actual = data_scan._scan(str(tmp_path / "a.parquet"), footer._replace(rows=3), frozenset({("a",)}))
    assert actual == Unreadable("has 2 rows, but its footer records 3: rewrite it")


def test_scan_without_pyarrow_reports_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "t"
    root.mkdir()
    pq.write_table(pa.table({"a": [1]}), root / "a.parquet")
    monkeypatch.delitem(sys.modules, "tableferry.formats.parquet.data_scan")
    monkeypatch.delattr("tableferry.formats.parquet.data_scan")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    [failed] = convert.run([str(root)], statistics=convert.Statistics.SCAN, resolve=no_session).tables
    assert failed.outcome == "failed"
    conditions.check(
        failed.error,
        "MISSING_PACKAGE_FOR_SCAN",
        package="pyarrow",
        command="pip install 'tableferry[scan]'",
    )
