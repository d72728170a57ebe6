"""The template, rendered by cookiecutter as its users do it."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripts.render import SHARED

from tableferry import new

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let cookiecutter see no settings of the user's, and keep nothing in the home folder."""
    config = tmp_path / "cookiecutter.yaml"
    config.write_text(f"replay_dir: {tmp_path}/replay\ncookiecutters_dir: {tmp_path}/cloned\n")
    monkeypatch.setenv("COOKIECUTTER_CONFIG", str(config))


def contents(root: Path, *names: str) -> dict[str, bytes]:
    """Read the files below these names."""
    places = [root / name for name in names] if names else [root]
    files = [path for place in places for path in (place.rglob("*") if place.is_dir() else [place])]
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in files
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_the_root_bundle_is_the_template_with_its_defaults(tmp_path: Path) -> None:
    made = contents(new.create(tmp_path / "made", no_input=True), *SHARED)
    assert contents(ROOT, *SHARED) == made, "render it anew: make render"
