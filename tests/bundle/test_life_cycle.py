"""Bundles from `validate` to `destroy`, with the real databricks CLI against a workspace on localhost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.bundle.conftest import Cli
from tests.workspace import FakeWorkspace

TARGETS = ["dev", "prod"]


def strings(value: Any) -> Iterator[str]:
    """Walk through all strings of a document."""
    match value:
        case str():
            yield value
        case dict():
            for each in value.values():
                yield from strings(each)
        case list():
            for each in value:
                yield from strings(each)


def wheels(documents: Any) -> set[str]:
    """Return the wheels that deployed documents name."""
    return {one for one in strings(documents) if one.endswith(".whl")}


@pytest.mark.parametrize("target", TARGETS)
def test_a_bundle_is_valid_deployed_unchanged_and_gone_again(
    cli: Cli, workspace: FakeWorkspace, target: str
) -> None:
    cli("validate", "--strict", target=target)
    assert workspace.jobs == {}

    cli("deploy", target=target)
    planned = cli.json("plan", target=target)["plan"]
    assert {one["action"] for one in planned.values()} == {"skip"}
    kinds = {name.split(".")[1] for name in planned}
    assert {"jobs", "pipelines", "schemas", "volumes"} <= kinds

    summary = cli.json("summary", target=target)["resources"]
    assert {str(one["id"]) for one in summary["jobs"].values()} == {str(one) for one in workspace.jobs}
    assert {one["id"] for one in summary["pipelines"].values()} == set(workspace.pipelines)

    before = dict(workspace.jobs), dict(workspace.pipelines), dict(workspace.schemas), dict(workspace.grants)
    workspace.asked.clear()
    cli("deploy", target=target)
    changed = [
        one for one in workspace.asked if not one.startswith(("GET", "HEAD", "POST /api/2.0/workspace"))
    ]
    assert changed == []
    assert before == (workspace.jobs, workspace.pipelines, workspace.schemas, workspace.grants)

    if target == "prod":
        assert "prevent_destroy" in cli.fails("destroy", "--auto-approve", target=target)
        assert before == (workspace.jobs, workspace.pipelines, workspace.schemas, workspace.grants)
        let_go(cli.folder)
        cli("deploy", target=target)
    cli("destroy", "--auto-approve", target=target)
    left = workspace.jobs, workspace.pipelines, workspace.schemas, workspace.volumes
    assert left == ({}, {}, {}, {})
    assert [path for path in workspace.documents if "/.bundle/" in path] == []


def let_go(folder: Path) -> None:
    """Take out of prod what keeps its tables from being dropped."""
    path = folder / "databricks.yml"
    written = yaml.safe_load(path.read_text())
    del written["targets"]["prod"]["resources"]
    path.write_text(yaml.safe_dump(written))
