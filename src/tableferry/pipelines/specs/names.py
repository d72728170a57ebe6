"""The names that a project's specs fill, and what a flow or a source means by them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from tableferry.errors import Finding, Problem, TableError
from tableferry.pipelines.specs.documents import Document, MaterializedDocument
from tableferry.pipelines.specs.source_location import SourceLocation
from tableferry.spark.tables import TableName

Unread = Literal["none", "reported", "unreported"]
AnyDocument = Document | MaterializedDocument

_QUARANTINE = "_quarantine"

# `live.x` is a table or view of the pipeline itself.
_LIVE = re.compile(r"\blive\s*\.\s*(?:`([^`]+)`|(\w+))", re.IGNORECASE)


@dataclass(frozen=True)
class Names:
    """The tables that one spec fills.

    Attributes:
        staging: Its staging tables by the location that defines them.
        siblings: Tables of the project's other specs by their bare names, where that is unambiguous.
        unread: Whether there may be more siblings in specs that are wrong, and whether these are reported.
        quarantine: The table of the rows that break a rule of the target, or None.
    """

    target: TableName
    staging: Mapping[SourceLocation, TableName]
    siblings: Mapping[str, TableName] = field(default_factory=dict)
    unread: Unread = "none"
    quarantine: TableName | None = None

    @property
    def tables(self) -> tuple[TableName, ...]:
        """The target and its staging tables."""
        return (self.target, *self.staging.values())

    def own(self, written: str) -> TableName | None:
        """Return the target or staging table that a flow names by as much of its name as is needed."""
        try:
            parts = TableName.parse(written).parts
        except TableError:
            return None
        if len(parts) == 2 and parts[0].lower() == "live":
            parts = parts[1:]
        suffix = [part.lower() for part in parts]
        for table in self.tables:
            if suffix == [part.lower() for part in table.parts][-len(suffix) :]:
                return table
        return None

    def live(self, name: str) -> TableName | None:
        """Return the pipeline's table of a bare name."""
        return self.own(name) or self.siblings.get(name.lower())

    def in_sql(self, statement: str, views: set[str]) -> str:
        """Write the pipeline's own tables and views in SQL by the names that Spark knows."""

        def replace(match: re.Match[str]) -> str:
            name = match[1] or match[2]
            if name in views:
                return f"`{name}`"
            table = self.live(name)
            return table.sql if table is not None else match[0]

        return _LIVE.sub(replace, statement)


def table_name(
    database: str | None, table: str, location: SourceLocation, problems: list[Problem]
) -> TableName | None:
    """Put a table's name together, or say what is wrong with it."""
    try:
        return TableName.parse(f"{database}.{table}" if database else table)
    except TableError as error:
        problems.append(location.problem(error.finding))
        return None


def collect(
    documents: Sequence[AnyDocument],
    problems: list[Problem],
    around: Sequence[AnyDocument] = (),
    unread: Unread = "none",
    skipped: Iterable[TableName] = (),
) -> list[tuple[AnyDocument, Names]]:
    """Name every table that the specs fill, and refuse what two of them would fill.

    ``around`` are specs of the same project that weren't asked for: only their tables are of interest, as are
    those that specs fill that aren't handled (``skipped``). ``unread`` says whether specs couldn't be read.
    """
    named: list[tuple[AnyDocument, Names]] = []
    owners: dict[str, SourceLocation] = {}
    for document in documents:
        names = _names(document, problems)
        if names is None:
            unread = "reported"
            continue
        named.append((document, names))
        filled = [(document.table_location, names.target), *names.staging.items()]
        if names.quarantine is not None:
            filled.append((document.location.at("quarantineTargetDetails"), names.quarantine))
        for location, table in filled:
            owner = owners.setdefault(table.key, location)
            if owner != location:
                twice = Finding("SPEC_TABLE_FILLED_TWICE", table=table, other=owner)
                problems.append(location.problem(twice))
    others = [names for document in around if (names := _names(document, [])) is not None]
    siblings: dict[str, TableName | None] = {}
    for table in (*_filled(*(names for _, names in named), *others), *skipped):
        bare = table.table.lower()
        siblings[bare] = table if siblings.get(bare, table) == table else None
    known = {bare: table for bare, table in siblings.items() if table is not None}
    return [(document, replace(names, siblings=known, unread=unread)) for document, names in named]


def _filled(*names: Names) -> list[TableName]:
    return [
        table
        for of_one in names
        for table in (*of_one.tables, *([of_one.quarantine] if of_one.quarantine else []))
    ]


def _names(document: AnyDocument, problems: list[Problem]) -> Names | None:
    database, table_written = document.names
    target = table_name(database, table_written, document.table_location, problems)
    if target is None:
        return None
    staging = {}
    for group in document.groups:
        for name, written in group.written.staging_tables.items():
            table_location = group.location.at("stagingTables", name)
            table = table_name(written.database or database, name, table_location, problems)
            if table is not None:
                staging[table_location] = table
    return Names(target, staging, quarantine=_quarantine(document, target, problems))


def _quarantine(document: AnyDocument, target: TableName, problems: list[Problem]) -> TableName | None:
    """Name the table of the rows that break a rule: as it's written, or after the target."""
    if document.spec.quarantine_mode != "table":
        return None
    details = document.spec.quarantine_target_details
    location = document.location.at("quarantineTargetDetails", "table")
    if details is not None and (details.table or details.database):
        table = details.table or target.table + _QUARANTINE
        return table_name(details.database, table, location, problems)
    return TableName((*target.parts[:-1], target.table + _QUARANTINE))
