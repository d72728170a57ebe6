"""The wheel builds, installs with its pinned dependencies alone, and its entry points run."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import uv

from tableferry import __version__

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "tests" / "unit" / "bundle_example"

# What a wheel task does: it finds the entry point by the package's and its own name, and calls it.
AS_A_WHEEL_TASK = """
import sys
from importlib.metadata import distribution

(entry,) = [one for one in distribution("tableferry").entry_points if one.name == "tableferry"]
sys.argv = ["tableferry", *sys.argv[1:]]
entry.load()()
print("returned")
"""


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(one) for one in command], capture_output=True, text=True, check=False, cwd=ROOT
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built as databricks.yml says."""
    folder = tmp_path_factory.mktemp("dist")
    built = run(uv.find_uv_bin(), "build", "--wheel", "--out-dir", folder)
    assert built.returncode == 0, built.stderr
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scripts of a fresh environment with the wheel in it, and nothing that it doesn't ask for."""
    folder = tmp_path_factory.mktemp("environment") / "venv"
    made = run(uv.find_uv_bin(), "venv", "--python", sys.executable, folder)
    assert made.returncode == 0, made.stderr
    python = folder / "bin" / "python"
    constraints = ROOT / "constraints.txt"
    installed = run(
        uv.find_uv_bin(), "pip", "install", "--python", python, "--constraint", constraints, wheel
    )
    assert installed.returncode == 0, installed.stderr
    return folder / "bin"


def test_the_wheel_holds_the_whole_package(wheel: Path) -> None:
    package = ROOT / "src" / "tableferry"
    files = {
        path.relative_to(package.parent).as_posix()
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert "tableferry/py.typed" in files
    with zipfile.ZipFile(wheel) as archive:
        assert files - set(archive.namelist()) == set()
    assert wheel.name == f"tableferry-{__version__}-py3-none-any.whl"


@pytest.mark.parametrize(
    ("arguments", "code", "printed"),
    [
        (["--version"], 0, __version__),
        (["--help"], 0, "pipelines"),
        (["spec", "schema"], 0, "$schema"),
        (["bundle", "check", str(EXAMPLE)], 0, "all right"),
        (["bundle", "check", str(EXAMPLE / "resources")], 1, "databricks.yml: isn't in"),
        (["spec", "chek"], 2, "No such command 'chek'"),
    ],
)
def test_the_command_line_runs(environment: Path, arguments: list[str], code: int, printed: str) -> None:
    ran = run(environment / "tableferry", *arguments)
    assert ran.returncode == code, ran.stderr
    assert printed in (ran.stderr if code == 2 else ran.stdout)


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["bundle", "check", str(EXAMPLE)]])
def test_a_wheel_task_sees_that_it_is_done(environment: Path, arguments: list[str]) -> None:
    ran = run(environment / "python", "-c", AS_A_WHEEL_TASK, *arguments)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.endswith("returned\n")


def test_a_wheel_task_sees_that_it_failed(environment: Path) -> None:
    ran = run(environment / "python", "-c", AS_A_WHEEL_TASK, "bundle", "check", EXAMPLE / "resources")
    assert ran.returncode == 1
    assert "returned" not in ran.stdout


def test_neither_spark_nor_the_shapes_are_asked_for(environment: Path) -> None:
    code = (
        "import importlib.util as u; print([n for n in ('pyspark', 'delta', 'databricks') if u.find_spec(n)])"
    )
    assert run(environment / "python", "-c", code).stdout == "[]\n"
    said = run(environment / "tableferry", "bundle", "check", EXAMPLE).stderr
    assert said.startswith("Note: the package databricks-bundles isn't installed")
