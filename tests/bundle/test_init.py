"""The template as `databricks bundle init` takes it, with the real databricks CLI."""

from __future__ import annotations

import json
from pathlib import Path

from tests.bundle.conftest import ANSWERS, ROOT, generated, logged_in_cli
from tests.workspace import FakeWorkspace


def contents(folder: Path) -> dict[str, bytes]:
    """Return all files of a bundle but what the CLI remembers of itself."""
    files = {path.relative_to(folder): path for path in folder.rglob("*") if path.is_file()}
    return {str(name): path.read_bytes() for name, path in files.items() if name.parts[0] != ".databricks"}


def test_native_template_creates_the_same_bundle_as_cookiecutter(
    program: str, workspace: FakeWorkspace, tmp_path: Path
) -> None:
    answers = {"package": "index", "package_source": "workspace", **ANSWERS}
    expected = contents(generated(tmp_path, package="index", package_source="workspace"))
    folder = tmp_path / "native"
    folder.mkdir()
    (folder / "answers.json").write_text(json.dumps(answers))
    cli = logged_in_cli(program, folder, workspace)
    cli.run("bundle", "init", str(ROOT / "native"), "--config-file", "answers.json", "--output-dir", "made")
    made = contents(folder / "made" / "shop_move")
    assert sorted(made) == sorted(expected)
    # Each bundle has a unique id.
    assert [name for name in expected if made[name] != expected[name]] == ["databricks.yml"]
    lines = [made["databricks.yml"].splitlines(), expected["databricks.yml"].splitlines()]
    assert [line for line, other in zip(*lines, strict=True) if line != other and b"uuid: " not in line] == []
