"""The Unity Catalog tags that a table lacks, and the SQL statements that read and set tags.

The columns of the views are from
https://docs.databricks.com/sql/language-manual/information-schema/table_tags.html and `column_tags.html` in
the same folder. The statements are from
https://docs.databricks.com/aws/en/sql/language-manual/sql-ref-syntax-ddl-alter-table and, for views,
`sql-ref-syntax-ddl-alter-view`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tableferry.spark.quoting import literal, quote
from tableferry.spark.tables import TableName


def query(table: TableName) -> str:
    """Return the query for the column, name and value of each tag; the column of a table's tag is empty."""
    catalog, schema, name = table.parts
    # The catalog stores these names in lower case, because it compares them without case.
    of_table = f"WHERE schema_name = {literal(schema.lower())} AND table_name = {literal(name.lower())}"
    return (
        f"SELECT '', tag_name, tag_value FROM {quote(catalog)}.information_schema.table_tags {of_table} "
        "UNION ALL SELECT column_name, tag_name, tag_value "
        f"FROM {quote(catalog)}.information_schema.column_tags {of_table}"
    )


def missing(source: Iterable[Sequence[Any]], target: Iterable[Sequence[Any]]) -> dict[str, dict[str, str]]:
    """Return the tags, by column and name, that the target lacks or that have another value there."""
    # Columns are compared without case, tags and values with it.
    existing = {(column.lower(), tag, value) for column, tag, value in target}
    wanted: dict[str, dict[str, str]] = {}
    for column, tag, value in source:
        if (column.lower(), tag, value) not in existing:
            wanted.setdefault(column, {})[tag] = value
    return wanted


def statement(table: TableName, column: str, values: Mapping[str, str], *, is_view: bool = False) -> str:
    """Return the statement that sets tags of a column, or of the table if the column is empty."""
    # A tag without a value has an empty one in the views.
    pairs = (
        literal(tag) + (f" = {literal(value)}" if value else "") for tag, value in sorted(values.items())
    )
    # Only newer runtimes accept ALTER VIEW for a column. ALTER TABLE has the same effect.
    kind = "VIEW" if is_view and not column else "TABLE"
    of_column = f" ALTER COLUMN {quote(column)}" if column else ""
    return f"ALTER {kind} {table.sql}{of_column} SET TAGS ({', '.join(pairs)})"
