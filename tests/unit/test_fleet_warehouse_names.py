"""What needs Spark's Python package and no JVM: mentions and properties."""

from __future__ import annotations

from typing import Any

import pytest
from tests import conditions

from tableferry.fleet.access.metastore_access import MetastoreAccess
from tableferry.fleet.jobs.plan import Kind
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
        # Ways to name a table that only Spark knows.
        ("TABLE t -- ISN'T a SELECT", {"other.t"}),
        ("WITH c AS (TABLE db.t) SELECT * FROM c -- ISN'T", {"db.t"}),
        ("SELECT * FROM identifier('db.t') -- ISN'T", {"db.t"}),
        # Deeper than the parser goes, and ISN'T a mistake.
        ("SELECT " + "replace(" * 500 + "a" + ", 'x', 'y')" * 500 + " FROM db.t -- ISN'T", {"db.t"}),
    ],
)
def test_what_a_view_mentions(text: str, keys: set[str]) -> None:
    view = {"view_text": text, "view_catalog_and_namespace": "spark_catalog.other"}
    assert list_referenced_tables(view, VIEW) >= keys
    if "ISN'T" not in text:
        assert list_referenced_tables(view, VIEW) == keys


def test_a_metastore_s_tables_are_known_by_both_names_of_its_catalog() -> None:
    schema = TableName(("spark_catalog", "db"))
    view = {"view_text": "SELECT * FROM hive_metastore.db.t"}
    nothing: Any = None
    views = Views(lambda: 0.0, {schema: (0.0, {VIEW: list_referenced_tables(view, VIEW)})})
    warehouse = Warehouse(nothing, MetastoreAccess(nothing), views=views)
    assert list_views_over(warehouse, TableName(("spark_catalog", "db", "t"))) == (VIEW,)
    assert list_views_over(warehouse, VIEW) == ()


def test_a_view_that_doesn_t_say_where_it_was_made_is_of_its_own_schema() -> None:
    assert list_referenced_tables({"view_text": "SELECT 1 FROM t"}, VIEW) == {"db.t"}
    assert list_referenced_tables({"view_text": "SELECT 1 FROM t"}, TableName(("c", "s", "v"))) == {"c.s.t"}


def test_properties_that_somebody_set_are_carried() -> None:
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
        # A property before it may have lines of its own.
        ("Provider: hive\nTable Properties: [a=b\nView: x, table_type=ICEBERG, uuid=1]", Kind.ICEBERG),
        ("Provider: hive\nTable Properties: [table_type=iceberg]", Kind.ICEBERG),
        ("Type: EXTERNAL\nProvider: hive\nTable Properties: [my_table_type=ICEBERG]", Kind.HIVE),
        ("Type: MANAGED\nProvider: parquet", Kind.HIVE),
    ],
)
def test_what_an_entry_is(text: str, kind: Kind) -> None:
    assert kind_of(text) is kind


@pytest.mark.parametrize("kind", [Kind.HIVE, Kind.DELTA])
def test_a_table_whose_files_move_with_its_name_is_not_renamed(
    monkeypatch: pytest.MonkeyPatch, kind: Kind
) -> None:
    """As an entry that somebody made anew over a Delta log where the metastore puts tables by itself."""
    name, to = (TableName(("spark_catalog", "db", table)) for table in ("t", "t_delta"))
    entry = Entry(kind, True, "file:/w/db.db/t", "now", "", "", "", "")
    monkeypatch.setattr(table_renames, "entries", lambda *_: {name: entry})
    nothing: Any = None
    with conditions.raises("MANAGED_TABLE_WOULD_MOVE", table=name):
        table_renames.rename(nothing, name, to)


def test_in_other_catalogs_files_stay_wherever_they_are() -> None:
    entry = Entry(Kind.DELTA, True, "s3://lake/t", "now", "", "", "", "")
    table_renames.require_fixed_location(TableName(("main", "db", "t")), entry)
    iceberg = entry._replace(kind=Kind.ICEBERG)
    table_renames.require_fixed_location(TableName(("spark_catalog", "db", "t")), iceberg)
