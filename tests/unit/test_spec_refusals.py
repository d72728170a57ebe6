"""Invalid specs, with the place, condition and parameters of each problem."""

# Expected problems are complete lines.
# ruff: noqa: E501

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.unit.conftest import ProjectFiles

SPECS = "dataflows/sales/dataflowspec/"
MAIN = SPECS + "orders_main.json"
CDC = {"keys": ["ID"], "scd_type": "1", "sequence_by": "TS"}
SNAPSHOT_SETTINGS = {"keys": ["A"], "scd_type": "1", "snapshotType": "periodic"}


def set_at(written: Any, path: str, value: Any) -> None:
    """Set the value at a path such as ``a.0.b``; ``...`` removes the key."""
    *above, last = (int(step) if step.isdigit() else step for step in path.split("."))
    for step in above:
        written = written[step]
    if value is ...:
        del written[last]
    else:
        written[last] = value


STANDARD: list[tuple[dict[str, Any], list[str]]] = [
    ({"dataFlowGroup": ...}, ["dataFlowGroup: SPEC_KEY_MISSING"]),
    ({"dataFlowType": ...}, ["dataFlowType: SPEC_KEY_MISSING"]),
    (
        {"dataFlowType": ..., "dataflowType": "standard"},
        [
            "dataFlowType: SPEC_KEY_MISSING",
            "dataflowType: SPEC_KEY_MISSPELT key=dataflowType, known=dataFlowType",
        ],
    ),
    (
        {"dataFlowType": "x"},
        [
            "dataFlowType: SPEC_VALUE_NOT_ALLOWED allowed='standard', 'flow' or 'materialized_view', found=\"x\""
        ],
    ),
    ({"mode": ...}, ["mode: SPEC_KEY_MISSING"]),
    ({"mode": "steam"}, ["mode: SPEC_VALUE_NOT_ALLOWED allowed='stream' or 'batch', found='steam'"]),
    ({"sourceType": ...}, ["sourceType: SPEC_KEY_MISSING"]),
    (
        {"sourceType": "parquet"},
        [
            "sourceType: SPEC_VALUE_NOT_ALLOWED allowed='delta', 'deltaJoin', 'sql', 'python', 'cloudFiles', 'batchFiles' or 'kafka', found='parquet'"
        ],
    ),
    (
        {"sourceType": ["delta"]},
        [
            "sourceType: SPEC_VALUE_NOT_ALLOWED allowed='delta', 'deltaJoin', 'sql', 'python', 'cloudFiles', 'batchFiles' or 'kafka', found=a list"
        ],
    ),
    ({"sourceDetails": []}, ["sourceDetails: SPEC_VALUE_NOT_MAPPING found=a list"]),
    ({"sourceDetails.table": ...}, ["sourceDetails.table: SPEC_KEY_MISSING"]),
    ({"sourceDetails.cdfEnabled": "true"}, ['sourceDetails.cdfEnabled: SPEC_VALUE_NOT_BOOLEAN found="true"']),
    ({"sourceDetails.table": 7}, ["sourceDetails.table: SPEC_VALUE_NOT_TEXT found=7"]),
    ({"sourceDetails.table": ""}, ["sourceDetails.table: SPEC_VALUE_EMPTY"]),
    ({"sourceDetails.selectExp": "A"}, ['sourceDetails.selectExp: SPEC_VALUE_NOT_LIST found="A"']),
    (
        {"sourceDetails.selectexp": ["A"]},
        ["sourceDetails.selectexp: SPEC_KEY_MISSPELT key=selectexp, known=selectExp"],
    ),
    ({"sourceDetails.zzz": 1}, ["sourceDetails.zzz: SPEC_KEY_UNKNOWN key=zzz"]),
    ({"sourceSytem": "erp"}, ["sourceSytem: SPEC_KEY_MISSPELT key=sourceSytem, known=sourceSystem"]),
    (
        {"sourceDetails.schemaPath": "orders.json"},
        ["sourceDetails.schemaPath: SPEC_REFERENCED_FILE_MISSING file=orders.json, folder=sales/schemas"],
    ),
    (
        {"sourceDetails.schemaPath": "orders.csv"},
        ["sourceDetails.schemaPath: SPEC_SCHEMA_FILE_SUFFIX file=orders.csv"],
    ),
    (
        {"sourceDetails.pythonTransform": {"functionPath": "a.py", "module": "a.b"}},
        ["sourceDetails.pythonTransform: SPEC_NOT_EXACTLY_ONE_KEY keys=functionPath and module"],
    ),
    (
        {"sourceDetails.pythonTransform": {"functionPath": "a.py"}},
        [
            "sourceDetails.pythonTransform.functionPath: SPEC_REFERENCED_FILE_MISSING file=a.py, folder=sales/python_functions"
        ],
    ),
    (
        {"sourceDetails.database": "{typo}"},
        [
            "sourceDetails.database: SPEC_TOKEN_WITHOUT_VALUE token={typo}, file=pipeline_configs/dev_substitutions.json"
        ],
    ),
    (
        {"sourceDetails.database": "{pipeline_schema}"},
        [
            "sourceDetails.database: SPEC_RESERVED_TOKEN_WITHOUT_VALUE token={pipeline_schema}, file=pipeline_configs/dev_substitutions.json"
        ],
    ),
    (
        {"sourceDetails.database": "a.b.c"},
        ["sourceDetails.table: TABLE_NAME_TOO_LONG text=a.b.c.orders, count=4"],
    ),
    (
        {"sourceDetails.database": "live", "sourceDetails.table": "x"},
        ["sourceDetails.table: SPEC_LIVE_TABLE_UNKNOWN table=x"],
    ),
    ({"cdcSettings": {**CDC, "keys": []}}, ["cdcSettings.keys: SPEC_LIST_TOO_SHORT least=1 entry"]),
    (
        {"cdcSettings": {**CDC, "scd_type": "3"}},
        ["cdcSettings.scd_type: SPEC_VALUE_NOT_ALLOWED allowed='1' or '2', found='3'"],
    ),
    (
        {"cdcSettings": {**CDC, "scd_type": True}},
        ["cdcSettings.scd_type: SPEC_VALUE_NOT_ALLOWED allowed='1' or '2', found=true"],
    ),
    (
        {"cdcSettings": {**CDC, "sequenceBy": "A"}},
        ["cdcSettings.sequenceBy: SPEC_KEY_MISSPELT key=sequenceBy, known=sequence_by"],
    ),
    (
        {"cdcSettings": {**CDC, "scd_type": 2, "apply_as_truncates": "OP = 't'"}},
        ["cdcSettings.apply_as_truncates: SPEC_KEY_NEEDS_SCD_TYPE scd_type=1"],
    ),
    (
        {"cdcSettings": {**CDC, "column_list": ["A"], "except_column_list": ["B"]}},
        ["cdcSettings.except_column_list: SPEC_KEYS_EXCLUDE_EACH_OTHER other=column_list"],
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
            "cdcSettings.track_history_column_list: SPEC_KEY_NEEDS_SCD_TYPE scd_type=2",
            "cdcSettings.track_history_except_column_list: SPEC_KEYS_EXCLUDE_EACH_OTHER other=track_history_column_list",
            "cdcSettings.track_history_except_column_list: SPEC_KEY_NEEDS_SCD_TYPE scd_type=2",
        ],
    ),
    ({"cdcSnapshotSettings": SNAPSHOT_SETTINGS}, ["cdcSnapshotSettings: SPEC_MIGRATION_WITH_SNAPSHOTS"]),
    (
        {"quarantineMode": "flag"},
        ["quarantineMode: SPEC_QUARANTINE_WITHOUT_EXPECTATIONS"],
    ),
    (
        {"quarantineMode": "elsewhere"},
        ["quarantineMode: SPEC_VALUE_NOT_ALLOWED allowed='off', 'flag' or 'table', found='elsewhere'"],
    ),
    (
        {"quarantineTargetDetails": {"targetFormat": "kafka_sink", "schemaPath": "x.json"}},
        [
            "quarantineTargetDetails.schemaPath: SPEC_KEY_UNKNOWN key=schemaPath",
            "quarantineTargetDetails.targetFormat: SPEC_VALUE_NOT_ALLOWED allowed='delta', found='kafka_sink'",
        ],
    ),
    (
        {"dataQualityExpectationsEnabled": True},
        ["dataQualityExpectationsEnabled: SPEC_EXPECTATIONS_WITHOUT_PATH"],
    ),
    (
        {"dataQualityExpectationsEnabled": True, "dataQualityExpectationsPath": "x.json"},
        ["dataQualityExpectationsPath: SPEC_REFERENCED_FILE_MISSING file=x.json, folder=sales/expectations"],
    ),
    (
        {"targetDetails.partitionColumns": ["A"], "targetDetails.clusterByColumns": ["B"]},
        ["targetDetails.clusterByColumns: SPEC_KEYS_EXCLUDE_EACH_OTHER other=partitionColumns"],
    ),
    (
        {"targetDetails.path": "/a", "targetDetails.tablePath": "/b"},
        ["targetDetails.tablePath: SPEC_KEYS_EXCLUDE_EACH_OTHER other=path"],
    ),
    (
        {"targetDetails.table": "a.b.c.d"},
        ["targetDetails.table: TABLE_NAME_TOO_LONG text=silver.a.b.c.d, count=5"],
    ),
    (
        {"features": {"operationalMetadata": True}},
        [
            "features.operationalMetadata: SPEC_KEY_MISSPELT key=operationalMetadata, known=operationalMetadataEnabled"
        ],
    ),
    (
        {
            "tableMigrationDetails.handOver": "content",
            "tableMigrationDetails.autoStartingVersionsEnabled": False,
        },
        ["tableMigrationDetails.handOver: SPEC_HAND_OVER_WITHOUT_STARTS"],
    ),
    (
        {"tableMigrationDetails.mode": "takeOver", "tableMigrationDetails.handOver": "version"},
        [
            "tableMigrationDetails.sourceDetails.checkpointLocation: SPEC_TAKE_OVER_WITHOUT_CHECKPOINT",
            "tableMigrationDetails.sourceDetails.table: SPEC_TAKE_OVER_OF_OTHER_TABLE table=silver.orders_legacy, target=silver.orders",
        ],
    ),
    (
        {"tableMigrationDetails.handOver": "checkpoint"},
        ["tableMigrationDetails.sourceDetails.checkpointLocation: SPEC_CHECKPOINT_NOT_NAMED"],
    ),
    (
        {
            "tableMigrationDetails.sourceDetails.checkpointLocation": "/old",
            "tableMigrationDetails.autoStartingVersionsEnabled": False,
        },
        ["tableMigrationDetails.sourceDetails.checkpointLocation: SPEC_HAND_OVER_WITHOUT_STARTS"],
    ),
    (
        {"tableMigrationDetails.sourceDetails.checkpointLocation": ["/old", "s3://bucket/old"]},
        [
            "tableMigrationDetails.sourceDetails.checkpointLocation: SPEC_PATH_NOT_A_FOLDER path=s3://bucket/old"
        ],
    ),
    (
        {"tableMigrationDetails.sourceDetails.checkpointLocation": 1},
        ["tableMigrationDetails.sourceDetails.checkpointLocation: SPEC_VALUE_NOT_LIST found=1"],
    ),
    (
        {"tableMigrationDetails.catalogType": "glue"},
        ["tableMigrationDetails.catalogType: SPEC_VALUE_NOT_ALLOWED allowed='hms' or 'uc', found='glue'"],
    ),
    (
        {"tableMigrationDetails.sourceDetails.table": ...},
        ["tableMigrationDetails.sourceDetails.table: SPEC_KEY_MISSING"],
    ),
    (
        {
            "cdcSettings": {**CDC, "scd_type": "2"},
            "tableMigrationDetails.sourceDetails.selectExp": ["ID", "A AS __START_AT"],
        },
        [
            "tableMigrationDetails.sourceDetails.selectExp: SPEC_VALIDITY_COLUMNS_MISSING columns=__END_AT, example=EFFECTIVE_TO AS __END_AT"
        ],
    ),
    (
        # This star is a multiplication.
        {
            "cdcSettings": {**CDC, "scd_type": "2"},
            "tableMigrationDetails.sourceDetails.selectExp": ["ID", "AMOUNT * 2 AS A", "ID AS __END_AT"],
        },
        [
            "tableMigrationDetails.sourceDetails.selectExp: SPEC_VALIDITY_COLUMNS_MISSING columns=__START_AT, example=EFFECTIVE_FROM AS __START_AT"
        ],
    ),
    (
        # The expression reads the column, but returns it with another name.
        {
            "cdcSettings": {**CDC, "scd_type": "2"},
            "tableMigrationDetails.sourceDetails.selectExp": ["__START_AT + 1 AS A", "B AS __END_AT"],
        },
        [
            "tableMigrationDetails.sourceDetails.selectExp: SPEC_VALIDITY_COLUMNS_MISSING columns=__START_AT, example=EFFECTIVE_FROM AS __START_AT"
        ],
    ),
    (
        {"cdcSettings": {**CDC, "scd_type": "2"}, "tableMigrationDetails.sourceDetails.selectExp": ["ID"]},
        [
            "tableMigrationDetails.sourceDetails.selectExp: SPEC_VALIDITY_COLUMNS_MISSING columns=__START_AT and __END_AT, example=EFFECTIVE_FROM AS __START_AT"
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
    # The columns that these expressions return are unknown.
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
def test_invalid_standard_spec_is_reported(
    project: ProjectFiles, changes: dict[str, Any], expected: list[str]
) -> None:
    written = project.append()
    for path, value in changes.items():
        set_at(written, path, value)
    project.write(MAIN, written)
    assert project.problems() == [f"{MAIN}: {message}" for message in expected]


@pytest.mark.parametrize("changes", ALLOWED)
def test_valid_standard_spec_is_loaded(project: ProjectFiles, changes: dict[str, Any]) -> None:
    written = project.append()
    for path, value in changes.items():
        set_at(written, path, value)
    project.write(MAIN, written)
    assert len(project.load().dataflows) == 1


@pytest.mark.parametrize("sink", ["delta_sink", "kafka_sink", "foreach_batch_sink"])
def test_sink_is_refused(project: ProjectFiles, sink: str) -> None:
    project.write(MAIN, project.append(targetFormat=sink, targetDetails={"name": "s", "sinkOptions": {}}))
    assert project.problems() == [
        f"{MAIN}: tableMigrationDetails: SPEC_MIGRATION_INTO_SINK format={sink}",
        f"{MAIN}: targetFormat: SPEC_SINK_NOT_SUPPORTED format={sink}",
    ]


FLOW = "flowGroups.0.flows.f_rows"
VIEW = f"{FLOW}.views.v_rows"
FLOWS: list[tuple[dict[str, Any], list[str]]] = [
    (
        {f"{FLOW}.flowType": "append"},
        [
            "flowGroups[0].flows.f_rows.flowType: SPEC_VALUE_NOT_ALLOWED allowed='append_view', 'append_sql' or 'merge', found='append'",
        ],
    ),
    ({f"{FLOW}.flowType": ...}, ["flowGroups[0].flows.f_rows.flowType: SPEC_KEY_MISSING"]),
    (
        {f"{FLOW}.flowDetails.sourceview": "x"},
        [
            "flowGroups[0].flows.f_rows.flowDetails.sourceview: SPEC_KEY_MISSPELT key=sourceview, known=sourceView"
        ],
    ),
    (
        {f"{VIEW}.sourceDetails.Table": "x"},
        [
            "flowGroups[0].flows.f_rows.views.v_rows.sourceDetails.Table: SPEC_KEY_MISSPELT key=Table, known=table"
        ],
    ),
    (
        {f"{FLOW}.flowDetails.targetTable": "elsewhere"},
        [
            "flowGroups[0].flows.f_rows.flowDetails.targetTable: SPEC_FLOW_TARGET_UNKNOWN table=elsewhere, known=silver.customer, silver.customer_rows"
        ],
    ),
    (
        {f"{FLOW}.flowDetails.sourceView": "v_nothing"},
        ["flowGroups[0].flows.f_rows.flowDetails.sourceView: SPEC_VIEW_UNKNOWN view=v_nothing, known=v_rows"],
    ),
    (
        {f"{FLOW}.flowType": "merge"},
        ["flowGroups[0].flows.f_rows.flowType: SPEC_MERGE_WITHOUT_CDC table=silver.customer_rows"],
    ),
    (
        {f"{FLOW}.flowDetails.targetTable": "customer"},
        [
            "flowGroups[0].flows.f_rows.flowType: SPEC_FLOW_MUST_MERGE table=silver.customer, setting=cdcSettings"
        ],
    ),
    (
        {f"{FLOW}.flowType": "append_sql", f"{FLOW}.flowDetails": {"targetTable": "customer_rows"}},
        ["flowGroups[0].flows.f_rows.flowDetails: SPEC_NOT_EXACTLY_ONE_KEY keys=sqlPath and sqlStatement"],
    ),
    (
        {
            f"{FLOW}.flowType": "append_sql",
            f"{FLOW}.flowDetails": {"targetTable": "customer_rows", "sqlPath": "rows.sql"},
        },
        [
            "flowGroups[0].flows.f_rows.flowDetails.sqlPath: SPEC_REFERENCED_FILE_MISSING file=rows.sql, folder=sales/dml"
        ],
    ),
    (
        {"flowGroups.0.stagingTables.customer_rows": {"type": "MV", "sqlStatement": "SELECT 1"}},
        ["flowGroups[0].stagingTables.customer_rows.type: SPEC_STAGING_VIEW_NOT_SUPPORTED"],
    ),
    (
        {"flowGroups.0.stagingTables.customer_rows.cdcSnapshotSettings": SNAPSHOT_SETTINGS},
        [
            "flowGroups[0].flows.f_rows.flowType: SPEC_FLOW_MUST_MERGE table=silver.customer_rows, setting=cdcSnapshotSettings",
            "flowGroups[0].stagingTables.customer_rows.cdcSnapshotSettings: SPEC_SNAPSHOTS_WITHOUT_FLOW table=silver.customer_rows",
        ],
    ),
    (
        {
            f"{VIEW}.sourceType": "kafka",
            f"{VIEW}.sourceDetails": {"readerOptions": {}, "pythonTransform": {}},
        },
        [
            "flowGroups[0].flows.f_rows.views.v_rows.sourceDetails.pythonTransform: SPEC_TRANSFORM_NOT_SUPPORTED source=kafka"
        ],
    ),
    (
        {"flowGroups": []},
        ["flowGroups: SPEC_WITHOUT_FLOWS"],
    ),
    ({"flowGroups": {}}, ["flowGroups: SPEC_VALUE_NOT_LIST found=a mapping"]),
    ({"flowGroups": ["main"]}, ['flowGroups[0]: SPEC_VALUE_NOT_MAPPING found="main"']),
    (
        {"cdcApplyChanges": CDC},
        ["cdcApplyChanges: SPEC_KEY_MISSPELT key=cdcApplyChanges, known=cdcSettings"],
    ),
]


@pytest.mark.parametrize(("changes", "expected"), FLOWS)
def test_invalid_flow_spec_is_reported(
    project: ProjectFiles, changes: dict[str, Any], expected: list[str]
) -> None:
    written = project.flow()
    for path, value in changes.items():
        set_at(written, path, value)
    project.write(MAIN, written)
    assert project.problems() == [f"{MAIN}: {message}" for message in expected]


def test_repeated_names_are_reported(project: ProjectFiles) -> None:
    written = project.flow()
    repeated = copy.deepcopy(written["flowGroups"][0])
    del repeated["stagingTables"]
    repeated["flows"]["f_rows"]["views"]["v_rows"]["sourceDetails"]["table"] = "other"
    written["flowGroups"].append(repeated)
    project.write(MAIN, written)
    assert project.problems() == [
        f"{MAIN}: flowGroups[1].flowGroupId: SPEC_GROUP_ID_TAKEN id=main, other={MAIN}: flowGroups[0]",
        f"{MAIN}: flowGroups[1].flows.f_customer: SPEC_FLOW_NAME_TAKEN flow=f_customer, table=silver.customer",
        f"{MAIN}: flowGroups[1].flows.f_rows: SPEC_FLOW_NAME_TAKEN flow=f_rows, table=silver.customer_rows",
        f"{MAIN}: flowGroups[1].flows.f_rows.views.v_rows: SPEC_VIEW_NAME_TAKEN view=v_rows, "
        f"other={MAIN}: flowGroups[0].flows.f_rows.views.v_rows.sourceDetails",
    ]


def test_table_of_two_specs_is_reported(project: ProjectFiles) -> None:
    project.write(MAIN, project.append())
    project.write(SPECS + "twin_main.json", project.append(dataFlowId="twin"))
    assert project.problems() == [
        f"{SPECS}twin_main.json: targetDetails.table: SPEC_TABLE_FILLED_TWICE table=silver.orders, "
        f"other={MAIN}: targetDetails.table"
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
            "joins[0].joinType: SPEC_LEFT_JOIN_OF_STREAMS",
        ),
        (
            "stream",
            join("static stream", "inner"),
            "sources[0].joinMode: SPEC_JOIN_STARTS_STATIC",
        ),
        (
            "batch",
            join("stream static", "inner"),
            "sources[0].joinMode: SPEC_JOIN_SIDE_IS_STREAM",
        ),
        (
            "stream",
            {**join("stream static", "left"), "joins": []},
            "joins: SPEC_JOINS_DO_NOT_FIT_SOURCES needed=1, count=0",
        ),
    ],
)
def test_invalid_join_is_reported(
    project: ProjectFiles, mode: str, details: dict[str, Any], expected: str
) -> None:
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
def test_migration_of_source_without_start_is_reported(
    project: ProjectFiles, kind: str, options: dict[str, Any], remedy: str
) -> None:
    details: dict[str, Any] = (
        {"readerOptions": {}} if kind == "kafka" else {"path": "/in", "readerOptions": {}}
    )
    written = project.append(sourceType=kind, sourceDetails=details)
    project.write(MAIN, written)
    assert project.problems() == [f"{MAIN}: sourceDetails: SPEC_SOURCE_WITHOUT_START option={remedy}"]
    details["readerOptions"] = options
    project.write(MAIN, written)
    assert project.load().dataflows[0].migration is not None
    details["readerOptions"] = {}
    written["tableMigrationDetails"]["sourceDetails"]["checkpointLocation"] = "/old"
    project.write(MAIN, written)
    if kind == "kafka":
        # The checkpoint of the old stream contains the start.
        assert project.load().dataflows[0].migration is not None
    else:
        assert len(project.problems()) == 1
    del written["tableMigrationDetails"]["sourceDetails"]["checkpointLocation"]
    written["tableMigrationDetails"]["autoStartingVersionsEnabled"] = False
    project.write(MAIN, written)
    assert project.load().dataflows[0].migration is not None


@pytest.mark.parametrize("path", ["s3a://bucket/state", "abfss:/c@a/state", "dbfs:/state"])
def test_state_path_outside_a_folder_is_reported(project: ProjectFiles, path: str) -> None:
    project.write("pipeline_configs/global.json", {"table_migration_state_volume_path": path})
    project.write(MAIN, project.append())
    [problem] = project.problems()
    place = "pipeline_configs/global.json: table_migration_state_volume_path"
    assert problem == f"{place}: SPEC_PATH_NOT_A_FOLDER path={path}"


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
def test_url_of_a_folder_becomes_a_path(project: ProjectFiles, written: str, path: str) -> None:
    project.write("pipeline_configs/global.json", {"table_migration_state_volume_path": written})
    project.write(MAIN, project.append())
    assert project.load().state_volume == path


def test_migration_without_state_path_is_reported(project: ProjectFiles) -> None:
    project.write("pipeline_configs/global.json", {})
    project.write(MAIN, project.append())
    assert project.problems() == [f"{MAIN}: tableMigrationDetails: SPEC_STATE_PATH_MISSING"]
