"""Templates, earlier versions, quarantine, metadata, snapshots and materialized views in specs."""

# Expected problems are complete lines.
# ruff: noqa: E501

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from tableferry.errors import SpecError
from tableferry.pipelines import specs
from tableferry.pipelines.model import flows
from tableferry.pipelines.planning.engine_support import select_runnable_specs
from tableferry.pipelines.sources.python_code import load_function
from tableferry.spark.tables import TableName

if TYPE_CHECKING:
    from tests.unit.conftest import ProjectFiles

SPECS = "dataflows/sales/dataflowspec/"
MAIN = SPECS + "orders_main.json"
VALIDATOR = Draft202012Validator(specs.json_schema())

TEMPLATE: dict[str, Any] = {
    "name": "feed",
    "parameters": {
        "dataFlowId": {"type": "string"},
        "keys": {"type": "list"},
        "feed": {"type": "boolean", "required": False, "default": True},
        "suffix": {"type": "string", "required": False, "default": ""},
    },
    "template": {
        "dataFlowId": "${param.dataFlowId}",
        "dataFlowGroup": "sales",
        "dataFlowType": "standard",
        "sourceSystem": "erp",
        "sourceType": "delta",
        "sourceViewName": "v_${param.dataFlowId}",
        "sourceDetails": {"database": "bronze", "table": "${param.dataFlowId}", "cdfEnabled": "${param.feed}",
                          "pythonTransform": {"functionPath": "tidy.py", "tokens": {"${param.dataFlowId}_key": 1}}},
        "mode": "stream",
        "targetFormat": "delta",
        "targetDetails": {"database": "silver", "table": "${param.dataFlowId}${param.suffix}"},
        "cdcSettings": {"keys": "${param.keys}", "scd_type": "1", "sequence_by": "TS"},
    },
}  # fmt: skip
EXPECTATIONS = {
    "expect": [{"name": "known", "constraint": "ID IS NOT NULL"}],
    "expect_or_drop": [{"name": "paid", "constraint": "AMOUNT > 0 OR FREE"}],
}
WITH_EXPECTATIONS = {"dataQualityExpectationsEnabled": True, "dataQualityExpectationsPath": "rules.json"}
CONSTRAINTS = "(ID IS NOT NULL) AND (AMOUNT > 0 OR FREE)"


def spec_without_migration(project: ProjectFiles, **changes: Any) -> dict[str, Any]:
    """Return a spec without a migration."""
    written = project.append(**changes)
    del written["tableMigrationDetails"]
    return written


def template_spec(*parameters: dict[str, Any]) -> dict[str, Any]:
    return {"template": "feed", "parameterSets": list(parameters)}


def load_dataflow(project: ProjectFiles) -> flows.DataFlow:
    """Load a project with one spec and return its data flow."""
    (dataflow,) = project.load().dataflows
    return dataflow


def test_template_with_default_id_creates_a_spec_with_that_id(project: ProjectFiles) -> None:
    parameters = {
        **TEMPLATE["parameters"],
        "dataFlowId": {"type": "string", "required": False, "default": "orders"},
    }
    project.write("templates/feed.json", {**TEMPLATE, "parameters": parameters})
    project.write("templates/python_functions/tidy.py", "")
    project.write(MAIN, template_spec({"keys": ["A"]}))
    assert load_dataflow(project).file == f"{MAIN}#orders"


def test_template_creates_a_spec_for_each_parameter_set(project: ProjectFiles) -> None:
    project.write("templates/feed.yaml", yaml.safe_dump(TEMPLATE))
    project.write("templates/python_functions/tidy.py", "")
    written = template_spec(
        {"dataFlowId": "orders", "keys": ["A", "B"]},
        {"dataFlowId": "lines", "keys": ["C"], "feed": False, "suffix": "_s"},
    )
    assert list(VALIDATOR.iter_errors(written)) == []
    project.write(MAIN, written)
    lines, orders = project.load().dataflows
    assert [(str(flow.target.name), flow.file) for flow in (lines, orders)] == [
        ("silver.lines_s", f"{MAIN}#lines"),
        ("silver.orders", f"{MAIN}#orders"),
    ]
    assert (orders.target.cdc, lines.target.cdc) == (
        flows.CdcSettings(("A", "B"), "TS", 1),
        flows.CdcSettings(("C",), "TS", 1),
    )
    for dataflow, feed in ((lines, False), (orders, True)):
        source = dataflow.views[f"v_{dataflow.id}"].source
        assert isinstance(source, flows.DeltaSource)
        assert source.change_feed is feed
        assert source.transform == flows.PythonCode(
            str(project.root / "templates/python_functions/tidy.py"), None, {f"{dataflow.id}_key": 1}
        )


@pytest.mark.parametrize(
    ("template", "written", "expected"),
    [
        (None, template_spec({"dataFlowId": "a"}), [f"{MAIN}: template: SPEC_TEMPLATE_MISSING template=feed, folder=templates"]),
        ({}, {"template": "feed", "parameterSets": []}, [f"{MAIN}: parameterSets: SPEC_LIST_TOO_SHORT least=1 entry"]),
        ({}, {**template_spec({"dataFlowId": "a", "keys": ["A"]}), "mode": "stream"}, [f"{MAIN}: mode: SPEC_KEY_UNKNOWN key=mode"]),
        (
            {},
            template_spec({"dataFlowId": "a", "keys": "A", "kyes": ["A"]}, {"keys": ["A"]}),
            [
                f"{MAIN}: parameterSets[0].keys: SPEC_PARAMETER_TYPE type=list, found=\"A\"",
                f"{MAIN}: parameterSets[0].kyes: SPEC_PARAMETER_UNKNOWN name=kyes, known=dataFlowId, keys, feed, suffix",
                f"{MAIN}: parameterSets[1].dataFlowId: SPEC_PARAMETER_MISSING",
            ],
        ),
        (
            {"parameters": {"keys": {"type": "list"}, "feed": {"type": "integer"}}},
            template_spec({"keys": ["A"]}),
            [
                "templates/feed.json: parameters.dataFlowId: SPEC_TEMPLATE_WITHOUT_ID",
                "templates/feed.json: template: SPEC_TEMPLATE_PARAMETER_UNDECLARED parameter=${param.missing}",
            ],
        ),
        ({"parameters": {"dataFlowId": {"type": "text"}}}, template_spec({"dataFlowId": "a"}), [
            "templates/feed.json: parameters.dataFlowId.type: SPEC_VALUE_NOT_ALLOWED allowed='string', 'integer', 'boolean', 'list' or 'object', found='text'"
        ]),
        # A problem of a created spec is located by the id of the spec and the key of the template.
        (
            {},
            template_spec({"dataFlowId": "a", "keys": []}),
            [f"{MAIN}#a: cdcSettings.keys: SPEC_LIST_TOO_SHORT least=1 entry"],
        ),
        (
            {"parameters": {**TEMPLATE["parameters"], "suffix": {"type": "string", "required": False}}},
            template_spec({"dataFlowId": "a", "keys": ["A"]}),
            [f"{MAIN}: parameterSets[0].suffix: SPEC_PARAMETER_WITHOUT_DEFAULT"],
        ),
        (
            {"parameters": {**TEMPLATE["parameters"], "suffix": {"type": "list"}}},
            template_spec({"dataFlowId": "a", "keys": ["A"], "suffix": ["x"]}),
            [f"{MAIN}: parameterSets[0].suffix: SPEC_PARAMETER_NOT_TEXT found=a list"],
        ),
    ],
)  # fmt: skip
def test_invalid_template_is_reported(
    project: ProjectFiles, template: dict[str, Any] | None, written: dict[str, Any], expected: list[str]
) -> None:
    project.write("templates/python_functions/tidy.py", "")
    if template is not None:
        made = {**TEMPLATE, **template}
        if "keys" in made["parameters"] and "dataFlowId" not in made["parameters"]:
            made["template"] = {"${param.missing}": "${param.keys}"}
        project.write("templates/feed.json", made)
    project.write(MAIN, written)
    assert project.problems() == expected


def test_keys_of_earlier_versions_are_converted(project: ProjectFiles) -> None:
    settings = {"keys": ["ID"], "sequence_by": "TS", "scd_type": "1", "where": ""}
    written = project.flow(dataFlowVersion="0.1.0", cdcApplyChanges=settings)
    del written["cdcSettings"]
    project.write(MAIN, written)
    assert load_dataflow(project).target.cdc == flows.CdcSettings(("ID",), "TS", 1)
    # Keys of an unknown version aren't converted.
    project.write(MAIN, {**written, "dataFlowVersion": "7"})
    assert (
        f"{MAIN}: cdcApplyChanges: SPEC_KEY_MISSPELT key=cdcApplyChanges, known=cdcSettings"
        in project.problems()
    )
    project.write("dataflows/sales/python_functions/tidy.py", "")
    older = spec_without_migration(
        project, sourceDetails={"database": "a", "table": "b", "pythonFunctionPath": "tidy.py"}
    )
    older["targetDetails"]["spark_conf"] = {"a": 1}
    project.write(MAIN, older)
    project.write("pipeline_configs/global.json", {"dataflow_spec_version": "0.2.0"})
    dataflow = load_dataflow(project)
    assert dataflow.target.spark_conf == {"a": "1"}
    source = dataflow.views["v_orders"].source
    assert isinstance(source, flows.DeltaSource)
    assert source.transform == flows.PythonCode(
        str(project.root / "dataflows/sales/python_functions/tidy.py"), None
    )


def test_id_may_repeat_in_another_group_without_flow_group_files(project: ProjectFiles) -> None:
    project.write(MAIN, project.flow())
    again = project.flow(dataFlowGroup="gold", targetDetails={"database": "gold", "table": "customer"})
    again["flowGroups"][0]["flows"]["f_customer"]["flowDetails"]["targetTable"] = "customer"
    project.write(SPECS + "b_main.json", again)
    assert len(project.load().dataflows) == 2
    group = {**again["flowGroups"][0], "flowGroupId": "more", "dataFlowId": "customer"}
    project.write(SPECS + "b_flow.json", group)
    assert f"{MAIN}: dataFlowId: SPEC_ID_TAKEN id=customer, other={SPECS}b_main.json" in project.problems()


def test_python_module_is_found_in_the_folders_of_the_bundle(
    project: ProjectFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    project.write("libraries/inner_of_the_feature_test.py", "VALUE = 7\n")
    project.write(
        "python/outer_of_the_feature_test.py",
        "import inner_of_the_feature_test as inner\ndef get_df(spark, tokens):\n    return inner.VALUE\n",
    )
    details = {"pythonModule": "outer_of_the_feature_test.get_df"}
    project.write(MAIN, spec_without_migration(project, sourceType="python", sourceDetails=details))
    source = load_dataflow(project).views["v_orders"].source
    assert isinstance(source, flows.PythonSource)
    assert source.code.folders == (str(project.root / "python"), str(project.root / "libraries"))
    assert load_function(source.code, "get_df")(None, {}) == 7


def test_quarantine_adds_a_table_and_a_flow_for_each_flow(project: ProjectFiles) -> None:
    project.write("dataflows/sales/expectations/rules.json", EXPECTATIONS)
    details: dict[str, Any] = {"targetFormat": "delta", "clusterByAuto": True, "tableProperties": {"a": 1}}
    project.write(
        MAIN,
        spec_without_migration(
            project, **WITH_EXPECTATIONS, quarantineMode="table", quarantineTargetDetails=details
        ),
    )
    dataflow = load_dataflow(project)
    assert dataflow.quarantine is not None
    assert [str(table.name) for table in dataflow.tables] == ["silver.orders", "silver.orders_quarantine"]
    assert dataflow.quarantine.properties == {"a": "1"}
    assert dataflow.quarantine.expectations == (flows.Expectation("quarantine", CONSTRAINTS, "quarantine"),)
    assert [rule.action for rule in dataflow.target.expectations] == ["warn", "drop"]
    assert [(flow.name, str(flow.target), flow.view) for flow in dataflow.flows] == [
        ("f_v_orders", "silver.orders", "v_orders"),
        ("f_quarantine_v_orders_quarantine", "silver.orders_quarantine", "v_orders"),
    ]
    for named, expected in (
        ({"database": "bad"}, "bad.orders_quarantine"),
        ({"table": "bad"}, "bad"),
        ({"table": "rows", "database": "bad"}, "bad.rows"),
    ):
        written = spec_without_migration(
            project, **WITH_EXPECTATIONS, quarantineMode="table", quarantineTargetDetails=named
        )
        assert list(VALIDATOR.iter_errors(written)) == []
        project.write(MAIN, written)
        quarantine = load_dataflow(project).quarantine
        assert quarantine is not None
        assert str(quarantine.name) == expected
    project.write(
        SPECS + "b_main.json",
        spec_without_migration(project, dataFlowId="b", targetDetails={"database": "bad", "table": "rows"}),
    )
    (problem,) = project.problems()
    assert "SPEC_TABLE_FILLED_TWICE table=bad.rows," in problem


def test_flows_with_the_same_view_get_separate_quarantine_flows(project: ProjectFiles) -> None:
    project.write("dataflows/sales/expectations/rules.json", EXPECTATIONS)
    written = project.flow(cdcSettings=None, **WITH_EXPECTATIONS, quarantineMode="table")
    group = written["flowGroups"][0]
    rows = group["flows"]["f_rows"]
    rows["flowDetails"]["targetTable"] = "customer"
    prefixed = {"targetTable": "customer", "sourceView": "v_rows", "column_prefix": "new"}
    group["flows"] = {"f_rows": rows, "f_more": {"flowType": "append_view", "flowDetails": prefixed}}
    del group["stagingTables"]
    project.write(MAIN, written)
    assert [(flow.name, flow.target.table, flow.column_prefix) for flow in load_dataflow(project).flows] == [
        ("f_rows", "customer", None),
        ("f_more", "customer", "new_"),
        ("f_quarantine_v_rows_quarantine", "customer_quarantine", None),
        ("f_quarantine_f_more_quarantine", "customer_quarantine", "new_"),
    ]


def test_quarantine_flag_turns_every_expectation_into_a_warning(project: ProjectFiles) -> None:
    project.write("dataflows/sales/expectations/rules.json", EXPECTATIONS)
    project.write(MAIN, spec_without_migration(project, **WITH_EXPECTATIONS, quarantineMode="flag"))
    dataflow = load_dataflow(project)
    assert dataflow.quarantine is None
    assert [(rule.name, rule.action) for rule in dataflow.target.expectations] == [
        ("known", "warn"), ("paid", "warn"), ("is_quarantined", "flag"),
    ]  # fmt: skip
    assert dataflow.target.expectations[-1].constraint == CONSTRAINTS


def field(name: str, kind: Any, mapping: Any = None) -> dict[str, Any]:
    return {"name": name, "type": kind, **({"metadata": {"mapping": mapping}} if mapping else {})}


def test_operational_metadata_follows_the_layer(project: ProjectFiles) -> None:
    project.write(MAIN, spec_without_migration(project))
    assert load_dataflow(project).target.metadata == ()
    load = {"reserved": {"pipeline_layer": "gold"}}
    (built_in,) = specs.load(project.root, **load).dataflows[0].target.metadata  # type: ignore[arg-type]
    assert (built_in.name, [inner.name for inner in built_in.fields]) == (
        "meta_load_details",
        [
            "record_insert_timestamp",
            "record_update_timestamp",
            "pipeline_start_timestamp",
            "pipeline_update_id",
        ],
    )
    columns = [
        field("loaded", "timestamp", {"type": "sql", "payload": "now()"}),
        field(
            "how",
            {
                "type": "struct",
                "fields": [field("layer", "string", {"type": "pipeline_detail", "key": "pipeline_layer"})],
            },
        ),
    ]
    project.write("pipeline_configs/operational_metadata_gold.json", {"type": "struct", "fields": columns})
    metadata = specs.load(project.root, **load).dataflows[0].target.metadata  # type: ignore[arg-type]
    layer = flows.MetadataColumn("layer", '"string"', detail="pipeline_layer", value="gold")
    assert metadata == (
        flows.MetadataColumn("loaded", '"timestamp"', sql="now()"),
        flows.MetadataColumn("how", "", fields=(layer,)),
    )
    for changes in ({"features": {"operationalMetadataEnabled": False}},
                    {"targetDetails": {"table": "t", "configFlags": ["disableOperationalMetadata"]}}):  # fmt: skip
        project.write(MAIN, spec_without_migration(project, **changes))
        assert specs.load(project.root, **load).dataflows[0].target.metadata == ()  # type: ignore[arg-type]
    assert project.problems() == ["pipeline_configs/operational_metadata_gold.json: SPEC_LAYER_NOT_CHOSEN"]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (
            field("a", "string"),
            "fields[0].metadata.mapping: SPEC_COLUMN_WITHOUT_MAPPING",
        ),
        (
            field("a", "string", {"type": "custom"}),
            "fields[0].metadata.mapping.type: SPEC_VALUE_NOT_ALLOWED allowed='sql' or 'pipeline_detail', found='custom'",
        ),
        (field("a", "string", {"type": "sql"}), "fields[0].metadata.mapping.sql: SPEC_KEY_MISSING"),
        (
            field("a", "string", {"type": "pipeline_detail", "key": "run_id"}),
            "fields[0].metadata.mapping.key: SPEC_DETAIL_UNKNOWN detail=run_id, known=pipeline_id, pipeline_catalog, pipeline_schema, pipeline_layer, workspace_env, logical_env, start_utc_timestamp, update_id",
        ),
    ],
)
def test_metadata_column_without_value_is_reported(
    project: ProjectFiles, column: dict[str, Any], expected: str
) -> None:
    project.write(MAIN, spec_without_migration(project))
    project.write(
        "pipeline_configs/dev_substitutions.json",
        {"tokens": {"bronze_schema": "b", "silver_schema": "s", "pipeline_layer": "x"}},
    )
    file = "pipeline_configs/operational_metadata_x.json"
    project.write(file, {"fields": [column]})
    assert project.problems() == [f"{file}: {expected}"]


HISTORICAL: dict[str, Any] = {
    "keys": ["ID"],
    "scd_type": "2",
    "snapshotType": "historical",
    "sourceType": "file",
    "source": {
        "format": "csv",
        "path": "/Volumes/m/s/v/{version}/part_{fragment}.csv",
        "versionType": "timestamp",
        "datetimeFormat": "%Y%m%d",
        "readerOptions": {"header": True},
        "filter": "DAY = '{version}'",
        "selectExp": ["*"],
        "recursiveFileLookup": True,
        "deduplicateMode": "full_row",
    },
    "track_history_except_column_list": ["AT"],
}


def snapshot_spec(project: ProjectFiles, settings: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return a spec without a view."""
    written = spec_without_migration(project, cdcSnapshotSettings=settings, **changes)
    for key in ("sourceSystem", "sourceViewName", "sourceType", "sourceDetails", "mode"):
        del written[key]
    return written


def test_historical_snapshots_need_no_view_and_no_flow(project: ProjectFiles) -> None:
    written = snapshot_spec(project, HISTORICAL)
    assert list(VALIDATOR.iter_errors(written)) == []
    project.write(MAIN, written)
    dataflow = load_dataflow(project)
    assert (dataflow.flows, dataflow.views, dataflow.target.cdc) == ((), {}, None)
    assert dataflow.target.snapshots == flows.SnapshotCdc(
        ("ID",), 2,
        flows.SnapshotFiles(
            "csv", "/Volumes/m/s/v/{version}/part_{fragment}.csv", "timestamp", {"header": "true"}, None,
            "%Y%m%d", "DAY = '{version}'", ("*",), None, recursive=True, deduplicate="full_row",
        ),
        (), ("AT",), f"{MAIN}: cdcSnapshotSettings",
    )  # fmt: skip
    table = {"table": "{bronze_schema}.days", "versionColumn": "DAY", "versionType": "date"}
    project.write(MAIN, snapshot_spec(project, {**HISTORICAL, "sourceType": "table", "source": table}))
    snapshots = load_dataflow(project).target.snapshots
    assert snapshots is not None
    assert snapshots.source == flows.SnapshotTable(TableName(("bronze", "days")), "DAY", "date")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"source": None}, "cdcSnapshotSettings.source: SPEC_KEY_MISSING"),
        ({"snapshotType": "periodic"}, "cdcSnapshotSettings.source: SPEC_KEY_NEEDS_HISTORICAL_SNAPSHOTS"),
        ({"scd_type": "1"}, "cdcSnapshotSettings.track_history_except_column_list: SPEC_KEY_NEEDS_SCD_TYPE scd_type=2"),
        ({"source": {**HISTORICAL["source"], "path": "/v/x.csv"}}, "cdcSnapshotSettings.source.path: SPEC_SNAPSHOT_PATH_WITHOUT_VERSION mark={version}"),
        ({"source": {**HISTORICAL["source"], "path": "s3://b/{version}.csv"}}, "cdcSnapshotSettings.source.path: SPEC_PATH_NOT_A_FOLDER path=s3://b/{version}.csv"),
        ({"source": {**HISTORICAL["source"], "path": "/v/{typo}/{version}.csv"}}, "cdcSnapshotSettings.source.path: SPEC_TOKEN_WITHOUT_VALUE token={typo}, file=pipeline_configs/dev_substitutions.json"),
        ({"source": {**HISTORICAL["source"], "datetimeFormat": None}}, "cdcSnapshotSettings.source.datetimeFormat: SPEC_DATETIME_FORMAT_MISSING"),
        ({"source": {**HISTORICAL["source"], "startingVersion": 7}}, "cdcSnapshotSettings.source.startingVersion: SPEC_STARTING_VERSION_TYPE expected=text, type=timestamp"),
        ({"source": {**HISTORICAL["source"], "everything": 1}}, "cdcSnapshotSettings.source.everything: SPEC_KEY_UNKNOWN key=everything"),
    ],
)  # fmt: skip
def test_invalid_snapshot_settings_are_reported(
    project: ProjectFiles, changes: dict[str, Any], expected: str
) -> None:
    project.write(MAIN, snapshot_spec(project, {**HISTORICAL, **changes}))
    assert f"{MAIN}: {expected}" in project.problems()


def test_periodic_snapshots_are_read_from_a_batch_view(project: ProjectFiles) -> None:
    settings = {"keys": ["ID"], "scd_type": "1", "snapshotType": "periodic"}
    project.write(MAIN, spec_without_migration(project, mode="batch", cdcSnapshotSettings=settings))
    dataflow = load_dataflow(project)
    assert dataflow.flows == ()
    assert dataflow.target.snapshots == flows.SnapshotCdc(
        ("ID",), 1, "v_orders", location=f"{MAIN}: cdcSnapshotSettings"
    )
    project.write(MAIN, spec_without_migration(project, cdcSnapshotSettings=settings))
    assert project.problems() == [f"{MAIN}: mode: SPEC_SNAPSHOT_READ_AS_STREAM"]
    both = {
        "cdcSettings": {"keys": ["ID"], "scd_type": "1", "sequence_by": "TS"},
        "cdcSnapshotSettings": settings,
    }
    project.write(MAIN, spec_without_migration(project, mode="batch", **both))
    assert project.problems() == [
        f"{MAIN}: cdcSnapshotSettings: SPEC_KEYS_EXCLUDE_EACH_OTHER other=cdcSettings"
    ]
    # In a flow spec, the view of a merge flow provides the snapshots.
    written = project.flow(cdcSettings=None, cdcSnapshotSettings=settings)
    flow = written["flowGroups"][0]["flows"]["f_rows"]
    flow["views"]["v_rows"]["mode"] = "batch"
    flow.update(flowType="merge", flowDetails={"targetTable": "silver.customer", "sourceView": "v_rows"})
    del written["flowGroups"][0]["flows"]["f_customer"]
    project.write(MAIN, written)
    snapshots = load_dataflow(project).target.snapshots
    assert snapshots is not None
    assert snapshots.source == "v_rows"


def test_operational_metadata_with_snapshots_is_reported(project: ProjectFiles) -> None:
    written = project.flow()
    written["flowGroups"][0]["stagingTables"]["kept"] = {"type": "ST", "cdcSnapshotSettings": HISTORICAL}
    project.write(MAIN, written)
    assert len(load_dataflow(project).staging) == 2
    (problem,) = project.problems(reserved={"pipeline_layer": "silver"})
    assert problem.endswith("stagingTables.kept.configFlags: SPEC_SNAPSHOTS_WITH_METADATA")
    # The target of a spec with snapshots never has operational metadata.
    project.write(MAIN, snapshot_spec(project, HISTORICAL))
    assert specs.load(project.root, reserved={"pipeline_layer": "silver"}).dataflows[0].target.metadata == ()


VIEWS: dict[str, Any] = {
    "dataFlowId": "gold",
    "dataFlowGroup": "gold",
    "dataFlowType": "materialized_view",
    "materializedViews": {
        "by_source": {
            "sourceView": {
                "sourceViewName": "v_customers",
                "sourceType": "delta",
                "sourceDetails": {"database": "silver", "table": "customer", "cdfEnabled": True},
            },
            "tableDetails": {"database": "gold", "private": True, "comment": "All of them"},
        },
        "by_sql": {
            "sqlStatement": "SELECT * FROM live.by_source",
            "tableDetails": {"database": "gold", "clusterByColumns": ["ID"]},
            "refreshPolicy": "incremental_strict",
            **WITH_EXPECTATIONS,
            "quarantineMode": "table",
        },
    },
}


def test_materialized_views_are_compiled_separately_from_flows(project: ProjectFiles) -> None:
    project.write("dataflows/sales/expectations/rules.json", EXPECTATIONS)
    assert list(VALIDATOR.iter_errors(VIEWS)) == []
    project.write(SPECS + "gold_main.json", VIEWS)
    loaded = project.load()
    by_source, by_sql = loaded.materialized
    assert (loaded.dataflows, str(by_source.target.name), str(by_sql.target.name)) == (
        (),
        "gold.by_source",
        "gold.by_sql",
    )
    assert by_source.views["v_customers"].source == flows.DeltaSource(TableName(("silver", "customer")))
    assert (by_source.private, by_source.target.comment, by_sql.refresh_policy) == (
        True,
        "All of them",
        "incremental_strict",
    )
    assert by_sql.views[by_sql.view].source == flows.SqlSource("SELECT * FROM `gold`.`by_source`")
    assert by_sql.quarantine is not None
    assert str(by_sql.quarantine.name) == "gold.by_sql_quarantine"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"sqlPath": "a.sql"}, "by_sql: SPEC_NOT_EXACTLY_ONE_KEY keys=sourceView, sqlPath and sqlStatement"),
        ({"sqlStatement": "SELECT 'x"}, "by_sql.sqlStatement: SPEC_SQL_INVALID reason=Missing ' from 1:7"),
        ({"refreshPolicy": "never"}, "by_sql.refreshPolicy: SPEC_VALUE_NOT_ALLOWED allowed='auto', 'incremental', 'incremental_strict' or 'full', found='never'"),
        ({"tableDetails": {"database": "gold", "tableProperty": {}}}, "by_sql.tableDetails.tableProperty: SPEC_KEY_MISSPELT key=tableProperty, known=tableProperties"),
    ],
)  # fmt: skip
def test_invalid_materialized_view_is_reported(
    project: ProjectFiles, changes: dict[str, Any], expected: str
) -> None:
    project.write("dataflows/sales/expectations/rules.json", EXPECTATIONS)
    views = {**VIEWS["materializedViews"], "by_sql": {**VIEWS["materializedViews"]["by_sql"], **changes}}
    project.write(MAIN, {**VIEWS, "materializedViews": views})
    assert any(problem.startswith(f"{MAIN}: materializedViews.{expected}") for problem in project.problems())


def test_engine_names_the_specs_that_it_skips(project: ProjectFiles) -> None:
    project.write("dataflows/sales/expectations/rules.json", EXPECTATIONS)
    project.write(MAIN, spec_without_migration(project))
    project.write(SPECS + "gold_main.json", VIEWS)
    project.write(
        SPECS + "days_main.json",
        snapshot_spec(project, HISTORICAL, dataFlowId="days", targetDetails={"table": "days"}),
    )
    loaded = project.load()
    streamed, declared, databricks = (
        select_runnable_specs(loaded, engine) for engine in ("streaming", "declarative", "databricks")
    )
    assert databricks == loaded
    assert [dataflow.id for dataflow in streamed.dataflows] == ["orders_append"]
    days = f"{SPECS}days_main.json (days) is skipped: [SPEC_SNAPSHOTS_OUTSIDE_DATABRICKS] Snapshot CDC of days runs only on Databricks. Run the project in a pipeline on Databricks."
    assert [str(skipped) for skipped in streamed.skipped] == [
        days,
        *(
            f"{SPECS}gold_main.json (gold.{name}) is skipped: [SPEC_MATERIALIZED_VIEW_OUTSIDE_PIPELINE] Only a declarative pipeline refreshes gold.{name}, which is a materialized view. Run the project in a pipeline on Databricks, or make it a streaming table with a flow."
            for name in ("by_source", "by_sql")
        ),
    ]
    assert [dataflow.id for dataflow in declared.dataflows] == ["orders_append"]
    assert len(declared.materialized) == 2
    assert [str(skipped) for skipped in declared.skipped] == [days]
    assert declared.skipped[0].problems[0].path == "cdcSnapshotSettings"
    # If the engine can run no spec of the project, it raises an error instead of skipping them.
    (project.root / MAIN).unlink()
    (project.root / SPECS / "days_main.json").unlink()
    with pytest.raises(SpecError, match="Only a declarative pipeline refreshes gold"):
        select_runnable_specs(project.load(), "streaming")
