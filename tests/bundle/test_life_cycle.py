"""Bundles from `validate` to `destroy`, with the real databricks CLI against a workspace on localhost."""

from __future__ import annotations

import re
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import Any
from zipfile import ZipFile

import pytest
import yaml
from tests.bundle.conftest import Cli, generated, logged_in_cli
from tests.workspace import FakeWorkspace

TARGETS = ["dev", "prod"]

# With artifacts_dynamic_version every plan builds a wheel whose version has the time in it.
NEW_WHEEL = re.compile(r"^resources\.jobs\..*\+\d+-py3-none-any\.whl$")


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


def drift(planned: dict[str, Any]) -> tuple[list[str], set[str]]:
    """Return what a plan would change, as ``resource: field: value``, and the kinds of its resources."""
    found = []
    for name, each in planned.items():
        changes = {key: one for key, one in each.get("changes", {}).items() if one["action"] != "skip"}
        found += [f"{name}: {key}: {one.get('new')}" for key, one in changes.items()]
        if each["action"] != "skip" and not changes:
            found.append(f"{name}: {each['action']}")
    return found, {name.split(".")[1] for name in planned}


@pytest.mark.parametrize("target", TARGETS)
def test_a_bundle_is_valid_deployed_unchanged_and_gone_again(
    cli: Cli, workspace: FakeWorkspace, target: str
) -> None:
    cli("validate", "--strict", target=target)
    assert workspace.jobs == {}

    cli("deploy", target=target)
    drifted, kinds = drift(cli.json("plan", target=target)["plan"])
    assert {"jobs", "pipelines", "schemas", "volumes"} <= kinds
    assert [each for each in drifted if not NEW_WHEEL.search(each)] == []

    summary = cli.json("summary", target=target)["resources"]
    assert {str(one["id"]) for one in summary["jobs"].values()} == {str(one) for one in workspace.jobs}
    assert {one["id"] for one in summary["pipelines"].values()} == set(workspace.pipelines)

    before = workspace.deployed()
    workspace.asked.clear()
    cli("deploy", target=target)
    if not drifted:
        # Whose the bundle's folder is, the CLI says with every deployment.
        untouched = ("GET", "HEAD", "POST /api/2.0/workspace", "PUT /api/2.0/permissions/directories")
        assert [one for one in workspace.asked if not one.startswith(untouched)] == []
        assert workspace.deployed() == before

    if target == "prod":
        before = workspace.deployed()
        assert "prevent_destroy" in cli.fails("destroy", "--auto-approve", target=target)
        assert workspace.deployed() == before
        let_go(cli.folder)
        cli("deploy", target=target)
    cli("destroy", "--auto-approve", target=target)
    assert workspace.deployed() == {"jobs": {}, "pipelines": {}, "schemas": {}, "volumes": {}}
    assert [path for path in workspace.documents if "/.bundle/" in path] == []


@pytest.mark.parametrize("target", TARGETS)
def test_a_bundle_that_only_converts_makes_nothing_but_its_job(
    program: str, workspace: FakeWorkspace, tmp_path: Path, target: str
) -> None:
    cli = logged_in_cli(program, generated(tmp_path, route="convert", compute="serverless"), workspace)
    cli("validate", "--strict", target=target)
    cli("deploy", target=target)
    assert drift(cli.json("plan", target=target)["plan"]) == ([], {"jobs"})
    assert {name: len(found) for name, found in workspace.deployed().items() if found} == {"jobs": 1}
    (job,) = workspace.jobs.values()
    default = {one["name"]: one["default"] for one in job["settings"]["parameters"]}
    assert default == {"sources": "main.landing.*", "dry_run": "true"}
    assert wheels(job) <= {f"/Workspace{path}" for path in workspace.documents}
    cli("destroy", "--auto-approve", target=target)
    assert workspace.jobs == {}


def test_what_was_changed_by_hand_is_planned_and_put_right(cli: Cli, workspace: FakeWorkspace) -> None:
    cli("deploy", target="prod")
    before = workspace.deployed()
    schema, (volume,) = next(iter(workspace.schemas.values())), workspace.volumes.values()
    (pipeline,), job = workspace.pipelines.values(), next(iter(workspace.jobs.values()))
    schema["comment"] = volume["comment"] = "somebody's own words"
    pipeline["spec"]["configuration"]["tableferry.environment"] = "another"
    job["settings"]["max_concurrent_runs"] = 5
    workspace.grants["schema", schema["full_name"]]["somebody"] = {"SELECT"}

    drifted, _ = drift(cli.json("plan", target="prod")["plan"])
    assert {each.split(".")[1] for each in drifted} == {"jobs", "pipelines", "schemas", "volumes"}
    assert [each for each in drifted if re.match(r"resources\.schemas\.\w+\.grants: ", each)]

    cli("deploy", target="prod")
    assert workspace.deployed() == before
    assert "somebody" not in [
        name for name, held in workspace.grants["schema", schema["full_name"]].items() if held
    ]


@pytest.mark.parametrize("target", TARGETS)
def test_every_file_that_is_deployed_by_name_is_in_the_workspace(
    cli: Cli, workspace: FakeWorkspace, target: str
) -> None:
    cli("deploy", target=target)
    there = {f"/Workspace{path}" for path in workspace.documents}
    folders = {str(parent) for path in there for parent in PurePosixPath(path).parents}
    (pipeline,) = workspace.pipelines.values()
    jobs = {one["settings"]["name"]: one["settings"] for one in workspace.jobs.values()}
    migrating = next(one for one in jobs.values() if any("pipeline_task" in task for task in one["tasks"]))

    for documents in (pipeline, migrating):
        (wheel,) = wheels(documents)
        assert wheel in there
        with ZipFile(BytesIO(workspace.documents[wheel.removeprefix("/Workspace")])) as opened:
            (points,) = [name for name in opened.namelist() if name.endswith(".dist-info/entry_points.txt")]
            assert "tableferry = " in opened.read(points).decode()

    named = {one for one in strings([pipeline, *jobs.values()]) if one.startswith("/Workspace/")}
    sources = {one.removesuffix("/**") for one in named if not one.endswith("/metadata.json")}
    assert sources - there - folders == set()
    assert {f"{pipeline['spec']['root_path']}/migrate.py"} <= there


def let_go(folder: Path) -> None:
    """Take out of prod what keeps its tables from being dropped."""
    path = folder / "databricks.yml"
    written = yaml.safe_load(path.read_text())
    del written["targets"]["prod"]["resources"]
    path.write_text(yaml.safe_dump(written))
