"""The package's own wheel: what is in it, and that `tableferry new` works from it."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from scripts.render import ROOT

from tableferry import new

pytestmark = pytest.mark.usefixtures("cookiecutters_own_settings")


def files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_new_makes_the_same_bundle_from_the_installed_wheel(tmp_path: Path) -> None:
    build = ["uv", "build", "--wheel", "--quiet", "--out-dir", str(tmp_path / "dist"), str(ROOT)]
    subprocess.run([sys.executable, "-m", *build], check=True)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    installed = tmp_path / "installed"
    zipfile.ZipFile(wheel).extractall(installed)
    template = {f"template/{name}": content for name, content in files(ROOT / "template").items()}
    licence = {"LICENSE": (ROOT / "LICENSE").read_bytes()}
    package = files(ROOT / "src" / "tableferry")
    assert files(installed / "tableferry") == {**package, **template, **licence}

    program = "from tableferry.cli import main; main()"
    command = [sys.executable, "-c", program, "new", str(tmp_path / "made"), "--no-input"]
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    subprocess.run(command, cwd=tmp_path, env=environment, check=True)
    expected = new.create(tmp_path / "expected", no_input=True)
    assert files(tmp_path / "made" / "tableferry") == files(expected)
