"""Folders that can't be listed, links to folders, and folders with several specs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.conftest import ProjectFiles, described

from tableferry.errors import SpecError
from tableferry.pipelines import specs

SPECS = "dataflows/sales/dataflowspec/"
MAIN = SPECS + "orders_main.json"
DENIED = "SPEC_FOLDER_NOT_LISTED reason=permission denied"


def refused(path: Path) -> list[str]:
    with pytest.raises(SpecError) as caught:
        specs.load(path)
    return [described(problem) for problem in caught.value.problems]


def test_settings_folder_that_cannot_be_listed_is_reported(
    project: ProjectFiles, forbid: Callable[[Path], None]
) -> None:
    file = project.write(MAIN, project.append())
    forbid(project.root / "pipeline_configs")
    assert project.problems() == [f"pipeline_configs: {DENIED}"]
    assert refused(file) == [f"pipeline_configs: {DENIED}"]


@pytest.mark.parametrize("kind", ["file", "link to nowhere", "link to itself"])
def test_settings_path_that_is_no_folder_is_reported(project: ProjectFiles, kind: str) -> None:
    project.write(MAIN, project.append())
    home = project.root / "pipeline_configs"
    for file in home.iterdir():
        file.unlink()
    home.rmdir()
    if kind == "file":
        home.write_text("x")
    else:
        home.symlink_to("nowhere" if kind == "link to nowhere" else "pipeline_configs")
    (problem,) = project.problems()
    assert problem.startswith("pipeline_configs: SPEC_FOLDER_NOT_LISTED reason=")


def test_expectations_folder_that_cannot_be_listed_is_reported(
    project: ProjectFiles, forbid: Callable[[Path], None]
) -> None:
    project.write("dataflows/sales/expectations/all/a.json", {})
    changes = {"dataQualityExpectationsEnabled": True, "dataQualityExpectationsPath": "all"}
    project.write(MAIN, project.append(**changes))
    forbid(project.root / "dataflows/sales/expectations/all")
    assert project.problems() == [f"dataflows/sales/expectations/all: {DENIED}"]


def test_spec_folder_that_cannot_be_listed_is_reported(
    project: ProjectFiles, forbid: Callable[[Path], None]
) -> None:
    file = project.write(MAIN, project.append())
    project.write("dataflows/hidden/x_main.json", "not JSON")
    forbid(project.root / "dataflows/hidden")
    assert project.problems() == [f"dataflows/hidden: {DENIED}"]
    assert refused(file) == [f"dataflows/hidden: {DENIED}"]
    forbid(project.root / "dataflows")
    assert project.problems() == [f"dataflows: {DENIED}"]


def test_single_file_in_folder_that_cannot_be_listed_is_reported(
    project: ProjectFiles, tmp_path: Path, forbid: Callable[[Path], None]
) -> None:
    file = project.write("lone/orders_main.json", project.append(tableMigrationDetails=None))
    forbid(tmp_path / "lone")
    assert f"lone: {DENIED}" in refused(file)


def test_project_path_that_is_a_link_to_itself_is_refused(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    (problem,) = refused(loop)
    assert problem.startswith(f"{loop}: SPEC_FOLDER_NOT_LISTED reason=")


def test_linked_folder_is_read_once(project: ProjectFiles, tmp_path: Path) -> None:
    project.write("elsewhere/dataflowspec/orders_main.json", project.append())
    sales = tmp_path / "dataflows" / "sales"
    sales.mkdir(parents=True)
    (sales / "linked").symlink_to(tmp_path / "elsewhere")
    (sales / "linked again").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "back").symlink_to(tmp_path / "dataflows")
    (dataflow,) = project.load().dataflows
    assert dataflow.file == "dataflows/sales/linked/dataflowspec/orders_main.json"


def test_single_spec_reads_flow_group_files_in_subfolders(project: ProjectFiles) -> None:
    written = project.flow()
    (group,) = written.pop("flowGroups")
    file = project.write(SPECS + "c_main.json", written)
    project.write(SPECS + "flows/c_two_flow.json", {"dataFlowId": "customer", **group})
    loaded = specs.load(file)
    assert loaded == project.load()
    assert len(loaded.dataflows[0].flows) == 2


def test_single_spec_ignores_flow_group_files_of_other_specs(project: ProjectFiles) -> None:
    project.write(
        "pipeline_configs/global.json",
        {"table_migration_state_volume_path": "s", "pipeline_bundle_spec_format": {"format": "json"}},
    )
    file = project.write(MAIN, project.append())
    project.write("dataflows/other/x_flow.yaml", "{dataFlowId: other, a: 1}")
    assert len(specs.load(file).dataflows) == 1
