"""A command imports only the modules that it runs, so that it starts fast."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main

from tableferry.cli import app
from tableferry.cli.groups import LazyGroup

ROOT = Path(__file__).parents[2]

# Run a command as the entry point does, and print the modules that it imported.
RUN = """
import contextlib, io, json, sys
before = set(sys.modules)
from tableferry.cli import main
sys.argv = ["tableferry", *json.loads(sys.argv[1])]
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    try:
        main()
    except SystemExit:
        pass
print(json.dumps(sorted(set(sys.modules) - before)))
"""

# No command needs one of these to start.
HEAVY = {
    "alembic", "cookiecutter", "databricks", "deltalake", "jinja2", "jsonschema", "obstore", "pyarrow",
    "pyspark", "sqlalchemy", "sqlglot",
}  # fmt: skip

EVERY_COMMAND = {"command", "groups", "logs", "root"}
FLEET_OPTIONS = {"fleet", "fleet.options", "options", "spark"}


def imported(*arguments: str, **environment: str) -> set[str]:
    """The modules that a command imports."""
    names = ("FORCE_COLOR", "TTY_COMPATIBLE", "TABLEFERRY_LOG_FORMAT")
    environ = {name: value for name, value in os.environ.items() if name not in names}
    ran = subprocess.run(
        [sys.executable, "-c", RUN, json.dumps(arguments)],
        cwd=ROOT,
        env=environ | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return set(json.loads(ran.stdout))


def packages(modules: set[str]) -> set[str]:
    return {module.partition(".")[0] for module in modules}


def below(package: str, modules: set[str]) -> set[str]:
    """The names directly below a package."""
    inside = (module for module in modules if module.startswith(f"{package}."))
    return {module.removeprefix(f"{package}.").partition(".")[0] for module in inside}


def test_version_imports_the_package_alone() -> None:
    modules = imported("--version")
    assert {module for module in modules if module.startswith("tableferry")} == {
        "tableferry",
        "tableferry.cli",
    }
    assert packages(modules) - set(sys.stdlib_module_names) == {"tableferry"}
    assert len(modules) <= 20


def test_help_imports_no_group_and_neither_pydantic_nor_a_parser() -> None:
    modules = imported("--help")
    assert below("tableferry.cli", modules) == EVERY_COMMAND
    assert not packages(modules) & (HEAVY | {"pydantic", "rich", "yaml"})
    routes = {"convert", "doctor", "fleet", "new", "pipelines", "verify"}
    assert not below("tableferry", modules) & routes
    assert "tableferry.spark.session" not in modules
    # 112 with Python 3.11 and Typer 0.28; room for other versions of both.
    assert len(modules) <= 150


def test_spec_check_imports_no_other_group_and_neither_sql_nor_a_terminal() -> None:
    modules = imported("spec", "check", "examples/flights")
    assert "tableferry.pipelines.specs.project" in modules
    assert below("tableferry.cli", modules) == EVERY_COMMAND | {"options", "spec"}
    others = {"convert", "fleet", "formats", "new", "report", "verify"}
    assert not below("tableferry", modules) & others
    assert below("tableferry.pipelines", modules) == {"model", "specs"}
    assert below("tableferry.pipelines.model", modules) == {"flows", "sql"}
    assert not packages(modules) & (HEAVY | {"rich"})
    # 280 with Python 3.11, Typer 0.28 and pydantic 2.14.
    assert len(modules) <= 350


def test_spec_check_of_a_project_with_sql_imports_its_parser() -> None:
    assert "sqlglot" in packages(imported("spec", "check", "tests/unit/spec_examples/flow_main.json"))


@pytest.mark.parametrize(
    ("command", "own"),
    [
        ("verify", {"options", "spark", "verify"}),
        ("doctor", {"doctor", "options"}),
        ("new", {"new", "options"}),
        ("pipelines", {"options", "pipelines", "spark"}),
        ("convert", {"convert", "options", "spark"}),
        ("spec", {"options", "spec"}),
        ("fleet init", FLEET_OPTIONS | {"fleet.queue"}),
        ("fleet list", FLEET_OPTIONS | {"fleet.jobs"}),
        ("fleet preflight", FLEET_OPTIONS | {"fleet.preflight"}),
        ("fleet status", FLEET_OPTIONS | {"fleet.status"}),
        ("fleet migrate", FLEET_OPTIONS | {"fleet.modes", "fleet.reports"}),
        ("fleet close", FLEET_OPTIONS | {"fleet.close", "fleet.modes", "fleet.reports"}),
        ("fleet readers", FLEET_OPTIONS | {"fleet.readers"}),
        ("fleet wave", FLEET_OPTIONS | {"fleet.waves"}),
    ],
)
def test_help_of_a_command_imports_its_own_module(command: str, own: set[str]) -> None:
    modules = imported(*command.split(), "--help")
    of_commands = {name for name in modules if name.startswith("tableferry.cli.")}
    assert of_commands == {f"tableferry.cli.{name}" for name in EVERY_COMMAND | own}
    assert not packages(modules) & HEAVY


def test_terminal_imports_rich_with_the_first_message(tmp_path: Path) -> None:
    assert "rich" not in packages(imported("spec", "check", "examples/flights", FORCE_COLOR="1"))
    assert "rich.progress" in imported("spec", "check", str(tmp_path / "missing"), FORCE_COLOR="1")
    assert "rich" not in packages(imported("spec", "check", str(tmp_path / "missing")))


def test_lists_show_the_first_line_of_each_command() -> None:
    def check(group: LazyGroup) -> None:
        for name, entry in group.existing_entries.items():
            command = group.commands[name]
            assert command.name == name
            assert entry.help in ("", command.help)
            assert hasattr(command, "commands") == entry.is_group
            if isinstance(command, LazyGroup):
                check(command)

    root = typer.main.get_command(app)
    assert isinstance(root, LazyGroup)
    assert all(entry.help for entry in root.existing_entries.values())
    check(root)
