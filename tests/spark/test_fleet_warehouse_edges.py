"""Incomplete targets, tables of other processes, odd files and late writers, on real tables."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from shutil import rmtree

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests import conditions, soak
from tests.fleet_steps import copy_definition, drop_copy
from tests.spark.warehouses import NoAccess, contents, rows

from tableferry.fleet.access import fence
from tableferry.fleet.copies import comparison, delta, iceberg
from tableferry.fleet.hive_tables import metastore
from tableferry.fleet.jobs.job import TargetFormat
from tableferry.fleet.jobs.step_plan import Kind
from tableferry.fleet.settings import FleetSettings
from tableferry.fleet.warehouse import (
    hive,
    job_tables,
    table_descriptions,
    table_renames,
    target_versions,
    views,
)
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.spark import catalog, session
from tableferry.spark.tables import TableName

ICEBERG, DELTA = Kind.ICEBERG, Kind.DELTA


@pytest.fixture
def warehouse(spark: SparkSession) -> Warehouse:
    return Warehouse(spark, NoAccess())


@pytest.fixture
def source(spark: SparkSession, schema: str, tmp_path: Path) -> TableName:
    """Provide an external Hive table with two partitions and three rows."""
    spark.sql(
        f"CREATE EXTERNAL TABLE {schema}.t (id INT, name STRING COMMENT 'a name') PARTITIONED BY (k STRING) "
        f"STORED AS PARQUET LOCATION '{tmp_path}/t' TBLPROPERTIES ('team' = 'it\\'s', 'gc.enabled' = 'true')"
    )
    spark.sql(f"INSERT INTO {schema}.t PARTITION (k = 1) VALUES (1, 'a'), (2, 'b')")
    spark.sql(f"INSERT INTO {schema}.t PARTITION (k = 2) VALUES (3, 'c')")
    return TableName(("spark_catalog", schema, "t"))


def beside(name: TableName, suffix: str) -> TableName:
    return TableName((*name.parts[:-1], name.table + suffix))


def test_commit_of_another_session_is_seen(spark: SparkSession, schema: str) -> None:
    ours, theirs = session.beside(spark), session.beside(spark)
    assert ours is not None
    assert theirs is not None
    # The default.
    ours.conf.unset("spark.sql.catalog.ice.cache-enabled")
    warehouse = Warehouse.of(ours, NoAccess(), FleetSettings())
    for each in (warehouse, Warehouse(spark, NoAccess())):
        name = TableName(("spark_catalog", schema, "t"))
        theirs.sql(f"CREATE OR REPLACE TABLE {each.iceberg(name).sql} (id INT) USING iceberg")
        assert (
            target_versions.current_version(each, name, TargetFormat.ICEBERG) == target_versions.NO_SNAPSHOT
        )
        theirs.sql(f"INSERT INTO {each.iceberg(name).sql} VALUES (1)")
        assert (
            target_versions.current_version(each, name, TargetFormat.ICEBERG) != target_versions.NO_SNAPSHOT
        )


@soak.slow
def test_iceberg_copy_has_each_file_once_after_any_leftover(warehouse: Warehouse, source: TableName) -> None:
    spark, target = warehouse.spark, beside(source, "_iceberg")
    ice = warehouse.iceberg(target)
    expected, files = rows(warehouse, source), contents(warehouse, source)

    spark.sql(iceberg.create_statement(hive.require_hive_table(warehouse, source), ice))
    iceberg.create_copy(warehouse, source, target)
    assert rows(warehouse, target, ICEBERG) == expected
    made = target_versions.current_version(warehouse, target, TargetFormat.ICEBERG)
    iceberg.create_copy(warehouse, source, target)
    assert target_versions.current_version(warehouse, target, TargetFormat.ICEBERG) == made

    add = f"CALL ice.system.add_files(table => '{ice}', source_table => '{source}'"
    spark.sql(f"{add}, check_duplicate_files => false)")
    assert len(rows(warehouse, target, ICEBERG)) == 2 * len(expected)
    iceberg.create_copy(warehouse, source, target)
    assert rows(warehouse, target, ICEBERG) == expected

    # No statement of Iceberg removes a file that Hive reads.
    for statement in (
        f"DROP TABLE {ice.sql} PURGE",
        f"CALL ice.system.expire_snapshots(table => '{ice}', retain_last => 1)",
    ):
        with pytest.raises(Exception, match=r"(?i)gc"):
            spark.sql(statement)
    assert contents(warehouse, source) == files
    spark.sql(f"INSERT INTO {source} PARTITION (k = 3) VALUES (4, 'late')")
    iceberg.create_copy(warehouse, source, target)
    assert rows(warehouse, target, ICEBERG) == rows(warehouse, source)
    drop_copy(warehouse, source, target, TargetFormat.ICEBERG)
    assert contents(warehouse, source).items() >= files.items()
    assert len(rows(warehouse, source)) == len(expected) + 1


def test_copy_name_of_another_table_is_refused(
    warehouse: Warehouse, source: TableName, tmp_path: Path
) -> None:
    spark = warehouse.spark
    ice, lake = beside(source, "_iceberg"), beside(source, "_delta")
    spark.sql(f"CREATE TABLE {warehouse.iceberg(ice).sql} (id INT) USING iceberg")
    spark.sql(f"CREATE TABLE {lake.sql} (id INT) USING delta LOCATION '{tmp_path}/lake'")
    with conditions.raises("COPY_NAME_TAKEN", table=ice):
        iceberg.create_copy(warehouse, source, ice)
    with conditions.raises("COPY_NAME_TAKEN", table=lake):
        delta.create_copy(warehouse, source, lake)
    with conditions.raises("COPY_NAME_TAKEN", kind="a Hive table"):
        delta.create_copy(warehouse, source, source)
    assert not (tmp_path / "t/_delta_log").exists()


@soak.slow
def test_delta_log_lists_each_file_once_after_any_leftover(
    warehouse: Warehouse, source: TableName, tmp_path: Path
) -> None:
    spark, target, log = warehouse.spark, beside(source, "_delta"), tmp_path / "t/_delta_log"
    expected, files = rows(warehouse, source), contents(warehouse, source)
    delta.create_copy(warehouse, source, target)
    spark.sql(f"DROP TABLE {target.sql}")
    delta.create_copy(warehouse, source, target)
    assert rows(warehouse, target) == expected
    assert [path.name for path in log.glob("*.json")] == ["00000000000000000000.json"]
    spark.sql(f"INSERT INTO {source} PARTITION (k = 'a b%:/é') VALUES (4, 'late')")
    delta.create_copy(warehouse, source, target)
    assert rows(warehouse, target) == rows(warehouse, source)
    made = (log / "00000000000000000000.json").read_text()
    delta.create_copy(warehouse, source, target)
    assert (log / "00000000000000000000.json").read_text() == made
    # A process that dies while it drops the copy leaves an entry with a moved log.
    log.rename(tmp_path / "t/_tableferry_dropped_log")
    drop_copy(warehouse, source, target, TargetFormat.DELTA)
    assert job_tables.kinds(warehouse, (source, target)) == {source: Kind.HIVE}
    assert not log.exists()
    assert not (tmp_path / "t/_tableferry_dropped_log").exists()
    assert contents(warehouse, source).items() >= files.items()

    # A foreign conversion of the same directory isn't reused as the copy.
    spark.sql(f"CONVERT TO DELTA parquet.`{tmp_path}/t` PARTITIONED BY (k STRING)")
    with conditions.raises("DELTA_TABLE_IN_HIVE_DIRECTORY", table=source):
        delta.create_copy(warehouse, source, target)
    assert log.exists()
    rmtree(log)

    delta.create_copy(warehouse, source, target)
    spark.sql(f"INSERT INTO {target.sql} VALUES (9, 'new', 9)")
    spark.sql(f"DROP TABLE {target.sql}")
    with conditions.raises("DELTA_TABLE_IN_HIVE_DIRECTORY", table=source):
        delta.create_copy(warehouse, source, target)
    assert log.exists()


def test_delta_refuses_partitions_outside_the_directory(
    warehouse: Warehouse, source: TableName, tmp_path: Path
) -> None:
    warehouse.spark.sql(f"ALTER TABLE {source.sql} ADD PARTITION (k = 7) LOCATION '{tmp_path}/far'")
    warehouse.spark.sql(f"INSERT INTO {source.sql} PARTITION (k = 7) VALUES (7, 'far')")
    with conditions.raises("PARTITIONS_OUTSIDE_DIRECTORY", partitions=re.compile("k=7 at file:.*/far")):
        delta.create_copy(warehouse, source, beside(source, "_delta"))
    assert not (tmp_path / "t/_delta_log").exists()


def test_files_in_nested_directories_are_refused(
    warehouse: Warehouse, source: TableName, tmp_path: Path
) -> None:
    [file] = (tmp_path / "t/k=2").glob("*.parquet")
    (tmp_path / "t/k=2/HIVE_UNION_SUBDIR_1").mkdir()
    shutil.copy(file, tmp_path / "t/k=2/HIVE_UNION_SUBDIR_1/more.parquet")
    for make in (iceberg.create_copy, delta.create_copy):
        with conditions.raises("FILES_TOO_DEEP", files=re.compile(r"HIVE_UNION_SUBDIR_1/more\.parquet")):
            make(warehouse, source, beside(source, "_copy"))
    assert not (tmp_path / "t/_delta_log").exists()


@pytest.mark.parametrize(
    ("stored", "columns"),
    [("parquet", "ID, Name, AT, Nested, List"), ("orc", "_col0, _col1, _col2, _col3, _col4")],
)
@soak.slow
def test_columns_with_another_spelling_in_files_are_found(
    warehouse: Warehouse, schema: str, tmp_path: Path, stored: str, columns: str
) -> None:
    spark = warehouse.spark
    inner = "A" if stored == "parquet" else "a"
    rows_of = spark.sql(f"SELECT 1, 'a', DATE '2024-01-01', named_struct('{inner}', 5), array(1, 2)").toDF(
        *columns.split(", ")
    )
    rows_of.write.format(stored).save(f"{tmp_path}/t/k=1")
    spark.sql(
        f"CREATE EXTERNAL TABLE {schema}.t (id INT, name STRING, at DATE, nested STRUCT<a: INT>, "
        f"list ARRAY<INT>) PARTITIONED BY (k INT) STORED AS {stored} LOCATION '{tmp_path}/t'"
    )
    spark.sql(f"ALTER TABLE {schema}.t ADD PARTITION (k = 1)")
    spark.sql(f"INSERT INTO {schema}.t PARTITION (k = 2) SELECT 2, 'b', NULL, named_struct('a', 6), array(3)")
    source = TableName(("spark_catalog", schema, "t"))
    target = beside(source, "_iceberg")
    iceberg.create_copy(warehouse, source, target)
    comparison.require_same_rows(warehouse, source, target)
    [read, _] = rows(warehouse, target, ICEBERG)
    assert read.startswith("(1, 'a', datetime")
    assert "5" in read


def test_columns_spelled_differently_in_each_file_are_found(
    warehouse: Warehouse, schema: str, tmp_path: Path
) -> None:
    table = TableName(("spark_catalog", schema, "spelled"))
    warehouse.spark.sql(
        f"CREATE EXTERNAL TABLE {table.sql} (id INT, s STRUCT<x: INT>) STORED AS PARQUET "
        f"LOCATION '{tmp_path}/spelled'"
    )
    for number, (outer, deep, inner) in enumerate([("ID", "s", "x"), ("Id", "s", "x"), ("id", "S", "X")]):
        struct = pa.array([{inner: 10 * number}], pa.struct({inner: pa.int32()}))
        file = tmp_path / "spelled" / f"{number}.parquet"
        file.parent.mkdir(exist_ok=True)
        pq.write_table(pa.table({outer: pa.array([number], pa.int32()), deep: struct}), file)
    copy = beside(table, "_iceberg")
    iceberg.create_copy(warehouse, table, copy)
    assert comparison.require_same_rows(warehouse, table, copy) == 3
    assert sorted(rows(warehouse, copy, ICEBERG)) == [f"({n}, Row(x={10 * n}))" for n in range(3)]


def test_columns_that_only_files_have_are_not_copied(
    warehouse: Warehouse, schema: str, tmp_path: Path
) -> None:
    """Hive's ALTER TABLE … REPLACE COLUMNS doesn't change the files."""
    table = TableName(("spark_catalog", schema, "fewer"))
    warehouse.spark.sql(
        f"CREATE EXTERNAL TABLE {table.sql} (id INT, s STRUCT<x: INT>, l ARRAY<STRUCT<x: INT>>, late STRING) "
        f"STORED AS PARQUET LOCATION '{tmp_path}/fewer'"
    )
    both = pa.struct({"gone": pa.string(), "x": pa.int32()})
    columns = {
        "gone": pa.array(["g"]), "s": pa.array([{"gone": "g", "x": 1}], both),
        "l": pa.array([[{"gone": "g", "x": 2}]], pa.list_(both)), "id": pa.array([3], pa.int32()),
    }  # fmt: skip
    pq.write_table(pa.table(columns), tmp_path / "fewer/a.parquet")
    pq.write_table(pa.table({"id": pa.array([4], pa.int32())}), tmp_path / "fewer/b.parquet")
    for form in TargetFormat:
        copy = beside(table, f"_{form.value}")
        (iceberg if form is TargetFormat.ICEBERG else delta).create_copy(warehouse, table, copy)
        assert comparison.require_same_rows(warehouse, table, copy) == 2
        named = warehouse.named(copy, form).sql
        assert [column.name for column in warehouse.spark.table(named).schema] == ["id", "s", "l", "late"]
        assert warehouse.spark.sql(f"SELECT id FROM {named} WHERE s.x = 1 AND id < 4").collect() == [(3,)]


@soak.slow
def test_fence_finds_every_kind_of_change(warehouse: Warehouse, source: TableName, tmp_path: Path) -> None:
    spark = warehouse.spark
    mark = fence.mark(warehouse, source)
    assert (mark["files"], mark["partitions"]) == (3, 2)
    assert fence.differences(warehouse, source, mark) == ""

    [file] = (tmp_path / "t/k=2").glob("*.parquet")
    copy = file.with_name("more.parquet")
    shutil.copy(file, copy)
    assert "files changed from 3 to 4" in fence.differences(warehouse, source, mark)
    copy.unlink()
    file.touch()
    assert "rewritten" in fence.differences(warehouse, source, mark)

    mark = fence.mark(warehouse, source)
    spark.sql(f"ALTER TABLE {source.sql} DROP PARTITION (k = 2)")
    assert fence.differences(warehouse, source, mark) == "partitions changed from 2 to 1"
    spark.sql(f"ALTER TABLE {source.sql} ADD PARTITION (k = 2) LOCATION '{tmp_path}/t/k=1'")
    assert "a partition has a new location" in fence.differences(warehouse, source, mark)
    # A partition with a missing directory has no files.
    spark.sql(f"ALTER TABLE {source.sql} ADD PARTITION (k = 5) LOCATION '{tmp_path}/gone'")
    shutil.rmtree(tmp_path / "gone", ignore_errors=True)
    assert "partitions changed from 2 to 3" in fence.differences(warehouse, source, mark)


@pytest.mark.parametrize("kind", [ICEBERG, DELTA])
def test_fence_of_a_target_is_its_version(warehouse: Warehouse, schema: str, kind: Kind) -> None:
    name = TableName(("spark_catalog", schema, "t"))
    written = warehouse.iceberg(name) if kind is ICEBERG else name
    warehouse.spark.sql(f"CREATE TABLE {written.sql} (id INT) USING {kind.value}")
    mark = fence.mark(warehouse, name)
    assert fence.differences(warehouse, name, mark) == ""
    warehouse.spark.sql(f"INSERT INTO {written.sql} VALUES (1)")
    assert "its version changed from" in fence.differences(warehouse, name, mark)


@pytest.mark.parametrize("same_size", [False, True])
@pytest.mark.parametrize("kind", [ICEBERG, DELTA])
@soak.slow
def test_copy_with_a_rewritten_file_of_the_same_name_is_recreated(
    warehouse: Warehouse, schema: str, tmp_path: Path, kind: Kind, same_size: bool
) -> None:
    path = tmp_path / "t" / "part-0.parquet"
    path.parent.mkdir()
    pq.write_table(pa.table({"id": pa.array([1, 2], pa.int32())}), path)
    before = path.stat()
    source = TableName(("spark_catalog", schema, "again"))
    warehouse.spark.sql(
        f"CREATE EXTERNAL TABLE {source.sql} (id INT) STORED AS PARQUET LOCATION '{tmp_path}/t'"
    )
    target = beside(source, f"_{kind.value}")
    make = iceberg.create_copy if kind is ICEBERG else delta.create_copy
    assert make(warehouse, source, target) == 1
    assert rows(warehouse, target, kind) == ["(1,)", "(2,)"]

    values = [8, 9] if same_size else [9]
    pq.write_table(pa.table({"id": pa.array(values, pa.int32())}), path)
    assert (path.stat().st_size == before.st_size) is same_size
    # The modification time differs with any resolution of the clock.
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 5_000_000_000))
    for _ in range(2):
        assert make(warehouse, source, target) == 1
        assert rows(warehouse, target, kind) == [f"({value},)" for value in values]
        named = warehouse.iceberg(target) if kind is ICEBERG else target
        # Spark filters with the bounds that the copy stores for the file.
        assert warehouse.spark.sql(f"SELECT * FROM {named.sql} WHERE id = 9").count() == 1
        comparison.require_same_rows(warehouse, source, target)


@soak.slow
def test_copy_with_a_changed_partition_value_is_recreated(
    warehouse: Warehouse, source: TableName, tmp_path: Path
) -> None:
    spark, target = warehouse.spark, beside(source, "_iceberg")
    iceberg.create_copy(warehouse, source, target)
    spark.sql(f"ALTER TABLE {source.sql} DROP PARTITION (k = '2')")
    spark.sql(f"ALTER TABLE {source.sql} ADD PARTITION (k = '9') LOCATION '{tmp_path}/t/k=2'")
    iceberg.create_copy(warehouse, source, target)
    assert rows(warehouse, target, ICEBERG) == rows(warehouse, source)
    comparison.require_same_rows(warehouse, source, target)


@soak.slow
def test_definitions_are_carried_once(warehouse: Warehouse, source: TableName) -> None:
    spark, target = warehouse.spark, beside(source, "_iceberg")
    metastore.alter(spark, source, lambda entry: entry.setOwner("alice"))
    iceberg.create_copy(warehouse, source, target)
    spark.sql(f"COMMENT ON TABLE {source.sql} IS 'it\\'s said'")
    spark.sql(f"ALTER TABLE {source.sql} CHANGE COLUMN name name STRING COMMENT 'another'")
    for _ in range(2):
        copy_definition(warehouse, source, target, TargetFormat.ICEBERG)
    description = catalog.described(spark, warehouse.iceberg(target))
    assert description["Comment"] == "it's said"
    assert catalog.described(spark, target)["Owner"] == "alice"
    properties = table_descriptions.properties(warehouse.spark, warehouse.iceberg(target))
    assert (properties["team"], properties["gc.enabled"]) == ("it's", "false")
    comments = [field.metadata.get("comment") for field in spark.table(warehouse.iceberg(target).sql).schema]
    assert comments == [None, "another", None]
    # Without a difference nothing is changed, because each change would be a version of the target.
    [location] = spark.sql(
        f"SELECT count(*) FROM {warehouse.iceberg(target).sql}.metadata_log_entries"
    ).collect()
    copy_definition(warehouse, source, target, TargetFormat.ICEBERG)
    assert spark.sql(
        f"SELECT count(*) FROM {warehouse.iceberg(target).sql}.metadata_log_entries"
    ).collect() == [location]


def test_different_rows_are_reported(warehouse: Warehouse, source: TableName) -> None:
    target = beside(source, "_iceberg")
    iceberg.create_copy(warehouse, source, target)
    first = target_versions.current_version(warehouse, target, TargetFormat.ICEBERG)
    warehouse.spark.sql(f"UPDATE {warehouse.iceberg(target).sql} SET name = 'z' WHERE id = 1")
    with conditions.raises("TABLE_ROWS_DIFFER", comparison=re.compile("3 rows, but not the same ones")):
        comparison.require_same_rows(warehouse, source, target)
    comparison.require_same_rows(warehouse, source, target, right_version=first)


def test_impossible_renames_are_refused(warehouse: Warehouse, source: TableName, schema: str) -> None:
    spark = warehouse.spark
    spark.sql(f"CREATE TABLE {schema}.managed (id INT) STORED AS PARQUET")
    managed = TableName((*source.parts[:-1], "managed"))
    with conditions.raises("NEW_NAME_TAKEN", table=source, name=managed):
        table_renames.rename_table(warehouse, source, managed)
    with conditions.raises("MANAGED_TABLE_WOULD_MOVE", table=managed):
        table_renames.rename_table(warehouse, managed, beside(managed, "_hive"))
    with conditions.raises("TABLE_TO_RENAME_MISSING", table=beside(source, "_x")):
        table_renames.rename_table(warehouse, beside(source, "_x"), beside(source, "_y"))


def test_managed_table_outside_the_drivers_process_is_refused(
    warehouse: Warehouse, source: TableName, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse.spark.sql(f"CREATE TABLE {schema}.managed (id INT) STORED AS PARQUET")
    monkeypatch.setattr(metastore, "in_process", lambda spark: False)
    with conditions.raises("MANAGED_TABLE_OUT_OF_REACH"):
        table_renames.set_managed(warehouse, TableName((*source.parts[:-1], "managed")), managed=False)
    assert not table_renames.set_managed(warehouse, source, managed=False)


def test_unreadable_views_are_listed(warehouse: Warehouse, source: TableName, schema: str) -> None:
    spark, hidden, copy = warehouse.spark, beside(source, "_hive"), beside(source, "_iceberg")
    spark.sql(f"CREATE VIEW {schema}.sound AS SELECT id FROM {schema}.t")
    spark.sql(f"CREATE VIEW {schema}.broken AS SELECT name FROM {schema}.t")
    spark.sql(f"CREATE VIEW {schema}.above AS SELECT * FROM {schema}.broken")
    spark.sql(f"CREATE VIEW {schema}.unrelated AS SELECT 't' AS t")
    names = [view.table for view in views.list_views_over(warehouse, source)]
    assert names == ["above", "broken", "sound"]
    iceberg.create_copy(warehouse, source, copy)
    table_renames.rename_table(warehouse, source, hidden)
    table_renames.rename_table(warehouse, copy, source)
    assert views.list_unreadable_views(warehouse, source) == ()
    spark.sql(f"ALTER TABLE {warehouse.iceberg(source).sql} DROP COLUMN name")
    sentences = views.list_unreadable_views(warehouse, source)
    assert [sentence.partition(":")[0] for sentence in sentences] == [
        f"spark_catalog.{schema}.above",
        f"spark_catalog.{schema}.broken",
    ]
