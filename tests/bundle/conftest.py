"""The databricks CLI, and the bundles that it deploys in tests."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.workspace import FakeWorkspace

ROOT = Path(__file__).parents[2]

ANSWERS = {"project_name": "shop_move", "route": "all", "compute": "classic", "ci": "none"}

# The service principal of prod.
RUNS_AS = "6d3f6a2e-3f0c-4c8e-9f3e-0b6a4a3f2f11"


@dataclass(frozen=True)
class Cli:
    """The databricks CLI in a folder, logged in to a workspace only.

    In the target prod, a service principal runs the bundle.

    Attributes:
        program: The path of the program.
        folder: Its working directory.
        environ: Its environment variables.
    """

    program: str
    folder: Path
    environ: dict[str, str]

    def __call__(self, *args: str, target: str) -> str:
        """Run ``databricks bundle …``, and return its output."""
        return self.run("bundle", *args, *self._of(target))

    def fails(self, *args: str, target: str) -> str:
        """Run ``databricks bundle …``, which must fail, and return its output and errors."""
        return self.run("bundle", *args, *self._of(target), status=1)

    def _of(self, target: str) -> tuple[str, ...]:
        return ("--target", target, *(("--var", f"run_as={RUNS_AS}") if target == "prod" else ()))

    def run(self, *args: str, status: int = 0, both: bool = False) -> str:
        """Run ``databricks …``, which must end with this exit code, and return its output.

        Args:
            args: The words of the command.
            status: The exit code.
            both: Include standard error, which is always included for an exit code other than 0.
        """
        done = subprocess.run(
            [self.program, *args],
            cwd=self.folder,
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if status or both else None,
            text=True,
            check=False,
        )
        assert done.returncode == status, done.stdout
        return done.stdout

    def json(self, *args: str, target: str) -> Any:
        """Run ``databricks bundle … --output json``, and return its parsed output."""
        return json.loads(self(*args, "--output", "json", target=target))


@pytest.fixture(scope="session")
def program() -> str:
    """The databricks CLI."""
    named = os.environ.get("TABLEFERRY_DATABRICKS_CLI")
    path = named or shutil.which("databricks")
    if not path:
        pytest.skip(
            "no databricks CLI on PATH or in TABLEFERRY_DATABRICKS_CLI; no package registry has it, so CI "
            "runs without"
        )
    return path


@pytest.fixture
def cli(program: str, bundle: Path, workspace: FakeWorkspace) -> Cli:
    """The CLI in the bundle under test."""
    return logged_in_cli(program, bundle, workspace)


def logged_in_cli(program: str, folder: Path, workspace: FakeWorkspace) -> Cli:
    """Return the CLI, logged in to a workspace, with a separate home folder beside its working directory."""
    home = folder.parent / "home"
    home.mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DATABRICKS_")}
    environ = {
        **kept,
        # `uv build` uses the uv of the development environment.
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), kept["PATH"]]),
        "HOME": str(home),
        "DATABRICKS_HOST": workspace.url,
        "DATABRICKS_TOKEN": workspace.token,
        "DATABRICKS_CONFIG_FILE": os.devnull,
        "DATABRICKS_BUNDLE_ENGINE": "direct",
        "DATABRICKS_CLI_DISABLE_TELEMETRY": "1",
        "DATABRICKS_CLI_DISABLE_UPDATE_CHECK": "1",
        "DATABRICKS_CACHE_ENABLED": "false",
    }
    return Cli(program, folder, environ)


def repository(folder: Path) -> Path:
    """Copy the tracked files of this repository, which is a bundle, too."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


def generated(folder: Path, **others: str) -> Path:
    """Create a bundle from the template as users do, with these answers."""
    config = folder / "cookiecutter.yaml"
    config.write_text(f"replay_dir: {folder}/replay\n")
    options = ["--no-input", "--config-file", str(config), "--output-dir", str(folder)]
    answers = [f"{name}={answer}" for name, answer in {**ANSWERS, **others}.items()]
    asked = [*options, "--directory", "template", str(ROOT), *answers]
    subprocess.run([sys.executable, "-m", "cookiecutter", *asked], check=True)
    return folder / "shop_move"


@pytest.fixture(params=["root", "classic"])
def bundle(request: pytest.FixtureRequest, program: str, tmp_path: Path) -> Path:
    """The folder of a bundle: this repository, or one created from the template."""
    others = {
        "classic": {},
        "pipelines": {"route": "pipelines", "compute": "serverless", "package": "vendored"},
        "convert": {
            "route": "convert",
            "compute": "serverless",
            "package": "index",
            "package_source": "workspace",
        },
        "fleet": {
            "route": "fleet",
            "cloud": "azure",
            "package": "git",
            "package_source": "https://git.example.com/tableferry",
        },
    }
    if request.param == "root":
        return repository(tmp_path / "root")
    return generated(tmp_path, **others[request.param])
