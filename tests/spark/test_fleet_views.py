"""Views of migrated tables are moved to their schema, on a real metastore with Delta and Iceberg."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests import conditions, soak
from tests.spark.fleets import Fleet, fleet
from tests.spark.warehouses import NoAccess

from tableferry.errors import Refused
from tableferry.fleet.jobs.job import Job, OldName, State, TargetFormat
from tableferry.fleet.queue.records import NewJob
from tableferry.fleet.views import catalog
from tableferry.fleet.views.moving import ViewOptions, ViewReport, move_views
from tableferry.fleet.warehouse import table_descriptions
from tableferry.spark import session
from tableferry.spark.tables import TableName


class Moved:
    """A schema whose tables were migrated to another schema."""

    def __init__(self, spark: SparkSession, schema: str, folder: Path) -> None:
        self.spark, self.old, self.lake = spark, schema, f"{schema}_lake"
        spark.sql(f"CREATE SCHEMA {self.lake}")
        self.access = NoAccess()
        self.fleet: Fleet = fleet(spark, schema, folder)
        self.warehouse = replace(self.fleet.warehouse, access=self.access)

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        """Run a statement in which {old} and {lake} are replaced by the schemas; return its sorted rows."""
        rows = self.spark.sql(text.format(old=self.old, lake=self.lake)).collect()
        return sorted((tuple(row) for row in rows), key=repr)

    def view(self, name: str, query: str, columns: str = "", clauses: str = "") -> None:
        """Create a view, in whose query names without a schema are in the old schema."""
        before = self.spark.catalog.currentDatabase()
        self.spark.catalog.setCurrentDatabase(self.old)
        try:
            self.sql(f"CREATE VIEW {{old}}.{name} {columns} {clauses} AS {query}")
        finally:
            self.spark.catalog.setCurrentDatabase(before)

    def table(
        self,
        name: str,
        *,
        form: TargetFormat = TargetFormat.DELTA,
        state: State = State.WRITES_UNBLOCKED,
        columns: str = "(id INT, name STRING)",
    ) -> None:
        """Create a table and its job; after the switch, the old name is a view of the new table."""
        old, new = f"{self.old}.{name}", f"{self.lake}.{name}"
        self.job(name, form)
        if state is not State.WRITES_UNBLOCKED:
            self.sql(f"CREATE TABLE {old} {columns} USING parquet")
            self.sql(f"INSERT INTO {old} VALUES (1, 'a'), (2, 'b')")
            return
        self.save(name, state, state)
        new = f"ice.{new}" if form is TargetFormat.ICEBERG else new
        self.sql(f"CREATE TABLE {new} {columns} USING {form.value}")
        self.sql(f"INSERT INTO {new} VALUES (1, 'a'), (2, 'b')")
        self.sql(f"CREATE VIEW {old} AS SELECT * FROM {new}")

    def job(self, name: str, form: TargetFormat, target_catalog: str | None = None) -> None:
        job = NewJob(
            self.fleet.name(name),
            form,
            probation_gap_days=14,
            target_catalog=target_catalog,
            target_schema=self.lake,
            old_name=OldName.VIEW,
        )
        self.fleet.store.add([job], self.fleet.clock())

    def save(self, name: str, state: State, desired: State) -> Job:
        job = replace(self.fleet.job(name), state=state, desired_state=desired)
        return self.fleet.store.edit(job, self.fleet.clock())

    def run(self, *views: str, **how: Any) -> list[ViewReport]:
        return move_views(self.fleet.store, self.warehouse, ViewOptions(views, **how))

    def described(self, name: str) -> dict[str, Any]:
        return table_descriptions.describe(self.spark, TableName(("spark_catalog", self.lake, name)))

    def views(self) -> list[str]:
        return [row["viewName"] for row in self.spark.sql(f"SHOW VIEWS IN {self.lake}").collect()]


@pytest.fixture
def moved(spark: SparkSession, schema: str, tmp_path: Path) -> Iterator[Moved]:
    moved = Moved(spark, schema, tmp_path)
    current = spark.catalog.currentCatalog(), spark.catalog.currentDatabase()
    yield moved
    # A run doesn't change the current catalog and schema.
    assert (spark.catalog.currentCatalog(), spark.catalog.currentDatabase()) == current
    spark.sql(f"DROP SCHEMA {moved.lake} CASCADE")
    spark.sql(f"DROP SCHEMA {moved.old} CASCADE")


def outcomes(reports: list[ViewReport]) -> dict[str, str]:
    return {report.view.table: report.outcome for report in reports}


def errors(reports: list[ViewReport]) -> dict[str, str]:
    return {report.view.table: report.finding.one_line for report in reports if report.finding}


def test_views_are_moved_with_comments_properties_and_grants(moved: Moved) -> None:
    moved.table("orders")
    moved.table("customers", form=TargetFormat.ICEBERG)
    moved.view(
        "z_base",
        "SELECT {old}.orders.id AS i, orders.name /* its name */ FROM orders",
        "(number COMMENT 'it''s a number', name)",
        "COMMENT 'all orders' TBLPROPERTIES ('team' = 'x, y')",
    )
    # Its name sorts before the view that it reads.
    moved.view(
        "a_over", "WITH o AS (SELECT * FROM z_base) SELECT o.*, c.id FROM o JOIN customers c ON c.id = number"
    )
    moved.view("b_both", "SELECT number FROM a_over UNION ALL SELECT number FROM {old}.z_base")
    rows = {name: moved.sql(f"SELECT * FROM {{old}}.{name}") for name in ("z_base", "a_over", "b_both")}

    report = moved.run()

    assert [(view.view.table, view.outcome) for view in report] == [
        ("z_base", "moved"), ("a_over", "moved"), ("b_both", "moved"),
    ]  # fmt: skip
    for name, before in rows.items():
        assert moved.sql(f"SELECT * FROM {{lake}}.{name}") == before
        assert len(before) > 1
    base, over = moved.described("z_base"), moved.described("a_over")
    assert " ".join(base["view_text"].split()) == (
        f"SELECT orders.id AS i, orders.name /* its name */ FROM `spark_catalog`.`{moved.lake}`.`orders`"
    )
    assert f"`spark_catalog`.`{moved.lake}`.`z_base`" in over["view_text"]
    assert f"`ice`.`{moved.lake}`.`customers`" in over["view_text"]
    assert base["comment"] == "all orders"
    assert [(column["name"], column.get("comment")) for column in base["columns"]] == [
        ("number", "it's a number"), ("name", None),
    ]  # fmt: skip
    assert (
        base["table_properties"].items()
        >= {"team": "x, y", "tableferry.source": f"{moved.old}.z_base"}.items()
    )
    assert [(old.table, new.table) for old, new in moved.access.carried] == [
        ("z_base", "z_base"), ("a_over", "a_over"), ("b_both", "b_both"),
    ]  # fmt: skip

    # They read the new tables, and nothing of the old schema.
    moved.sql("DROP SCHEMA {old} CASCADE")
    for name, before in rows.items():
        assert moved.sql(f"SELECT * FROM {{lake}}.{name}") == before
    moved.sql("CREATE SCHEMA {old}")


@soak.slow
def test_second_run_replaces_only_changed_views(moved: Moved) -> None:
    moved.table("orders")
    moved.view("v", "SELECT * FROM orders -- all\n")
    assert outcomes(moved.run()) == {"v": "moved"}
    created = moved.described("v")

    assert outcomes(moved.run()) == {"v": "there"}
    assert moved.described("v") == created

    # The old view was changed afterwards.
    moved.sql("ALTER VIEW {old}.v AS SELECT * FROM {old}.orders WHERE id > 1")
    assert outcomes(moved.run(dry_run=True)) == {"v": "planned"}
    assert outcomes(moved.run()) == {"v": "replaced"}
    assert moved.sql("SELECT * FROM {lake}.v") == [(2, "b")]


def test_dry_run_creates_no_view_and_returns_the_statements_of_a_run(moved: Moved) -> None:
    moved.table("orders")
    moved.view("b", "SELECT * FROM orders")
    moved.view("a", "SELECT id FROM b")
    planned = moved.run(dry_run=True)
    assert [(view.view.table, view.outcome) for view in planned] == [("b", "planned"), ("a", "planned")]
    assert moved.views() == []
    assert [view.statement for view in moved.run()] == [view.statement for view in planned]


@soak.slow
def test_run_after_a_crash_creates_missing_views(moved: Moved, monkeypatch: pytest.MonkeyPatch) -> None:
    moved.table("orders")
    for name, query in {"c": "SELECT * FROM orders", "b": "SELECT * FROM c", "a": "SELECT * FROM b"}.items():
        moved.view(name, query)

    class Died(BaseException):
        pass

    def die(*_: object) -> None:
        raise Died

    create = catalog.create
    for name, made in {"c": ["c"], "b": ["b", "c"]}.items():
        # After the view was created, and before its grants were copied.
        with monkeypatch.context() as patch:
            patch.setattr(
                catalog, "carry_access", lambda _, move, at=name: die() if move.new.table == at else None
            )
            with pytest.raises(Died):
                moved.run()
        assert moved.views() == made
    assert catalog.create is create
    assert outcomes(moved.run()) == {"c": "there", "b": "there", "a": "moved"}
    assert [new.table for _, new in moved.access.carried] == ["c", "b", "a"]
    assert moved.sql("SELECT * FROM {lake}.a") == [(1, "a"), (2, "b")]


@soak.slow
def test_views_that_cannot_move_are_reported_and_other_views_are_moved(moved: Moved) -> None:
    moved.table("orders")
    moved.table("customers", state=State.READY)
    moved.sql("CREATE TABLE {old}.gone (id INT) USING parquet")
    moved.view("good", "SELECT * FROM orders")
    moved.view("by_text", "SELECT * FROM IDENTIFIER('{old}.orders')")
    moved.view("by_table", "WITH o AS (TABLE orders) SELECT id FROM o")
    moved.view("unread", "SELECT orders.id FROM orders, gone")
    moved.view("over_unread", "SELECT id FROM unread")
    moved.view("waits", "SELECT o.id FROM orders o JOIN customers c ON o.id = c.id")
    moved.view("elsewhere", "SELECT 1 AS one FROM customers")
    moved.view("taken", "SELECT id FROM orders")
    moved.sql("DROP TABLE {old}.gone")
    moved.sql("CREATE TABLE {lake}.taken (id INT) USING delta")

    report = moved.run()

    assert outcomes(report) == {
        "good": "moved", "by_text": "refused", "by_table": "refused", "taken": "refused",
        "unread": "waiting", "over_unread": "waiting", "waits": "waiting",
    }  # fmt: skip
    reasons = errors(report)
    assert "[VIEW_NAMES_TABLE_INDIRECTLY]" in reasons["by_text"]
    assert "[VIEW_NAMES_TABLE_INDIRECTLY]" in reasons["by_table"]
    assert f"spark_catalog.{moved.old}.customers (its job is at Undefined)" in reasons["waits"]
    assert "gone (no migration of this fleet has moved it)" in reasons["unread"]
    assert f"spark_catalog.{moved.old}.unread (a view that stays)" in reasons["over_unread"]
    assert f"spark_catalog.{moved.lake}.taken exists already" in reasons["taken"]
    assert moved.views() == ["good"]

    report = moved.run(f"{moved.old}.waits", f"{moved.old}.*unread", partial=True)
    assert outcomes(report) == {"unread": "refused", "over_unread": "refused", "waits": "moved"}
    reasons = errors(report)
    assert "[MOVED_VIEW_NOT_READABLE]" in reasons["unread"]
    assert "gone` cannot be found" in reasons["unread"]
    [waited] = [view for view in report if view.outcome == "moved"]
    assert [name.table for name in waited.stays] == ["customers"]
    assert moved.sql("SELECT * FROM {lake}.waits") == [(1,), (2,)]
    # A partially moved view stays unchanged until all its tables have moved, and is then replaced.
    assert outcomes(moved.run(f"{moved.old}.waits")) == {"waits": "waiting"}
    moved.save("customers", State.WRITES_UNBLOCKED, State.WRITES_UNBLOCKED)
    moved.sql("CREATE TABLE {lake}.customers (id INT, name STRING) USING delta")
    assert outcomes(moved.run(f"{moved.old}.waits")) == {"waits": "replaced"}
    assert moved.sql("SELECT * FROM {lake}.waits") == []
    with conditions.raises("VIEW_PATTERN_WITHOUT_MATCH", text="nothing"):
        moved.run("nothing")


@soak.slow
def test_view_whose_columns_would_change_is_refused(moved: Moved) -> None:
    moved.table("orders")
    moved.view("v", "SELECT id FROM orders")
    moved.view("w", "SELECT name FROM orders")
    # Spark casts the old view's columns to the types at its creation.
    moved.sql("DROP TABLE {lake}.orders")
    moved.sql("CREATE TABLE {lake}.orders (id BIGINT, name STRING) USING delta")
    report = moved.run()
    assert outcomes(report) == {"v": "refused", "w": "moved"}
    assert "Its columns would change in the new place (id bigint" in errors(report)["v"]
    assert moved.views() == ["w"]


@soak.slow
def test_moved_view_keeps_the_settings_and_schema_of_the_old_view(moved: Moved) -> None:
    """Spark stores a view's settings, and the schema of functions without one.

    The metastore of the tests lacks the table for functions after several threads have used it.
    """
    moved.table("orders")
    moved.spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        moved.view("lenient", "SELECT CAST(name AS INT) AS number FROM orders")
    finally:
        moved.spark.conf.unset("spark.sql.ansi.enabled")
    moved.view("timed", "SELECT CAST('2026-01-01 10:00:00' AS TIMESTAMP) AS at FROM orders")
    moved.spark.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    try:
        assert outcomes(moved.run()) == {"lenient": "moved", "timed": "moved"}
        assert moved.spark.conf.get("spark.sql.timestampType") == "TIMESTAMP_NTZ"
        assert moved.spark.conf.get("spark.sql.ansi.enabled") == "true"
    finally:
        moved.spark.conf.unset("spark.sql.timestampType")
    assert moved.spark.table(f"{moved.lake}.timed").dtypes == [("at", "timestamp")]
    assert moved.sql("SELECT * FROM {lake}.lenient") == [(None,), (None,)]
    assert moved.described("lenient")["view_catalog_and_namespace"] == f"spark_catalog.{moved.old}"


# sqlglot, or the replacement of names, would change the meaning of these views.
UNFAITHFUL = {
    "second_hint": "SELECT /*+ REPARTITION(3) */ /*+ COALESCE(1) */ id FROM orders",
    "strings": "SELECT 'a' 'b' AS s FROM orders",
    "random": "SELECT id, rand() AS r FROM orders",
}
FAITHFUL = {
    "literals": "SELECT DATE '2026-01-31' AS d, 1L AS l, INTERVAL 7 DAYS AS i, now() AS n FROM orders",
    "functions": "SELECT nvl(name, 'x') AS a, instr(name, 'x') AS b, date_sub(now(), 1) AS c FROM orders",
    "own_name": "WITH orders AS (SELECT * FROM orders WHERE id > 1), o AS (SELECT * FROM Orders) "
    "SELECT * FROM O",
    "nested": "SELECT x.id FROM orders, (WITH orders AS (SELECT 7 AS id) SELECT * FROM orders) x",
    "recursive": "WITH RECURSIVE r AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM r WHERE i < 3) "
    "SELECT i FROM r, orders",
    "comma": "SELECT a.id FROM orders a, orders b WHERE a.id = b.id",
    "hint": "SELECT /*+ BROADCAST({old}.orders) */ b.id FROM {old}.orders JOIN orders b ON orders.id = b.id",
    "aggregate": "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY id) AS m FROM orders",
    "windows": "SELECT row_number() OVER (PARTITION BY name ORDER BY id DESC) AS n, sum(id) OVER w AS c "
    "FROM (SELECT DISTINCT id, name FROM orders) WINDOW w AS (PARTITION BY name)",
    "subquery": "SELECT id FROM orders "
    "WHERE EXISTS (SELECT 1 FROM orders b WHERE b.id = {old}.orders.id + 1)",
    "lateral": "SELECT id, e FROM orders LATERAL VIEW explode(array(id, 2)) t AS e",
}


def test_view_is_moved_only_if_spark_reads_the_same_query_in_the_written_text(moved: Moved) -> None:
    moved.table("orders")
    for name, query in {**FAITHFUL, **UNFAITHFUL}.items():
        moved.view(name, query)
    report = moved.run()
    assert {name for name, outcome in outcomes(report).items() if outcome == "moved"} == FAITHFUL.keys()
    assert {name: reason.split("]")[0] for name, reason in errors(report).items()} == dict.fromkeys(
        UNFAITHFUL, "[VIEW_MEANING_CHANGES"
    )
    for name in FAITHFUL.keys() - {"literals"}:
        assert moved.sql(f"SELECT * FROM {{lake}}.{name}") == moved.sql(f"SELECT * FROM {{old}}.{name}")
    assert set(moved.views()) == FAITHFUL.keys()


def test_view_of_a_table_that_is_being_reverted_is_refused(
    moved: Moved, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved.table("orders")
    moved.view("v", "SELECT * FROM orders")
    check = catalog.check

    def check_and_revert(*args: Any, **options: Any) -> None:
        check(*args, **options)
        moved.save("orders", State.WRITES_UNBLOCKED, State.WRITES_BLOCKED)

    with monkeypatch.context() as patch:
        patch.setattr(catalog, "check", check_and_revert)
        report = moved.run()
    assert outcomes(report) == {"v": "refused"}
    assert "orders is being reverted" in errors(report)["v"]
    assert moved.views() == []
    # A later run doesn't treat the table as moved.
    assert moved.run() == []


def test_views_of_tables_in_an_iceberg_catalog_are_moved_there(moved: Moved) -> None:
    """Iceberg's catalog stores views differently from Spark's."""
    moved.sql("CREATE TABLE ice.{lake}.parts (id INT, name STRING) USING iceberg")
    moved.sql("INSERT INTO ice.{lake}.parts VALUES (1, 'a')")
    moved.sql("CREATE VIEW {old}.parts AS SELECT * FROM ice.{lake}.parts")
    moved.job("parts", TargetFormat.ICEBERG, target_catalog="ice")
    moved.save("parts", State.HIVE_DROPPED, State.HIVE_DROPPED)
    moved.view("v", "SELECT parts.name, {old}.parts.id FROM parts -- the end\n", "(n COMMENT 'x', i)")
    with session.settings(moved.spark, {"spark.sql.ansi.enabled": "false"}, "an old session"):
        moved.view("w", "SELECT CAST(name AS INT) AS number FROM parts")
    report = moved.run()
    assert outcomes(report) == {"v": "moved", "w": "moved"}
    assert [view.loses for view in report] == ["", "spark.sql.ansi.enabled=false"]
    moved.sql("DROP VIEW {old}.w")
    moved.sql("DROP VIEW ice.{lake}.w")
    assert moved.sql("SELECT i, n FROM ice.{lake}.v") == [(1, "a")]
    assert outcomes(moved.run()) == {"v": "there"}
    moved.sql("ALTER VIEW {old}.v AS SELECT name AS n, id + 1 AS i FROM {old}.parts")
    assert outcomes(moved.run()) == {"v": "replaced"}
    assert moved.sql("SELECT i, n FROM ice.{lake}.v") == [(2, "a")]
    moved.sql("DROP VIEW ice.{lake}.v")
    moved.sql("DROP TABLE ice.{lake}.parts")


def test_views_are_refused_by_a_catalog_without_views(moved: Moved, tmp_path: Path) -> None:
    viewless = f"viewless_{moved.old}"
    for key, value in {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".type": "hadoop",
        ".warehouse": tmp_path,
    }.items():
        moved.spark.conf.set(f"spark.sql.catalog.{viewless}{key}", str(value))
    moved.sql(f"CREATE TABLE {viewless}.{{lake}}.parts (id INT) USING iceberg")
    moved.sql(f"CREATE VIEW {{old}}.parts AS SELECT * FROM {viewless}.{{lake}}.parts")
    moved.job("parts", TargetFormat.ICEBERG, target_catalog=viewless)
    moved.save("parts", State.WRITES_UNBLOCKED, State.WRITES_UNBLOCKED)
    moved.view("a", "SELECT id FROM parts")
    moved.view("b", "SELECT id FROM parts")
    moved.view("c", "SELECT id FROM a")
    report = moved.run()
    assert outcomes(report) == {"a": "refused", "b": "refused", "c": "waiting"}
    refused = Refused("CATALOG_WITHOUT_VIEWS", catalog=viewless)
    assert {name: errors(report)[name] for name in "ab"} == dict.fromkeys("ab", refused.one_line)
