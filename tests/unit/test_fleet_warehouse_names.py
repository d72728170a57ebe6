"""Views' tables, user properties and renames; they need Spark's Python package and no JVM."""

from __future__ import annotations

from typing import Any

import pytest
from tests import conditions

from tableferry.access.metastore_access import MetastoreAccess
from tableferry.fleet.jobs.step_plan import Kind
from tableferry.fleet.warehouse import table_renames
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.definitions import user_properties
from tableferry.fleet.warehouse.job_tables import Entry, kind_of
from tableferry.fleet.warehouse.views import Views, list_referenced_tables, list_views_over
from tableferry.spark.tables import TableName

VIEW = TableName(("spark_catalog", "db", "v"))


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("SELECT * FROM t", {"other.t"}),
        ("SELECT * FROM db.t JOIN `Spark_Catalog`.`x`.`T` USING (id)", {"db.t", "x.t"}),
        (
            "WITH c AS (SELECT 1 FROM db.t) SELECT (SELECT max(a) FROM u) FROM c",
            {"db.t", "other.u", "other.c"},
        ),
        ("SELECT 'db.t' AS text FROM x.y -- db.t", {"x.y"}),
        ("THIS ((ISN'T SQL FROM db.t,(`X`.y),u", {"other.t", "db.t", "x.y", "other.u"}),
        # Table names that the parser doesn't support.
        ("TABLE t -- ISN'T a SELECT", {"other.t"}),
        ("WITH c AS (TABLE db.t) SELECT * FROM c -- ISN'T", {"db.t"}),
        ("SELECT * FROM identifier('db.t') -- ISN'T", {"db.t"}),
        # Nested too deeply for the parser, and ISN'T an error.
        ("SELECT " + "replace(" * 500 + "a" + ", 'x', 'y')" * 500 + " FROM db.t -- ISN'T", {"db.t"}),
    ],
)
def test_view_text_gives_referenced_tables(text: str, keys: set[str]) -> None:
    view = {"view_text": text, "view_catalog_and_namespace": "spark_catalog.other"}
    assert list_referenced_tables(view, VIEW) >= keys
    if "ISN'T" not in text:
        assert list_referenced_tables(view, VIEW) == keys


def test_views_over_metastore_table_are_found_by_both_catalog_names() -> None:
    schema = TableName(("spark_catalog", "db"))
    view = {"view_text": "SELECT * FROM hive_metastore.db.t"}
    nothing: Any = None
    views = Views(lambda: 0.0, {schema: (0.0, {VIEW: list_referenced_tables(view, VIEW)})})
    warehouse = Warehouse(nothing, MetastoreAccess(nothing), views=views)
    assert list_views_over(warehouse, TableName(("spark_catalog", "db", "t"))) == (VIEW,)
    assert list_views_over(warehouse, VIEW) == ()


def test_view_without_recorded_namespace_uses_its_schema() -> None:
    assert list_referenced_tables({"view_text": "SELECT 1 FROM t"}, VIEW) == {"db.t"}
    assert list_referenced_tables({"view_text": "SELECT 1 FROM t"}, TableName(("c", "s", "v"))) == {"c.s.t"}


def test_user_properties_leave_out_system_properties() -> None:
    theirs = {"EXTERNAL": "TRUE", "numFiles": "3", "spark.sql.sources.schema": "{}", "gc.enabled": "true"}
    theirs |= {"transient_lastDdlTime": "1", "external.table.purge": "true", "tableferry.source": "x"}
    theirs |= {"engine.hive.enabled": "true"}
    assert user_properties({**theirs, "team": "a", "Retention": "30"}) == {"team": "a", "Retention": "30"}


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Type: VIEW\nView Text: SELECT 1\nProvider: delta", Kind.VIEW),
        ("Type: MANAGED\nProvider: delta", Kind.DELTA),
        ("Type: EXTERNAL\nProvider: iceberg", Kind.ICEBERG),
        # An earlier property may contain such lines.
        ("Provider: hive\nTable Properties: [a=b\nView: x, table_type=ICEBERG, uuid=1]", Kind.ICEBERG),
        ("Provider: hive\nTable Properties: [table_type=iceberg]", Kind.ICEBERG),
        ("Type: EXTERNAL\nProvider: hive\nTable Properties: [my_table_type=ICEBERG]", Kind.HIVE),
        ("Type: MANAGED\nProvider: parquet", Kind.HIVE),
    ],
)
def test_table_information_gives_kind(text: str, kind: Kind) -> None:
    assert kind_of(text) is kind


@pytest.mark.parametrize("kind", [Kind.HIVE, Kind.DELTA])
def test_rename_refuses_managed_table(monkeypatch: pytest.MonkeyPatch, kind: Kind) -> None:
    """A Delta table is managed if it was recreated in the metastore's default location."""
    name, to = (TableName(("spark_catalog", "db", table)) for table in ("t", "t_delta"))
    entry = Entry(kind, True, "file:/w/db.db/t", "now", "", "", "", "")
    monkeypatch.setattr(table_renames, "entries", lambda *_: {name: entry})
    nothing: Any = None
    with conditions.raises("MANAGED_TABLE_WOULD_MOVE", table=name):
        table_renames.rename_table(nothing, name, to)


def test_rename_allows_managed_table_of_other_catalogs() -> None:
    entry = Entry(Kind.DELTA, True, "s3://lake/t", "now", "", "", "", "")
    table_renames.require_fixed_location(TableName(("main", "db", "t")), entry)
    iceberg = entry._replace(kind=Kind.ICEBERG)
    table_renames.require_fixed_location(TableName(("spark_catalog", "db", "t")), iceberg)
