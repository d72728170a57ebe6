"""Owners by a real metastore, and a real session that has no system tables."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.workspace import FakeWorkspace

from tableferry.errors import TableError
from tableferry.fleet.warehouse.opening import open_access
from tableferry.tables import TableName


def test_the_owner_is_the_metastore_s(spark: SparkSession, schema: str, tmp_path: Path) -> None:
    spark.sql(f"CREATE TABLE {schema}.t (id INT) STORED AS PARQUET")
    name = TableName(("spark_catalog", schema, "t"))
    [row] = spark.sql("SELECT current_user()").collect()
    me = row[0]
    file = tmp_path / "users.csv"
    file.write_text(f"table,user\n{schema}.t,a@corp.com\n{schema}.t,{me}\n")
    access = open_access(spark, users=file)
    assert access.owners(name) == (me,)
    assert access.downstream_users(name) == ("a@corp.com",)
    assert open_access(spark).downstream_users(name) == ()
    missing = TableName(("spark_catalog", schema, "missing"))
    with pytest.raises(
        TableError, match=r"missing can't be looked up \(.*\): check its name and your rights"
    ):
        access.owners(missing)


def test_a_session_without_system_tables_is_told_what_to_enable(
    spark: SparkSession, logged_in: FakeWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged_in.put_table("main.shop.orders", "boss@corp.com")
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")
    said: list[str] = []
    access = open_access(spark, say=said.append)
    for _ in range(2):
        assert access.downstream_users(TableName.parse("main.shop.orders")) == ()
    [line] = said
    assert line.startswith("system.access.table_lineage can't be read (")
    assert sum(one.startswith("GET /api/2.0/lineage-tracking") for one in logged_in.asked) == 2
