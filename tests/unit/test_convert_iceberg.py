"""Iceberg tables become Delta tables over the same files, or are refused by name."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pyiceberg.catalog
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, Transform
from pyiceberg.types import (
    DoubleType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from pyiceberg.utils.config import Config
from tests import conditions

from tableferry import convert
from tableferry.convert import commands, plan
from tableferry.formats.hive.partitions import PartitionColumn
from tableferry.formats.iceberg import data_files
from tableferry.spark import types

NOON = datetime(2026, 1, 1, 12, 0, 0, 123456, tzinfo=UTC)


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SqlCatalog:
    """Return a catalog in a file, which pyiceberg finds by the name `lake`."""
    where = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/wh"}
    for key, value in {**where, "type": "sql"}.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{key.upper()}", value)
    # pyiceberg reads this variable when it is imported.
    monkeypatch.setattr(pyiceberg.catalog, "_ENV_CONFIG", Config())
    made = SqlCatalog("lake", **where)
    made.create_namespace("db")
    return made


def root_of(table: Table) -> Path:
    return Path(table.location().removeprefix("file://"))


def converted(source: Any, **options: Any) -> convert.TableReport:
    def no_session() -> Any:
        raise AssertionError("an Iceberg table needs no Spark")

    [report] = convert.run([str(source)], resolve=no_session, **options).tables
    return report


def rows(root: Path) -> list[dict[str, Any]]:
    table = deltalake.DeltaTable(str(root)).to_pyarrow_table()
    return sorted(table.to_pylist(), key=lambda row: str(row["id"]))


def of_iceberg(table: Table) -> list[dict[str, Any]]:
    return sorted(table.scan().to_arrow().to_pylist(), key=lambda row: str(row["id"]))


def adds(root: Path) -> list[dict[str, Any]]:
    text = (root / "_delta_log" / f"{0:020}.json").read_text(encoding="utf-8")
    return [action["add"] for action in map(json.loads, text.splitlines()) if "add" in action]


def simple(catalog: SqlCatalog, name: str = "db.t") -> Table:
    table = catalog.create_table(name, schema=pa.schema([("id", pa.int64()), ("v", pa.string())]))
    table.append(pa.table({"id": [1, 2], "v": ["a", None]}))
    table.append(pa.table({"id": [3], "v": ["c"]}))
    return table


def test_converted_iceberg_table_keeps_rows_and_statistics(catalog: SqlCatalog) -> None:
    data = pa.table(
        {
            "id": pa.array([1, 2, 3], pa.int64()),
            "small": pa.array([1, None, -5], pa.int32()),
            "f": pa.array([1.5, 2.5, None], pa.float32()),
            "nan": pa.array([1.5, float("nan"), 0.0]),
            "price": pa.array([Decimal("1.20"), Decimal("-7.05"), None], pa.decimal128(9, 2)),
            "day": pa.array([date(2026, 1, 1), date(1901, 2, 3), None]),
            "at": pa.array([NOON, NOON, None], pa.timestamp("us", "UTC")),
            "local": pa.array([NOON.replace(tzinfo=None), None, None], pa.timestamp("us")),
            "name": ["ä" * 40, "b", None],
            "flag": [True, None, False],
            "raw": [b"\x00\xff", None, b""],
            "inner": [{"x": 1, "y": "p"}, {"x": None, "y": None}, None],
            "many": [[1, 2], [], None],
            "pairs": pa.array([[("k", 1)], [], None], pa.map_(pa.string(), pa.int64())),
        }
    )
    table = catalog.create_table("db.t", schema=data.schema, properties={"comment": "of ice", "owner": "ada"})
    table.append(data)
    root = root_of(table)
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    assert converted(root, dry_run=True).outcome == "planned"

    report = converted(root)

    assert (report.outcome, report.error) == ("converted", None)
    assert report.plan is not None
    assert any("properties of Iceberg mean nothing to Delta" in note for note in report.plan.notes)
    assert {path: path.read_bytes() for path in before} == before
    assert {path.relative_to(root).parts[0] for path in root.rglob("*")} == {"_delta_log", "data", "metadata"}
    assert str(rows(root)) == str(of_iceberg(table))
    assert deltalake.DeltaTable(str(root)).metadata().description == "of ice"
    [add] = adds(root)
    stats = json.loads(add["stats"])
    assert stats["numRecords"] == 3
    assert stats["minValues"]["id"] == 1
    assert stats["maxValues"]["price"] == 1.20
    assert (stats["minValues"]["day"], stats["maxValues"]["day"]) == ("1901-02-03", "2026-01-01")
    assert stats["minValues"]["at"] == "2026-01-01T12:00:00.123Z"
    assert stats["maxValues"]["at"] == "2026-01-01T12:00:00.124Z"
    assert stats["maxValues"]["local"] == "2026-01-01T12:00:00.124"
    assert stats["maxValues"]["name"] > "ä" * 16
    # The writer doesn't record NaN, which is greater than all numbers.
    assert not {"nan", "flag", "raw", "many"} & (stats["minValues"].keys() | stats["maxValues"].keys())
    assert stats["nullCount"]["small"] == 1
    assert converted(root).outcome == "already"
    convert.undo(str(root))
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


def test_later_iceberg_snapshot_is_converted_after_undo(catalog: SqlCatalog) -> None:
    table = simple(catalog)
    root = root_of(table)
    assert converted(root).outcome == "converted"
    table.overwrite(pa.table({"id": [9], "v": ["z"]}))
    report = converted(root)
    assert report.outcome == "refused"
    conditions.check(report.error, "ICEBERG_WRITTEN_SINCE_CONVERSION", table=root, folder=root)
    [synced] = convert.sync([str(root)]).tables
    conditions.check(synced.error, "SYNC_OF_ICEBERG_TABLE", table=root)
    convert.undo(str(root))
    assert converted(root).outcome == "converted"
    assert rows(root) == [{"id": 9, "v": "z"}]
    # The Delta table accepts new rows.
    deltalake.write_deltalake(str(root), pa.table({"id": [10], "v": ["n"]}), mode="append")
    assert converted(root).outcome == "already"


def test_iceberg_table_is_found_by_catalog_and_after_move(
    catalog: SqlCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = simple(catalog)
    assert converted("iceberg:lake.db.t").outcome == "converted"
    assert rows(root_of(table)) == of_iceberg(table)
    assert converted("iceberg:lake.db.t").outcome == "already"
    convert.undo("iceberg:lake.db.t")
    # A copy or a mount of the folder.
    elsewhere = tmp_path / "elsewhere"
    root_of(table).rename(elsewhere)
    assert converted(f"iceberg.`{elsewhere}`").outcome == "converted"
    assert len(rows(elsewhere)) == 3
    with conditions.raises("ICEBERG_CATALOG_FAILED", table="db.t", reason=re.compile("No such file")):
        convert.run(["iceberg:lake.db.t"])
    with conditions.raises("ICEBERG_TABLE_MISSING", catalog="lake", table="db.nothing"):
        convert.run(["iceberg:lake.db.nothing"])
    with conditions.raises("ICEBERG_CATALOG_FAILED", catalog="nowhere", table="db.t"):
        convert.run(["iceberg:nowhere.db.t"])
    with conditions.raises("ICEBERG_NAME_INVALID", text="iceberg:lake.t"):
        convert.run(["iceberg:lake.t"])


def test_identity_partitions_become_delta_partitions(catalog: SqlCatalog) -> None:
    data = pa.table(
        {
            "id": [1, 2, 3],
            "day": pa.array([date(2026, 1, 1), date(1969, 12, 31), None]),
            "at": pa.array([NOON, NOON, None], pa.timestamp("us", "UTC")),
            "price": pa.array([Decimal("1.20"), Decimal("-7.00"), None], pa.decimal128(9, 2)),
            "name": ["a/b=c%", "ü", None],
            "flag": [True, False, None],
        }
    )
    table = catalog.create_table("db.t", schema=data.schema)
    with table.update_spec() as update:
        for name in data.column_names[1:]:
            update.add_field(name, IdentityTransform())
    table.append(data)
    root = root_of(table)
    assert converted(root).outcome == "converted"
    assert deltalake.DeltaTable(str(root)).metadata().partition_columns == data.column_names[1:]
    assert rows(root) == of_iceberg(table)
    assert [row["id"] for row in rows(root) if row["name"] == "ü"] == [2]
    convert.undo(str(root))
    table.append(data.slice(0, 1).set_column(4, "name", pa.array([""])))
    conditions.check(converted(root).error, "ICEBERG_PARTITION_EMPTY_TEXT", table=root, column="name")


def test_partition_of_year_12000_is_refused() -> None:
    file: Any = SimpleNamespace(partition=[3_663_000], spec_id=0, file_path="a.parquet")
    with conditions.raises("ICEBERG_PARTITION_VALUE", table="t", file="a.parquet"):
        data_files._values(file, (PartitionColumn("day", types.DATE),), {0: [0]}, "t")


def test_widened_columns_have_correct_bounds(catalog: SqlCatalog) -> None:
    data = pa.table({"id": pa.array([1], pa.int32()), "f": pa.array([0.1], pa.float32())})
    table = catalog.create_table("db.t", schema=data.schema)
    table.append(data)
    with table.update_schema() as update:
        update.update_column("id", LongType())
        update.update_column("f", DoubleType())
    table.append(pa.table({"id": [2**40], "f": [2.5]}))
    root = root_of(table)
    assert converted(root).outcome == "converted"
    assert rows(root) == of_iceberg(table)
    assert [json.loads(add["stats"])["maxValues"]["id"] for add in adds(root)] in ([1, 2**40], [2**40, 1])


def rename(table: Table) -> None:
    with table.update_schema() as update:
        update.rename_column("v", "w")


def drop_and_add(table: Table) -> None:
    with table.update_schema() as update:
        update.delete_column("v")
    with table.update_schema() as update:
        update.add_column("v", StringType())


def add_odd(table: Table) -> None:
    with table.update_schema() as update:
        update.add_column("a b", IntegerType())


def add_dotted(table: Table) -> None:
    with table.update_schema() as update:
        update.add_column(("a.b",), IntegerType())


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (rename, "`v` and `w` are two names of one column"),
        (drop_and_add, "`v` is the name of a column and of one that was dropped"),
        (add_odd, "`a b` isn't spelled so in the files"),
        (add_dotted, "`a.b` isn't spelled so in the files"),
    ],
)
def test_renamed_columns_are_mapped_by_id(
    catalog: SqlCatalog, change: Callable[[Table], None], reason: str
) -> None:
    table = simple(catalog)
    root = root_of(table)
    change(table)
    report = converted(root)
    assert report.outcome == "refused"
    conditions.check(report.error, "ICEBERG_COLUMNS_NEED_IDS", table=root, reason=reason)
    assert converted(root, column_mapping=True).outcome == "converted"
    metadata = deltalake.DeltaTable(str(root)).metadata()
    assert metadata.configuration["delta.columnMapping.mode"] == "id"
    fields = json.loads(deltalake.DeltaTable(str(root)).schema().to_json())["fields"]
    ids = {field.name: field.field_id for field in table.schema().fields}
    assert {field["name"]: field["metadata"]["delta.columnMapping.id"] for field in fields} == ids
    assert int(metadata.configuration["delta.columnMapping.maxColumnId"]) == table.metadata.last_column_id


def test_files_without_ids_are_mapped_by_name(catalog: SqlCatalog, tmp_path: Path) -> None:
    table = catalog.create_table("db.t", schema=pa.schema([("id", pa.int64()), ("v", pa.string())]))
    root = root_of(table)
    (root / "data").mkdir(exist_ok=True)
    pq.write_table(pa.table({"id": [1], "v": ["a"]}), root / "data" / "a.parquet")
    table.add_files([f"file://{root}/data/a.parquet"])
    assert converted(root).outcome == "converted"
    assert rows(root) == [{"id": 1, "v": "a"}]
    convert.undo(str(root))
    rename(table)
    refused = converted(root, column_mapping=True)
    conditions.check(
        refused.error,
        "ICEBERG_FILES_WITHOUT_IDS",
        reason="`v` and `w` are two names of one column",
        property="schema.name-mapping.default",
    )


@pytest.mark.parametrize(
    ("transform", "column"), [(BucketTransform(4), "id"), (DayTransform(), "at")], ids=["bucket", "day"]
)
def test_transformed_partitions_are_refused(
    catalog: SqlCatalog, transform: Transform[Any, Any], column: str
) -> None:
    source = 1 if isinstance(transform, BucketTransform) else 2
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "at", TimestamptzType()))
    spec = PartitionSpec(PartitionField(source, 1000, transform, "part"))
    table = catalog.create_table("db.t", schema=schema, partition_spec=spec)
    conditions.check(
        converted(root_of(table)).error, "ICEBERG_PARTITION_TRANSFORM", transform=transform, column=column
    )


def test_files_of_older_partition_specs_are_refused(catalog: SqlCatalog) -> None:
    table = simple(catalog)
    with table.update_spec() as update:
        update.add_field("id", IdentityTransform())
    conditions.check(converted(root_of(table)).error, "ICEBERG_PARTITION_COLUMNS_DIFFER")
    table.overwrite(pa.table({"id": [1], "v": ["a"]}))
    assert converted(root_of(table)).outcome == "converted"


@pytest.mark.parametrize(("kind", "expected"), [(TimeType(), "time"), (UUIDType(), "uuid")])
def test_types_missing_in_delta_are_refused(catalog: SqlCatalog, kind: Any, expected: str) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "odd", kind))
    table = catalog.create_table("db.t", schema=schema)
    conditions.check(converted(root_of(table)).error, "ICEBERG_COLUMN_TYPE", column="odd", type=expected)


def test_iceberg_columns_that_differ_only_in_case_are_refused(catalog: SqlCatalog) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "ID", LongType()))
    table = catalog.create_table("db.t", schema=schema)
    conditions.check(converted(root_of(table)).error, "ICEBERG_COLUMNS_DIFFER_BY_CASE", column="id")


def test_empty_iceberg_table_is_converted(catalog: SqlCatalog) -> None:
    table = catalog.create_table("db.t", schema=pa.schema([("id", pa.int64())]))
    assert converted(root_of(table)).outcome == "converted"
    assert rows(root_of(table)) == []


def test_iceberg_conversion_refuses_options_wrong_files_and_ambiguous_metadata(
    catalog: SqlCatalog, tmp_path: Path
) -> None:
    table = simple(catalog)
    root = root_of(table)
    for options in ({"partitioned_by": "id int"}, {"statistics": convert.Statistics.SCAN}):
        conditions.check(converted(root, **options).error, "ICEBERG_TABLE_WITH_OPTIONS", table=root)
    (data, _) = sorted((root / "data").iterdir())
    content = data.read_bytes()
    data.unlink()
    wrong = re.compile(rf"data/{re.escape(data.name)}$")
    conditions.check(converted(root).error, "ICEBERG_FILE_WRONG", file=wrong, problem="is gone")
    data.write_bytes(content[:-1])
    problem = f"has {len(content) - 1:,} bytes instead of {len(content):,}"
    conditions.check(converted(root).error, "ICEBERG_FILE_WRONG", file=wrong, problem=problem)
    data.write_bytes(content)
    newest = max((root / "metadata").glob("*.metadata.json"))
    twin = newest.with_name(newest.name.replace(newest.name[6:14], "ffffffff"))
    shutil.copy(newest, twin)
    report = converted(root)
    assert report.outcome == "refused"
    conditions.check(
        report.error,
        "ICEBERG_METADATA_AMBIGUOUS",
        folder=root / "metadata",
        files=" and ".join(sorted((newest.name, twin.name))),
    )
    assert converted("iceberg:lake.db.t").outcome == "converted"
    convert.undo(str(root))
    twin.unlink()
    manifest = next((root / "metadata").glob("*-m0.avro"))
    manifest.rename(tmp_path / "manifest")
    missing = re.compile(rf"{re.escape(manifest.name)}$")
    conditions.check(converted(root).error, "ICEBERG_FILE_MISSING", file=missing)
    manifest.write_bytes(b"Obj no more")
    conditions.check(converted(root).error, "ICEBERG_FILE_NOT_UNDERSTOOD", file=missing)
    (tmp_path / "manifest").rename(manifest)
    newest.write_text("{}")
    conditions.check(
        converted(root).error, "ICEBERG_FILE_NOT_UNDERSTOOD", file=re.compile(re.escape(newest.name))
    )


def test_version_hint_selects_metadata(catalog: SqlCatalog) -> None:
    table = simple(catalog)
    root = root_of(table)
    for number, path in enumerate(sorted((root / "metadata").glob("*.metadata.json")), 1):
        path.rename(path.with_name(f"v{number}.metadata.json"))
    (root / "metadata" / "version-hint.text").write_text("3")
    assert converted(root).outcome == "converted"
    assert rows(root) == of_iceberg(table)


def test_convert_stops_if_iceberg_table_changes_during_the_run(
    catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = simple(catalog)
    root = root_of(table)
    decide = plan.decide

    def written_during_the_run(*arguments: Any) -> Any:
        decided = decide(*arguments)
        table.append(pa.table({"id": [4], "v": ["d"]}))
        return decided

    monkeypatch.setattr(commands, "decide", written_during_the_run)
    report = converted(root)
    assert report.outcome == "refused"
    conditions.check(
        report.error,
        "ICEBERG_CHANGED_DURING_CONVERSION",
        table=root,
        metadata=re.compile(r"\.metadata\.json$"),
    )
    assert not (root / "_delta_log").exists()
