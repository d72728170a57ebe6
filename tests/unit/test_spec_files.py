"""Broken files, files that don't belong together, and all problems of a project at once."""

# Messages are written whole, as they are read.
# ruff: noqa: E501

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tableferry.errors import SpecError
from tableferry.pipelines import spec

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
            "isn't valid JSON: Expecting ':' delimiter at line 2, column 6: fix it there",
        ),
        (
            "x_main.yaml",
            "a: 1\nb: [1\n",
            "isn't valid YAML: did not find expected ',' or ']' at line 3, column 1: fix it there",
        ),
        ("x_main.json", "", "is empty: fill it or remove it"),
        ("x_main.yaml", "# nothing\n", "is empty: fill it or remove it"),
        ("x_main.json", "[1]", "must hold a mapping of keys to values, not a list"),
        ("x_main.yaml", "text", 'must hold a mapping of keys to values, not "text"'),
        ("x_main.json", b"\xff\xfe", "isn't UTF-8 text (byte 0): save it as UTF-8"),
        ("x_main.json", '{"a": {"b": 1, "b": 2}}', "a.b: key 'b' is written more than once: keep one"),
        ("x_main.yaml", "a:\n- b: 1\n  b: 2\n", "a[0].b: key 'b' is written more than once: keep one"),
        ("x_main.yaml", "a: {1: x}\n", "a.1: key 1 must be text: put it in quotes"),
        ("x_main.yaml", "a: &x [*x]\n", "a[0]: contains itself through a YAML anchor: write it out"),
        (
            "x_main.json",
            '{"a": "\\ud800"}',
            "a: holds half a character (a lone \\ud… escape): write the whole one",
        ),
        ("x_main.json", '{"\\ud800": 1}', "\\ud800: holds half a character: write the whole one"),
        ("x_main.json", "[" * 100_000, "is nested too deeply: flatten it to at most 100 levels"),
        (
            "x_main.yaml",
            "a: !!python/object:os.system {}\n",
            "isn't valid YAML: could not determine a constructor for the tag "
            "'tag:yaml.org,2002:python/object:os.system' at line 1, column 4: fix it there",
        ),
        ("x_main.json", '{"template": "t"}', "parameterSets: is required: add it"),
    ],
)
def test_broken_files(project: ProjectFiles, name: str, content: Any, expected: str) -> None:
    project.write(SPECS + name, content)
    assert project.problems() == [f"{SPECS}{name}: {expected}"]


def test_unreadable_file(project: ProjectFiles) -> None:
    # A link to nowhere can't be read by anyone, root included, who reads past all permissions.
    main = project.write(MAIN, project.append())
    main.unlink()
    main.symlink_to("nowhere")
    assert project.problems() == [
        f"{MAIN}: can't be read (no such file or directory): check the file and its permissions"
    ]


def test_flow_file_without_a_main_file(project: ProjectFiles) -> None:
    project.write(MAIN, project.append())
    (group,) = project.flow()["flowGroups"]
    project.write(SPECS + "lost_flow.json", {"dataFlowId": "lost", **group})
    project.write(SPECS + "mixed_flow.json", {"dataFlowId": "orders_append", **group})
    project.write(SPECS + "nameless_flow.json", group)
    assert project.problems() == [
        f"{SPECS}lost_flow.json: dataFlowId: no *_main file has the dataFlowId 'lost': add one, or correct the id",
        f"{SPECS}mixed_flow.json: dataFlowId: 'orders_append' is a standard spec, which has no flow groups: "
        "set its dataFlowType to flow",
        f"{SPECS}nameless_flow.json: dataFlowId: is required: add it",
    ]


def test_flow_file_alone(project: ProjectFiles) -> None:
    file = project.write(SPECS + "a_flow.json", {})
    with pytest.raises(SpecError, match="holds a flow group only: give the \\*_main file of its spec"):
        spec.load(file)
    with pytest.raises(SpecError, match=r"its name must end in \.json, \.yaml or \.yml"):
        spec.load(project.write("orders.txt", "x"))


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        (
            "pipeline_configs/global.json",
            {"volume": "x"},
            "pipeline_configs/global.json: volume: unknown key 'volume': take it out",
        ),
        (
            "pipeline_configs/global.yaml",
            "{spark_config: {}}",
            "pipeline_configs/global.json: stands beside global.yaml: keep one",
        ),
        (
            "pipeline_configs/dev_substitutions.json",
            {"token": {}},
            "pipeline_configs/dev_substitutions.json: token: unknown key 'token': did you mean 'tokens'?",
        ),
        (
            "pipeline_configs/dev_substitutions.json",
            {"tokens": {"bronze_schema": "{silver_schema}", "silver_schema": "{bronze_schema}"}},
            "pipeline_configs/dev_substitutions.json: tokens.bronze_schema: token '{bronze_schema}' stands "
            "for itself: give it a value",
        ),
        (
            "pipeline_configs/prod_substitutions.json",
            {},
            "pipeline_configs: holds substitutions for dev, prod: choose one with --environment NAME",
        ),
        (
            "pipeline_configs/global.json",
            {"table_migration_state_volume_path": "s", "pipeline_bundle_spec_format": {"format": "yaml"}},
            f"{MAIN}: is JSON, but pipeline_bundle_spec_format says yaml: convert the file, or set "
            "allow_override to true",
        ),
    ],
)
def test_settings(project: ProjectFiles, name: str, content: Any, expected: str) -> None:
    project.write(name, content)
    project.write(MAIN, project.append())
    assert expected in project.problems()


def test_unknown_environment(project: ProjectFiles) -> None:
    project.write(MAIN, project.append())
    assert project.problems(environment="prod") == [
        "pipeline_configs: holds no substitutions for 'prod', but for dev: choose one with --environment NAME"
    ]


def test_expectations_file(project: ProjectFiles) -> None:
    path = "dataflows/sales/expectations/dqe.json"
    rule = {"name": "a", "constraint": "A"}
    project.write(path, {"expect": [rule, rule], "expect_or_drop": [{"name": "b"}], "drop": []})
    changes = {"dataQualityExpectationsEnabled": True, "dataQualityExpectationsPath": "dqe.json"}
    project.write(MAIN, project.append(**changes))
    assert project.problems() == [
        f"{path}: drop: unknown key 'drop': take it out",
        f"{path}: expect_or_drop[0].constraint: is required: add it",
    ]
    project.write(path, {"expect": [rule, rule]})
    assert project.problems() == [
        f"{path}: expect[1].name: expectation 'a' exists already: give it another name"
    ]


def test_specs_that_are_not_handled_are_skipped_with_their_parts(project: ProjectFiles) -> None:
    project.write(MAIN, project.append(sourceDetails={"database": "bronze", "table": "orders"}))
    sink = project.flow(dataFlowId="sink", targetFormat="kafka_sink", targetDetails={"name": "x"})
    project.write(SPECS + "b_main.yaml", yaml.safe_dump(sink))
    held = project.flow(dataFlowId="held", targetDetails={"database": "{silver_schema}", "table": "Held"})
    group = {**held.pop("flowGroups")[0], "dataFlowId": "held"}
    group["stagingTables"]["looked_up"] = {"type": "MV", "sqlStatement": "SELECT 1"}
    # What is left out isn't looked at any further.
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
        f"{SPECS}c_main.json (silver.Held) is skipped: staging tables of type MV aren't supported"
    )


def test_a_spec_with_a_migration_is_never_skipped_and_neither_is_a_whole_project(
    project: ProjectFiles,
) -> None:
    project.write(MAIN, project.append())
    migration = {"enabled": True, "catalogType": "uc", "sourceDetails": {"database": "a", "table": "b"}}
    moved = project.flow(dataFlowId="b", tableMigrationDetails=migration)
    moved["flowGroups"][0]["stagingTables"]["looked_up"] = {"type": "MV", "sqlStatement": "SELECT 1"}
    project.write(SPECS + "b_main.json", moved)
    assert any("of type MV aren't supported" in problem for problem in project.problems())
    (project.root / MAIN).unlink()
    project.write(SPECS + "b_main.json", {**moved, "tableMigrationDetails": {**migration, "enabled": False}})
    assert any("of type MV aren't supported" in problem for problem in project.problems())


def test_all_problems_at_once(project: ProjectFiles) -> None:
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
        f"{SPECS}a_main.json: isn't valid JSON: Expecting property name enclosed in double quotes at line 1, "
        "column 2: fix it there",
        f"{SPECS}c_main.json: yyy: unknown key 'yyy': take it out",
        f'{MAIN}: cdcSettings.keys: must be a list, not "ID"',
        f"{MAIN}: cdcSettings.sequence_by: is required: add it",
        f"{MAIN}: sourceDetails.cdfEnabled: must be true or false, not 1",
        f'{MAIN}: tableMigrationDetails.enabled: must be true or false, not "yes"',
        f"{MAIN}: zzz: unknown key 'zzz': take it out",
        "pipeline_configs/global.json: spark_conf: unknown key 'spark_conf': did you mean 'spark_config'?",
    ]


def test_problems_carry_file_path_and_message(project: ProjectFiles) -> None:
    project.write(MAIN, json.dumps(project.append(mode=1)))
    with pytest.raises(SpecError) as caught:
        project.load()
    (problem,) = caught.value.problems
    assert (problem.file, problem.path) == (MAIN, "mode")
    assert problem.message == "must be 'stream' or 'batch', not 1"


@pytest.mark.parametrize("broken", ["{", '{"dataFlowId": "customer", "flowGroupId": "main", "flows": []}'])
def test_a_broken_flow_file_is_reported_alone(project: ProjectFiles, broken: str) -> None:
    project.write(MAIN, project.flow(flowGroups=None))
    project.write(SPECS + "customer_flow.json", broken)
    (problem,) = project.problems()
    assert problem.startswith(f"{SPECS}customer_flow.json: ")
