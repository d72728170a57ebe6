"""The extras that messages and docs name exist."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import get_args

from tableferry import extras

ROOT = Path(__file__).parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
    "optional-dependencies"
]
SOURCES = sorted((ROOT / "src/tableferry").rglob("*.py"))


def advice() -> Iterator[tuple[str, ...]]:
    """Return the extras of each call of `install` in the package."""
    for file in SOURCES:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "install":
                yield tuple(ast.literal_eval(argument) for argument in node.args)


def test_advised_extras_exist() -> None:
    advised = list(advice())
    assert len(advised) >= 7
    assert {extra for asked in advised for extra in asked} - EXTRAS.keys() == set()
    assert set(get_args(extras.Extra)) - EXTRAS.keys() == set()


def test_missing_packages_are_advised_only_by_extras() -> None:
    elsewhere = [
        str(file.relative_to(ROOT))
        for file in SOURCES
        if file.name != "extras.py"
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and "pip install" in str(node.value)
    ]
    assert elsewhere == []


def test_docs_name_existing_extras() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    named = re.findall(r"(?:tableferry|'\.)\[([a-z,]+)\]|\bextra `(\w+)`", text)
    assert len(named) >= 6
    extras_named = {extra for groups in named for group in groups for extra in group.split(",") if extra}
    assert extras_named - EXTRAS.keys() == set()


def test_queue_in_any_database_requires_one_extra() -> None:
    names = {re.split(r"[\[>=]", requirement)[0] for requirement in EXTRAS["fleet"]}
    assert names == {"alembic", "jinja2", "psycopg", "pymysql", "sqlalchemy"}
    assert EXTRAS.keys() & {"mysql", "postgres"} == set()


def test_install_command_names_extras_together() -> None:
    assert extras.install("fleet", "local") == "pip install 'tableferry[fleet,local]'"


def test_demo_environment_has_imported_packages() -> None:
    root = Path(__file__).parents[2]
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    [extras] = re.findall(r"^EXTRAS := (\S+)$", (root / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    listed = list(project["dependencies"])
    for extra in extras.split(","):
        listed += project["optional-dependencies"][extra]
    installed = {re.split(r"[^\w.-]", requirement)[0].lower().replace("_", "-") for requirement in listed}
    distributions = packages_distributions()
    for example in sorted((root / "examples").glob("*.py")):
        tree = ast.parse(example.read_text(encoding="utf-8"))
        imports = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        imports += [
            name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names
        ]
        for package in {module.partition(".")[0] for module in imports} - {
            "tableferry",
            *sys.stdlib_module_names,
        }:
            names = {name.lower() for name in distributions[package]}
            assert names & installed, f"{example.name} imports {package}"
