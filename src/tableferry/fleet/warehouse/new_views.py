"""Reads views with all that belongs to them, and makes them anew in another place."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tableferry.errors import Refused, TableError, first_line
from tableferry.fleet.view_moves.planning import ViewMove
from tableferry.fleet.view_moves.references import parse
from tableferry.fleet.view_moves.spark_parser import demand_same_tables
from tableferry.fleet.view_moves.view import SOURCE, View, ViewColumn, statement
from tableferry.fleet.warehouse import asking, metastore
from tableferry.fleet.warehouse.asking import describe
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.views import namespace
from tableferry.spark import catalog, session
from tableferry.spark.catalog import SPARK_ERRORS, condition, explaining, parallel_map
from tableferry.spark.quoting import quote
from tableferry.spark.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

_NO_SCHEMA = "SCHEMA_NOT_FOUND"
_NO_VIEWS = ("MISSING_CATALOG_ABILITY", "UNSUPPORTED_FEATURE.CATALOG_OPERATION")
# Iceberg's own sentence, which has no condition.
_NO_VIEWS_TEXT = "view is not supported by catalog"
# Before Spark 4 it was false unless a session said otherwise, and so Spark reads these views.
_ANSI = "spark.sql.ansi.enabled"
_OLD = re.compile(r"Spark [0-3]\.")
# What a view keeps of the session that made it, but that doesn't change which rows it gives.
_NO_MEANING = (
    "spark.sql.artifact.",
    "spark.sql.catalog.",
    "spark.sql.sources.parallelPartitionDiscovery.",
    "spark.sql.ui.",
)

# What decides on the values that a query gives.
_OF_VALUES = (
    *(_ANSI, "spark.sql.caseSensitive", "spark.sql.decimalOperations.", "spark.sql.legacy."),
    *("spark.sql.mapKeyDedupPolicy", "spark.sql.session.timeZone", "spark.sql.timestampType"),
)

Columns = tuple[tuple[str, str], ...]
"""The names and the types of columns."""


class TakesNoViews(Refused):
    """A catalog keeps no views."""


def read(warehouse: Warehouse, schema: TableName, wanted: Callable[[TableName], bool]) -> list[View]:
    """Return the persistent views of a schema that are wanted, by their names; none if it was dropped.

    Raises:
        TableError: They may not be looked at.
    """
    with explaining("VIEWS_NOT_LISTABLE", schema=schema):
        try:
            shown = warehouse.spark.sql(f"SHOW VIEWS IN {schema.sql}").where("NOT isTemporary").collect()
        except SPARK_ERRORS as error:
            if not condition(error).startswith(_NO_SCHEMA):
                raise
            # Tables that are completed need it no more; the others' views come along all the same.
            _log.warning("schema %s isn't there, so none of its views comes along", schema)
            return []
        names = sorted(filter(wanted, (TableName((*schema.parts, row["viewName"])) for row in shown)))
        descriptions = parallel_map(lambda name: describe(warehouse.spark, name), names)
    return [_view(name, description) for name, description in zip(names, descriptions, strict=True)]


def _view(name: TableName, description: dict[str, Any]) -> View:
    return View(
        name,
        description.get("view_text", ""),
        tuple(namespace(description, name)),
        tuple(
            ViewColumn(column["name"], column.get("comment", "")) for column in description.get("columns", ())
        ),
        description.get("comment", ""),
        description.get("table_properties", {}),
        description.get("owner", ""),
        description.get("view_schema_mode", ""),
        _settings(description),
        tuple(description.get("view_query_output_columns", ())),
    )


def _settings(description: dict[str, Any]) -> dict[str, str]:
    """Return the settings that a view is read with: one of Spark 3, or of Hive, isn't strict by itself."""
    settings = dict(description.get("view_creation_spark_configuration", {}))
    old = _OLD.match(description.get("created_by", ""))
    return {_ANSI: "false", **settings} if old else settings


def check(warehouse: Warehouse, move: ViewMove, *, analyse: bool = True) -> None:
    """Make sure that a view's new text reads what it's to read, and gives the columns that the old one gives.

    Args:
        warehouse: The tables.
        move: The view, and its new text.
        analyse: Whether all that it reads is there, so that its columns can be asked for.

    Raises:
        Refused: It doesn't.
        TableError: The old view, or what the new one reads, can't be read.
    """
    with _as_recorded(warehouse.spark, move.view):
        [row] = warehouse.spark.sql(f"EXPLAIN EXTENDED {move.text}").collect()
        demand_same_tables(parse(move.text, move.view.namespace), row[0])
        if analyse:
            with explaining("VIEW_TEXT_NOT_READABLE", view=move.view.name):
                columns = _columns(warehouse.spark.sql(move.text).schema)
    if analyse:
        _demand_order(move, columns)
        _demand_columns(warehouse, move, columns)


def _demand_order(move: ViewMove, columns: Columns) -> None:
    """Make sure that a * gives columns in the order that it once gave: a view is made of them by position."""
    now, before = [name.lower() for name, _ in columns], [name.lower() for name in move.view.output]
    if now != before and sorted(now) == sorted(before):
        raise Refused("VIEW_COLUMN_ORDER_DIFFERS", view=move.view.name, columns=", ".join(now))


def _demand_columns(warehouse: Warehouse, move: ViewMove, columns: Columns) -> None:
    with explaining("MOVED_VIEW_NOT_READABLE", view=move.view.name):
        old = _columns(warehouse.spark.table(move.view.name.sql).schema)
    if not move.view.evolving and len(old) == len(columns):
        # Their names are given.
        columns = tuple((name, kind) for (name, _), (_, kind) in zip(old, columns, strict=True))
    if columns == old:
        return
    changed = [f"{name} {kind}" for name, kind in columns if (name, kind) not in old]
    raise Refused("VIEW_COLUMNS_DIFFER", view=move.view.name, columns=changed or ["fewer columns"])


def is_there(warehouse: Warehouse, move: ViewMove) -> bool | None:
    """Say whether a view is in its new place as it's to be; None if nothing is, and False if it's outdated.

    Raises:
        Refused: Something else has the name.
        TableError: It can't be looked at.
    """
    spark, new = warehouse.spark, move.new
    try:
        properties = asking.properties(spark, new)
    except SPARK_ERRORS as error:
        if condition(error).startswith(catalog.MISSING):
            return None
        raise TableError("VIEW_NOT_DESCRIBABLE", view=new, reason=first_line(error)) from error
    if properties.get(SOURCE) != move.view.name.key:
        raise Refused("VIEW_NAME_TAKEN", view=new, source=move.view.name)
    try:
        columns = _columns(spark.table(new.sql).schema)
    except SPARK_ERRORS:
        # It reads what isn't there any more.
        return False
    return _has_text(spark, move) and [name for name, _ in columns] == [
        column.name for column in move.view.columns
    ]


def _has_text(spark: SparkSession, move: ViewMove) -> bool:
    try:
        return str(describe(spark, move.new).get("view_text", "")) == move.text
    except SPARK_ERRORS:
        # Of a view in another catalog Spark gives no JSON.
        with explaining("VIEW_NOT_DESCRIBABLE", view=move.new):
            [row] = spark.sql(f"SHOW CREATE TABLE {move.new.sql}").collect()
        return bool(row[0].rstrip().endswith(f"\nAS\n{move.text}"))


def make(warehouse: Warehouse, move: ViewMove, *, replace: bool) -> None:
    """Make a view in its new place.

    Raises:
        TakesNoViews: The catalog keeps none.
        Refused: There it can't be read as the old one is; it's dropped again.
        TableError: It can't be made.
    """
    spark, new = warehouse.spark, move.new
    with _as_recorded(spark, move.view):
        try:
            warehouse.run(statement(move.view, new, move.text, replace=replace), of=())
        except SPARK_ERRORS as error:
            if condition(error).startswith(_NO_VIEWS) or _NO_VIEWS_TEXT in str(error):
                raise TakesNoViews("CATALOG_WITHOUT_VIEWS", catalog=new.parts[0]) from error
            raise TableError("VIEW_NOT_CREATED", view=new, reason=first_line(error)) from error
    try:
        with explaining("CREATED_VIEW_NOT_READABLE", view=new):
            columns = _columns(spark.table(new.sql).schema)
        _demand_columns(warehouse, move, columns)
    except (Refused, TableError):
        warehouse.run(f"DROP VIEW {new.sql}", of=())
        raise


def lost_settings(warehouse: Warehouse, move: ViewMove) -> str:
    """Return the settings that decide on a view's values, and that it's read without in its new place.

    Iceberg's views keep none: whoever reads one reads it with the settings of their own session, and this
    one's are taken for theirs.
    """
    if not warehouse.is_icebergs(move.new.parts[0]):
        return ""
    lost = {
        key: value
        for key, value in move.view.settings.items()
        if key.startswith(_OF_VALUES) and _setting(warehouse.spark, key) != value
    }
    return ", ".join(f"{key}={value}" for key, value in sorted(lost.items()))


def _setting(spark: SparkSession, key: str) -> str:
    """Return what holds in a session, also by Spark's own default; empty if it knows no such setting."""
    try:
        return str(spark.conf.get(key))
    except SPARK_ERRORS:
        return ""


def carry_access(warehouse: Warehouse, move: ViewMove) -> None:
    """Give a view in its new place the owner, grants and tags of the old one; done already is fine."""
    view, new = move.view, move.new
    if view.owner and metastore.reached(warehouse.spark, new):
        with explaining("VIEW_OWNER_NOT_CHANGED", view=new, owner=view.owner):
            owner = describe(warehouse.spark, new).get("owner", "")

        def set_owner(entry: Any) -> None:
            entry.setOwner(view.owner)

        if owner != view.owner:
            warehouse.effect(lambda: metastore.alter(warehouse.spark, new, set_owner), of=())
    warehouse.effect(lambda: warehouse.access.carry(view.name, new), of=())


def _columns(schema: Any) -> Columns:
    return tuple((column.name, column.dataType.simpleString()) for column in schema.fields)


@contextmanager
def _as_recorded(spark: SparkSession, view: View) -> Iterator[None]:
    """Read names and constants as in the old view, for the length of a ``with``.

    A view keeps the catalog, the schema and the settings of the session that makes it. So what isn't replaced
    in the new one's text, such as a function without a schema, means the same as in the old one.
    """
    current = spark.catalog.currentCatalog(), spark.catalog.currentDatabase()
    recorded = {
        key: value
        for key, value in view.settings.items()
        if _has_meaning(key) and spark.conf.get(key, None) != value
    }
    with _unset(spark, view), session.settings(spark, recorded, f"what {view.name} was made with"):
        with explaining("SCHEMA_NOT_USABLE", schema=".".join(view.namespace)):
            catalog_name, *schemas = view.namespace
            _use(spark, catalog_name, ".".join(map(quote, schemas)))
        try:
            yield
        finally:
            _use(spark, *current)


@contextmanager
def _unset(spark: SparkSession, view: View) -> Iterator[None]:
    """Take back settings of this session that the old view wasn't made with, for the length of a ``with``."""
    # Without any, the catalog doesn't say them.
    given = spark.conf.getAll if view.settings.keys() - {_ANSI} else {}
    unset = {
        key: value
        for key, value in given.items()
        if _has_meaning(key) and key not in view.settings and spark.conf.isModifiable(key)
    }
    try:
        for key in unset:
            spark.conf.unset(key)
        yield
    finally:
        for key, value in unset.items():
            spark.conf.set(key, value)


def _has_meaning(key: str) -> bool:
    return key.startswith("spark.sql.") and not key.startswith(_NO_MEANING)


def _use(spark: SparkSession, catalog_name: str, schema: str) -> None:
    spark.catalog.setCurrentCatalog(catalog_name)
    if schema:
        # Unlike the catalog's, this name is parsed.
        spark.catalog.setCurrentDatabase(schema)
