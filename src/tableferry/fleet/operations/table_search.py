"""List tables to migrate through Spark, by a pattern or a query."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tableferry.errors import TableError
from tableferry.fleet.operations.table_requests import Pattern
from tableferry.spark.quoting import unquote
from tableferry.spark.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def find_tables(spark: SparkSession, pattern: Pattern) -> list[TableName]:
    """Return the tables that match a pattern, without views, by their names.

    Raises:
        TableError: No table matches.
    """
    catalog = TableName((pattern.catalog,))
    schemas = [
        TableName((pattern.catalog, unquote(row[0])))
        for row in spark.sql(f"SHOW SCHEMAS IN {catalog.sql}").collect()
    ]
    tables = [
        table
        for schema in schemas
        # Schemas that don't match aren't listed.
        if Pattern(pattern.catalog, pattern.schema, "*").matches(TableName((*schema.parts, "")))
        for table in _tables(spark, schema)
        if pattern.matches(table)
    ]
    if not tables:
        raise TableError("PATTERN_MATCHES_NO_TABLE", pattern=pattern)
    return sorted(tables)


def query_tables(spark: SparkSession, query: str) -> list[TableName]:
    """Return the tables of a query with the columns catalog, schema and table.

    Raises:
        TableError: The query has other columns, or an empty name.
    """
    frame = spark.sql(query)
    if len(frame.columns) != 3:
        raise TableError("QUERY_COLUMNS_WRONG", count=len(frame.columns), columns=frame.columns)
    tables = []
    for row in frame.collect():
        parts = tuple(str(part or "").strip().lower() for part in row)
        if not all(parts):
            raise TableError("QUERY_ROW_INCOMPLETE", parts=parts)
        tables.append(TableName(parts))
    return tables


def _tables(spark: SparkSession, schema: TableName) -> list[TableName]:
    views = {row["viewName"] for row in spark.sql(f"SHOW VIEWS IN {schema.sql}").collect()}
    return [
        TableName((*schema.parts, row["tableName"].lower()))
        for row in spark.sql(f"SHOW TABLES IN {schema.sql}").collect()
        if not row["isTemporary"] and row["tableName"] not in views
    ]
