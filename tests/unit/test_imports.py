from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tableferry.fleet.queue.opening import open_store

# Modules that only decide, for plans and checks of specs; they need neither Spark nor a terminal.
PURE = [
    "tableferry.errors",
    "tableferry.storage",
    "tableferry.spark.tables",
    "tableferry.workspace",
    "tableferry.spark.session",
    "tableferry.spark.local_settings",
    "tableferry.spark.local_spark",
    "tableferry.pipelines.planning.decide",
    "tableferry.pipelines.planning.engine_support",
    "tableferry.pipelines.engines.port",
    "tableferry.pipelines.engines.databricks.event_log",
    "tableferry.pipelines.model.flows",
    "tableferry.pipelines.model.plan",
    "tableferry.pipelines.model.reads",
    "tableferry.pipelines.specs",
    "tableferry.pipelines.model.sql",
    "tableferry.pipelines.state.store",
    "tableferry.pipelines.model.steps",
]

SPARK = ["pyspark", "delta", "databricks", "py4j"]


# Import the modules one after the other in one Python process, each as the first of the package.
IMPORT_EACH = """
import importlib, json, sys
loaded = {}
for module, names in json.loads(sys.argv[1]).items():
    importlib.import_module(module)
    loaded[module] = [name for name in names if name in sys.modules]
    for name in list(sys.modules):
        if name.partition(".")[0] in ("tableferry", "rich", *names):
            del sys.modules[name]
print(json.dumps(loaded))
"""


def test_deciding_modules_import_neither_spark_nor_rich_and_command_line_no_database() -> None:
    forbidden = {
        # The modules for --help are first, because packages that later modules import stay loaded.
        "tableferry.cli.root": [*SPARK, "sqlalchemy", "alembic", "jinja2", "pydantic", "sqlglot"],
        **{module: [*SPARK, "rich"] for module in PURE},
    }
    command = [sys.executable, "-c", IMPORT_EACH, json.dumps(forbidden)]
    asked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert asked.returncode == 0, asked.stderr
    assert json.loads(asked.stdout) == {module: [] for module in forbidden}


# Run the commands one after the other in one Python process, each without one package.
RUN_EACH = """
import contextlib, io, json, sys
results = []
for package, command in json.loads(sys.argv[1]):
    for name in list(sys.modules):
        if name.partition(".")[0] == "tableferry" or sys.modules[name] is None:
            del sys.modules[name]
    sys.modules[package] = None
    sys.argv = ["tableferry", *command]
    with contextlib.redirect_stderr(io.StringIO()) as stderr:
        try:
            from tableferry.cli import main
            main()
        except SystemExit as left:
            results.append((left.code, stderr.getvalue()))
print(json.dumps(results))
"""


def test_fleet_without_its_extra_is_reported_with_the_extra_to_install(tmp_path: Path) -> None:
    commands = {"sqlalchemy": "list", "alembic": "init", "jinja2": "communicate"}
    for package, stderr in without(
        [(package, ["fleet", word]) for package, word in commands.items()], tmp_path
    ):
        assert package in stderr
        assert "pip install 'tableferry[fleet]'" in stderr


@pytest.mark.parametrize(
    "command",
    [
        ["convert", "main.landing.*"],
        ["convert", "undo", "main.landing.events"],
        ["verify", "a", "b", "--keys", "id"],
        ["pipelines", "plan", "orders"],
        ["fleet", "preflight", "sales.*"],
    ],
    ids=" ".join,
)
def test_command_with_spark_reports_missing_pyspark(command: list[str], tmp_path: Path) -> None:
    if command[0] == "fleet":
        open_store(f"sqlite:///{tmp_path}/.tableferry/fleet.db").create()
    ((_, stderr),) = without([("pyspark", command)], tmp_path)
    first, remedy = stderr.splitlines()
    assert first.startswith("Error: [PYSPARK_MISSING]")
    assert "pip install 'tableferry[local]'" in remedy


def without(commands: list[tuple[str, list[str]]], folder: Path) -> Iterator[tuple[str, str]]:
    """Run commands that each lack a package, and yield the package with the error output."""
    command = [sys.executable, "-c", RUN_EACH, json.dumps(commands)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DATABRICKS_")}
    asked = subprocess.run(
        command, capture_output=True, text=True, cwd=folder, env={**environment, "COLUMNS": "400"}
    )
    assert (asked.returncode, asked.stderr) == (0, "")
    results = json.loads(asked.stdout)
    assert len(results) == len(commands)
    for (package, _), (status, stderr) in zip(commands, results, strict=True):
        assert status == 1
        assert "Traceback" not in stderr
        yield package, stderr
