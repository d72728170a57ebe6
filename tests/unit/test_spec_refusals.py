"""What is refused, and in which words."""

# Messages are written whole, as they are read.
# ruff: noqa: E501

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.unit.conftest import ProjectFiles

SPECS = "dataflows/sales/dataflowspec/"
MAIN = SPECS + "orders_main.json"
SINK_REMEDY = "use delta, or leave the sink in its own pipeline"
SNAPSHOT = (
    "cdcSnapshotSettings can't stand beside a migration, as AUTO CDC FROM SNAPSHOT can't share a target with "
    "AUTO CDC: feed the target from a change feed with cdcSettings, or set enabled to false"
)
CDC = {"keys": ["ID"], "scd_type": "1", "sequence_by": "TS"}
SNAPSHOT_SETTINGS = {"keys": ["A"], "scd_type": "1", "snapshotType": "periodic"}


def put(written: Any, path: str, value: Any) -> None:
    """Set the value at a path such as ``a.0.b``; ``...`` takes the key out."""
    *above, last = (int(step) if step.isdigit() else step for step in path.split("."))
    for step in above:
        written = written[step]
    if value is ...:
        del written[last]
    else:
        written[last] = value


STANDARD: list[tuple[dict[str, Any], list[str]]] = [
    ({"dataFlowGroup": ...}, ["dataFlowGroup: is required: add it"]),
    ({"dataFlowType": ...}, ["dataFlowType: is required: add it"]),
    (
        {"dataFlowType": ..., "dataflowType": "standard"},
        [
            "dataFlowType: is required: add it",
            "dataflowType: unknown key 'dataflowType': did you mean 'dataFlowType'?",
        ],
    ),
    ({"dataFlowType": "x"}, ["dataFlowType: must be 'standard', 'flow' or 'materialized_view', not \"x\""]),
    ({"mode": ...}, ["mode: is required: add it"]),
    ({"mode": "steam"}, ["mode: must be 'stream' or 'batch', not 'steam'"]),
    ({"sourceType": ...}, ["sourceType: is required: add it"]),
    (
        {"sourceType": "parquet"},
        [
            "sourceType: must be 'delta', 'deltaJoin', 'sql', 'python', 'cloudFiles', 'batchFiles' or "
            "'kafka', not 'parquet'"
        ],
    ),
    (
        {"sourceType": ["delta"]},
        [
            "sourceType: must be 'delta', 'deltaJoin', 'sql', 'python', 'cloudFiles', 'batchFiles' or "
            "'kafka', not a list"
        ],
    ),
    ({"sourceDetails": []}, ["sourceDetails: must be a mapping of keys to values, not a list"]),
    ({"sourceDetails.table": ...}, ["sourceDetails.table: is required: add it"]),
    ({"sourceDetails.cdfEnabled": "true"}, ['sourceDetails.cdfEnabled: must be true or false, not "true"']),
    ({"sourceDetails.table": 7}, ["sourceDetails.table: must be text, not 7: put it in quotes"]),
    ({"sourceDetails.table": ""}, ["sourceDetails.table: must not be empty"]),
    ({"sourceDetails.selectExp": "A"}, ['sourceDetails.selectExp: must be a list, not "A"']),
    (
        {"sourceDetails.selectexp": ["A"]},
        ["sourceDetails.selectexp: unknown key 'selectexp': did you mean 'selectExp'?"],
    ),
    ({"sourceDetails.zzz": 1}, ["sourceDetails.zzz: unknown key 'zzz': take it out"]),
    ({"sourceSytem": "erp"}, ["sourceSytem: unknown key 'sourceSytem': did you mean 'sourceSystem'?"]),
    (
        {"sourceDetails.schemaPath": "orders.json"},
        ["sourceDetails.schemaPath: file 'orders.json' doesn't exist: put it into sales/schemas/"],
    ),
    (
        {"sourceDetails.schemaPath": "orders.csv"},
        ["sourceDetails.schemaPath: 'orders.csv' must be a .json or .ddl file"],
    ),
    (
        {"sourceDetails.pythonTransform": {"functionPath": "a.py", "module": "a.b"}},
        ["sourceDetails.pythonTransform: needs either functionPath or module: write one of the two"],
    ),
    (
        {"sourceDetails.pythonTransform": {"functionPath": "a.py"}},
        [
            "sourceDetails.pythonTransform.functionPath: file 'a.py' doesn't exist: put it into "
            "sales/python_functions/"
        ],
    ),
    (
        {"sourceDetails.database": "{typo}"},
        [
            "sourceDetails.database: token '{typo}' has no value: add it to the tokens of "
            "pipeline_configs/dev_substitutions.json"
        ],
    ),
    (
        {"sourceDetails.database": "{pipeline_schema}"},
        [
            "sourceDetails.database: reserved token '{pipeline_schema}' has no value, as Tableferry knows of "
            "no pipeline that sets it: add it to the tokens of pipeline_configs/dev_substitutions.json"
        ],
    ),
    (
        {"sourceDetails.database": "a.b.c"},
        [
            "sourceDetails.table: [TABLE_NAME_TOO_LONG] 'a.b.c.orders' has 4 parts, and a table name has one to three. "
            "Write it as catalog.schema.table."
        ],
    ),
    (
        {"sourceDetails.database": "live", "sourceDetails.table": "x"},
        ["sourceDetails.table: no spec of this project fills live.x: write its database and table"],
    ),
    ({"cdcSettings": {**CDC, "keys": []}}, ["cdcSettings.keys: must have at least 1 entry"]),
    ({"cdcSettings": {**CDC, "scd_type": "3"}}, ["cdcSettings.scd_type: must be '1' or '2', not '3'"]),
    ({"cdcSettings": {**CDC, "scd_type": True}}, ["cdcSettings.scd_type: must be '1' or '2', not true"]),
    (
        {"cdcSettings": {**CDC, "sequenceBy": "A"}},
        ["cdcSettings.sequenceBy: unknown key 'sequenceBy': did you mean 'sequence_by'?"],
    ),
    (
        {"cdcSettings": {**CDC, "scd_type": 2, "apply_as_truncates": "OP = 't'"}},
        ["cdcSettings.apply_as_truncates: works with scd_type 1 only: leave it out or set scd_type to 1"],
    ),
    (
        {"cdcSettings": {**CDC, "column_list": ["A"], "except_column_list": ["B"]}},
        ["cdcSettings.except_column_list: can't stand beside column_list: keep one of the two"],
    ),
    (
        {
            "cdcSettings": {
                **CDC,
                "track_history_column_list": ["A"],
                "track_history_except_column_list": ["B"],
            }
        },
        [
            "cdcSettings.track_history_column_list: works with scd_type 2 only: leave it out or set scd_type "
            "to 2",
            "cdcSettings.track_history_except_column_list: can't stand beside track_history_column_list: "
            "keep one of the two",
            "cdcSettings.track_history_except_column_list: works with scd_type 2 only: leave it out or set "
            "scd_type to 2",
        ],
    ),
    ({"cdcSnapshotSettings": SNAPSHOT_SETTINGS}, [f"cdcSnapshotSettings: {SNAPSHOT}"]),
    (
        {"quarantineMode": "flag"},
        [
            "quarantineMode: has no rules to go by: set dataQualityExpectationsEnabled to true, or quarantineMode to off"
        ],
    ),
    (
        {"quarantineMode": "elsewhere"},
        ["quarantineMode: must be 'off', 'flag' or 'table', not 'elsewhere'"],
    ),
    (
        {"quarantineTargetDetails": {"targetFormat": "kafka_sink", "schemaPath": "x.json"}},
        [
            "quarantineTargetDetails.schemaPath: unknown key 'schemaPath': take it out",
            "quarantineTargetDetails.targetFormat: must be 'delta', not 'kafka_sink'",
        ],
    ),
    (
        {"dataQualityExpectationsEnabled": True},
        [
            "dataQualityExpectationsEnabled: needs dataQualityExpectationsPath: name the file, or set it to "
            "false"
        ],
    ),
    (
        {"dataQualityExpectationsEnabled": True, "dataQualityExpectationsPath": "x.json"},
        ["dataQualityExpectationsPath: file 'x.json' doesn't exist: put it into sales/expectations/"],
    ),
    (
        {"targetDetails.partitionColumns": ["A"], "targetDetails.clusterByColumns": ["B"]},
        ["targetDetails.clusterByColumns: can't stand beside partitionColumns: keep one of the two"],
    ),
    (
        {"targetDetails.path": "/a", "targetDetails.tablePath": "/b"},
        ["targetDetails.tablePath: is another spelling of path: keep one"],
    ),
    (
        {"targetDetails.table": "a.b.c.d"},
        [
            "targetDetails.table: [TABLE_NAME_TOO_LONG] 'silver.a.b.c.d' has 5 parts, and a table name has one to three. "
            "Write it as catalog.schema.table."
        ],
    ),
    (
        {"features": {"operationalMetadata": True}},
        [
            "features.operationalMetadata: unknown key 'operationalMetadata': did you mean "
            "'operationalMetadataEnabled'?"
        ],
    ),
    (
        {
            "tableMigrationDetails.handOver": "content",
            "tableMigrationDetails.autoStartingVersionsEnabled": False,
        },
        [
            "tableMigrationDetails.handOver: says where the streaming flows start, which autoStartingVersionsEnabled: false leaves to readerOptions: set that to true, or take this out"
        ],
    ),
    (
        {"tableMigrationDetails.mode": "takeOver", "tableMigrationDetails.handOver": "version"},
        [
            "tableMigrationDetails.sourceDetails.checkpointLocation: mode takeOver goes on from the checkpoints of the old streams: give them, with handOver checkpoint",
            "tableMigrationDetails.sourceDetails.table: names silver.orders_legacy, and mode takeOver goes on in the target, silver.orders: name that, or set mode to copy",
        ],
    ),
    (
        {"tableMigrationDetails.handOver": "checkpoint"},
        [
            "tableMigrationDetails.sourceDetails.checkpointLocation: handOver checkpoint needs the checkpoint of the stream that fills the legacy table: give checkpointLocation, or set handOver to version, which loses the rows that the old job hasn't processed yet"
        ],
    ),
    (
        {
            "tableMigrationDetails.sourceDetails.checkpointLocation": "/old",
            "tableMigrationDetails.autoStartingVersionsEnabled": False,
        },
        [
            "tableMigrationDetails.sourceDetails.checkpointLocation: says where the streaming flows start, which autoStartingVersionsEnabled: false leaves to readerOptions: set that to true, or take this out"
        ],
    ),
    (
        {"tableMigrationDetails.sourceDetails.checkpointLocation": ["/old", "s3://bucket/old"]},
        [
            "tableMigrationDetails.sourceDetails.checkpointLocation: s3://bucket/old isn't in a folder: give a path of a Unity Catalog volume (/Volumes/<catalog>/<schema>/<volume>/…), or of a folder of this machine"
        ],
    ),
    (
        {"tableMigrationDetails.sourceDetails.checkpointLocation": 1},
        ["tableMigrationDetails.sourceDetails.checkpointLocation: must be a list, not 1"],
    ),
    (
        {"tableMigrationDetails.catalogType": "glue"},
        ["tableMigrationDetails.catalogType: must be 'hms' or 'uc', not 'glue'"],
    ),
    (
        {"tableMigrationDetails.sourceDetails.table": ...},
        ["tableMigrationDetails.sourceDetails.table: is required: add it"],
    ),
    (
        {
            "cdcSettings": {**CDC, "scd_type": "2"},
            "tableMigrationDetails.sourceDetails.selectExp": ["ID", "A AS __START_AT"],
        },
        [
            "tableMigrationDetails.sourceDetails.selectExp: has no __END_AT, which a target of scd_type 2 needs: "
            'map the legacy table\'s validity columns, such as "EFFECTIVE_TO AS __END_AT"'
        ],
    ),
    (
        # This star doesn't stand for columns.
        {
            "cdcSettings": {**CDC, "scd_type": "2"},
            "tableMigrationDetails.sourceDetails.selectExp": ["ID", "AMOUNT * 2 AS A", "ID AS __END_AT"],
        },
        [
            "tableMigrationDetails.sourceDetails.selectExp: has no __START_AT, which a target of scd_type 2 needs: "
            'map the legacy table\'s validity columns, such as "EFFECTIVE_FROM AS __START_AT"'
        ],
    ),
    (
        # The column is read here, and has another name in the result.
        {
            "cdcSettings": {**CDC, "scd_type": "2"},
            "tableMigrationDetails.sourceDetails.selectExp": ["__START_AT + 1 AS A", "B AS __END_AT"],
        },
        [
            "tableMigrationDetails.sourceDetails.selectExp: has no __START_AT, which a target of scd_type 2 needs: "
            'map the legacy table\'s validity columns, such as "EFFECTIVE_FROM AS __START_AT"'
        ],
    ),
    (
        {"cdcSettings": {**CDC, "scd_type": "2"}, "tableMigrationDetails.sourceDetails.selectExp": ["ID"]},
        [
            "tableMigrationDetails.sourceDetails.selectExp: has no __START_AT and no __END_AT, which a "
            "target of scd_type 2 needs: map the legacy table's validity columns, such as "
            '"EFFECTIVE_FROM AS __START_AT"'
        ],
    ),
]

ALLOWED: list[dict[str, Any]] = [
    {"quarantineMode": "off"},
    {"quarantineMode": False},
    {"sourceDetails.startingVersionFromDLTSetup": True},
    {"sourceDetails.database": "live"},
    {"sourceDetails.schemaPath": None},
    {"mode": "batch"},
    {"cdcSettings": {**CDC, "where": "", "apply_as_deletes": "", "apply_as_truncates": ""}},
    {"cdcSettings": {**CDC, "apply_as_truncates": "OP = 't'"}},
    # What these yield can't be judged.
    {"cdcSettings": {**CDC, "scd_type": "2"}, "tableMigrationDetails.sourceDetails.selectExp": ["*"]},
    {"cdcSettings": {**CDC, "scd_type": "2"}, "tableMigrationDetails.sourceDetails.selectExp": ["((("]},
    {
        "cdcSettings": {**CDC, "scd_type": "2"},
        "tableMigrationDetails.sourceDetails.selectExp": ["t.* EXCEPT (A)"],
    },
    {"cdcSettings": {**CDC, "scd_type": "2"}, "tableMigrationDetails.sourceDetails.selectExp": []},
    {
        "cdcSettings": {**CDC, "scd_type": "2"},
        "tableMigrationDetails.sourceDetails.selectExp": ["__start_at", "t.B as __END_AT"],
    },
    {
        "cdcSettings": {**CDC, "scd_type": "2"},
        "tableMigrationDetails.sourceDetails.selectExp": ["date(A) AS __START_AT", "`B` AS __END_AT"],
    },
]


@pytest.mark.parametrize(("changes", "expected"), STANDARD)
def test_standard_spec(project: ProjectFiles, changes: dict[str, Any], expected: list[str]) -> None:
    written = project.append()
    for path, value in changes.items():
        put(written, path, value)
    project.write(MAIN, written)
    assert project.problems() == [f"{MAIN}: {message}" for message in expected]


@pytest.mark.parametrize("changes", ALLOWED)
def test_standard_spec_allowed(project: ProjectFiles, changes: dict[str, Any]) -> None:
    written = project.append()
    for path, value in changes.items():
        put(written, path, value)
    project.write(MAIN, written)
    assert len(project.load().dataflows) == 1


@pytest.mark.parametrize("sink", ["delta_sink", "kafka_sink", "foreach_batch_sink"])
def test_sinks(project: ProjectFiles, sink: str) -> None:
    project.write(MAIN, project.append(targetFormat=sink, targetDetails={"name": "s", "sinkOptions": {}}))
    assert project.problems() == [
        f"{MAIN}: tableMigrationDetails: a migration needs a target in the delta format, not {sink}: set "
        "targetFormat to delta or enabled to false",
        f"{MAIN}: targetFormat: targetFormat {sink} isn't supported: {SINK_REMEDY}",
    ]


FLOW = "flowGroups.0.flows.f_rows"
VIEW = f"{FLOW}.views.v_rows"
FLOWS: list[tuple[dict[str, Any], list[str]]] = [
    (
        {f"{FLOW}.flowType": "append"},
        [
            "flowGroups[0].flows.f_rows.flowType: must be 'append_view', 'append_sql' or 'merge', not 'append'",
        ],
    ),
    ({f"{FLOW}.flowType": ...}, ["flowGroups[0].flows.f_rows.flowType: is required: add it"]),
    (
        {f"{FLOW}.flowDetails.sourceview": "x"},
        [
            "flowGroups[0].flows.f_rows.flowDetails.sourceview: unknown key 'sourceview': did you mean "
            "'sourceView'?"
        ],
    ),
    (
        {f"{VIEW}.sourceDetails.Table": "x"},
        [
            "flowGroups[0].flows.f_rows.views.v_rows.sourceDetails.Table: unknown key 'Table': did you mean "
            "'table'?"
        ],
    ),
    (
        {f"{FLOW}.flowDetails.targetTable": "elsewhere"},
        [
            "flowGroups[0].flows.f_rows.flowDetails.targetTable: 'elsewhere' is neither the spec's target "
            "nor its staging table: name one of silver.customer, silver.customer_rows"
        ],
    ),
    (
        {f"{FLOW}.flowDetails.sourceView": "v_nothing"},
        [
            "flowGroups[0].flows.f_rows.flowDetails.sourceView: 'v_nothing' is no view of this spec's "
            "enabled flows (they have: v_rows): define it"
        ],
    ),
    (
        {f"{FLOW}.flowType": "merge"},
        [
            "flowGroups[0].flows.f_rows.flowType: merge needs cdcSettings, and silver.customer_rows has "
            "none: add them, or use append_view"
        ],
    ),
    (
        {f"{FLOW}.flowDetails.targetTable": "customer"},
        [
            "flowGroups[0].flows.f_rows.flowType: silver.customer has cdcSettings, so every flow into it "
            "must be of type merge"
        ],
    ),
    (
        {f"{FLOW}.flowType": "append_sql", f"{FLOW}.flowDetails": {"targetTable": "customer_rows"}},
        [
            "flowGroups[0].flows.f_rows.flowDetails: needs either sqlPath or sqlStatement: write one of the two"
        ],
    ),
    (
        {
            f"{FLOW}.flowType": "append_sql",
            f"{FLOW}.flowDetails": {"targetTable": "customer_rows", "sqlPath": "rows.sql"},
        },
        [
            "flowGroups[0].flows.f_rows.flowDetails.sqlPath: file 'rows.sql' doesn't exist: put it into "
            "sales/dml/"
        ],
    ),
    (
        {"flowGroups.0.stagingTables.customer_rows": {"type": "MV", "sqlStatement": "SELECT 1"}},
        [
            "flowGroups[0].stagingTables.customer_rows.type: staging tables of type MV aren't supported: use "
            "ST and fill it with an append_sql flow"
        ],
    ),
    (
        {"flowGroups.0.stagingTables.customer_rows.cdcSnapshotSettings": SNAPSHOT_SETTINGS},
        [
            "flowGroups[0].flows.f_rows.flowType: silver.customer_rows has cdcSnapshotSettings, so every flow into it must be of type merge",
            "flowGroups[0].stagingTables.customer_rows.cdcSnapshotSettings: nothing brings the snapshots: add a flow of type merge into silver.customer_rows",
        ],
    ),
    (
        {
            f"{VIEW}.sourceType": "kafka",
            f"{VIEW}.sourceDetails": {"readerOptions": {}, "pythonTransform": {}},
        },
        [
            "flowGroups[0].flows.f_rows.views.v_rows.sourceDetails.pythonTransform: pythonTransform isn't "
            "supported for kafka: use a source of type python"
        ],
    ),
    (
        {"flowGroups": []},
        ["flowGroups: holds no flows: write them here, or a *_flow file with its dataFlowId"],
    ),
    ({"flowGroups": {}}, ["flowGroups: must be a list, not a mapping"]),
    ({"flowGroups": ["main"]}, ['flowGroups[0]: must be a mapping of keys to values, not "main"']),
    (
        {"cdcApplyChanges": CDC},
        ["cdcApplyChanges: unknown key 'cdcApplyChanges': did you mean 'cdcSettings'?"],
    ),
]


@pytest.mark.parametrize(("changes", "expected"), FLOWS)
def test_flow_spec(project: ProjectFiles, changes: dict[str, Any], expected: list[str]) -> None:
    written = project.flow()
    for path, value in changes.items():
        put(written, path, value)
    project.write(MAIN, written)
    assert project.problems() == [f"{MAIN}: {message}" for message in expected]


def test_names_taken_twice(project: ProjectFiles) -> None:
    written = project.flow()
    repeated = copy.deepcopy(written["flowGroups"][0])
    del repeated["stagingTables"]
    repeated["flows"]["f_rows"]["views"]["v_rows"]["sourceDetails"]["table"] = "other"
    written["flowGroups"].append(repeated)
    project.write(MAIN, written)
    assert project.problems() == [
        f"{MAIN}: flowGroups[1].flowGroupId: 'main' is taken by {MAIN}: flowGroups[0]: give it another id",
        f"{MAIN}: flowGroups[1].flows.f_customer: flow 'f_customer' into silver.customer exists already: "
        "give it another name",
        f"{MAIN}: flowGroups[1].flows.f_rows: flow 'f_rows' into silver.customer_rows exists already: give "
        "it another name",
        f"{MAIN}: flowGroups[1].flows.f_rows.views.v_rows: view 'v_rows' is another view at {MAIN}: "
        "flowGroups[0].flows.f_rows.views.v_rows.sourceDetails: rename one of them",
    ]


def test_one_table_filled_by_two_specs(project: ProjectFiles) -> None:
    project.write(MAIN, project.append())
    project.write(SPECS + "twin_main.json", project.append(dataFlowId="twin"))
    assert project.problems() == [
        f"{SPECS}twin_main.json: targetDetails.table: table 'silver.orders' is filled by {MAIN}: "
        "targetDetails.table too: keep one, or rename it"
    ]


def join(modes: str, kind: str) -> dict[str, Any]:
    sides = [
        {"database": "b", "table": mode, "alias": f"a{position}", "joinMode": mode, "cdfEnabled": False}
        for position, mode in enumerate(modes.split())
    ]
    return {"sources": sides, "joins": [{"joinType": kind, "condition": "a0.id = a1.id"}]}


@pytest.mark.parametrize(
    ("mode", "details", "expected"),
    [
        (
            "stream",
            join("stream stream", "left"),
            "joins[0].joinType: left isn't supported where the right side is a stream, as it needs "
            "watermarks: set that source's joinMode to static or use joinType inner",
        ),
        (
            "stream",
            join("static stream", "inner"),
            "sources[0].joinMode: must be stream, as the view's mode is stream: put the followed table first",
        ),
        (
            "batch",
            join("stream static", "inner"),
            "sources[0].joinMode: must be static, as the view's mode is batch",
        ),
        (
            "stream",
            {**join("stream static", "left"), "joins": []},
            "joins: must have one entry less than sources, so 1, not 0",
        ),
    ],
)
def test_joins(project: ProjectFiles, mode: str, details: dict[str, Any], expected: str) -> None:
    project.write(MAIN, project.append(sourceType="deltaJoin", mode=mode, sourceDetails=details))
    assert project.problems() == [f"{MAIN}: sourceDetails.{expected}"]


@pytest.mark.parametrize(
    ("kind", "options", "remedy"),
    [
        ("kafka", {"startingOffsets": "earliest"}, "startingOffsets or startingTimestamp"),
        (
            "cloudFiles",
            {"modifiedAfter": "2024-01-01"},
            "modifiedAfter, or cloudFiles.includeExistingFiles to false,",
        ),
        (
            "cloudFiles",
            {"cloudFiles.includeExistingFiles": False},
            "modifiedAfter, or cloudFiles.includeExistingFiles to false,",
        ),
        ("batchFiles", {"modifiedAfter": "2024-01-01"}, "modifiedAfter"),
    ],
)
def test_migration_needs_a_start(
    project: ProjectFiles, kind: str, options: dict[str, Any], remedy: str
) -> None:
    details: dict[str, Any] = (
        {"readerOptions": {}} if kind == "kafka" else {"path": "/in", "readerOptions": {}}
    )
    written = project.append(sourceType=kind, sourceDetails=details)
    project.write(MAIN, written)
    assert project.problems() == [
        f"{MAIN}: sourceDetails: a migration with automatic starting versions can't know where this source "
        f"goes on: set {remedy} in readerOptions, or autoStartingVersionsEnabled to false"
    ]
    details["readerOptions"] = options
    project.write(MAIN, written)
    assert project.load().dataflows[0].migration is not None
    details["readerOptions"] = {}
    written["tableMigrationDetails"]["sourceDetails"]["checkpointLocation"] = "/old"
    project.write(MAIN, written)
    if kind == "kafka":
        # There the old stream's checkpoint says where it goes on.
        assert project.load().dataflows[0].migration is not None
    else:
        assert len(project.problems()) == 1
    del written["tableMigrationDetails"]["sourceDetails"]["checkpointLocation"]
    written["tableMigrationDetails"]["autoStartingVersionsEnabled"] = False
    project.write(MAIN, written)
    assert project.load().dataflows[0].migration is not None


@pytest.mark.parametrize("path", ["s3a://bucket/state", "abfss:/c@a/state", "dbfs:/state"])
def test_state_needs_a_folder(project: ProjectFiles, path: str) -> None:
    project.write("pipeline_configs/global.json", {"table_migration_state_volume_path": path})
    project.write(MAIN, project.append())
    [problem] = project.problems()
    assert problem == (
        "pipeline_configs/global.json: table_migration_state_volume_path: state is kept in a folder, and "
        f"{path} isn't one: give a folder of a Unity Catalog volume "
        "(/Volumes/<catalog>/<schema>/<volume>/…), or of this machine"
    )


@pytest.mark.parametrize(
    ("written", "path"),
    [
        ("dbfs:/Volumes/c/s/v/state", "/Volumes/c/s/v/state"),
        ("file:/srv/state", "/srv/state"),
        ("file:///srv/state", "/srv/state"),
        ("../state", "../state"),
        ("C:\\state", "C:\\state"),
    ],
)
def test_addresses_of_folders_are_taken(project: ProjectFiles, written: str, path: str) -> None:
    project.write("pipeline_configs/global.json", {"table_migration_state_volume_path": written})
    project.write(MAIN, project.append())
    assert project.load().state_volume == path


def test_migration_needs_a_folder_for_its_state(project: ProjectFiles) -> None:
    project.write("pipeline_configs/global.json", {})
    project.write(MAIN, project.append())
    assert project.problems() == [
        f"{MAIN}: tableMigrationDetails: an enabled migration needs a folder for its state: set "
        "table_migration_state_volume_path in pipeline_configs/global.json"
    ]
