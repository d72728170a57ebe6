"""Find the views over a table, and check that they can still be read after the switch."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from tableferry.access.users_file import key
from tableferry.errors import first_line
from tableferry.fleet.jobs import steps
from tableferry.fleet.jobs.job import Job
from tableferry.fleet.jobs.step_plan import Kind
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.job_tables import kind
from tableferry.fleet.warehouse.step_run import StepRun
from tableferry.fleet.warehouse.table_descriptions import describe
from tableferry.spark.catalog import SPARK_ERRORS, explaining, parallel_map
from tableferry.spark.driver import in_process
from tableferry.spark.tables import DEFAULT_CATALOG, TableName, parts_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Mentions = Mapping[TableName, set[str]]
"""The views of a schema in order, each with the keys of the tables that it reads."""

# Describing thousands of views for each of thousands of tables takes hours, so they are cached.
_SECONDS = 600.0
# The parser doesn't find the tables that Spark reads with these.
_UNPARSABLE = re.compile(r"\b(IDENTIFIER|STREAM|TABLE)\b", re.IGNORECASE)
_BETWEEN_WORDS = re.compile(r"[\s(),;'\"]+")
_OWNER = f"spark.sql.catalog.{DEFAULT_CATALOG}"
_ICEBERG_OWNS = {_OWNER: "org.apache.iceberg.spark.SparkSessionCatalog", f"{_OWNER}.type": "hive"}


@dataclass(frozen=True)
class Views:
    """A cache of the tables that the views of each schema read; it's reloaded after ten minutes.

    Attributes:
        seconds: Returns the time of this process's monotonic clock.
    """

    seconds: Callable[[], float] = time.monotonic
    _schemas: dict[TableName, tuple[float, Mentions]] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def mentions(self, spark: SparkSession, schema: TableName) -> Mentions:
        """Return the views of a schema, with the keys of the tables that each reads.

        Raises:
            TableError: The user may not list the views.
        """
        with self._lock:
            known = self._schemas.get(schema)
            if known is None or self.seconds() - known[0] > _SECONDS:
                known = self._schemas[schema] = self.seconds(), _mentions(spark, schema)
            return known[1]


def list_views_over(warehouse: Warehouse, name: TableName) -> tuple[TableName, ...]:
    """Return the views of a table's schema that read it, directly or through other views.

    Raises:
        TableError: The user may not list the schema's views.
    """
    mentions = (warehouse.views or Views()).mentions(warehouse.spark, TableName(name.parts[:-1]))
    reached: set[str] = {key(name)}
    while more := {key(view) for view, tables in mentions.items() if tables & reached} - reached:
        reached |= more
    return tuple(view for view in mentions if key(view) in reached - {key(name)})


def _mentions(spark: SparkSession, schema: TableName) -> Mentions:
    with explaining("VIEWS_NOT_LISTABLE", schema=schema):
        shown = spark.sql(f"SHOW VIEWS IN {schema.sql}").where("NOT isTemporary").collect()
        views = sorted(TableName((*schema.parts, row["viewName"])) for row in shown)
        descriptions = parallel_map(lambda view: describe(spark, view), views)
    return {
        view: list_referenced_tables(description, view)
        for view, description in zip(views, descriptions, strict=True)
    }


def check_views(step: steps.CheckViews, run: StepRun) -> Job:
    """Read the views over a table, and record those that can't be read.

    Raises:
        TableError: The user may not list the schema's views.
    """
    return run.job.with_record(broken_views=list_unreadable_views(run.warehouse, step.table))


def list_unreadable_views(warehouse: Warehouse, name: TableName) -> tuple[str, ...]:
    """Read a row of every view over a table, and return an error for each unreadable view.

    Views over an Iceberg table are read in a session whose ``spark_catalog`` is Iceberg's, because Delta's
    can't read the format. Spark Connect has no second session, so these views aren't checked there.

    Raises:
        TableError: The user may not list the schema's views.
    """
    views = list_views_over(warehouse, name)
    session = _session(warehouse, name) if views else None
    if session is None:
        return ()
    return tuple(problem for view in views if (problem := _problem(session, view)))


def _problem(session: SparkSession, view: TableName) -> str:
    try:
        session.table(view.sql).take(1)
    except SPARK_ERRORS as error:
        return f"{view}: {first_line(error)}"
    return ""


def _session(warehouse: Warehouse, name: TableName) -> SparkSession | None:
    """Return a session that can read a table by its plain name; None if there is none."""
    spark = warehouse.spark
    if kind(warehouse, name) is not Kind.ICEBERG or warehouse.iceberg(name) == name:
        return spark
    if not in_process(spark):
        return None
    # A session creates its catalog at the first use, so the new session can still configure it.
    other = spark.newSession()
    for setting, value in _ICEBERG_OWNS.items():
        other.conf.set(setting, value)
    return other


def list_referenced_tables(description: Mapping[str, Any], view: TableName) -> set[str]:
    """Return the keys of the tables that a view reads, from the result of DESCRIBE … AS JSON.

    A name without a schema is resolved in the view's schema.
    """
    schema = view_namespace(description, view)
    names = _names(str(description.get("view_text", "")))
    return {key(TableName((*schema[: max(3 - len(name), 0)], *name))) for name in names if all(name)}


def _names(query: str) -> set[tuple[str, ...]]:
    with suppress(SqlglotError, RecursionError):
        if not _UNPARSABLE.search(query):
            trees = [tree for tree in sqlglot.parse(query, dialect="spark") if tree is not None]
            tables = (table for tree in trees for table in tree.find_all(exp.Table))
            return {tuple(part.name for part in table.parts) for table in tables}
    # If the text can't be parsed, every word may be a table's name: an extra view is harmless.
    words = {tuple(word.replace("`", "").split(".")) for word in _BETWEEN_WORDS.split(query)}
    return words | {word[-1:] for word in words}


def view_namespace(description: Mapping[str, Any], view: TableName) -> Sequence[str]:
    """Return the catalog and schema of unqualified names in a view; a schema may have several parts."""
    recorded = str(description.get("view_catalog_and_namespace", ""))
    return parts_of(recorded) if recorded else (DEFAULT_CATALOG, *view.parts)[-3:-1]
