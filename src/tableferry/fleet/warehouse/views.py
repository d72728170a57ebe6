"""The views above a table, and whether they still read after its name means another format."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from tableferry.catalog import SPARK_ERRORS, parallel_map
from tableferry.driver import in_process
from tableferry.errors import TableError, first_line
from tableferry.fleet.plan import Kind
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.existing import kind
from tableferry.tables import DEFAULT_CATALOG, TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OWNER = f"spark.sql.catalog.{DEFAULT_CATALOG}"
_ICEBERG_OWNS = {_OWNER: "org.apache.iceberg.spark.SparkSessionCatalog", f"{_OWNER}.type": "hive"}


def above(warehouse: Warehouse, name: TableName) -> tuple[TableName, ...]:
    """Return the views of a table's schema that mention it, and those above these, by their names.

    Raises:
        TableError: The schema's views may not be listed.
    """
    schema = name.parts[:-1]
    spark = warehouse.spark
    try:
        shown = spark.sql(f"SHOW VIEWS IN {TableName(schema).sql}").where("NOT isTemporary").collect()
        views = sorted(TableName((*schema, row["viewName"])) for row in shown)
        mentions = dict(zip(views, parallel_map(lambda view: _mentions(spark, view), views), strict=True))
    except SPARK_ERRORS as error:
        raise TableError(
            f"the views of schema {TableName(schema)} can't be looked at ({first_line(error)}): check your "
            "rights"
        ) from error
    found: set[str] = {name.key}
    while more := {view.key for view in views if mentions[view] & found} - found:
        found |= more
    return tuple(view for view in views if view.key in found - {name.key})


def check(warehouse: Warehouse, name: TableName) -> tuple[str, ...]:
    """Read a row of every view above a table, and say of those that can't be read why.

    Over an Iceberg table they are read as a session reads them whose ``spark_catalog`` is Iceberg's: Delta's
    doesn't know the format. Through Spark Connect, which gives no second session, such a view is left out.

    Raises:
        TableError: The schema's views may not be listed.
    """
    views = above(warehouse, name)
    session = _session(warehouse, name) if views else None
    if session is None:
        return ()
    return tuple(said for view in views if (said := _unreadable(session, view)))


def _unreadable(session: SparkSession, view: TableName) -> str:
    try:
        session.table(view.sql).take(1)
    except SPARK_ERRORS as error:
        return f"{view}: {first_line(error)}"
    return ""


def _session(warehouse: Warehouse, name: TableName) -> SparkSession | None:
    """Return a session that reads a table by its plain name, if one can be had."""
    spark = warehouse.spark
    if kind(warehouse, name) is not Kind.ICEBERG or warehouse.iceberg(name) == name:
        return spark
    if not in_process(spark):
        return None
    # A catalog is made at its first use, so this one's can still be another.
    other = spark.newSession()
    for key, value in _ICEBERG_OWNS.items():
        other.conf.set(key, value)
    return other


def _mentions(spark: SparkSession, view: TableName) -> set[str]:
    """Return the keys of the tables and views that a view names."""
    [row] = spark.sql(f"DESCRIBE TABLE EXTENDED {view.sql} AS JSON").collect()
    return mentioned(json.loads(row[0]), view)


def mentioned(said: Mapping[str, Any], view: TableName) -> set[str]:
    """Return the keys of the tables that a view names; a name without a schema is of the view's own.

    Args:
        said: What DESCRIBE … AS JSON says of the view.
        view: Its name.
    """
    home = _home(said, view)
    query = str(said.get("view_text", ""))
    try:
        trees = [tree for tree in sqlglot.parse(query, dialect="spark") if tree is not None]
    except SqlglotError:
        # Any word may be a name then: better a view too many than one too few.
        trees = []
        words = {word.strip("`(),;").lower() for word in query.split()}
        return {TableName((*home, word.rpartition(".")[2])).key for word in words if word}
    return {
        TableName((*home[: 2 - len(parts) + 1], *parts)).key
        for tree in trees
        for table in tree.find_all(exp.Table)
        if (parts := tuple(part.name for part in table.parts))
    }


def _home(said: Mapping[str, Any], view: TableName) -> Sequence[str]:
    """Return the catalog and the schema that names in a view's text are of."""
    recorded = str(said.get("view_catalog_and_namespace", ""))
    parts = TableName.parse(recorded).parts if recorded else ()
    return parts if len(parts) == 2 else (DEFAULT_CATALOG, *view.parts)[-3:-1]
