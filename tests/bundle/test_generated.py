"""A generated bundle does in an environment of its own what its README says."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from scripts.render import ROOT
from tests import soak

from tableferry import new

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("cookiecutters_own_settings")]


class Bundle:
    """A generated bundle, and the commands of its README."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def call(self, *command: str) -> str:
        """Run a command in the bundle's folder and return what it says."""
        environment = {
            name: value
            for name, value in os.environ.items()
            # What these say is meant for this project's own environment.
            if name not in ("PYTHONPATH", "VIRTUAL_ENV", "MAKEFLAGS", "MAKELEVEL", "MFLAGS", "SPARK_HOME")
        }
        environment["PIP_CONSTRAINT"] = str(ROOT / "constraints.txt")
        # Its own session begins as that of tests/spark does.
        environment["JDK_JAVA_OPTIONS"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
        # That switches it off: pip would compile thousands of modules of which a few are imported here.
        environment["PIP_NO_COMPILE"] = "no"
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout


def made(folder: Path, **answers: str) -> Iterator[Bundle]:
    """A bundle, in whose environment its first `make` has put what it needs."""
    bundle = Bundle(new.create(folder, {"project_name": "Tea shop", **answers}, no_input=True))
    bundle.call("make", "setup", f"PYTHON={sys.executable}")
    yield bundle
    # The environment has half a gigabyte.
    bundle.call("rm", "-rf", ".venv")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bundle]:
    yield from made(tmp_path_factory.mktemp("generated"), spec_format="yaml")


@pytest.fixture
def converting_bundle(tmp_path: Path) -> Iterator[Bundle]:
    yield from made(tmp_path, route="convert")


def test_its_tests_pass(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    if not soak.SOAKING:
        # Its own Spark takes a minute: tests/connect has that test, and tests/spark/test_job.py the example.
        monkeypatch.setenv("PYTEST_ADDOPTS", "--deselect tests/test_migration.py")
    said = bundle.call("make", "test")
    assert " passed" in said
    assert " skipped" not in said


def test_its_style_and_its_specs_are_right(bundle: Bundle) -> None:
    assert "All checks passed!" in bundle.call("make", "lint")


def test_its_wheel_installs_and_runs(bundle: Bundle, tmp_path: Path) -> None:
    bundle.call("make", "build")
    (wheel,) = (bundle.folder / "dist").glob("*.whl")
    assert wheel.name == "tea_shop-0.1.0-py3-none-any.whl"
    kept = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    package = bundle.folder / "src" / "tableferry"
    expected = {path.relative_to(package.parent).as_posix() for path in package.rglob("*") if path.is_file()}
    assert kept == {name for name in expected if "__pycache__" not in name}
    uv, venv = f"{bundle.folder}/.venv/bin/uv", str(tmp_path / "venv")
    bundle.call(uv, "venv", "-q", "--python", sys.executable, venv)
    constraints = ("--constraint", str(ROOT / "constraints.txt"))
    bundle.call(uv, "pip", "install", "-q", "--python", f"{venv}/bin/python", *constraints, str(wheel))
    said = bundle.call(f"{venv}/bin/tableferry", "spec", "check", "src/orders", "--environment", "dev")
    assert said == "src/orders: 2 data flows, 2 with a migration: all right\n"
    # So a wheel task finds what it runs.
    task = (
        "import importlib.metadata as m; print(m.distribution('tea_shop').entry_points['tableferry'].value)"
    )
    assert bundle.call(f"{venv}/bin/python", "-c", task) == "tableferry.cli:main\n"


@soak.only  # tests/unit/test_template.py renders it; an environment of its own takes twenty seconds.
def test_a_bundle_that_only_converts_needs_no_spark(converting_bundle: Bundle) -> None:
    packages = converting_bundle.call(".venv/bin/python", "-m", "pip", "list", "--format", "freeze")
    assert "spark" not in packages
    assert "All checks passed!" in converting_bundle.call("make", "lint")
    said = converting_bundle.call("make", "test")
    assert " passed" in said
    assert " skipped" not in said
