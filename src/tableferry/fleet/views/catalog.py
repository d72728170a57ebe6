"""Read views from the catalog, compare old and new ones through Spark, and create the new ones."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tableferry.errors import Refused, TableError, first_line
from tableferry.fleet.hive_tables import metastore
from tableferry.fleet.views.planning import DEFINITION, SOURCE, View, ViewMove
from tableferry.fleet.views.texts import NotMovable
from tableferry.fleet.warehouse import table_descriptions
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.views import view_namespace
from tableferry.spark import catalog, session
from tableferry.spark.catalog import SPARK_ERRORS, condition, explaining, parallel_map
from tableferry.spark.quoting import quote
from tableferry.spark.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

_NO_VIEWS = ("MISSING_CATALOG_ABILITY", "UNSUPPORTED_FEATURE.CATALOG_OPERATION")
# Iceberg's message has no condition.
_NO_VIEWS_TEXT = "view is not supported by catalog"
_ANSI = "spark.sql.ansi.enabled"
_BEFORE_SPARK_4 = re.compile(r"Spark [0-3]\.")
# A view stores these settings of its session, but they don't change its rows.
_WITHOUT_EFFECT = (
    *("spark.sql.artifact.", "spark.sql.catalog.", "spark.sql.sources.parallelPartitionDiscovery."),
    "spark.sql.ui.",
)
# These settings change the values that a query returns.
_OF_VALUES = (
    *(_ANSI, "spark.sql.caseSensitive", "spark.sql.decimalOperations.", "spark.sql.legacy."),
    *("spark.sql.mapKeyDedupPolicy", "spark.sql.session.timeZone", "spark.sql.timestampType"),
)
_ANALYZED = re.compile(r"== Analyzed Logical Plan ==\n(.*?)\n== ", re.DOTALL)
_PLAN_IDS = re.compile(r"#\d+L?|\b(?:CTERelation(?:Def|Ref)|UnionLoop(?:Ref)?) \d+")
_WHOLE_PLANS = {"spark.sql.debug.maxToStringFields": "100000"}

Columns = tuple[tuple[str, str], ...]
"""The names and the types of columns."""


def read_views(warehouse: Warehouse, schema: TableName, wanted: Callable[[TableName], bool]) -> list[View]:
    """Return the wanted persistent views of a schema, by name; none if the schema is missing.

    Raises:
        TableError: The views can't be listed.
    """
    with explaining("VIEWS_NOT_LISTABLE", schema=schema):
        try:
            shown = warehouse.spark.sql(f"SHOW VIEWS IN {schema.sql}").where("NOT isTemporary").collect()
        except SPARK_ERRORS as error:
            if not condition(error).startswith("SCHEMA_NOT_FOUND"):
                raise
            _log.warning("schema %s is missing, so its views can't be moved", schema)
            return []
        names = sorted(filter(wanted, (TableName((*schema.parts, row["viewName"])) for row in shown)))
        return parallel_map(
            lambda name: view_of(name, table_descriptions.describe(warehouse.spark, name)), names
        )


def view_of(name: TableName, description: dict[str, Any]) -> View:
    """Return a view as DESCRIBE … AS JSON reports it."""
    settings = dict(description.get("view_creation_spark_configuration", {}))
    if _BEFORE_SPARK_4.match(description.get("created_by", "")):
        # The default of these versions, which they don't store.
        settings = {_ANSI: "false", **settings}
    return View(
        name,
        description.get("view_text", ""),
        tuple(view_namespace(description, name)),
        tuple((column["name"], column.get("comment", "")) for column in description.get("columns", ())),
        description.get("comment", ""),
        description.get("table_properties", {}),
        description.get("owner", ""),
        description.get("view_schema_mode", ""),
        settings,
        tuple(description.get("view_query_output_columns", ())),
    )


def check(warehouse: Warehouse, move: ViewMove, *, sources_exist: bool) -> None:
    """Check that Spark reads the same query in the written text, and that its schema is the old view's.

    Args:
        warehouse: The tables.
        move: The move of the view.
        sources_exist: Whether all tables and views that the new view reads exist.

    Raises:
        Refused: The query or the schema differs.
        TableError: The old view, or the new query, can't be read.
    """
    spark, view = warehouse.spark, move.view
    old = _old_columns(warehouse, move)
    with _as_recorded(spark, view):
        with explaining("VIEW_TEXT_NOT_READABLE", view=view.name):
            columns = _columns(spark.sql(move.text if sources_exist else move.unmoved_text).schema)
        with session.settings(spark, _WHOLE_PLANS, "the comparison of view texts"):
            if _analyzed(spark, view.text) != _analyzed(spark, move.unmoved_text):
                raise NotMovable("VIEW_MEANING_CHANGES")
    now, before = [name.lower() for name, _ in columns], [name.lower() for name in view.output]
    if now != before and sorted(now) == sorted(before):
        # CREATE VIEW names the columns by position.
        raise Refused("VIEW_COLUMN_ORDER_DIFFERS", view=view.name, columns=", ".join(now))
    _require_same(move, old, columns)


def _analyzed(spark: SparkSession, text: str) -> str:
    """Return the analyzed plan of a query, with its ids numbered from 0."""
    [row] = spark.sql(f"EXPLAIN EXTENDED {text}").collect()
    if (plan := _ANALYZED.search(row[0])) is None:
        raise NotMovable("VIEW_MEANING_CHANGES")
    ids: dict[str, int] = {}
    return _PLAN_IDS.sub(lambda found: f"#{ids.setdefault(found[0].rstrip('L'), len(ids))}", plan[1])


def _old_columns(warehouse: Warehouse, move: ViewMove) -> Columns:
    with explaining("MOVED_VIEW_NOT_READABLE", view=move.view.name):
        return _columns(warehouse.spark.table(move.view.name.sql).schema)


def _require_same(move: ViewMove, old: Columns, new: Columns) -> None:
    if not move.view.evolving and len(old) == len(new):
        # CREATE VIEW names the columns.
        new = tuple((name, kind) for (name, _), (_, kind) in zip(old, new, strict=True))
    if new != old:
        changed = [f"{name} {kind}" for name, kind in new if (name, kind) not in old]
        raise Refused("VIEW_COLUMNS_DIFFER", view=move.view.name, columns=changed or ["fewer columns"])


def is_current(warehouse: Warehouse, move: ViewMove) -> bool | None:
    """Return whether the new view exists with this definition; None if nothing has its name.

    Raises:
        Refused: A table, or another view, has the name.
        TableError: It can't be described.
    """
    spark, new = warehouse.spark, move.new
    try:
        properties = table_descriptions.properties(spark, new)
    except SPARK_ERRORS as error:
        if condition(error).startswith(catalog.MISSING):
            return None
        raise TableError("VIEW_NOT_DESCRIBABLE", view=new, reason=first_line(error)) from error
    if properties.get(SOURCE) != move.view.name.key:
        raise Refused("VIEW_NAME_TAKEN", view=new, source=move.view.name)
    try:
        return bool(spark.table(new.sql).schema) and properties.get(DEFINITION) == move.definition
    except SPARK_ERRORS:
        # A table that it reads is missing or has other columns.
        return False


def create(warehouse: Warehouse, move: ViewMove, *, replace: bool) -> None:
    """Create the new view.

    Raises:
        Refused: The catalog stores no views, or the schema differs from the old view's. Then the new view is
            dropped again.
        TableError: The view can't be created.
    """
    new = move.new
    with _as_recorded(warehouse.spark, move.view):
        try:
            warehouse.run(move.statement(replace=replace), of=())
        except SPARK_ERRORS as error:
            if condition(error).startswith(_NO_VIEWS) or _NO_VIEWS_TEXT in str(error):
                raise Refused("CATALOG_WITHOUT_VIEWS", catalog=new.parts[0]) from error
            raise TableError("VIEW_NOT_CREATED", view=new, reason=first_line(error)) from error
    try:
        with explaining("CREATED_VIEW_NOT_READABLE", view=new):
            columns = _columns(warehouse.spark.table(new.sql).schema)
        _require_same(move, _old_columns(warehouse, move), columns)
    except (Refused, TableError):
        warehouse.run(f"DROP VIEW {new.sql}", of=())
        raise


def lost_settings(warehouse: Warehouse, move: ViewMove) -> str:
    """Return the settings of the old view that change values and that the new view's catalog doesn't store.

    A view in a catalog of Iceberg's is read with the settings of each reader's session, which are taken to be
    this session's.
    """
    if not warehouse.is_iceberg_catalog(move.new.parts[0]):
        return ""
    recorded = sorted(item for item in move.view.settings.items() if item[0].startswith(_OF_VALUES))
    return ", ".join(f"{key}={value}" for key, value in recorded if _setting(warehouse.spark, key) != value)


def _setting(spark: SparkSession, key: str) -> str:
    try:
        return str(spark.conf.get(key))
    except SPARK_ERRORS:
        # Spark doesn't know the setting.
        return ""


def carry_access(warehouse: Warehouse, move: ViewMove) -> None:
    """Give the new view the owner, grants and tags of the old one."""
    view, new = move.view, move.new
    if view.owner and metastore.is_reachable(warehouse.spark, new):
        with explaining("VIEW_OWNER_NOT_CHANGED", view=new, owner=view.owner):
            owner = table_descriptions.describe(warehouse.spark, new).get("owner", "")

        def set_owner(entry: Any) -> None:
            entry.setOwner(view.owner)

        if owner != view.owner:
            warehouse.effect(lambda: metastore.alter(warehouse.spark, new, set_owner), of=())
    warehouse.effect(lambda: warehouse.access.carry(view.name, new), of=())


def _columns(schema: Any) -> Columns:
    return tuple((column.name, column.dataType.simpleString()) for column in schema.fields)


@contextmanager
def _as_recorded(spark: SparkSession, view: View) -> Iterator[None]:
    """Use the current schema and exactly the settings that the old view was created with, in a ``with``.

    A view stores those of the session that creates it, so functions without a schema keep their meaning.
    """
    current = spark.catalog.currentCatalog(), spark.catalog.currentDatabase()
    recorded = {
        key: value
        for key, value in view.settings.items()
        if _has_effect(key) and spark.conf.get(key, None) != value
    }
    # A catalog that reports no settings of the view stores none.
    others = spark.conf.getAll if view.settings.keys() - {_ANSI} else {}
    unset = {
        key: value
        for key, value in others.items()
        if _has_effect(key) and key not in view.settings and spark.conf.isModifiable(key)
    }
    try:
        for key in unset:
            spark.conf.unset(key)
        with session.settings(spark, recorded, f"the definition of {view.name}"):
            with explaining("SCHEMA_NOT_USABLE", schema=".".join(view.namespace)):
                _use(spark, view.namespace[0], ".".join(map(quote, view.namespace[1:])))
            yield
    finally:
        _use(spark, *current)
        for key, value in unset.items():
            spark.conf.set(key, value)


def _has_effect(key: str) -> bool:
    return key.startswith("spark.sql.") and not key.startswith(_WITHOUT_EFFECT)


def _use(spark: SparkSession, catalog_name: str, schema: str) -> None:
    spark.catalog.setCurrentCatalog(catalog_name)
    if schema:
        # Spark parses this name, but not the catalog's.
        spark.catalog.setCurrentDatabase(schema)
