"""Compilation of valid projects into flows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tableferry.pipelines.model.flows import (
    CdcSettings,
    DeltaSource,
    Expectation,
    Flow,
    Join,
    JoinSource,
    Migration,
    PythonSource,
    ReaderSource,
    SqlSource,
    Target,
    View,
)
from tableferry.spark.tables import TableName

if TYPE_CHECKING:
    from tests.unit.conftest import ProjectFiles

SPECS = "dataflows/sales/dataflowspec/"
MAIN = SPECS + "orders_main.json"
EXAMPLE = """
{"dataFlowId": "orders_append", "dataFlowGroup": "sales", "dataFlowType": "standard", "sourceSystem": "erp",
 "sourceType": "delta", "sourceViewName": "v_orders",
 "sourceDetails": {"database": "{bronze_schema}", "table": "orders", "cdfEnabled": true, "selectExp": ["ORDER_ID", "AMOUNT", "LOAD_TIMESTAMP"]},
 "mode": "stream", "targetFormat": "delta",
 "targetDetails": {"database": "{silver_schema}", "table": "orders", "tableProperties": {"delta.enableChangeDataFeed": "true"}},
 "tableMigrationDetails": {"enabled": true, "catalogType": "uc", "autoStartingVersionsEnabled": true,
   "sourceDetails": {"database": "{silver_schema}", "table": "orders_legacy"}}}
"""  # noqa: E501


def test_append_only_example_is_compiled(project: ProjectFiles) -> None:
    project.write(MAIN, EXAMPLE)
    loaded = project.load()
    (dataflow,) = loaded.dataflows
    assert (loaded.root, loaded.name, loaded.state_volume) == (str(project.root), project.root.name, "state")
    assert (dataflow.id, dataflow.file) == ("orders_append", MAIN)
    target = TableName(("silver", "orders"))
    assert dataflow.target == Target(
        target, properties={"delta.enableChangeDataFeed": "true"}, location=f"{MAIN}: targetDetails"
    )
    assert dataflow.flows == (Flow("f_v_orders", "append", target, "v_orders", location=MAIN),)
    assert dataflow.views == {
        "v_orders": View(
            "v_orders",
            "stream",
            DeltaSource(
                TableName(("bronze", "orders")), True, select=("ORDER_ID", "AMOUNT", "LOAD_TIMESTAMP")
            ),
            f"{MAIN}: sourceDetails",
        )
    }
    assert dataflow.migration == Migration(
        TableName(("silver", "orders_legacy")),
        "uc",
        content_first=True,
        location=f"{MAIN}: tableMigrationDetails",
    )


def test_scd2_example_is_compiled(project: ProjectFiles) -> None:
    written = json.loads(EXAMPLE)
    written["cdcSettings"] = json.loads(
        '{"keys": ["ORDER_ID"], "scd_type": "2", "sequence_by": "LOAD_TIMESTAMP", "except_column_list": [],'
        '"ignore_null_updates": true, "apply_as_deletes": ""}'
    )
    select = ["ORDER_ID", "AMOUNT", "EFFECTIVE_FROM AS __START_AT", "EFFECTIVE_TO AS __END_AT"]
    written["tableMigrationDetails"]["sourceDetails"]["selectExp"] = select
    project.write(MAIN, written)
    (dataflow,) = project.load().dataflows
    assert dataflow.target.cdc == CdcSettings(("ORDER_ID",), "LOAD_TIMESTAMP", 2, ignore_null_updates=True)
    assert dataflow.flows[0].kind == "cdc"
    assert dataflow.migration is not None
    assert dataflow.migration.select == tuple(select)


def test_yaml_gives_the_same_project_as_json(project: ProjectFiles) -> None:
    project.write(MAIN, EXAMPLE)
    (from_json,) = project.load().dataflows
    (project.root / MAIN).unlink()
    project.write(SPECS + "orders_main.yml", yaml.safe_dump(json.loads(EXAMPLE)))
    (from_yaml,) = project.load().dataflows
    assert from_yaml.views["v_orders"].source == from_json.views["v_orders"].source
    assert from_yaml.migration is not None


def test_flow_spec_with_staging_is_compiled(project: ProjectFiles) -> None:
    project.write(MAIN, project.flow())
    (dataflow,) = project.load().dataflows
    rows, target = TableName(("silver", "customer_rows")), TableName(("silver", "customer"))
    location = f"{MAIN}: flowGroups[0]"
    assert [staging.name for staging in dataflow.staging] == [rows]
    assert dataflow.staging[0].location == f"{location}.stagingTables.customer_rows"
    assert dataflow.target.cdc == CdcSettings(("ID",), "TS", 1)
    assert dataflow.flows == (
        Flow("f_rows", "append", rows, "v_rows", location=f"{location}.flows.f_rows.flowDetails"),
        Flow(
            "f_customer",
            "cdc",
            target,
            "v_customer_rows",
            location=f"{location}.flows.f_customer.flowDetails",
        ),
    )
    assert dataflow.views["v_customer_rows"].source == DeltaSource(rows)
    assert dataflow.views["v_rows"].location == f"{location}.flows.f_rows.views.v_rows.sourceDetails"


@pytest.mark.parametrize("shape", ["one group", "groups"])
def test_flow_group_files_are_added_to_their_main_file(project: ProjectFiles, shape: str) -> None:
    written = project.flow()
    (group,) = written.pop("flowGroups")
    part = group if shape == "one group" else {"flowGroups": [group]}
    project.write(MAIN, written)
    project.write(SPECS + "customer_flow.json", {"dataFlowId": "customer", **part})
    (dataflow,) = project.load().dataflows
    assert [flow.name for flow in dataflow.flows] == ["f_rows", "f_customer"]
    at = "" if shape == "one group" else "flowGroups[0]."
    assert dataflow.flows[0].location == f"{SPECS}customer_flow.json: {at}flows.f_rows.flowDetails"


def test_live_resolves_to_tables_of_the_pipeline(project: ProjectFiles) -> None:
    written = project.flow()
    flow = written["flowGroups"][0]["flows"]["f_customer"]
    flow["flowDetails"]["sourceView"] = "v_sql"
    flow["views"] = {
        "v_feed": {
            "mode": "stream",
            "sourceType": "delta",
            "sourceDetails": {"database": "live", "table": "customer_rows", "cdfEnabled": True},
        },
        "v_sql": {
            "mode": "stream",
            "sourceType": "sql",
            "sourceDetails": {"sqlStatement": "SELECT * FROM STREAM(live.v_feed) JOIN LIVE.customer_rows x"},
        },
    }
    project.write(MAIN, written)
    (dataflow,) = project.load().dataflows
    assert dataflow.views["v_feed"].source == DeltaSource(TableName(("silver", "customer_rows")), True)
    assert dataflow.views["v_sql"].source == SqlSource(
        "SELECT * FROM STREAM(`v_feed`) JOIN `silver`.`customer_rows` x"
    )


def append_flow(flow_type: str, details: dict[str, Any], views: dict[str, Any]) -> dict[str, Any]:
    flow = {"flowType": flow_type, "flowDetails": {"targetTable": "customer", **details}, "views": views}
    return {"cdcSettings": None, "flowGroups": [{"flowGroupId": "main", "flows": {"f_x": flow}}]}


def test_append_sql_flow_gets_a_generated_view(project: ProjectFiles) -> None:
    project.write("dataflows/sales/dml/rows.sql", "SELECT '{unknown}', * FROM STREAM({bronze_schema}.t);\n")
    project.write(
        MAIN, project.flow(**append_flow("append_sql", {"sqlPath": "./rows.sql", "once": True}, {}))
    )
    (dataflow,) = project.load().dataflows
    (flow,) = dataflow.flows
    assert (flow.kind, flow.view, flow.once) == ("append", "v_f_x", True)
    view = dataflow.views["v_f_x"]
    assert view.mode == "stream"
    assert view.source == SqlSource("SELECT '{unknown}', * FROM STREAM(bronze.t)")


def test_column_prefix_is_lower_case_with_underscore(project: ProjectFiles) -> None:
    details = {"sourceView": "v_x", "column_prefix": "C", "column_prefix_exceptions": ["ID"]}
    view = {"mode": "batch", "sourceType": "sql", "sourceDetails": {"sqlStatement": "SELECT 1 ID"}}
    project.write(MAIN, project.flow(**append_flow("append_view", details, {"v_x": view})))
    (flow,) = project.load().dataflows[0].flows
    assert (flow.column_prefix, flow.column_prefix_exceptions) == ("c_", ("ID",))


def test_disabled_flows_are_left_out(project: ProjectFiles) -> None:
    written = project.flow()
    written["flowGroups"][0]["flows"]["f_rows"]["enabled"] = False
    project.write(MAIN, written)
    (dataflow,) = project.load().dataflows
    assert [flow.name for flow in dataflow.flows] == ["f_customer"]
    assert dataflow.disabled == {"f_rows"}
    assert list(dataflow.views) == ["v_customer_rows"]


def source_of(project: ProjectFiles, kind: str, details: dict[str, Any], mode: str = "stream") -> Any:
    changes = {"sourceType": kind, "sourceDetails": details, "mode": mode, "tableMigrationDetails": None}
    project.write(MAIN, project.append(**changes))
    return project.load().dataflows[0].views["v_orders"].source


def test_delta_source_keeps_every_setting(project: ProjectFiles) -> None:
    schema = project.write("dataflows/sales/schemas/source/orders.json", "{}")
    code = project.write("dataflows/sales/python_functions/fix.py", "")
    source = source_of(
        project,
        "delta",
        {
            "database": "bronze",
            "table": "orders",
            "tablePath": "/data/orders/",
            "cdfEnabled": True,
            "cdfChangeTypeOverride": ["insert", "delete"],
            "whereClause": ["A > 1"],
            "schemaPath": "source/orders.json",
            "readerOptions": {"startingVersion": 7, "skipChangeCommits": True, "x": 0.5},
            "pythonTransform": {"functionPath": "fix.py", "tokens": {"deep": {"t": "{bronze_schema}.x"}}},
        },
    )
    assert source.table == TableName((), "/data/orders")
    assert source.change_types == ("insert", "delete")
    assert source.options == {"startingVersion": "7", "skipChangeCommits": "true", "x": "0.5"}
    assert (source.where, source.schema_file) == (("A > 1",), str(schema))
    assert source.transform.file == str(code)
    assert source.transform.tokens == {"deep": {"t": "bronze.x"}}


def test_join_source_keeps_sides_and_conditions(project: ProjectFiles) -> None:
    source = source_of(
        project,
        "deltaJoin",
        {
            "sources": [
                {"database": "b", "table": "o", "alias": "o", "joinMode": "stream", "cdfEnabled": True},
                {"database": "b", "table": "c", "alias": "c", "joinMode": "static", "cdfEnabled": False},
            ],
            "joins": [{"joinType": "left", "condition": "o.ID = c.ID"}],
            "selectExp": ["o.*"],
        },
    )
    assert isinstance(source, JoinSource)
    assert [(side.alias, side.mode) for side in source.sides] == [("o", "stream"), ("c", "static")]
    assert source.joins == (Join("left", "o.ID = c.ID"),)


def test_python_files_and_kafka_sources_are_compiled(project: ProjectFiles) -> None:
    python = source_of(project, "python", {"pythonModule": "code.feeds.orders", "tokens": {"n": 1}})
    assert isinstance(python, PythonSource)
    assert (python.code.module, python.code.tokens) == ("code.feeds.orders", {"n": 1})
    schema = project.write("dataflows/sales/schemas/orders.ddl", "ID INT")
    files = {"path": "/in", "readerOptions": {"cloudFiles.format": "csv"}, "schemaPath": "orders.ddl"}
    assert source_of(project, "cloudFiles", files) == ReaderSource(
        "cloudFiles", {"cloudFiles.format": "csv"}, "/in", schema_file=str(schema)
    )
    batch = {"path": "/in", "format": "json", "whereClause": ["A"], "readerOptions": {}}
    assert source_of(project, "batchFiles", batch, "batch") == ReaderSource("json", {}, "/in", ("A",))
    kafka = {"readerOptions": {"subscribe": "t", "kafka.password": "${secret.kafka}"}}
    assert source_of(project, "kafka", kafka) == ReaderSource(
        "kafka", {"subscribe": "t", "kafka.password": "${secret.kafka}"}
    )


def test_yaml_dates_are_read_as_text(project: ProjectFiles) -> None:
    written = yaml.safe_dump(project.append(tableMigrationDetails=None))
    written = written.replace(
        "cdfEnabled: true", "cdfEnabled: true\n  readerOptions:\n    startingTimestamp: 2024-01-01"
    )
    project.write(SPECS + "orders_main.yaml", written)
    source = project.load().dataflows[0].views["v_orders"].source
    assert isinstance(source, DeltaSource)
    assert source.options == {"startingTimestamp": "2024-01-01"}


def test_expectations_are_read_from_file_or_folder(project: ProjectFiles) -> None:
    rules = {
        "expect": [{"name": "a", "constraint": "A > 0", "tag": "t"}],
        "expect_or_drop": [{"name": "b", "constraint": "B = '{x}'", "enabled": True}],
        "expect_or_fail": [
            {"name": "c", "constraint": "C", "enabled": False},
            {"name": "d", "constraint": "D"},
        ],
    }
    project.write("dataflows/sales/expectations/orders_dqe.json", rules)
    changes = {"dataQualityExpectationsEnabled": True, "dataQualityExpectationsPath": "./orders_dqe.json"}
    project.write(MAIN, project.append(**changes))
    expected = (
        Expectation("a", "A > 0", "warn"),
        Expectation("b", "B = '{x}'", "drop"),
        Expectation("d", "D", "fail"),
    )
    assert project.load().dataflows[0].target.expectations == expected
    project.write(MAIN, project.append(**{**changes, "dataQualityExpectationsPath": "."}))
    assert project.load().dataflows[0].target.expectations == expected


def test_target_keeps_every_setting(project: ProjectFiles) -> None:
    schema = project.write("dataflows/sales/schemas/orders.ddl", "ID INT")
    details = {
        "table": "orders",
        "schemaPath": "orders.ddl",
        "clusterByColumns": ["A"],
        "clusterByAuto": True,
        "tablePath": "/data/orders",
        "comment": "All orders",
        "sparkConf": {"spark.x": 1},
        "rowFilter": "ROW FILTER f ON (A)",
        "configFlags": ["disableOperationalMetadata"],
        "tableProperties": {"p": "spec", "q": False},
    }
    project.write("pipeline_configs/global.json", {"mandatory_table_properties": {"p": "global"}})
    project.write(MAIN, project.append(targetDetails=details, tableMigrationDetails=None, tags={"a": 1}))
    (dataflow,) = project.load().dataflows
    assert dataflow.target == Target(
        TableName(("orders",)),
        schema_file=str(schema),
        cluster_columns=("A",),
        cluster_auto=True,
        properties={"p": "global", "q": "false"},
        path="/data/orders",
        comment="All orders",
        spark_conf={"spark.x": "1"},
        row_filter="ROW FILTER f ON (A)",
        location=f"{MAIN}: targetDetails",
    )


def test_disabled_migration_is_left_out(project: ProjectFiles) -> None:
    written = project.append()
    written["tableMigrationDetails"]["enabled"] = False
    project.write(MAIN, written)
    assert project.load().dataflows[0].migration is None


def test_migration_keeps_every_setting(project: ProjectFiles) -> None:
    written = project.append()
    written["tableMigrationDetails"] |= {
        "leaveOutNotRepresentable": True,
        "autoStartingVersionsEnabled": False,
        "pinnedClone": False,
        "compareExcept": ["loaded_at"],
    }
    project.write(MAIN, written)
    migration = project.load().dataflows[0].migration
    assert migration is not None
    assert (migration.leave_out_unrepresentable, migration.auto_starting_versions) == (True, False)
    assert not migration.pinned_clone
    assert migration.uncompared_columns == ("loaded_at",)


def test_checkpoints_of_old_streams_become_paths(project: ProjectFiles) -> None:
    written = project.append()
    details = written["tableMigrationDetails"]
    for location, checkpoints in (
        ("dbfs:/Volumes/main/a/v/old", ("/Volumes/main/a/v/old",)),
        (["old/one", "file:///old/two"], ("old/one", "/old/two")),
    ):
        details["sourceDetails"]["checkpointLocation"] = location
        project.write(MAIN, written)
        migration = project.load().dataflows[0].migration
        assert migration is not None
        assert migration.checkpoints == checkpoints
    project.write(MAIN, {**written, "tableMigrationDetails": {**details, "handOver": "version"}})
    migration = project.load().dataflows[0].migration
    assert migration is not None
    assert migration.checkpoints == ()
