"""The commands in the README of a generated bundle work in a separate environment."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import distribution
from itertools import takewhile
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
import uv
import yaml
from scripts.render import ROOT
from tests import soak

from tableferry import new

CONSTRAINTS = ROOT / "constraints.txt"

pytestmark = pytest.mark.usefixtures("cookiecutters_own_settings")


class Bundle:
    """A generated bundle, and the commands of its README."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, *command: str | Path) -> subprocess.CompletedProcess[str]:
        """Run a command in the bundle's folder."""
        environment = {
            name: value
            for name, value in os.environ.items()
            # These variables are for the environment of this repository.
            if name not in ("PYTHONPATH", "VIRTUAL_ENV", "MAKEFLAGS", "MAKELEVEL", "MFLAGS", "SPARK_HOME")
        }
        # Use the uv of the development environment.
        environment["PATH"] = os.pathsep.join([str(Path(uv.find_uv_bin()).parent), environment["PATH"]])
        environment["UV_PYTHON"] = sys.executable
        # Local Spark starts as in tests/spark.
        environment["JDK_JAVA_OPTIONS"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
        return subprocess.run(
            [str(word) for word in command],
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def call(self, *command: str | Path) -> str:
        """Run a command that must succeed, and return its output."""
        done = self.run(*command)
        assert done.returncode == 0, done.stdout
        return done.stdout


def made(folder: Path, **answers: str) -> Iterator[Bundle]:
    """Yield a bundle whose environment has the versions that this repository pins."""
    given = {"project_name": "tea_shop", "route": "all", **answers}
    bundle = Bundle(new.create(folder, given, no_input=True))
    project = bundle.folder / "pyproject.toml"
    pinned = [
        line for line in CONSTRAINTS.read_text("utf-8").splitlines() if line and not line.startswith("#")
    ]
    settings = f"[tool.uv]\nconstraint-dependencies = {json.dumps(pinned)}\n"
    project.write_text(project.read_text("utf-8").replace("[tool.uv]\n", settings), "utf-8")
    yield bundle
    shutil.rmtree(bundle.folder / ".venv", ignore_errors=True)


@pytest.fixture(scope="module", autouse=True)
def pyspark_as_a_wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Pack the installed pyspark as a wheel: uv needs half a minute to build it from its sources."""
    wheels = tmp_path_factory.mktemp("wheels")
    installed = distribution("pyspark")
    packed = [file for file in installed.files or () if file.parts[0] != ".." and file.suffix != ".pyc"]
    with ZipFile(wheels / f"pyspark-{installed.version}-py3-none-any.whl", "w") as wheel:
        for file in packed:
            if file.name != "RECORD":
                wheel.write(file.locate(), file)
            else:
                wheel.writestr(str(file), "".join(f"{name},,\n" for name in packed))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UV_FIND_LINKS", str(wheels))
        yield
    # The wheel has half a gigabyte.
    shutil.rmtree(wheels)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bundle]:
    yield from made(tmp_path_factory.mktemp("generated"))


@pytest.fixture
def converting_bundle(tmp_path: Path) -> Iterator[Bundle]:
    yield from made(tmp_path, route="convert")


def test_tests_of_bundle_pass(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    if not soak.SOAKING:
        # Local Spark takes a minute; tests/connect covers that test, and tests/spark/test_job.py the example.
        monkeypatch.setenv("PYTEST_ADDOPTS", "--deselect tests/test_migration.py")
    output = bundle.call("make", "test")
    assert " passed" in output
    assert " skipped" not in output


def test_lint_of_bundle_passes(bundle: Bundle) -> None:
    assert "All checks passed!" in bundle.call("make", "lint")


def requirement(library: str | dict[str, Any]) -> str:
    """Return the requirement of a serverless dependency or of a cluster's library."""
    match library:
        case str():
            return library
        case {"whl": str(path)}:
            return path
        case {"pypi": {"package": str(package)}}:
            return package
    raise ValueError(library)


@soak.slow
def test_jobs_install_their_dependencies(bundle: Bundle, tmp_path: Path) -> None:
    """The dependencies of each job include the command of its tasks and the drivers of all queues."""
    variables = yaml.safe_load((bundle.folder / "databricks.yml").read_text("utf-8"))["variables"]
    known = {
        "workspace.file_path": str(bundle.folder),
        "var.tableferry_version": variables["tableferry_version"]["default"],
    }
    scripts: dict[str, Path] = {}
    jobs = {
        name: job
        for file in sorted((bundle.folder / "resources").glob("*.job.yml"))
        for name, job in yaml.safe_load(file.read_text("utf-8")).get("resources", {}).get("jobs", {}).items()
    }
    for name, job in jobs.items():
        for task in (task.get("for_each_task", {}).get("task", task) for task in job["tasks"]):
            if not (wheel := task.get("python_wheel_task")):
                continue
            # A task on a cluster names its libraries, a task on serverless compute those of its environment.
            named = task.get("libraries") or job["environments"][0]["spec"]["dependencies"]
            variable = named.removeprefix("${var.").removesuffix("}")
            if variable not in scripts:
                scripts[variable] = tmp_path / variable / "bin"
                dependencies = [
                    re.sub(r"\$\{([^}]+)\}", lambda reference: known[reference[1]], line)
                    for line in map(requirement, variables[variable]["default"])
                ]
                bundle.call("uv", "venv", "--quiet", tmp_path / variable)
                python = ("--python", tmp_path / variable, "--constraint", CONSTRAINTS)
                bundle.call("uv", "pip", "install", "--quiet", *python, *dependencies)
                bundle.call(scripts[variable] / "python", "-c", "import databricks.sdk")
            words = takewhile(lambda word: not word.startswith(("-", "{{")), wheel["parameters"])
            command = list(words)
            output = bundle.call(scripts[variable] / wheel["entry_point"], *command, "--help")
            assert f"tableferry {' '.join(command)} " in output
            assert (variable == "fleet_libraries") == (
                name.startswith("fleet_") or task["task_key"] == "fleet"
            )
    assert list(scripts) == ["dependencies", "fleet_libraries"]
    assert len(jobs) == 11
    for scheme, driver in (("postgresql", "psycopg"), ("mysql", "pymysql")):
        store = f"{scheme}://user@127.0.0.1:9/fleet"
        refused = bundle.run(scripts["fleet_libraries"] / "tableferry", "fleet", "list", "--store", store)
        assert refused.returncode == 1
        # The driver is installed, and reports that the connection is refused.
        assert "refused" in refused.stdout, (driver, refused.stdout)


@soak.slow
def test_command_for_workspace_test_in_readme_finds_the_test(bundle: Bundle) -> None:
    """With a client for any version of Python, the README's command finds the test; nothing connects."""
    readme = (bundle.folder / "README.md").read_text("utf-8")
    (line,) = re.findall(r"^TEST_CATALOG=.*$", readme, re.MULTILINE)
    client = line.replace("--python 3.12", f"--python {sys.base_prefix}/bin/python3").replace(
        "'databricks-connect==16.4.*'", "'pyspark-client==4.1.*'"
    )
    assert client.count("pyspark-client") == 1
    output = bundle.call("sh", "-c", f"{client} --collect-only -q")
    assert "tests/test_migration.py::test_status_reads_the_tables_of_the_workspace\n" in output


@soak.slow
def test_upgrade_installs_another_version_with_one_command(bundle: Bundle, tmp_path: Path) -> None:
    copy = Bundle(
        shutil.copytree(bundle.folder, tmp_path / "tea_shop", ignore=shutil.ignore_patterns(".venv"))
    )
    clone = tmp_path / "tableferry"
    shutil.copytree(ROOT / "src", clone / "src")
    shutil.copytree(ROOT / "template", clone / "template")
    for name in ("LICENSE", "README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, clone)
    (clone / "src/tableferry/__init__.py").write_text('__version__ = "9.9.9"\n')
    bundle.call("uv", "build", "--quiet", "--wheel", "--out-dir", tmp_path, clone)
    output = copy.call("make", "upgrade", f"WHEEL={tmp_path}/tableferry-9.9.9-py3-none-any.whl")
    assert output.endswith("Tableferry is 9.9.9 now: make test, and deploy.\n")
    wheels = [path.name for path in (copy.folder / "libs").glob("*.whl")]
    assert wheels == ["tableferry-9.9.9-py3-none-any.whl"]
    assert copy.call("uv", "run", "tableferry", "--version") == "9.9.9\n"
    versions = ("uv", "run", "pytest", "-q", "tests/test_bundle.py")
    assert "1 passed" in copy.call(*versions, "-k", "test_versions_of_tableferry_are_the_same")
    assert copy.run("make", "upgrade", "WHEEL=nothing.whl").returncode != 0


@soak.only  # tests/unit/test_template.py renders it; a separate environment takes twenty seconds.
def test_bundle_that_only_converts_needs_no_spark(converting_bundle: Bundle) -> None:
    output = converting_bundle.call("make", "test")
    assert " passed" in output
    assert " skipped" not in output
    assert "spark" not in converting_bundle.call(
        *("uv", "pip", "list", "--python", ".venv/bin/python", "--format", "freeze")
    )
    assert "All checks passed!" in converting_bundle.call("make", "lint")
