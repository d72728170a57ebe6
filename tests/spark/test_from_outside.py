"""A laptop plans, inspects and finishes a migration whose state is in a workspace's volume."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests import conditions, soak
from tests.conditions import raises
from tests.spark.projects import Project
from tests.workspace import FakeWorkspace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def project(tmp_path: Path, schema: str, spark: SparkSession) -> Project:
    """A project with one complete migration."""
    project = Project(tmp_path / "shop", schema, spark)
    project.create("src", "id int", (1,))
    project.create("rows_legacy", "id int", (1,))
    project.standard("rows", "src", migration={})
    project.run()
    project.insert("src", (2,))
    project.run()
    assert project.phases() == {"rows": "complete"}
    return project


def move_state_to_volume(project: Project, workspace: FakeWorkspace) -> str:
    """Copy a project's state into a volume, and configure the project to use it."""
    root = workspace.make_volume("main", "bronze", "state")
    for path in project.state.rglob("*"):
        path_in_volume = f"{root}/{path.relative_to(project.state)}"
        if path.is_dir():
            workspace.folders.add(path_in_volume)
        else:
            workspace.files[path_in_volume] = path.read_bytes()
    project.write("pipeline_configs/global.json", {"table_migration_state_volume_path": root})
    return root


@soak.slow
def test_laptop_can_plan_and_finish_but_not_run(project: Project, logged_in: FakeWorkspace) -> None:
    root = move_state_to_volume(project, logged_in)
    before = dict(logged_in.files)
    assert project.phases() == {"rows": "complete"}
    with raises("STATE_VOLUME_NOT_MOUNTED", volume=re.compile(str(root))):
        project.run()
    assert logged_in.files == before

    assert len(project.finish(accept_assumed=True).finished) == 1
    assert [file for file in logged_in.files if "initial_versions" in file or "tracking" in file] == []
    document = logged_in.files[f"{root}/checkpoints/targetTable={project.schema}.rows/state.json"]
    assert json.loads(document)["finished"] is True
    assert project.phases() == {"rows": "finished"}


@soak.slow
def test_plan_without_privilege_on_state_volume_reports_privilege(
    project: Project, logged_in: FakeWorkspace
) -> None:
    root = move_state_to_volume(project, logged_in)
    logged_in.denied = (f"{root}/checkpoints",)
    with conditions.raises(
        "VOLUME_REQUEST_FAILED",
        path=re.compile("checkpoints/"),
        reason=re.compile("READ VOLUME"),
        advice=re.compile("Ask its owner"),
    ):
        project.plan()
