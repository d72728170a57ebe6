"""Owners from a real metastore, and readers from a table with the documented columns of the lineage table."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests import conditions, soak
from tests.workspace import FakeWorkspace

from tableferry import workspace
from tableferry.access.unity_catalog import UnityAccess
from tableferry.access.users_file import read_users
from tableferry.fleet.access.catalog_access import open_access
from tableferry.spark.tables import TableName

# https://docs.databricks.com/admin/system-tables/lineage.html
COLUMNS = (
    "account_id STRING, metastore_id STRING, workspace_id STRING, entity_type STRING, entity_id STRING, "
    "entity_run_id STRING, source_table_full_name STRING, source_table_catalog STRING, "
    "source_table_schema STRING, source_table_name STRING, source_path STRING, source_type STRING, "
    "target_table_full_name STRING, target_table_catalog STRING, target_table_schema STRING, "
    "target_table_name STRING, target_path STRING, target_type STRING, created_by STRING, "
    "event_time TIMESTAMP, event_date DATE"
)


@soak.slow
def test_owner_of_a_hive_table_is_read_from_the_metastore(
    spark: SparkSession, schema: str, tmp_path: Path
) -> None:
    spark.sql(f"CREATE TABLE {schema}.t (id INT) STORED AS PARQUET")
    name = TableName(("spark_catalog", schema, "t"))
    [row] = spark.sql("SELECT current_user()").collect()
    me = row[0]
    file = tmp_path / "users.csv"
    file.write_text(f"table,user\n{schema}.t,a@corp.com\n{schema}.t,{me}\n")
    access = open_access(spark, users=read_users(file))
    assert access.owners(name) == (me,)
    assert access.downstream_users(name) == ("a@corp.com",)
    assert open_access(spark).downstream_users(name) == ()
    missing = TableName(("spark_catalog", schema, "missing"))
    with conditions.raises("OWNER_NOT_READABLE", table=missing):
        access.owners(missing)


@pytest.fixture
def lineage(spark: SparkSession, tmp_path: Path) -> Iterator[None]:
    """Provide a catalog named system with the lineage table."""
    settings = {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "hadoop", ".warehouse": str(tmp_path)}
    for key, value in settings.items():
        spark.conf.set(f"spark.sql.catalog.system{key}", value)
    spark.sql(f"CREATE TABLE system.access.table_lineage ({COLUMNS}) USING iceberg")
    yield
    spark.sql("DROP TABLE system.access.table_lineage")
    for key in settings:
        spark.conf.unset(f"spark.sql.catalog.system{key}")


@soak.slow
def test_readers_are_the_users_of_the_last_90_days_without_the_owner(
    spark: SparkSession, lineage: None, logged_in: FakeWorkspace
) -> None:
    logged_in.put_table("main.shop.orders", "boss@corp.com")
    today = date.today()
    events = [
        ("main.shop.orders", "z@corp.com", today),
        ("main.shop.orders", "z@corp.com", today),
        ("main.shop.orders", "a@corp.com", today - timedelta(days=80)),
        ("main.shop.orders", "old@corp.com", today - timedelta(days=99)),
        ("main.shop.orders", "boss@corp.com", today),
        ("main.shop.orders", None, today),
        ("main.shop.orders_raw", "other@corp.com", today),
    ]
    columns = "source_table_full_name STRING, created_by STRING, event_date DATE"
    names = "source_table_full_name, created_by, event_date"
    spark.sql(
        f"INSERT INTO system.access.table_lineage ({names}) SELECT {names} FROM {{events}}",
        events=spark.createDataFrame(events, columns),
    )

    def rows(query: str) -> list[Any]:
        return spark.sql(query).collect()

    messages: list[str] = []
    access = UnityAccess(workspace.client(), rows, say=messages.append)
    readers = access.downstream_users(TableName.parse("main.shop.orders"))
    assert messages == []
    assert readers == ("a@corp.com", "z@corp.com")


def test_unreadable_lineage_table_is_reported_once(
    spark: SparkSession, logged_in: FakeWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged_in.put_table("main.shop.orders", "boss@corp.com")
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")
    messages: list[str] = []
    access = open_access(spark, say=messages.append)
    for _ in range(2):
        assert access.downstream_users(TableName.parse("main.shop.orders")) == ()
    [line] = messages
    assert line.startswith("system.access.table_lineage can't be read (")
    assert sum(request.startswith("GET /api/2.0/lineage-tracking") for request in logged_in.asked) == 2
