from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

# What only decides: a plan or a check of a spec needs no Spark, and no terminal.
PURE = [
    "tableferry.errors",
    "tableferry.files",
    "tableferry.tables",
    "tableferry.bundle",
    "tableferry.workspace",
    "tableferry.session",
    "tableferry.localspark",
    "tableferry.pipelines.decide",
    "tableferry.pipelines.engine",
    "tableferry.pipelines.events",
    "tableferry.pipelines.flows",
    "tableferry.pipelines.plans",
    "tableferry.pipelines.reads",
    "tableferry.pipelines.spec",
    "tableferry.pipelines.sql",
    "tableferry.pipelines.state",
    "tableferry.pipelines.steps",
]

SPARK = ["pyspark", "delta", "databricks", "py4j"]


def loaded_by(module: str, names: list[str]) -> list[str]:
    code = f"import json, sys, {module}; print(json.dumps([name for name in {names} if name in sys.modules]))"
    asked = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert asked.returncode == 0, asked.stderr
    loaded: list[str] = json.loads(asked.stdout)
    return loaded


@pytest.mark.parametrize("module", PURE)
def test_a_module_that_only_decides_loads_neither_spark_nor_rich(module: str) -> None:
    assert loaded_by(module, [*SPARK, "rich"]) == []


def test_the_command_line_loads_neither_spark_nor_a_database_for_its_help() -> None:
    assert loaded_by("tableferry.cli", [*SPARK, "sqlalchemy", "alembic", "jinja2"]) == []


@pytest.mark.parametrize(
    ("package", "command"), [("sqlalchemy", "list"), ("alembic", "init"), ("jinja2", "communicate")]
)
def test_a_fleet_without_its_extra_says_what_to_install(package: str, command: str, tmp_path: Path) -> None:
    code = f"import sys; sys.modules['{package}'] = None; from tableferry.cli import main; main()"
    asked = subprocess.run(
        [sys.executable, "-c", code, "fleet", command], capture_output=True, text=True, cwd=tmp_path
    )
    assert asked.returncode == 1
    assert 'pip install "tableferry[fleet]"' in asked.stderr
    assert package in asked.stderr
    assert "Traceback" not in asked.stderr
