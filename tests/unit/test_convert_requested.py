"""Requested schemas, properties and clustering columns."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests import conditions
from typer.testing import CliRunner

from tableferry import convert
from tableferry.cli import app
from tableferry.convert import requests
from tableferry.spark import types


@pytest.fixture
def root(tmp_path: Path) -> Path:
    table = tmp_path / "t"
    table.mkdir()
    inner = pa.array([{"x": 1, "y": [1]}], pa.struct([("x", pa.int32()), ("y", pa.list_(pa.int32()))]))
    pq.write_table(
        pa.table({"id": pa.array([1], pa.int32()), "name": ["a"], "s": inner}), table / "a.parquet"
    )
    pq.write_table(pa.table({"id": pa.array([2], pa.int16()), "s": inner}), table / "b.parquet")
    return table


def actions(root: Path) -> dict[str, Any]:
    text = (root / "_delta_log" / f"{0:020}.json").read_text(encoding="utf-8")
    return {kind: action for line in text.splitlines() for kind, action in json.loads(line).items()}


def converted(root: Path, **options: Any) -> str:
    [table] = convert.run([str(root)], **options).tables
    assert table.error is None, table.error
    return table.outcome


@contextmanager
def refuses(condition: str, **parameters: object) -> Iterator[Callable[..., None]]:
    """Assert that a conversion is refused, before it reads its tables or for one of them."""

    def convert_it(root: Path, **options: Any) -> None:
        [table] = convert.run([str(root)], **options).tables
        if table.error:
            raise table.error

    with conditions.raises(condition, **parameters):
        yield convert_it


FILE = re.compile(r"/columns\.sql$")
ONE_COLUMN = {"delta.dataSkippingNumIndexedCols": "1"}
SQL = "id bigint COMMENT 'the key', more date, name string, s struct<x: bigint, y: array<int>>"


@pytest.mark.parametrize("written", ["sql", "json"])
def test_table_has_declared_columns(root: Path, tmp_path: Path, written: str) -> None:
    file = tmp_path / "columns"
    file.write_text(SQL)
    if written == "json":
        columns = types.plain(requests.read_schema(file).columns)
        # Spark writes this for a column without nulls.
        columns["fields"][0]["nullable"] = columns["fields"][3]["type"]["fields"][1]["type"][
            "containsNull"
        ] = False
        file.write_text(json.dumps(columns, indent=2))
    assert converted(root, schema=file) == "converted"
    schema = types.from_json(actions(root)["metaData"]["schemaString"])
    assert str(schema) == "struct<id:bigint,more:date,name:string,s:struct<x:bigint,y:array<int>>>"
    assert schema.fields[0].metadata == {"comment": "the key"}
    assert all(column.nullable for column in schema.fields)
    table = deltalake.DeltaTable(str(root)).to_pyarrow_table().sort_by("id").to_pylist()
    s = {"x": 1, "y": [1]}
    assert table == [
        {"id": 1, "more": None, "name": "a", "s": s},
        {"id": 2, "more": None, "name": None, "s": s},
    ]


@pytest.mark.parametrize(
    ("schema", "condition", "parameters"),
    [
        (
            "id int, name string",
            "DECLARED_SCHEMA_COLUMN_MISSING",
            {"column": "s.x", "file": "a.parquet", "schema": FILE},
        ),
        (
            "id smallint, name string, s struct<x: int, y: array<int>>",
            "DECLARED_SCHEMA_TYPE_TOO_NARROW",
            {"column": "id", "type": "smallint", "schema": FILE, "needed": "int"},
        ),
        (
            "id int, name int, s struct<x: int, y: array<int>>",
            "COLUMN_TYPES_CONFLICT",
            {"column": "name", "type": "int", "file": FILE, "other_type": "string", "other": "a.parquet"},
        ),
        (
            "id int, name string, s struct<x: int, y: array<smallint>>",
            "DECLARED_SCHEMA_TYPE_TOO_NARROW",
            {"column": "s.y", "type": "smallint", "schema": FILE, "needed": "int"},
        ),
        (
            "id int, ID int",
            "DECLARED_SCHEMA_NOT_UNDERSTOOD",
            {"file": FILE, "reason": "`id` exists twice"},
        ),
        ("id nothing", "DECLARED_SCHEMA_NOT_UNDERSTOOD", {"file": FILE}),
        ("id int,, name", "DECLARED_SCHEMA_NOT_UNDERSTOOD", {"file": FILE}),
        ("id", "DECLARED_SCHEMA_NOT_UNDERSTOOD", {"file": FILE}),
        ("{}", "DECLARED_SCHEMA_NOT_UNDERSTOOD", {"file": FILE}),
        ("", "DECLARED_SCHEMA_NOT_UNDERSTOOD", {"file": FILE}),
    ],
)
def test_files_that_do_not_fit_declared_schema_are_refused(
    root: Path, tmp_path: Path, schema: str, condition: str, parameters: dict[str, object]
) -> None:
    file = tmp_path / "columns.sql"
    file.write_text(schema)
    with refuses(condition, **parameters) as convert_it:
        convert_it(root, schema=file)
    assert not (root / "_delta_log").exists()


def test_partition_columns_have_declared_types(tmp_path: Path) -> None:
    root = tmp_path / "t"
    (root / "month=01").mkdir(parents=True)
    pq.write_table(pa.table({"id": [1]}), root / "month=01" / "a.parquet")
    file = tmp_path / "columns.sql"
    file.write_text("month int, id bigint")
    assert converted(root, schema=file) == "converted"
    assert deltalake.DeltaTable(str(root)).to_pyarrow_table().to_pylist() == [{"month": 1, "id": 1}]
    convert.undo(str(root))
    file.write_text("id bigint, month array<int>")
    with refuses(
        "DECLARED_SCHEMA_PARTITION_TYPE", column="month", type="array<int>", schema=file
    ) as convert_it:
        convert_it(root, schema=file)


def test_properties_enable_required_table_features(root: Path) -> None:
    asked = {"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": "true", "owner": "ada = x"}
    assert converted(root, properties={**asked, "delta.enableTypeWidening": "false"}) == "converted"
    made = actions(root)
    assert made["metaData"]["configuration"] == {**asked, "delta.enableTypeWidening": "false"}
    assert made["protocol"] == {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["deletionVectors"],
        "writerFeatures": ["deletionVectors", "changeDataFeed", "appendOnly", "invariants"],
    }


def test_clustering_is_recorded_like_delta(root: Path) -> None:
    assert converted(root, cluster_by=["S.x", "id"]) == "converted"
    made = actions(root)
    domain = json.loads(made["domainMetadata"]["configuration"])
    assert domain == {"clusteringColumns": [["s", "x"], ["id"]], "domainName": "delta.clustering"}
    assert made["protocol"]["writerFeatures"] == ["clustering", "domainMetadata", "appendOnly", "invariants"]
    assert "readerFeatures" not in made["protocol"]


def test_clustering_column_with_a_dot_is_named_in_backticks(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a.b": [1], "id": [1]}), tmp_path / "a.parquet")
    assert converted(tmp_path, cluster_by=["`a.b`", "id"]) == "converted"
    domain = json.loads(actions(tmp_path)["domainMetadata"]["configuration"])
    assert domain["clusteringColumns"] == [["a.b"], ["id"]]


@pytest.mark.parametrize(
    ("options", "condition", "parameters"),
    [
        ({"cluster_by": ["nothing"]}, "CLUSTERING_COLUMN_MISSING", {"column": "nothing"}),
        ({"cluster_by": ["s"]}, "CLUSTERING_COLUMN_WITHOUT_STATISTICS", {"column": "s"}),
        ({"cluster_by": ["id", "name", "s.x", "id", "id"]}, "CLUSTERING_COLUMNS_TOO_MANY", {"most": 4}),
        (
            {"cluster_by": ["name"], "properties": {"delta.dataSkippingNumIndexedCols": "1"}},
            "CLUSTERING_COLUMN_WITHOUT_STATISTICS",
            {"column": "name"},
        ),
        (
            {"cluster_by": ["id"], "statistics": convert.Statistics.NONE},
            "CLUSTERING_WITHOUT_STATISTICS",
            {},
        ),
        (
            {"properties": {"delta.columnMapping.mode": "name"}},
            "PROPERTY_NOT_SETTABLE",
            {"property": "delta.columnMapping.mode"},
        ),
        (
            {"properties": {"delta.dataSkippingNumIndexedCols": "many"}},
            "PROPERTY_VALUE_INVALID",
            {"property": "delta.dataSkippingNumIndexedCols", "value": "many"},
        ),
    ],
)
def test_impossible_properties_are_refused(
    root: Path, options: dict[str, Any], condition: str, parameters: dict[str, object]
) -> None:
    with refuses(condition, **parameters) as convert_it:
        convert_it(root, **options)
    assert not (root / "_delta_log").exists()


def test_clustering_of_partitioned_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t" / "k=1").mkdir(parents=True)
    pq.write_table(pa.table({"id": [1]}), tmp_path / "t" / "k=1" / "a.parquet")
    with refuses("CLUSTERED_TABLE_WITH_PARTITIONS") as convert_it:
        convert_it(tmp_path / "t", cluster_by=["id"])


def test_command_line_passes_schema_clustering_and_properties(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "columns.sql"
    file.write_text(SQL)
    words = ["convert", str(root), "--cluster-by", "id, name", "--property", "delta.appendOnly=true"]
    ended = CliRunner().invoke(app, [*words, "--property", "a.b=c=d", "--schema", str(file)])
    assert ended.exit_code == 0, ended.output
    made = actions(root)
    assert made["metaData"]["configuration"] == {"delta.appendOnly": "true", "a.b": "c=d"}
    assert json.loads(made["domainMetadata"]["configuration"])["clusteringColumns"] == [["id"], ["name"]]
    assert CliRunner().invoke(app, ["convert", str(root), "--property", "nothing"]).exit_code == 2
    nowhere = CliRunner().invoke(app, ["convert", str(root), "--schema", str(tmp_path / "nowhere")])
    assert nowhere.exit_code == 1
    assert "nowhere" in nowhere.output
