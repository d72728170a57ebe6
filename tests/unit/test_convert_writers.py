"""Statistics of files of other writers, compared with the data."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from tests import parquet_writers, soak
from tests.footers import read_footer

from tableferry.formats.parquet.files import Bounds, Footer

# Writers with known errors, the oldest trusted versions, and current versions.
WRITERS = {
    "pyarrow": [["pyarrow==10.0.1", "numpy<2"], ["pyarrow==11.0.0", "numpy<2"], ["pyarrow"]],
    "polars": [["polars==1.36.1"], ["polars==1.44.0"], ["polars"]],
    "duckdb": [["duckdb==1.1.3"], ["duckdb==2.0.0"], ["duckdb"]],
    "fastparquet": [["fastparquet"]],
    "deltalake": [["deltalake==0.22.3", "pyarrow==16.1.0", "numpy<2"], ["deltalake", "pyarrow"]],
}


def test_arrow_statistics_are_correct(tmp_path: Path) -> None:
    parquet_writers.pyarrow(str(tmp_path))
    taken = held(tmp_path)
    assert {"id", "number", "short", "long", "decimal", "wide", "day", "at"} == taken


@soak.only
@pytest.mark.parametrize(
    ("writer", "options"),
    [(name, options) for name, several in WRITERS.items() for options in several],
    ids=str,
)
def test_trusted_statistics_of_each_writer_are_correct(
    writer: str, options: list[str], tmp_path: Path
) -> None:
    home = tmp_path / "home"
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    subprocess.run([str(home / "bin" / "pip"), "install", "--quiet", *options], check=True)
    folder = tmp_path / "data"
    folder.mkdir()
    subprocess.run([str(home / "bin" / "python"), parquet_writers.__file__, writer, str(folder)], check=True)
    bounded = held(folder)
    # It has no column order.
    assert options == ["duckdb==1.1.3"] or {"id", "number"} <= bounded


def held(folder: Path) -> set[str]:
    """Compare the statistics of a folder's files with the data; return the columns with bounds."""
    bounded = set()
    for path in sorted(folder.glob("*.parquet")):
        footer = read_footer(str(path))
        assert isinstance(footer, Footer), (path, footer)
        data = pq.read_table(path)
        for leaf, bounds in zip(footer.schema.leaves, footer.bounds, strict=True):
            column = data[leaf.path[0]]
            if pa.types.is_dictionary(column.type):
                column = column.cast(column.type.value_type)
            _hold(bounds, column, f"{path.name}: {leaf.path}")
            if bounds.lowest is not None:
                bounded.add(leaf.path[0])
    return bounded


def _hold(bounds: Bounds, column: Any, where: str) -> None:
    assert bounds.nulls in (None, column.null_count), where
    if bounds.lowest is None or bounds.highest is None:
        return
    ends = pc.min_max(column).as_py()
    lowest, highest = (json.loads(end, parse_float=Decimal) for end in (bounds.lowest, bounds.highest))
    if isinstance(ends["min"], float):
        # Spark orders NaN above all other numbers.
        assert not any(math.isnan(value) for value in column.drop_null().to_pylist()), where
    if not isinstance(ends["min"], str | int | float | Decimal):
        texts = [str(ends[end]).replace(" ", "T") for end in ("min", "max")]
        lowest, highest = lowest[: len(texts[0])], highest[: len(texts[1])]
        ends = {"min": texts[0], "max": texts[1]}
    assert lowest <= ends["min"], where
    assert highest >= ends["max"], where
