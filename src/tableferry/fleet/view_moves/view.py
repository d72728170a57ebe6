"""A view as the catalog has it, and the statement that makes it anew in another place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tableferry.spark.quoting import literal, pairs, quote
from tableferry.spark.redaction import HIDDEN
from tableferry.spark.tables import TableName

SOURCE = "tableferry.source"
"""The property of a view that was made here: the old view's key."""

_EVOLVING = "EVOLUTION"
_MODES = ("BINDING", "TYPE EVOLUTION", _EVOLVING)
# What the catalog or Spark keeps for itself, or what is carried over in another way.
_SYSTEM = frozenset({"comment", "last_modified_by", "last_modified_time", "owner", "transient_lastddltime"})
_SYSTEM_PREFIXES = ("spark.sql.", "tableferry.", "view.")


@dataclass(frozen=True)
class ViewColumn:
    """A column of a view."""

    name: str
    comment: str = ""


@dataclass(frozen=True)
class View:
    """A persistent view.

    Attributes:
        name: Its name.
        text: Its query.
        namespace: The catalog and the schema that names without these mean in the query.
        columns: Its columns.
        comment: What somebody said of it.
        properties: Those that somebody set.
        owner: As the catalog spells it.
        schema_mode: What becomes of it when a column of a table changes its type, as Spark says it.
        settings: Spark's settings that it was made with, and is read with.
        output: The columns of its query, as the query named them when it was made; empty if nobody knows.
    """

    name: TableName
    text: str
    namespace: tuple[str, ...]
    columns: tuple[ViewColumn, ...] = ()
    comment: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    owner: str = ""
    schema_mode: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    output: tuple[str, ...] = ()

    @property
    def evolving(self) -> bool:
        """Whether its columns are whatever its query gives."""
        return self.schema_mode == _EVOLVING


def statement(view: View, new: TableName, text: str, *, replace: bool = False) -> str:
    """Return the statement that makes a view in its new place, with this query."""
    verb = "CREATE OR REPLACE" if replace else "CREATE"
    properties = {**_own(view.properties), SOURCE: view.name.key}
    clauses = [f"{verb} VIEW {new.sql}"]
    if not view.evolving:
        clauses.append(f"({', '.join(map(_column, view.columns))})")
    if view.comment:
        clauses.append(f"COMMENT {literal(view.comment)}")
    clauses.append(f"TBLPROPERTIES {pairs(properties)}")
    if view.schema_mode in _MODES:
        clauses.append(f"WITH SCHEMA {view.schema_mode}")
    return f"{' '.join(clauses)} AS {text}"


def _own(properties: Mapping[str, str]) -> dict[str, str]:
    return {
        key: value
        for key, value in properties.items()
        if value != HIDDEN and key.lower() not in _SYSTEM and not key.lower().startswith(_SYSTEM_PREFIXES)
    }


def _column(column: ViewColumn) -> str:
    return quote(column.name) + (f" COMMENT {literal(column.comment)}" if column.comment else "")
