"""Decides which tags of Unity Catalog a table still needs, and writes the statements: pure.

The names of the views' columns are from
https://docs.databricks.com/sql/language-manual/information-schema/table_tags.html and `column_tags.html`
beside it, the statements from
https://docs.databricks.com/aws/en/sql/language-manual/sql-ref-syntax-ddl-alter-table and, for views,
`sql-ref-syntax-ddl-alter-view` beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tableferry.spark.quoting import literal, quote
from tableferry.spark.tables import TableName


def query(table: TableName) -> str:
    """Return what asks for column, tag and value of each tag; the column of the table's own is empty."""
    catalog, schema, name = table.parts
    # The catalog keeps these names in lower case, as it compares them without case.
    of_table = f"WHERE schema_name = {literal(schema.lower())} AND table_name = {literal(name.lower())}"
    return (
        f"SELECT '', tag_name, tag_value FROM {quote(catalog)}.information_schema.table_tags {of_table} "
        "UNION ALL SELECT column_name, tag_name, tag_value "
        f"FROM {quote(catalog)}.information_schema.column_tags {of_table}"
    )


def missing(source: Iterable[Sequence[Any]], target: Iterable[Sequence[Any]]) -> dict[str, dict[str, str]]:
    """Return the values by tag, of each column, that one table has and the other hasn't, or has otherwise."""
    # Columns are compared without case, tags and values with it.
    there = {(column.lower(), tag, value) for column, tag, value in target}
    wanted: dict[str, dict[str, str]] = {}
    for column, tag, value in source:
        if (column.lower(), tag, value) not in there:
            wanted.setdefault(column, {})[tag] = value
    return wanted


def statement(table: TableName, column: str, values: Mapping[str, str], *, is_view: bool = False) -> str:
    """Return what sets tags of a column, or of the table itself where that is empty."""
    # A tag without a value has an empty one in the views.
    pairs = (
        literal(tag) + (f" = {literal(value)}" if value else "") for tag, value in sorted(values.items())
    )
    # Only newer runtimes take ALTER VIEW for a column; ALTER TABLE does the same there.
    kind = "VIEW" if is_view and not column else "TABLE"
    of_column = f" ALTER COLUMN {quote(column)}" if column else ""
    return f"ALTER {kind} {table.sql}{of_column} SET TAGS ({', '.join(pairs)})"
