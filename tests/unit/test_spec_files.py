"""Problems of whole files: broken files, files without their counterpart, and unsupported specs."""

# Expected problems are complete lines.
# ruff: noqa: E501

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tableferry.errors import SpecError
from tableferry.pipelines import specs

if TYPE_CHECKING:
    from tests.unit.conftest import ProjectFiles

SPECS = "dataflows/sales/dataflowspec/"
MAIN = SPECS + "orders_main.json"


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        (
            "x_main.json",
            '{"a": 1,\n "b" 2}',
            "SPEC_JSON_INVALID reason=Expecting ':' delimiter, line=2, column=6",
        ),
        (
            "x_main.yaml",
            "a: 1\nb: [1\n",
            "SPEC_YAML_INVALID reason=did not find expected ',' or ']' at line 3, column 1",
        ),
        ("x_main.json", "", "SPEC_FILE_EMPTY"),
        ("x_main.yaml", "# nothing\n", "SPEC_FILE_EMPTY"),
        ("x_main.json", "[1]", "SPEC_FILE_NOT_MAPPING found=a list"),
        ("x_main.yaml", "text", 'SPEC_FILE_NOT_MAPPING found="text"'),
        ("x_main.json", b"\xff\xfe", "SPEC_FILE_NOT_UTF8 byte=0"),
        ("x_main.json", '{"a": {"b": 1, "b": 2}}', "a.b: SPEC_KEY_REPEATED key=b"),
        ("x_main.yaml", "a:\n- b: 1\n  b: 2\n", "a[0].b: SPEC_KEY_REPEATED key=b"),
        ("x_main.yaml", "a: {1: x}\n", "a.1: SPEC_KEY_NOT_TEXT key=1"),
        ("x_main.yaml", "a: &x [*x]\n", "a[0]: SPEC_CONTAINS_ITSELF"),
        (
            "x_main.json",
            '{"a": "\\ud800"}',
            "a: SPEC_HALF_CHARACTER",
        ),
        ("x_main.json", '{"\\ud800": 1}', "\\ud800: SPEC_HALF_CHARACTER"),
        ("x_main.json", "[" * 100_000, "SPEC_NESTED_TOO_DEEPLY levels=100"),
        (
            "x_main.yaml",
            "a: !!python/object:os.system {}\n",
            "SPEC_YAML_INVALID reason=could not determine a constructor for the tag 'tag:yaml.org,2002:python/object:os.system' at line 1, column 4",
        ),
        ("x_main.json", '{"template": "t"}', "parameterSets: SPEC_KEY_MISSING"),
    ],
)
def test_broken_file_is_reported_with_its_reason(
    project: ProjectFiles, name: str, content: Any, expected: str
) -> None:
    project.write(SPECS + name, content)
    assert project.problems() == [f"{SPECS}{name}: {expected}"]


def test_file_that_cannot_be_read_is_reported(project: ProjectFiles) -> None:
    # Even root, which ignores permissions, can't read a broken link.
    main = project.write(MAIN, project.append())
    main.unlink()
    main.symlink_to("nowhere")
    assert project.problems() == [f"{MAIN}: SPEC_FILE_NOT_READABLE reason=no such file or directory"]


def test_flow_group_file_without_main_file_is_reported(project: ProjectFiles) -> None:
    project.write(MAIN, project.append())
    (group,) = project.flow()["flowGroups"]
    project.write(SPECS + "a_flow.json", {"dataFlowId": "a", **group})
    project.write(SPECS + "lost_flow.json", {"dataFlowId": "lost", **group})
    project.write(SPECS + "mixed_flow.json", {"dataFlowId": "orders_append", **group})
    project.write(SPECS + "nameless_flow.json", group)
    assert project.problems() == [
        f"{SPECS}a_flow.json: dataFlowId: SPEC_GROUP_WITHOUT_SPEC id=a",
        f"{SPECS}lost_flow.json: dataFlowId: SPEC_GROUP_WITHOUT_SPEC id=lost",
        f"{SPECS}mixed_flow.json: dataFlowId: SPEC_STANDARD_WITH_FLOW_GROUPS id=orders_append",
        f"{SPECS}nameless_flow.json: dataFlowId: SPEC_KEY_MISSING",
    ]


def test_single_flow_group_file_is_refused(project: ProjectFiles) -> None:
    file = project.write(SPECS + "a_flow.json", {})
    text = project.write("orders.txt", "x")
    for wrong, condition in ((file, "SPEC_FILE_IS_FLOW_GROUP"), (text, "SPEC_FILE_SUFFIX")):
        with pytest.raises(SpecError) as caught:
            specs.load(wrong)
        (problem,) = caught.value.problems
        assert (problem.file, problem.condition) == (str(wrong), condition)


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        (
            "pipeline_configs/global.json",
            {"volume": "x"},
            "pipeline_configs/global.json: volume: SPEC_KEY_UNKNOWN key=volume",
        ),
        (
            "pipeline_configs/global.yaml",
            "{spark_config: {}}",
            "pipeline_configs/global.json: SPEC_FILES_CONFLICT others=global.yaml",
        ),
        (
            "pipeline_configs/dev_substitutions.json",
            {"token": {}},
            "pipeline_configs/dev_substitutions.json: token: SPEC_KEY_MISSPELT key=token, known=tokens",
        ),
        (
            "pipeline_configs/dev_substitutions.json",
            {"tokens": {"bronze_schema": "{silver_schema}", "silver_schema": "{bronze_schema}"}},
            "pipeline_configs/dev_substitutions.json: tokens.bronze_schema: SPEC_TOKEN_REFERS_TO_ITSELF token={bronze_schema}",
        ),
        (
            "pipeline_configs/prod_substitutions.json",
            {},
            "pipeline_configs: SPEC_ENVIRONMENT_NOT_CHOSEN environments=dev, prod",
        ),
        (
            "pipeline_configs/global.json",
            {"table_migration_state_volume_path": "s", "pipeline_bundle_spec_format": {"format": "yaml"}},
            f"{MAIN}: SPEC_FORMAT_DIFFERS actual=JSON, required=yaml",
        ),
    ],
)
def test_invalid_settings_file_is_reported(
    project: ProjectFiles, name: str, content: Any, expected: str
) -> None:
    project.write(name, content)
    project.write(MAIN, project.append())
    assert expected in project.problems()


def test_unknown_environment_is_reported_with_the_known_ones(project: ProjectFiles) -> None:
    project.write(MAIN, project.append())
    assert project.problems(environment="prod") == [
        "pipeline_configs: SPEC_ENVIRONMENT_UNKNOWN environment=prod, environments=dev"
    ]


def test_invalid_expectations_file_is_reported(project: ProjectFiles) -> None:
    path = "dataflows/sales/expectations/dqe.json"
    rule = {"name": "a", "constraint": "A"}
    project.write(path, {"expect": [rule, rule], "expect_or_drop": [{"name": "b"}], "drop": []})
    changes = {"dataQualityExpectationsEnabled": True, "dataQualityExpectationsPath": "dqe.json"}
    project.write(MAIN, project.append(**changes))
    assert project.problems() == [
        f"{path}: drop: SPEC_KEY_UNKNOWN key=drop",
        f"{path}: expect_or_drop[0].constraint: SPEC_KEY_MISSING",
    ]
    project.write(path, {"expect": [rule, rule]})
    assert project.problems() == [f"{path}: expect[1].name: SPEC_EXPECTATION_NAME_TAKEN name=a"]


def test_unsupported_specs_are_skipped_with_their_flow_group_files(project: ProjectFiles) -> None:
    project.write(MAIN, project.append(sourceDetails={"database": "bronze", "table": "orders"}))
    sink = project.flow(dataFlowId="sink", targetFormat="kafka_sink", targetDetails={"name": "x"})
    project.write(SPECS + "b_main.yaml", yaml.safe_dump(sink))
    held = project.flow(dataFlowId="held", targetDetails={"database": "{silver_schema}", "table": "Held"})
    group = {**held.pop("flowGroups")[0], "dataFlowId": "held"}
    group["stagingTables"]["looked_up"] = {"type": "MV", "sqlStatement": "SELECT 1"}
    # Skipped specs aren't validated.
    group["flows"]["f_rows"]["views"] = {"v_s": {"nonsense": 1}}
    project.write(SPECS + "c_main.json", held)
    project.write(SPECS + "c_flow.json", group)
    loaded = project.load()
    assert [dataflow.id for dataflow in loaded.dataflows] == ["orders_append"]
    assert [(dataflow.file, str(dataflow.target)) for dataflow in loaded.skipped] == [
        (f"{SPECS}b_main.yaml", "None"),
        (f"{SPECS}c_main.json", "silver.Held"),
    ]
    assert str(loaded.skipped[1]).startswith(
        f"{SPECS}c_main.json (silver.Held) is skipped: [SPEC_STAGING_VIEW_NOT_SUPPORTED] "
    )


def test_unsupported_spec_with_migration_or_alone_is_reported(
    project: ProjectFiles,
) -> None:
    project.write(MAIN, project.append())
    migration = {"enabled": True, "catalogType": "uc", "sourceDetails": {"database": "a", "table": "b"}}
    moved = project.flow(dataFlowId="b", tableMigrationDetails=migration)
    moved["flowGroups"][0]["stagingTables"]["looked_up"] = {"type": "MV", "sqlStatement": "SELECT 1"}
    project.write(SPECS + "b_main.json", moved)
    assert any("SPEC_STAGING_VIEW_NOT_SUPPORTED" in problem for problem in project.problems())
    (project.root / MAIN).unlink()
    project.write(SPECS + "b_main.json", {**moved, "tableMigrationDetails": {**migration, "enabled": False}})
    assert any("SPEC_STAGING_VIEW_NOT_SUPPORTED" in problem for problem in project.problems())


def test_project_reports_the_problems_of_all_files(project: ProjectFiles) -> None:
    written = project.append(zzz=1, cdcSettings={"keys": "ID", "scd_type": "2"})
    written["sourceDetails"]["cdfEnabled"] = 1
    written["tableMigrationDetails"]["enabled"] = "yes"
    project.write(MAIN, written)
    project.write(SPECS + "a_main.json", "{")
    project.write(SPECS + "b_main.yaml", yaml.safe_dump(project.flow(targetFormat="kafka_sink")))
    unknown = project.flow(dataFlowId="c", yyy=1)
    project.write(SPECS + "c_main.json", unknown)
    project.write("pipeline_configs/global.json", {"spark_conf": {}})
    assert project.problems() == [
        f"{SPECS}a_main.json: SPEC_JSON_INVALID reason=Expecting property name enclosed in double quotes, line=1, column=2",
        f"{SPECS}c_main.json: yyy: SPEC_KEY_UNKNOWN key=yyy",
        f'{MAIN}: cdcSettings.keys: SPEC_VALUE_NOT_LIST found="ID"',
        f"{MAIN}: cdcSettings.sequence_by: SPEC_KEY_MISSING",
        f"{MAIN}: sourceDetails.cdfEnabled: SPEC_VALUE_NOT_BOOLEAN found=1",
        f'{MAIN}: tableMigrationDetails.enabled: SPEC_VALUE_NOT_BOOLEAN found="yes"',
        f"{MAIN}: zzz: SPEC_KEY_UNKNOWN key=zzz",
        "pipeline_configs/global.json: spark_conf: SPEC_KEY_MISSPELT key=spark_conf, known=spark_config",
    ]


def test_problem_has_place_condition_message_and_remedy(project: ProjectFiles) -> None:
    project.write(MAIN, json.dumps(project.append(mode=1)))
    with pytest.raises(SpecError) as caught:
        project.load()
    (problem,) = caught.value.problems
    assert (problem.file, problem.path) == (MAIN, "mode")
    assert str(problem) == (
        f"{MAIN}: mode: [SPEC_VALUE_NOT_ALLOWED] The value must be 'stream' or 'batch', not 1. Correct it."
    )
    assert problem.to_dict() == {
        "file": MAIN,
        "path": "mode",
        "message": "The value must be 'stream' or 'batch', not 1.",
        "remedy": "Correct it.",
        "condition": "SPEC_VALUE_NOT_ALLOWED",
        "parameters": {"allowed": "'stream' or 'batch'", "found": "1"},
    }


@pytest.mark.parametrize("broken", ["{", '{"dataFlowId": "customer", "flowGroupId": "main", "flows": []}'])
def test_broken_flow_group_file_causes_no_other_problem(project: ProjectFiles, broken: str) -> None:
    project.write(MAIN, project.flow(flowGroups=None))
    project.write(SPECS + "customer_flow.json", broken)
    (problem,) = project.problems()
    assert problem.startswith(f"{SPECS}customer_flow.json: ")
