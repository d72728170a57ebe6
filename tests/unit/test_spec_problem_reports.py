"""Each problem of a project is reported once, with its place and without follow-up problems."""

# Expected problems are complete lines.
# ruff: noqa: E501

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tableferry.errors import SpecError
from tableferry.pipelines import specs

if TYPE_CHECKING:
    from tests.unit.conftest import ProjectFiles

SPECS = "dataflows/sales/dataflowspec/"
MAIN = SPECS + "orders_main.json"
CDC = {"keys": ["ID"], "scd_type": "1", "sequence_by": "TS"}
NO_SCHEMA = "targetDetails.schemaPath: SPEC_REFERENCED_FILE_MISSING file=no.json, folder=sales/schemas"
NO_TABLE = "targetDetails.table: TABLE_NAME_TOO_LONG text=silver.b.c.d, count=4"


def target(**more: Any) -> dict[str, Any]:
    return {"database": "silver", "table": "orders", **more}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"sourceDetails": {"zzz": 1, "cdfEnabled": "yes", "table": 7}},
            [
                'sourceDetails.cdfEnabled: SPEC_VALUE_NOT_BOOLEAN found="yes"',
                "sourceDetails.table: SPEC_VALUE_NOT_TEXT found=7",
                "sourceDetails.zzz: SPEC_KEY_UNKNOWN key=zzz",
            ],
        ),
        (
            {"sourceDetails": {"tabel": "x"}, "mode": None},
            ["mode: SPEC_KEY_MISSING", "sourceDetails.tabel: SPEC_KEY_MISSPELT key=tabel, known=table"],
        ),
        (
            {
                "cdcSettings": {
                    **CDC,
                    "column_list": ["A"],
                    "except_column_list": ["B"],
                    "track_history_column_list": ["A"],
                }
            },
            [
                "cdcSettings.except_column_list: SPEC_KEYS_EXCLUDE_EACH_OTHER other=column_list",
                "cdcSettings.track_history_column_list: SPEC_KEY_NEEDS_SCD_TYPE scd_type=2",
            ],
        ),
        (
            {"cdcSettings": {**CDC, "keys": "ID", "track_history_columns_list": "A"}},
            [
                'cdcSettings.keys: SPEC_VALUE_NOT_LIST found="ID"',
                "cdcSettings.track_history_columns_list: SPEC_KEY_MISSPELT key=track_history_columns_list, known=track_history_column_list",
            ],
        ),
        (
            {"dataFlowType": "standrd", "zzz": 1, "mode": "steam"},
            [
                "dataFlowType: SPEC_VALUE_NOT_ALLOWED allowed='standard', 'flow' or 'materialized_view', found=\"standrd\"",
                "mode: SPEC_VALUE_NOT_ALLOWED allowed='stream' or 'batch', found='steam'",
                "zzz: SPEC_KEY_UNKNOWN key=zzz",
            ],
        ),
        (
            {"mode": "steam", "targetDetails": {"database": "silver", "table": "b.c.d"}},
            ["mode: SPEC_VALUE_NOT_ALLOWED allowed='stream' or 'batch', found='steam'", NO_TABLE],
        ),
        (
            {"mode": "neither", "targetDetails": target(schemaPath="no.json")},
            ["mode: SPEC_VALUE_NOT_ALLOWED allowed='stream' or 'batch', found='neither'", NO_SCHEMA],
        ),
        (
            {"sourceType": "kafak", "sourceDetails": {}},
            [
                "sourceType: SPEC_VALUE_NOT_ALLOWED allowed='delta', 'deltaJoin', 'sql', 'python', 'cloudFiles', 'batchFiles' or 'kafka', found='kafak'",
            ],
        ),
        (
            {"dataFlowGroup": None, "sourceSytem": "x", "targetDetails": target(schemaPath="no.json")},
            [
                "dataFlowGroup: SPEC_KEY_MISSING",
                "sourceSytem: SPEC_KEY_MISSPELT key=sourceSytem, known=sourceSystem",
            ],
        ),
        (
            {"dataQualityExpectationsEnabled": "yes", "targetDetails": target(clusterByAuto=1, comment=7)},
            [
                'dataQualityExpectationsEnabled: SPEC_VALUE_NOT_BOOLEAN found="yes"',
                "targetDetails.clusterByAuto: SPEC_VALUE_NOT_BOOLEAN found=1",
                "targetDetails.comment: SPEC_VALUE_NOT_TEXT found=7",
            ],
        ),
    ],
)
def test_spec_with_several_problems_reports_each_with_its_place(
    project: ProjectFiles, changes: dict[str, Any], expected: list[str]
) -> None:
    project.write(MAIN, project.append(**changes))
    assert project.problems() == [f"{MAIN}: {message}" for message in expected]


def test_flow_spec_with_misspelt_type_is_validated_as_flow_spec(project: ProjectFiles) -> None:
    written = project.flow(dataFlowType="flows")
    (group,) = written.pop("flowGroups")
    group["flows"]["f_rows"]["flowDetails"]["sourceView"] = "v_nothing"
    project.write(MAIN, written)
    project.write(SPECS + "a_flow.json", {"dataFlowId": "customer", **group})
    assert project.problems() == [
        f"{SPECS}a_flow.json: flows.f_rows.flowDetails.sourceView: SPEC_VIEW_UNKNOWN view=v_nothing, known=v_rows",
        f"{MAIN}: dataFlowType: SPEC_VALUE_NOT_ALLOWED allowed='standard', 'flow' or 'materialized_view', found=\"flows\"",
    ]


def test_refused_snapshot_settings_cause_no_other_problem(project: ProjectFiles) -> None:
    migration = project.append()["tableMigrationDetails"]
    written = project.flow(
        cdcSettings=None, cdcSnapshotSettings={"keys": ["A"]}, tableMigrationDetails=migration
    )
    project.write(MAIN, written)
    (problem,) = project.problems()
    assert problem.startswith(f"{MAIN}: cdcSnapshotSettings: ")


@pytest.mark.parametrize(
    "content",
    [
        '{"table_migration_state_volume_path": "s", "spark_confg": {}}',
        '{"table_migration_state_volume_path": "s",}',
        '{"state_volume": "s"}',
    ],
)
def test_broken_global_file_causes_no_other_problem(project: ProjectFiles, content: str) -> None:
    project.write("pipeline_configs/global.json", content)
    project.write(MAIN, project.append())
    (problem,) = project.problems()
    assert problem.startswith("pipeline_configs/global.json: ")


def test_broken_substitutions_cause_no_other_problem(project: ProjectFiles) -> None:
    project.write("pipeline_configs/dev_substitutions.json", {"values": {"bronze_schema": "bronze"}})
    project.write(MAIN, project.append())
    (problem,) = project.problems()
    assert problem.startswith("pipeline_configs/dev_substitutions.json: values: ")


def spec_reading_orders(project: ProjectFiles) -> dict[str, Any]:
    """Return a spec that streams the orders table of another spec."""
    return project.append(
        dataFlowId="b",
        sourceDetails={"database": "live", "table": "orders"},
        targetDetails={"database": "silver", "table": "b"},
    )


@pytest.mark.parametrize("content", ["{", json.dumps({"dataFlowId": "orders"})])
def test_source_in_a_broken_spec_is_not_reported(project: ProjectFiles, content: str) -> None:
    project.write(MAIN, content)
    project.write(SPECS + "b_main.json", spec_reading_orders(project))
    assert all(problem.startswith(MAIN) for problem in project.problems())


def test_single_spec_resolves_a_source_in_another_spec(project: ProjectFiles) -> None:
    project.write(MAIN, project.append())
    file = project.write(SPECS + "b_main.json", spec_reading_orders(project))
    (dataflow,) = specs.load(file).dataflows
    assert dataflow == project.load().dataflows[0]
    assert dataflow.target.name.table == "b"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("{", "SPEC_LIVE_TABLE_UNREADABLE"),
        (None, "SPEC_LIVE_TABLE_UNKNOWN"),
    ],
)
def test_single_spec_reports_an_unknown_live_source(
    project: ProjectFiles, content: str | None, expected: str
) -> None:
    if content is not None:
        project.write(MAIN, content)
    file = project.write(SPECS + "b_main.json", spec_reading_orders(project))
    with pytest.raises(SpecError) as caught:
        specs.load(file)
    (problem,) = caught.value.problems
    assert (problem.condition, problem.parameters) == (expected, {"table": "orders"})


def test_id_of_two_specs_is_reported(project: ProjectFiles) -> None:
    project.write(MAIN, project.append())
    project.write(SPECS + "twin_main.json", project.append(targetDetails=target(table="twin")))
    assert project.problems() == [
        f"{SPECS}twin_main.json: dataFlowId: SPEC_ID_TAKEN id=orders_append, other={MAIN}"
    ]
