"""The workspace test of a bundle from the template passes through databricks-connect."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests import soak
from tests.connect.conftest import SERVER_PYTHON

ROOT = Path(__file__).parents[2]


# The fixtures isolate the test from the developer's workspace and cookiecutter's settings.
@pytest.mark.usefixtures("spark", "cookiecutters_own_settings")
@soak.slow
def test_workspace_test_of_generated_bundle_passes(server: str, tmp_path: Path) -> None:
    # `make setup` installs cookiecutter.
    cookiecutter = Path(os.environ[SERVER_PYTHON]).with_name("cookiecutter")
    subprocess.run(
        [
            cookiecutter,
            ROOT,
            "--directory",
            "template",
            "--no-input",
            "--output-dir",
            tmp_path,
            "package=index",
        ],
        check=True,
    )
    folder = tmp_path / "table_migration"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-m", "workspace", "tests/test_migration.py"],
        cwd=folder,
        env={**os.environ, "SPARK_REMOTE": server},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" in done.stdout
    assert "skipped" not in done.stdout
