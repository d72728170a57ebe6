"""Test of `make demo-convert`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import deltalake

DEMO = Path(__file__).parents[2] / "examples" / "demo_convert.py"


def test_demo_converts_syncs_and_undoes_as_it_prints(tmp_path: Path) -> None:
    output = subprocess.run(
        [sys.executable, str(DEMO), "--folder", str(tmp_path / "demo")],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    ).stdout

    lake = tmp_path / "demo" / "lake"
    assert "336,776 flights in 36 files" in output
    assert output.count(f"{lake / 'weather'}: NOTES.txt is not a Parquet file") == 2
    assert not (lake / "flights" / "_delta_log").exists()
    assert deltalake.DeltaTable(lake / "weather").version() == 0
    assert "planes: version 1: 1 file added (" in output
    planes = deltalake.DeltaTable(lake / "planes")
    assert (planes.version(), planes.to_pyarrow_table().num_rows) == (1, 3322)
