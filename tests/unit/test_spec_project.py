"""Location of a project's files, global settings, and substitutions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tableferry.errors import SpecError
from tableferry.pipelines import specs
from tableferry.pipelines.model.flows import DeltaSource
from tableferry.spark.tables import TableName

if TYPE_CHECKING:
    from tests.unit.conftest import ProjectFiles

SPECS = "dataflows/sales/dataflowspec/"
MAIN = SPECS + "orders_main.json"


@pytest.mark.parametrize("folder", ["config", "src/config"])
def test_bundle_settings_override_those_of_the_framework(project: ProjectFiles, folder: str) -> None:
    project.write(
        f"{folder}/global.yaml",
        "table_migration_state_volume_path: below\nspark_config: {a: 1, b: 2}\ndataflow_spec_version: 0.2\n",
    )
    project.write("pipeline_configs/global.json", {"spark_config": {"b": "3"}})
    project.write(MAIN, project.append())
    loaded = project.load()
    assert (loaded.state_volume, loaded.spark_config) == ("below", {"a": "1", "b": "3"})


def test_environment_sets_tokens_and_affixes(project: ProjectFiles) -> None:
    project.write(
        "pipeline_configs/prod_substitutions.yaml",
        """
        tokens: {bronze_schema: "{base}_bronze", silver_schema: silver, base: main}
        prefix_suffix: {database: {suffix: "_{workspace_env}"}}
        """,
    )
    project.write(MAIN, project.append())
    assert project.load(environment="dev").dataflows[0].target.name == TableName(("silver", "orders"))
    (dataflow,) = project.load(environment="prod").dataflows
    assert dataflow.target.name == TableName(("silver_prod", "orders"))
    source = dataflow.views["v_orders"].source
    assert isinstance(source, DeltaSource)
    assert source.table == TableName(("main_bronze_prod", "orders"))


def test_reserved_tokens_are_substituted(project: ProjectFiles) -> None:
    details = {"database": "{pipeline_schema}", "table": "orders"}
    project.write(MAIN, project.append(targetDetails=details))
    (dataflow,) = project.load(reserved={"pipeline_schema": "given"}).dataflows
    assert dataflow.target.name == TableName(("given", "orders"))


@pytest.mark.parametrize(
    "token", ["pipeline_id", "pipeline_catalog", "pipeline_schema", "pipeline_layer", "workspace_env"]
)
def test_reserved_token_in_the_substitutions_is_substituted(project: ProjectFiles, token: str) -> None:
    tokens = {"bronze_schema": "bronze", "silver_schema": f"{{{token}}}", token: "given"}
    project.write("pipeline_configs/dev_substitutions.json", {"tokens": tokens})
    project.write(MAIN, project.append())
    assert project.load().dataflows[0].target.name == TableName(("given", "orders"))


def test_logical_environment_without_value_is_empty(project: ProjectFiles) -> None:
    details = {"database": "{silver_schema}{logical_env}", "table": "orders"}
    project.write(MAIN, project.append(targetDetails=details))
    assert project.load().dataflows[0].target.name == TableName(("silver", "orders"))
    (dataflow,) = project.load(reserved={"logical_env": "_me"}).dataflows
    assert dataflow.target.name == TableName(("silver_me", "orders"))
    tokens = {"bronze_schema": "bronze", "silver_schema": "silver", "logical_env": "_you"}
    project.write("pipeline_configs/dev_substitutions.json", {"tokens": tokens})
    assert project.load().dataflows[0].target.name == TableName(("silver_you", "orders"))


def test_project_under_src_is_found(tmp_path: Path, project: ProjectFiles) -> None:
    project.write(MAIN, project.append())
    moved = tmp_path / "bundle"
    moved.mkdir()
    (moved / "src").mkdir()
    for name in ("dataflows", "pipeline_configs"):
        (tmp_path / name).rename(moved / "src" / name)
    loaded = specs.load(moved)
    assert (loaded.name, loaded.dataflows[0].file) == ("bundle", f"src/{MAIN}")
    assert specs.load(moved / "src" / MAIN) == loaded


def test_single_file_of_a_project_uses_its_settings(project: ProjectFiles) -> None:
    project.write(SPECS + "other_main.json", "not JSON")
    file = project.write(MAIN, project.append())
    loaded = specs.load(str(file))
    assert (loaded.root, loaded.state_volume, len(loaded.dataflows)) == (str(project.root), "state", 1)


def test_single_file_without_project_is_loaded(tmp_path: Path, project: ProjectFiles) -> None:
    written = project.flow()
    (group,) = written.pop("flowGroups")
    lone = tmp_path.parent / (tmp_path.name + "_lone")
    lone.mkdir()
    (lone / "any.json").write_text(json.dumps(written), "utf-8")
    (lone / "a_flow.json").write_text(json.dumps({"dataFlowId": "customer", **group}), "utf-8")
    (lone / "b_flow.json").write_text(json.dumps({"dataFlowId": "another", **group}), "utf-8")
    loaded = specs.load(lone / "any.json")
    assert (loaded.root, loaded.dataflows[0].file, len(loaded.dataflows[0].flows)) == (
        str(lone),
        "any.json",
        2,
    )


def test_dataflows_are_ordered_by_target(project: ProjectFiles) -> None:
    for name in ("b", "a"):
        details = {"database": "silver", "table": name}
        project.write(
            f"{SPECS}{'x' if name == 'a' else 'w'}_main.json",
            project.append(dataFlowId=name, targetDetails=details),
        )
    assert [dataflow.target.name.table for dataflow in project.load().dataflows] == ["a", "b"]


def test_missing_or_empty_project_is_refused(tmp_path: Path) -> None:
    for folder, condition in (
        (tmp_path / "nowhere", "SPEC_PROJECT_MISSING"),
        (tmp_path, "SPEC_PROJECT_EMPTY"),
    ):
        with pytest.raises(SpecError) as caught:
            specs.load(folder)
        (problem,) = caught.value.problems
        assert (problem.file, problem.condition) == (str(folder), condition)
