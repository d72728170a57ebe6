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
from tests.bundle.conftest import RUNS_AS, Cli
from tests.workspace import FakeWorkspace

from tableferry import new

TARGETS = ["dev", "prod"]


def strings(value: Any) -> Iterator[str]:
    """Walk through all strings of a document."""
    match value:
        case str():
            yield value
        case dict():
            for member in value.values():
                yield from strings(member)
        case list():
            for member in value:
                yield from strings(member)


def wheels(documents: Any) -> set[str]:
    """Return the wheels that deployed documents name, without the extras after their names."""
    return {requirement.partition("[")[0] for requirement in strings(documents) if ".whl" in requirement}


def drift(planned: dict[str, Any]) -> tuple[list[str], set[str]]:
    """Return what a plan would change, as ``resource: field: value``, and the kinds of its resources."""
    drifted = []
    for name, plan_entry in planned.items():
        changes = {
            key: change for key, change in plan_entry.get("changes", {}).items() if change["action"] != "skip"
        }
        drifted += [f"{name}: {key}: {change.get('new')}" for key, change in changes.items()]
        if plan_entry["action"] != "skip" and not changes:
            drifted.append(f"{name}: {plan_entry['action']}")
    return drifted, {name.split(".")[1] for name in planned}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("bundle", ["root", "classic", "pipelines", "convert", "fleet"], indirect=True)
def test_bundle_is_valid_deployed_without_drift_and_destroyed(
    cli: Cli, workspace: FakeWorkspace, request: pytest.FixtureRequest, target: str
) -> None:
    cli("validate", "--strict", target=target)
    assert workspace.jobs == {}

    cli("deploy", target=target)
    route = request.node.callspec.params["bundle"]
    kinds = {"convert": {"jobs"}, "fleet": {"jobs", "schemas"}}
    made = kinds.get(route, {"jobs", "pipelines", "schemas", "volumes"})
    assert drift(cli.json("plan", target=target)["plan"]) == ([], made)

    summary = cli.json("summary", target=target)["resources"]
    assert {str(resource["id"]) for resource in summary["jobs"].values()} == {
        str(resource) for resource in workspace.jobs
    }
    assert {resource["id"] for resource in summary.get("pipelines", {}).values()} == set(workspace.pipelines)

    before = workspace.deployed()
    workspace.asked.clear()
    cli("deploy", target=target)
    # The CLI sets the permissions of the bundle's folder in every deployment.
    untouched = ("GET", "HEAD", "POST /api/2.0/workspace", "PUT /api/2.0/permissions/directories")
    assert [resource for resource in workspace.asked if not resource.startswith(untouched)] == []
    assert workspace.deployed() == before

    if target == "prod" and route != "convert":
        before = workspace.deployed()
        assert "prevent_destroy" in cli.fails("destroy", "--auto-approve", target=target)
        assert workspace.deployed() == before
        let_go(cli.folder)
        cli("deploy", target=target)
    cli("destroy", "--auto-approve", target=target)
    assert workspace.deployed() == {"jobs": {}, "pipelines": {}, "schemas": {}, "volumes": {}}
    assert [path for path in workspace.documents if "/.bundle/" in path] == []


@pytest.mark.parametrize("bundle", ["pipelines"], indirect=True)
def test_tables_can_outlive_the_bundle(cli: Cli, workspace: FakeWorkspace) -> None:
    cli("deploy", target="prod")
    let_go(cli.folder)
    for name in ("target", "state"):
        cli("deployment", "unbind", name, target="prod")
    arguments = ("bundle", "destroy", "--auto-approve", "--target", "prod", "--var", f"run_as={RUNS_AS}")
    result = cli.run(*arguments, both=True)
    assert "are retained, as 'cascade_on_destroy' is set to false" in result
    left = {kind: len(resources) for kind, resources in workspace.deployed().items()}
    assert left == {"jobs": 0, "pipelines": 0, "schemas": 1, "volumes": 1}


def test_manual_changes_are_planned_and_undone(cli: Cli, workspace: FakeWorkspace) -> None:
    cli("deploy", target="prod")
    before = workspace.deployed()
    schema, (volume,) = next(iter(workspace.schemas.values())), workspace.volumes.values()
    (pipeline,), job = workspace.pipelines.values(), next(iter(workspace.jobs.values()))
    schema["comment"] = volume["comment"] = "a comment written by hand"
    pipeline["spec"]["configuration"]["tableferry.environment"] = "another"
    job["settings"]["max_concurrent_runs"] = 5
    workspace.grants["schema", schema["full_name"]]["another-user"] = {"SELECT"}

    drifted, _ = drift(cli.json("plan", target="prod")["plan"])
    assert {difference.split(".")[1] for difference in drifted} == {"jobs", "pipelines", "schemas", "volumes"}
    assert [
        difference for difference in drifted if re.match(r"resources\.schemas\.\w+\.grants: ", difference)
    ]

    cli("deploy", target="prod")
    assert workspace.deployed() == before
    assert "another-user" not in [
        name for name, held in workspace.grants["schema", schema["full_name"]].items() if held
    ]


@pytest.mark.parametrize("target", TARGETS)
def test_files_named_in_resources_are_in_the_workspace(
    cli: Cli, workspace: FakeWorkspace, target: str
) -> None:
    cli("deploy", target=target)
    there = {f"/Workspace{path}" for path in workspace.documents}
    folders = {str(parent) for path in there for parent in PurePosixPath(path).parents}
    (pipeline,) = workspace.pipelines.values()
    jobs = {entry["settings"]["name"]: entry["settings"] for entry in workspace.jobs.values()}

    for documents in (pipeline, *jobs.values()):
        if not wheels(documents):
            assert documents["name"].endswith("sample_data")
            continue
        (wheel,) = wheels(documents)
        assert wheel in there
        with ZipFile(BytesIO(workspace.documents[wheel.removeprefix("/Workspace")])) as opened:
            (points,) = [name for name in opened.namelist() if name.endswith(".dist-info/entry_points.txt")]
            assert "tableferry = " in opened.read(points).decode()

    named = {entry for entry in strings([pipeline, *jobs.values()]) if entry.startswith("/Workspace/")}
    sources = {entry.partition("[")[0] for entry in named if not entry.endswith("/metadata.json")}
    assert sources - there - folders == set()
    uploaded = {entry.partition("/files/")[2] for entry in there if "/files/" in entry}
    notes = {"libs/.gitignore", "libs/README.md"}
    assert {entry for entry in uploaded if not entry.startswith("src/")} - notes == {
        f"libs/{new.wheel_name()}"
    }
    assert len(uploaded) < 20
    assert not [entry for entry in uploaded if entry.startswith("src/tableferry/")]


def let_go(folder: Path) -> None:
    """Remove the settings of prod that prevent the destruction of schemas, volume and pipeline."""
    path = folder / "databricks.yml"
    written = yaml.safe_load(path.read_text())
    for resources in written["targets"]["prod"]["resources"].values():
        for resource in resources.values():
            del resource["lifecycle"]
    path.write_text(yaml.safe_dump(written))
