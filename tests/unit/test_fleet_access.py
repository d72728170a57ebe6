"""The access to each catalog, and the CSV file with the users of tables."""

from __future__ import annotations

import re
from pathlib import Path
from typing import cast

import pytest
from pyspark.sql import SparkSession
from tests import conditions
from tests.workspace import FakeWorkspace

from tableferry import workspace
from tableferry.access.metastore_access import MetastoreAccess
from tableferry.access.unity_catalog import UnityAccess
from tableferry.access.users_file import key, read_users
from tableferry.errors import TableError
from tableferry.fleet.access.catalog_access import AccessByCatalog, open_catalog
from tableferry.fleet.warehouse.context import Access
from tableferry.spark.tables import TableName

NO_SPARK = cast(SparkSession, None)
ORDERS = TableName.parse("main.shop.orders")


def kind_of(catalog: str) -> type:
    messages: list[str] = []
    return type(open_catalog(NO_SPARK, catalog, users={}, require_lineage=False, say=messages.append))


@pytest.mark.parametrize(
    ("catalog", "kind"),
    [
        ("main", UnityAccess),
        ("hive_metastore", MetastoreAccess),
        ("spark_catalog", MetastoreAccess),
        ("glue", MetastoreAccess),
    ],
)
def test_catalog_of_the_workspace_is_opened_as_unity_catalog(
    logged_in: FakeWorkspace, monkeypatch: pytest.MonkeyPatch, catalog: str, kind: type
) -> None:
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")
    assert kind_of(catalog) is kind


def test_forbidden_catalog_is_opened_as_unity_catalog(
    logged_in: FakeWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")
    logged_in.closed.add("main")
    assert kind_of("main") is UnityAccess


def test_unreachable_workspace_raises_an_error(
    logged_in: FakeWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")
    logged_in.token = "another"
    advice = re.compile("^Log in with `databricks auth login")
    problem = re.compile("doesn't report whether it has catalog main$")
    with conditions.raises("WORKSPACE_UNREACHABLE", problem=problem, advice=advice):
        kind_of("main")


def test_local_session_sends_no_request(logged_in: FakeWorkspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DATABRICKS_HOST")
    assert kind_of("main") is MetastoreAccess
    assert logged_in.asked == []


def test_catalog_access_is_opened_once(logged_in: FakeWorkspace) -> None:
    logged_in.put_table(str(ORDERS), "boss@corp.com", etl={"MODIFY"})
    logged_in.put_table("main.shop.copy")
    opened: list[str] = []
    messages: list[str] = []

    def rows(query: str) -> list[list[str]]:
        return [["a@corp.com"]] if "lineage" in query else []

    def open_one(catalog: str) -> Access:
        opened.append(catalog)
        if catalog != "main":
            return MetastoreAccess(NO_SPARK)
        users = {"main.shop.orders": ("file@corp.com",)}
        return UnityAccess(workspace.client(), rows, users=users, say=messages.append)

    access = AccessByCatalog(open_one)
    assert access.owners(ORDERS) == ("boss@corp.com",)
    assert access.downstream_users(ORDERS) == ("a@corp.com", "file@corp.com")
    rights = access.rights_to_write(ORDERS)
    access.take(ORDERS, rights)
    assert logged_in.granted(str(ORDERS)) == {}
    access.give_back(ORDERS, rights)
    assert logged_in.granted(str(ORDERS)) == {"etl": {"MODIFY"}}
    access.carry(ORDERS, TableName.parse("main.shop.copy"))
    assert logged_in.granted("main.shop.copy") == {"etl": {"MODIFY"}}
    plain = [TableName.parse("shop.orders"), TableName.parse("spark_catalog.shop.orders")]
    assert [access.rights_to_write(table) for table in plain] == [{}, {}]
    assert opened == ["main", "spark_catalog"]
    # Between a metastore and Unity Catalog, grants can't be copied.
    for pair in ((ORDERS, plain[1]), (plain[1], ORDERS)):
        access.carry(*pair)
    assert logged_in.granted(str(ORDERS)) == {"etl": {"MODIFY"}}
    # A process with access to the files of a metastore's table reads all of it.
    logged_in.tables[str(ORDERS)]["row_filter"] = {"function_name": "main.shop.f", "input_column_names": []}
    with conditions.raises("TARGET_CATALOG_WITHOUT_PROTECTION", hiding=["a row filter"], target=plain[1]):
        access.carry(ORDERS, plain[1])
    with conditions.raises("RIGHTS_TAKEN_IN_UNITY_CATALOG", table=plain[0]):
        access.give_back(plain[0], rights)


def test_users_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "users.csv"
    file.write_text(
        "\ufeffTable,user\nshop.Orders,b@corp.com\r\n\nhive_metastore.shop.orders,a@corp.com\n"
        'spark_catalog.shop.orders,b@corp.com\n"main.`a,b.c`.d",c@corp.com\n'
    )
    users = read_users(file)
    assert users == {"shop.orders": ("b@corp.com", "a@corp.com"), "main.a,b.c.d": ("c@corp.com",)}
    assert users[key(TableName.parse("spark_catalog.SHOP.orders"))] == ("b@corp.com", "a@corp.com")


@pytest.mark.parametrize(
    ("content", "condition", "place"),
    [
        (b"", "USERS_FILE_HEADER_INVALID", "1"),
        (b"shop.orders,a@corp.com\n", "USERS_FILE_HEADER_INVALID", "1"),
        (b"table,user\nshop.orders\n", "USERS_FILE_LINE_INVALID", "2"),
        (b"table,user\nshop.orders, \n", "USERS_FILE_LINE_INVALID", "2"),
        (b"table,user\norders,a@corp.com\n", "USERS_FILE_TABLE_WITHOUT_SCHEMA", "2"),
        (b"table,user\na..b,a@corp.com\n", "USERS_FILE_TABLE_INVALID", "2"),
        (b"table,user\n\xff\n", "USERS_FILE_NOT_CSV", ""),
    ],
)
def test_invalid_users_file_is_refused(tmp_path: Path, content: bytes, condition: str, place: str) -> None:
    file = tmp_path / "users.csv"
    file.write_bytes(content)
    with pytest.raises(TableError) as caught:
        read_users(file)
    conditions.check(caught.value, condition)
    assert caught.value.message.startswith(f"{file}:{place}" if place else str(file))


def test_missing_users_file_is_reported(tmp_path: Path) -> None:
    with conditions.raises(
        "USERS_FILE_NOT_READABLE", file=tmp_path / "users.csv", reason="no such file or directory"
    ):
        read_users(tmp_path / "users.csv")
