"""Find the flows and views that read the old name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tableferry.errors import TableError
from tableferry.pipelines.cutover.facts import FlowReader
from tableferry.pipelines.model import sql
from tableferry.pipelines.model.facts import Facts
from tableferry.pipelines.model.flows import Project
from tableferry.pipelines.state.store import StateStore
from tableferry.spark.catalog import MISSING, SPARK_ERRORS, condition, explaining, parallel_map
from tableferry.spark.quoting import literal, quote
from tableferry.spark.tables import METASTORES, TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def list_flow_readers(
    project: Project, facts: Facts, store: StateStore, name: TableName, *, in_pipeline: bool
) -> tuple[FlowReader, ...]:
    """Return the flows of a project that stream a table, with their checkpoints."""
    readers = []
    for dataflow in project.dataflows:
        target = dataflow.target.name
        for flow in dataflow.streaming_flows:
            reads = facts.reads.get((dataflow.key, flow.name), ())
            if any(read.table.key == name.key for read in reads):
                generation = facts.states[dataflow.key].generation
                folder = store.checkpoint_folder(target, generation, flow.name)
                readers.append(FlowReader(target, flow.name, "" if in_pipeline else str(folder)))
    return tuple(readers)


def list_view_readers(
    spark: SparkSession, name: TableName, except_for: Iterable[TableName], *, is_unity: bool
) -> tuple[TableName, ...]:
    """Return the views of the table's catalog whose definition names the table, except for some.

    Unity Catalog shows a view's definition only to its owner, so views of other owners may be missing.

    Raises:
        TableError: The views can't be listed.
    """
    excluded = {other.key for other in except_for}
    with explaining("VIEWS_NOT_LISTED", table=name):
        texts = list(_read_unity(spark, name) if is_unity else _read_metastore(spark, name))
    return tuple(
        sorted(
            view
            for view, text, schema in texts
            if view.key not in excluded and has_reference(text, schema, name)
        )
    )


def has_reference(statement: str, schema: Sequence[str], name: TableName) -> bool:
    """Return whether a view's query names a table.

    Args:
        statement: The query.
        schema: The current catalog and schema at the view's creation.
        name: The table, with or without its catalog.
    """
    if name.table.lower() not in statement.lower():
        return False
    try:
        references = sql.find_references(statement)
    except sql.SqlglotError:
        # The text has the name, so people should check it.
        return True
    full = _qualified(name.parts, schema)
    return any(
        _qualified(reference.parts, schema) == full for reference in references if len(reference.parts) <= 3
    )


def _qualified(parts: Sequence[str], schema: Sequence[str]) -> tuple[str, ...]:
    """Return a name with its schema for comparisons, and with its catalog if the schema has one."""
    before = schema if len(parts) == 1 else schema[:-1] if len(parts) == 2 else ()
    full = tuple(part.lower() for part in (*before, *parts))
    # The schemas of the default metastore are listed without their catalog.
    return full[1:] if len(full) == 3 and len(schema) == 1 and full[0] in METASTORES else full


def _read_unity(spark: SparkSession, name: TableName) -> Iterator[tuple[TableName, str, tuple[str, ...]]]:
    catalog = name.parts[0]
    rows = spark.sql(
        f"SELECT table_schema, table_name, view_definition FROM {quote(catalog)}.information_schema.views "
        f"WHERE contains(lower(view_definition), {literal(name.table.lower())})"
    ).collect()
    for schema, view, text in rows:
        yield TableName((catalog, schema, view)), text, (catalog, schema)


def _read_metastore(spark: SparkSession, name: TableName) -> Iterator[tuple[TableName, str, tuple[str, ...]]]:
    prefix = name.parts[:-2]
    inside = f" IN {TableName(prefix).sql}" if prefix else ""
    schemas = [row[0] for row in spark.sql(f"SHOW SCHEMAS{inside}").collect()]
    views: list[TableName] = []
    for schema in schemas:
        full = TableName((*prefix, schema))
        shown = spark.sql(f"SHOW VIEWS IN {full.sql}").collect()
        views += [TableName((*full.parts, row["viewName"])) for row in shown if not row["isTemporary"]]
    for view, text in zip(views, parallel_map(lambda view: _read_text(spark, view), views), strict=True):
        yield view, text, view.parts[:-1]


def _read_text(spark: SparkSession, view: TableName) -> str:
    try:
        rows: Sequence[Any] = spark.sql(f"DESCRIBE TABLE EXTENDED {view.sql}").collect()
    except SPARK_ERRORS as error:
        if condition(error).startswith(MISSING):  # It was dropped a moment ago.
            return ""
        raise TableError("VIEWS_NOT_LISTED", table=view, reason=str(error)) from error
    return next((row["data_type"] or "" for row in rows if row["col_name"] == "View Text"), "")
