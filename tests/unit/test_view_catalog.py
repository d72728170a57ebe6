"""The settings of a view and the columns of its new text, from the catalog."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql.types import IntegerType, StringType, StructType
from tests import conditions

from tableferry.access.metastore_access import MetastoreAccess
from tableferry.fleet.views.catalog import check, read_views, view_of
from tableferry.fleet.views.planning import ViewMove
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.spark.tables import TableName

ANSI = "spark.sql.ansi.enabled"


@pytest.mark.parametrize(
    ("description", "expected"),
    [
        ({"created_by": "Spark 3.5.1"}, {ANSI: "false"}),
        ({"created_by": "Spark 2.2 or prior"}, {ANSI: "false"}),
        ({"created_by": "Spark 4.1.4"}, {}),
        ({}, {}),
        (
            {"created_by": "Spark 3.5.1", "view_creation_spark_configuration": {ANSI: "true", "k": "v"}},
            {ANSI: "true", "k": "v"},
        ),
    ],
)
def test_view_of_spark_3_is_strict_only_with_a_schema_mode(
    description: dict[str, Any], expected: dict[str, str]
) -> None:
    catalog = {"view_catalog_and_namespace": "spark_catalog.s"}
    assert view_of(TableName(("spark_catalog", "s", "v")), {**catalog, **description}).settings == expected


def of(columns: str) -> StructType:
    """Columns written as ``a b``; quoted ones are strings."""
    struct = StructType()
    for column in columns.split():
        struct.add(column.strip("'"), StringType() if "'" in column else IntegerType())
    return struct


class Session:
    """A session in which a view and its text have different columns."""

    def __init__(self, given: str, had: str) -> None:
        self.given, self.had = of(given), of(had)
        self.catalog = SimpleNamespace(
            currentCatalog=lambda: "spark_catalog",
            currentDatabase=lambda: "default",
            setCurrentCatalog=lambda _: None,
            setCurrentDatabase=lambda _: None,
        )
        self.conf = SimpleNamespace(get=lambda *_: None, set=lambda *_: None, unset=lambda _: None)

    def sql(self, statement: str) -> Any:
        plan = "== Analyzed Logical Plan ==\nProject [id#1]\n\n== Optimized Logical Plan =="
        return SimpleNamespace(collect=lambda: [[plan]], schema=self.given)

    def table(self, name: str) -> Any:
        return SimpleNamespace(schema=self.had)


@pytest.mark.parametrize(
    ("given", "had", "condition", "columns"),
    [
        ("A b", "a b", "", ""),
        # The view renames its columns.
        ("a b", "b a", "", ""),
        ("b a", "a b", "VIEW_COLUMN_ORDER_DIFFERS", "b, a"),
        ("b a", "x y", "VIEW_COLUMN_ORDER_DIFFERS", "b, a"),
        ("a 'b'", "a b", "VIEW_COLUMNS_DIFFER", "['b string']"),
    ],
)
def test_view_keeps_the_order_of_its_columns(given: str, had: str, condition: str, columns: str) -> None:
    description = {
        "view_catalog_and_namespace": "spark_catalog.s",
        "view_text": "SELECT * FROM t",
        "view_query_output_columns": ["a", "b"],
    }
    old, new = TableName(("spark_catalog", "s", "v")), TableName(("spark_catalog", "lake", "v"))
    session: Any = Session(given, had)
    move = ViewMove(view_of(old, description), new, "SELECT * FROM lake.t", "SELECT * FROM s.t")
    warehouse = Warehouse(session, MetastoreAccess(session))
    if condition:
        with conditions.raises(condition, view=old, columns=columns):
            check(warehouse, move, sources_exist=True)
    else:
        check(warehouse, move, sources_exist=True)


@pytest.mark.parametrize("why", ["SCHEMA_NOT_FOUND", "INSUFFICIENT_PERMISSIONS"])
def test_dropped_schema_has_no_views(why: str, caplog: pytest.LogCaptureFixture) -> None:
    class Refusing:
        def sql(self, statement: str) -> Any:
            raise AnalysisException(errorClass=why, messageParameters={}, message=f"[{why}] no")

    session: Any = Refusing()
    warehouse, schema = Warehouse(session, MetastoreAccess(session)), TableName(("spark_catalog", "gone"))
    if why == "SCHEMA_NOT_FOUND":
        assert read_views(warehouse, schema, lambda _: True) == []
        assert "spark_catalog.gone is missing" in caplog.text
    else:
        with conditions.raises("VIEWS_NOT_LISTABLE", schema="spark_catalog.gone"):
            read_views(warehouse, schema, lambda _: True)
