"""The wheel: its files; `tableferry new` and the entry points work with its dependencies only."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import uv
from scripts.render import FIXED, REQUIRED, made_from_template

from tableferry import __version__

ROOT = Path(__file__).parents[2]
MAKE = f"new.create(Path(sys.argv[1]), {REQUIRED!r}, no_input=True, computed={dict(FIXED)!r})"
EXAMPLE = ROOT / "examples" / "flights"

# Do the same as a wheel task: find the entry point by the names of package and entry point, and call it.
# One Python process does so for one command line after the other.
AS_WHEEL_TASKS = """
import json, sys
from contextlib import redirect_stderr, redirect_stdout
from importlib.metadata import distribution
from io import StringIO

results = []
for arguments in json.loads(sys.argv[1]):
    (entry,) = [one for one in distribution("tableferry").entry_points if one.name == "tableferry"]
    sys.argv = ["tableferry", *arguments]
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        try:
            entry.load()()
            status = "returned"
        except SystemExit as left:
            status = left.code
    results.append([status, out.getvalue(), err.getvalue()])
print(json.dumps(results))
"""


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, check=False, cwd=ROOT
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built with the command of databricks.yml."""
    folder = tmp_path_factory.mktemp("dist")
    built = run(uv.find_uv_bin(), "build", "--wheel", "--out-dir", folder)
    assert built.returncode == 0, built.stderr
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scripts of a new environment with only the wheel and its dependencies."""
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


@pytest.fixture(scope="module")
def unpacked(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel's files."""
    folder = tmp_path_factory.mktemp("unpacked")
    zipfile.ZipFile(wheel).extractall(folder)
    return folder


def files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_wheel_contains_package_template_and_licence(wheel: Path, unpacked: Path) -> None:
    package = files(ROOT / "src" / "tableferry")
    assert "py.typed" in package
    template = {f"template/{name}": content for name, content in files(ROOT / "template").items()}
    licence = {"LICENSE": (ROOT / "LICENSE").read_bytes()}
    assert files(unpacked / "tableferry") == {**package, **template, **licence}
    assert wheel.name == f"tableferry-{__version__}-py3-none-any.whl"


def packed(wheel: Path) -> dict[str, bytes]:
    """Read the files in a wheel, its RECORD without its order."""
    with zipfile.ZipFile(wheel) as opened:
        contents = {name: opened.read(name) for name in opened.namelist()}
    (record,) = (name for name in contents if name.endswith("/RECORD"))
    return {**contents, record: b"\n".join(sorted(contents[record].split()))}


@pytest.mark.usefixtures("cookiecutters_own_settings")
def test_new_creates_the_same_bundle_with_the_installed_wheel(
    wheel: Path, unpacked: Path, tmp_path: Path
) -> None:
    code = f"import sys; from tableferry import new; from pathlib import Path; {MAKE}"
    command = [sys.executable, "-c", code, str(tmp_path / "made")]
    subprocess.run(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(unpacked)}, check=True)
    made, expected = tmp_path / "made" / "table_migration", made_from_template(tmp_path / "expected", {})
    libs = f"libs/{wheel.name}"
    assert {**files(made), libs: b""} == files(expected)
    # The bundle contains a wheel of the installed package.
    assert packed(made / libs) == packed(wheel)


@pytest.mark.parametrize(
    ("arguments", "code", "printed"),
    [
        (["--version"], 0, __version__),
        (["spec", "check", str(EXAMPLE)], 0, "all right"),
    ],
)
def test_command_line_runs(environment: Path, arguments: list[str], code: int, printed: str) -> None:
    ran = run(environment / "tableferry", *arguments)
    assert ran.returncode == code, ran.stderr
    assert printed in ran.stdout


def test_wheel_task_sees_success_and_failure(environment: Path) -> None:
    expected: list[tuple[list[str], str | int, str]] = [
        (["--version"], "returned", __version__),
        (["--help"], "returned", "pipelines"),
        (["spec", "schema"], "returned", "$schema"),
        (["spec", "check", str(EXAMPLE)], "returned", "all right"),
        (["spec", "check", str(EXAMPLE / "missing")], 1, "Error: "),
        (["spec", "chek"], 2, "No such command 'chek'"),
    ]
    commands = json.dumps([arguments for arguments, _, _ in expected])
    ran = run(environment / "python", "-c", AS_WHEEL_TASKS, commands)
    assert ran.returncode == 0, ran.stderr
    for (arguments, exit_code, printed), (status, out, err) in zip(
        expected, json.loads(ran.stdout), strict=True
    ):
        assert status == exit_code, (arguments, err)
        assert printed in (out if status == "returned" else err), arguments


def test_wheel_requires_neither_spark_nor_the_client_of_workspaces(environment: Path) -> None:
    code = (
        "import importlib.util as u; print([n for n in ('pyspark', 'delta', 'databricks') if u.find_spec(n)])"
    )
    assert run(environment / "python", "-c", code).stdout == "[]\n"
