"""Measure loading and checking a project of many specs, without a JVM.

python benchmarks/spec_load.py --files 1000
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

from tableferry.pipelines import specs


def common(number: int) -> dict[str, Any]:
    """Return the keys of every spec; each has a different target."""
    return {
        "dataFlowId": f"flow_{number}",
        "dataFlowGroup": "bench",
        "targetFormat": "delta",
        "targetDetails": {"database": "{silver}", "table": f"t_{number}"},
        "cdcSettings": {"keys": ["ID"], "scd_type": "2", "sequence_by": "TS", "apply_as_deletes": ""},
        "tableMigrationDetails": {
            "enabled": True,
            "catalogType": "uc",
            "sourceDetails": {
                "database": "{silver}",
                "table": f"legacy_{number}",
                "selectExp": ["ID", "A", "VALID_FROM AS __START_AT", "VALID_TO AS __END_AT"],
            },
        },
    }


def delta(number: int) -> dict[str, Any]:
    """A view of a Delta table with some columns."""
    columns = [f"COLUMN_{position}" for position in range(20)]
    details = {"database": "{bronze}", "table": f"s_{number}", "cdfEnabled": True, "selectExp": columns}
    return {"mode": "stream", "sourceType": "delta", "sourceDetails": details}


def standard(number: int) -> dict[str, Any]:
    """A standard spec."""
    kind = {"dataFlowType": "standard", "sourceSystem": "erp", "sourceViewName": "v_rows"}
    return common(number) | kind | delta(number)


def flow(number: int) -> dict[str, Any]:
    """A flow spec with a staging table."""
    staging = f"staging_{number}"
    flows = {
        f"f_{part}": {
            "flowType": "append_view",
            "flowDetails": {"targetTable": staging, "sourceView": f"v_{part}"},
            "views": {f"v_{part}": delta(number)},
        }
        for part in ("a", "b")
    }
    merge = {
        "flowType": "merge",
        "flowDetails": {"targetTable": f"{{silver}}.t_{number}", "sourceView": staging},
    }
    group = {
        "flowGroupId": "main",
        "stagingTables": {staging: {"type": "ST"}},
        "flows": {**flows, "f_merge": merge},
    }
    return common(number) | {"dataFlowType": "flow", "flowGroups": [group]}


def build(root: Path, files: int) -> None:
    """Write a project: standard and flow specs in turn, half of each in YAML."""
    configs = root / "pipeline_configs"
    configs.mkdir()
    (configs / "global.json").write_text(json.dumps({"table_migration_state_volume_path": "state"}), "utf-8")
    tokens = {"tokens": {"bronze": "main.bronze", "silver": "main.silver"}}
    (configs / "dev_substitutions.json").write_text(json.dumps(tokens), "utf-8")
    for number in range(files):
        folder = root / "dataflows" / f"group_{number % 20}" / "dataflowspec"
        folder.mkdir(parents=True, exist_ok=True)
        written = (standard if number % 2 else flow)(number)
        if number % 4 < 2:
            (folder / f"s{number}_main.json").write_text(json.dumps(written, indent=2), "utf-8")
        else:
            (folder / f"s{number}_main.yaml").write_text(yaml.safe_dump(written), "utf-8")


def main() -> None:
    """Build the project, time its loading, print one line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--files", type=int, default=1000, help="how many spec files")
    files = parser.parse_args().files
    with tempfile.TemporaryDirectory() as folder:
        build(Path(folder), files)
        started = time.perf_counter()
        loaded = specs.load(folder)
        seconds = time.perf_counter() - started
    machine = f"Python {platform.python_version()}, {os.cpu_count()} CPUs, {platform.machine()}"
    print(f"{len(loaded.dataflows)} spec files loaded and checked in {seconds:.2f} s ({machine})")


if __name__ == "__main__":
    main()
