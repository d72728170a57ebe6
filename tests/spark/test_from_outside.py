"""A migration whose state is in a workspace's volume, looked at and taken out from a laptop."""

from __future__ import annotations

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
    """A project with one migration, whose copy was made and whose streaming flow runs."""
    project = Project(tmp_path / "shop", schema, spark)
    project.create("src", "id int", (1,))
    project.create("rows_legacy", "id int", (1,))
    project.standard("rows", "src", migration={})
    project.run()
    project.insert("src", (2,))
    project.run()
    assert project.phases() == {"rows": "complete"}
    return project


def into_a_volume(project: Project, workspace: FakeWorkspace) -> str:
    """Move a project's state into a volume, as if it had been there from the start."""
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
def test_plan_status_and_finish_work_from_a_laptop_and_a_run_is_refused(
    project: Project, logged_in: FakeWorkspace
) -> None:
    root = into_a_volume(project, logged_in)
    before = dict(logged_in.files)
    assert project.phases() == {"rows": "complete"}
    with raises("STATE_VOLUME_NOT_MOUNTED", volume=re.compile(str(root))):
        project.run()
    assert logged_in.files == before

    assert len(project.finish(accept_assumed=True).finished) == 1
    assert [file for file in logged_in.files if "initial_versions" in file or "tracking" in file] == []
    assert f"{root}/checkpoints/targetTable={project.schema}.rows/_finished" in logged_in.files
    assert project.phases() == {"rows": "finished"}


@soak.slow
def test_somebody_who_was_given_no_right_to_the_state_is_told_so_in_one_sentence(
    project: Project, logged_in: FakeWorkspace
) -> None:
    root = into_a_volume(project, logged_in)
    logged_in.denied = (f"{root}/initial_versions",)
    with conditions.raises(
        "VOLUME_REQUEST_FAILED",
        path=re.compile("initial_versions/"),
        reason=re.compile("READ VOLUME"),
        advice=re.compile("Ask its owner"),
    ):
        project.plan()
