"""SQL statements in specs: syntax errors, and whether they read streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.unit.conftest import ProjectFiles

SPECS = "dataflows/sales/dataflowspec/"
MAIN = SPECS + "orders_main.json"
UNREADABLE = [
    ("SELECT 'a FROM STREAM(bronze.t)", "Missing ' from 1:7"),
    ("SELECT `a FROM bronze.t", "Missing ` from 1:7"),
    ("SELECT a /* FROM\nbronze.t", "Error tokenizing 'SELECT a /* FROM bronze.'"),
]


@pytest.mark.parametrize(("statement", "reason"), UNREADABLE)
@pytest.mark.parametrize("in_file", [False, True])
def test_invalid_sql_is_reported(project: ProjectFiles, statement: str, reason: str, in_file: bool) -> None:
    details = {"sqlPath": "a.sql"} if in_file else {"sqlStatement": statement}
    project.write("dataflows/sales/dml/a.sql", statement)
    project.write(MAIN, project.append(sourceType="sql", sourceDetails=details))
    flow = project.flow(cdcSettings=None)
    entry = {"flowType": "append_sql", "flowDetails": {"targetTable": "customer", **details}}
    flow["flowGroups"][0]["flows"] = {"f_sql": entry}
    project.write(SPECS + "c_main.json", flow)
    places = [f"{SPECS}c_main.json: flowGroups[0].flows.f_sql.flowDetails.sqlStatement"]
    places.append(f"{MAIN}: sourceDetails.sqlStatement")
    assert project.problems() == [
        f"{location}: SPEC_SQL_INVALID reason={reason}"
        for location in (["dataflows/sales/dml/a.sql"] if in_file else places)
    ]


@pytest.mark.parametrize(
    ("statement", "mode"),
    [
        ("SELECT a FROM /* c */ STREAM(bronze.x)", "stream"),
        ("SELECT a FROM STREAM`bronze`.x", "stream"),
        ("SELECT a FROM STREAM(live.customer_rows)", "stream"),
        ("SELECT a FROM -- from stream(a)\nbronze.x", "batch"),
        ("SELECT ', STREAM(a)' FROM bronze.x", "batch"),
    ],
)
def test_append_sql_view_is_a_stream_if_the_statement_reads_one(
    project: ProjectFiles, statement: str, mode: str
) -> None:
    written: dict[str, Any] = project.flow(cdcSettings=None)
    entry = {
        "flowType": "append_sql",
        "flowDetails": {"targetTable": "customer", "sqlStatement": statement},
    }
    written["flowGroups"][0]["flows"] = {"f_sql": entry}
    project.write(MAIN, written)
    (dataflow,) = project.load().dataflows
    assert dataflow.views["v_f_sql"].mode == mode
