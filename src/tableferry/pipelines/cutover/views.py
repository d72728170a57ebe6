"""The view that gets the legacy table's old name: its columns, comments and statement, without Spark."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from tableferry.pipelines.cutover.facts import MARKER, Column, Entry
from tableferry.spark.quoting import literal, pairs, quote
from tableferry.spark.tables import TableName

DEFINITION = "tableferry.cutoverDefinition"
"""The property with the fingerprint of the view's definition."""


@dataclass(frozen=True)
class ViewDefinition:
    """The definition of a view of a target with the columns of a legacy table.

    Attributes:
        target: The table that the view reads.
        table_id: The id of the legacy table.
        columns: The view's columns with the comments to show; empty if the view is ``SELECT *``.
        names: The names of the view's columns when it is created.
        comment: The view's comment.
    """

    target: TableName
    table_id: str
    columns: tuple[tuple[str, str], ...]
    names: tuple[str, ...]
    comment: str = ""

    @property
    def query(self) -> str:
        """The view's query: all columns, or the legacy table's columns in its order, then the others."""
        selected = ", ".join(quote(name) for name, _ in self.columns) or "*"
        return f"SELECT {selected} FROM {self.target.sql}"

    @property
    def fingerprint(self) -> str:
        """A hash of the definition, to recognize a view that is up to date."""
        text = repr((self.query, self.columns, self.comment))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def shows(self, columns: tuple[str, ...]) -> bool:
        """Return whether a created view has the expected columns; ``SELECT *`` may have more by now."""
        return [name.lower() for name in columns[: len(self.names)]] == [name.lower() for name in self.names]

    def statement(self, name: TableName) -> str:
        """Return the statement that creates or replaces the view.

        A view of ``SELECT *`` also shows columns that the target gets later.
        """
        comments = [
            f"{quote(name)} COMMENT {literal(text)}" if text else quote(name) for name, text in self.columns
        ]
        listed = f" ({', '.join(comments)})" if self.columns else ""
        comment = f" COMMENT {literal(self.comment)}" if self.comment else ""
        properties = {MARKER: self.table_id, DEFINITION: self.fingerprint}
        schema = " WITH SCHEMA TYPE EVOLUTION" if self.columns else " WITH SCHEMA EVOLUTION"
        return (
            f"CREATE OR REPLACE VIEW {name.sql}{listed}{comment} TBLPROPERTIES {pairs(properties)}{schema} "
            f"AS {self.query}"
        )


def define_view(legacy: Entry, target: Entry) -> ViewDefinition:
    """Return the view that shows a target as readers know the legacy table.

    It is ``SELECT *`` if the target's columns have the same order and the comments that readers know.
    Otherwise, it lists the columns: those of the legacy table first, in its order.
    """
    known = {column.name.lower(): column for column in legacy.columns}
    by_name = {column.name.lower(): column for column in target.columns}
    shared = [by_name[key] for key in known if key in by_name]
    more = [column for key, column in by_name.items() if key not in known]
    ordered = [*shared, *more]
    comments = [_comment(column, known.get(column.name.lower())) for column in ordered]
    names = tuple(_spelling(column, known.get(column.name.lower())) for column in ordered)
    is_star = [column.name for column in target.columns] == list(names) and [
        column.comment for column in ordered
    ] == comments
    columns = () if is_star else tuple(zip(names, comments, strict=True))
    return ViewDefinition(target.name, legacy.table_id, columns, names, legacy.comment or target.comment)


def _comment(column: Column, known: Column | None) -> str:
    return (known.comment if known else "") or column.comment


def _spelling(column: Column, known: Column | None) -> str:
    return known.name if known else column.name
