"""Test of the conversion benchmark."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "convert.py"


def test_benchmark_measures_contenders_without_spark(tmp_path: Path) -> None:
    contenders = ["process", "delta-rs", "floor"]
    command = [sys.executable, str(BENCHMARK), "--files", "20", "--no-large", "--repeat", "1", "--markdown"]
    places = ["--cache", str(tmp_path / "cache"), "--output", str(tmp_path / "found.json")]
    done = subprocess.run(
        [*command, *places, "--only", *contenders], capture_output=True, text=True, check=True
    )
    results = json.loads((tmp_path / "found.json").read_text())
    assert [result["contender"] for result in results] == contenders
    assert all(result["commit"] > 20 * 300 and result["python"] and not result["java"] for result in results)
    assert "20 files: tableferry is " in done.stdout
    assert "| delta-rs | " in done.stdout
    # The files stay unchanged in the cache for the next run.
    (folder,) = (tmp_path / "cache").iterdir()
    assert len(list(folder.rglob("*.parquet"))) == 20
    assert not (folder / "_delta_log").exists()
