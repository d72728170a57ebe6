"""`tableferry bundle check` with the databricks CLI itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.bundle.conftest import logged_in_cli
from tests.unit.bundle_files import JOB, PIPELINE, BundleFiles
from tests.workspace import FakeWorkspace

from tableferry import bundle


def test_what_the_cli_resolves_is_checked(
    program: str, tmp_path: Path, workspace: FakeWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = BundleFiles.copy_to(tmp_path / "shop")
    for name, value in logged_in_cli(program, shop.root, workspace).environ.items():
        monkeypatch.setenv(name, value)
    assert shop.findings(program) == []
    shop.replace(JOB, "../dist/*.whl", "../dists/*.whl").replace(PIPELINE, "transformations/**", "absent/**")
    examination = bundle.examine(shop.root, cli=program)
    assert examination.notes == ()
    assert [(problem.file, str(problem.rule)) for problem in examination.problems] == [
        (PIPELINE, "empty-glob"),
        (JOB, "missing-library"),
    ]
