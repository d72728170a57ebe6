"""Catalogs, schemas, tables, columns and folders with hyphens, dots and backticks, on every route.

Spark's catalog accepts no such names of schemas and tables, so the tests use an Iceberg catalog.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests import soak
from tests.spark.fleets import errors, fleet
from tests.spark.projects import Project

from tableferry import convert, verify
from tableferry.access.metastore_access import MetastoreAccess
from tableferry.fleet.operations import table_search
from tableferry.fleet.operations.table_requests import Pattern
from tableferry.fleet.settings import FleetSettings
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.formats.hive.catalog_tables import list_tables
from tableferry.pipelines.handover.copies import compare_rows
from tableferry.pipelines.model.flows import CdcSettings
from tableferry.spark import session
from tableferry.spark.tables import TableName

ODD = TableName(("my-cat", "my-schema", "a`b.c-d"))
COPY = TableName(("my-cat", "my-schema", "a+b"))


@pytest.fixture(scope="module")
def my_cat(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> SparkSession:
    """A session with the catalog `my-cat` and two tables in it."""
    catalog = "spark.sql.catalog.my-cat"
    spark.conf.set(catalog, "org.apache.iceberg.spark.SparkCatalog")
    spark.conf.set(f"{catalog}.type", "hadoop")
    spark.conf.set(f"{catalog}.warehouse", str(tmp_path_factory.mktemp("my-cat")))
    for schema in ("my-schema", "a`b"):
        spark.sql(f"CREATE SCHEMA {TableName(('my-cat', schema)).sql}")
    for table in (ODD, COPY):
        spark.sql(f"CREATE TABLE {table.sql} (`the key-1` int, `e``f` string, `g.h` int) USING iceberg")
        spark.sql(f"INSERT INTO {table.sql} VALUES (1, 'a', 2), (3, NULL, 4)")
    return spark


def test_table_name_without_schema_is_resolved_in_current_schema(my_cat: SparkSession) -> None:
    try:
        session.use(my_cat, "my-cat", "my-schema")
        assert my_cat.table("`a+b`").count() == 2
    finally:
        session.use(my_cat, "spark_catalog", "default")


def test_verify_compares_tables_with_odd_names(my_cat: SparkSession) -> None:
    same = verify.verify_tables(my_cat, str(ODD), COPY.sql, keys=["the key-1"])
    assert (same.matches, same.source.rows) == (True, 2)
    my_cat.sql(f"INSERT INTO {COPY.sql} VALUES (5, 'b', 6)")
    other = verify.verify_tables(my_cat, str(ODD), COPY.sql, keys=["the key-1"], exclude=["e`f"])
    assert "5" in verify.render(other)
    assert not other.matches


def test_catalog_listing_finds_tables_with_odd_names(my_cat: SparkSession) -> None:
    names = {ODD.table, COPY.table}
    for name in names:
        assert name in list_tables(my_cat, ODD.parts[:2], [name])
    assert set(table_search.find_tables(my_cat, Pattern("my-cat", "my-*", "*"))) == {ODD, COPY}
    my_cat.sql("CREATE TABLE `my-cat`.`a``b`.t (id int) USING iceberg")
    assert table_search.find_tables(my_cat, Pattern("my-cat", "a`b", "t")) == [
        TableName(("my-cat", "a`b", "t"))
    ]


@pytest.fixture
def dynamic(spark: SparkSession) -> Iterator[None]:
    with session.settings(spark, {"hive.exec.dynamic.partition.mode": "nonstrict"}, "the test"):
        yield


@soak.only  # tests/unit tests how names are quoted.
@pytest.mark.usefixtures("dynamic")
def test_fleet_migrates_table_through_catalog_with_odd_name(
    spark: SparkSession, schema: str, tmp_path: Path
) -> None:
    for key in ("", ".type"):
        spark.conf.set(f"spark.sql.catalog.my-ice{key}", str(spark.conf.get(f"spark.sql.catalog.ice{key}")))
    spark.sql(
        f"CREATE EXTERNAL TABLE {schema}.orders (`a-b` int, `c d` string) PARTITIONED BY (`p-q` string) "
        f"STORED AS PARQUET LOCATION '{tmp_path}/it-is'"
    )
    spark.sql(f"INSERT INTO {schema}.orders VALUES (1, 'x', 'k'), (2, NULL, NULL)")
    ours = fleet(spark, schema, tmp_path)
    settings = FleetSettings(iceberg_catalog="my-ice")
    ours.warehouse = Warehouse.of(spark, MetastoreAccess(spark), settings)
    before = ours.rows("orders")
    ours.to_probation("orders")
    ours.write("orders", "INSERT INTO {t} VALUES (3, 'y', 'k')")
    assert errors(ours.shadow()) == []
    assert ours.rows("orders") == ours.rows("orders_hive") == sorted([*before, (3, "y", "k")], key=repr)


def test_folder_with_odd_name_is_converted_and_compared(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "it`s my-lake.v2"
    spark.sql("SELECT 1 AS `k-1`, 'a' AS `p``q`").write.partitionBy("p`q").parquet(str(folder))
    (table,) = convert.run([str(folder)], spark, verify=True).tables
    assert (table.outcome, table.error) == ("converted", None)
    assert table.verdict
    assert table.verdict.matches
    reference = TableName.at(str(folder)).sql
    assert verify.verify_tables(spark, reference, f"{reference}@0").matches


@pytest.mark.parametrize(
    ("fields", "paths"),
    [
        ("'a.b', {}, 'c`d', 2", ("__START_AT.`a.b`", "__START_AT.`c``d`")),
        ("'a.b', {}, 'a', named_struct('b', 2)", ("__START_AT.`a.b`", "__START_AT.a.b")),
    ],
)
def test_copy_is_compared_by_fields_of_sequence_with_odd_names(
    spark: SparkSession, fields: str, paths: tuple[str, ...]
) -> None:
    """A sequence of several columns is a struct whose fields have the columns' names."""
    source, copied = (
        spark.sql(f"SELECT 1 AS id, named_struct({fields.format(at)}) AS __START_AT") for at in (3, 4)
    )
    settings = CdcSettings(keys=("id",), sequence_by="struct(`a.b`, a)", scd_type=2)
    verdict = compare_rows(source, copied, settings, "legacy", "target")
    assert verdict.keys
    assert verdict.keys.columns == ("id", *paths)
    assert sorted(row.key for row in verdict.keys.rows) == [("1", "3", "2"), ("1", "4", "2")]
    assert compare_rows(source, source, settings, "legacy", "target").matches


@soak.slow
def test_migration_keeps_columns_and_folders_with_odd_names(
    tmp_path: Path, schema: str, spark: SparkSession
) -> None:
    project = Project(tmp_path / "it`s my-shop.v2", schema, spark)
    columns = "`the-key` int, `a.b` string, `c``d` int"
    for table in ("src", "rows_legacy", "kept_legacy"):
        project.create(table, columns, (1, "x", 1), properties="'delta.columnMapping.mode' = 'name'")
    project.standard("rows", "src", migration={})
    cdc = {"keys": ["the-key"], "scd_type": "1", "sequence_by": "`c``d`"}
    project.standard("kept", "src", cdc=cdc, migration={})
    assert project.run().ok
    for row in ((2, "y", 1), (1, "z", 2)):
        values = ", ".join(map(repr, row))
        spark.sql(f"INSERT INTO {schema}.src VALUES ({values})")
    project.run()
    assert project.phases() == {"rows": "complete", "kept": "complete"}
    assert len(spark.table(f"{schema}.rows").collect()) == 3
    assert sorted(map(tuple, spark.table(f"{schema}.kept").collect())) == [(1, "z", 2), (2, "y", 1)]
