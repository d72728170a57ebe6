"""The JSON Schema for editors accepts and refuses the same specs as loading."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from jsonschema import Draft202012Validator

from tableferry.pipelines import specs

if TYPE_CHECKING:
    from tests.unit.conftest import ProjectFiles

VALIDATOR = Draft202012Validator(specs.json_schema())


def test_schema_is_valid() -> None:
    Draft202012Validator.check_schema(specs.json_schema())
    assert "pydantic" not in json.dumps(specs.json_schema())


def test_examples_are_valid(project: ProjectFiles) -> None:
    cdc = {"keys": ["ID"], "scd_type": "2", "sequence_by": "TS", "apply_as_deletes": ""}
    for written in (project.append(), project.append(cdcSettings=cdc), project.flow()):
        assert list(VALIDATOR.iter_errors(written)) == []


@pytest.mark.parametrize("kind", ["standard", "flow"])
def test_examples_with_all_keys_are_valid(kind: str) -> None:
    file = Path(__file__).parent / "spec_examples" / f"{kind}_main.json"
    assert list(VALIDATOR.iter_errors(json.loads(file.read_text("utf-8")))) == []
    assert len(specs.load(file).dataflows) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"mode": "steam"},
        {"mode": None},
        {"sourceType": "parquet"},
        {"sourceDetails": {"database": "a", "table": "b", "cdfenabled": True}},
        {"sourceDetails": {"sqlStatement": "SELECT 1"}},
        {"sourceDetails": {"table": "b"}},
        {"sourceDetails": {"database": "a"}},
        {"sourceType": "sql", "sourceDetails": {}},
        {"sourceType": "sql", "sourceDetails": {"sqlStatement": "SELECT 1", "sqlPath": "a.sql"}},
        {"sourceType": "python", "sourceDetails": {"functionPath": "a.py", "pythonModule": "a.b"}},
        {"sourceDetails": {"database": "a", "table": "b", "pythonTransform": {}}},
        {"targetFormat": "kafka_sink"},
        {"zzz": 1},
        {"dataFlowType": "materialized_view"},
        {"cdcSnapshotSettings": {"keys": ["ID"], "scd_type": "1", "snapshotType": "daily"}},
        {"sourceViewName": None},
        {"cdcSettings": {"keys": ["ID"], "scd_type": "4", "sequence_by": "TS"}},
        {"tableMigrationDetails": {"enabled": "true"}},
    ],
)
def test_spec_that_loading_refuses_is_invalid(project: ProjectFiles, changes: dict[str, Any]) -> None:
    written = project.append(**changes)
    assert list(VALIDATOR.iter_errors(written))
    project.write("dataflows/x/x_main.json", written)
    assert project.problems()


@pytest.mark.parametrize(
    "changes",
    [
        {"sourceDetails": {"tablePath": "/a", "table": "b"}},
        {"sourceType": "sql", "sourceDetails": {"sqlStatement": "SELECT 1"}},
        {"quarantineMode": False},
    ],
)
def test_spec_that_loading_accepts_is_valid(project: ProjectFiles, changes: dict[str, Any]) -> None:
    written = project.append(**changes)
    assert list(VALIDATOR.iter_errors(written)) == []
    project.write("dataflows/x/x_main.json", written)
    assert len(project.load().dataflows) == 1


def test_append_sql_flow_needs_exactly_one_statement(project: ProjectFiles) -> None:
    written = project.flow(cdcSettings=None)
    details = {"targetTable": "customer", "sqlStatement": "SELECT 1", "sqlPath": "a.sql"}
    written["flowGroups"][0]["flows"] = {"f_sql": {"flowType": "append_sql", "flowDetails": details}}
    assert list(VALIDATOR.iter_errors(written))
    del details["sqlPath"]
    assert list(VALIDATOR.iter_errors(written)) == []


def test_every_key_has_a_description() -> None:
    undescribed = [
        f"{name}.{key}"
        for name, definition in specs.json_schema()["$defs"].items()
        for key, field in definition.get("properties", {}).items()
        if "description" not in field and "$ref" not in json.dumps(field) and "const" not in field
    ]
    assert undescribed in ([], ["BatchFilesDetails.format", "JoinStep.joinType"])
