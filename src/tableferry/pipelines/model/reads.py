"""The sources that a view streams, which need a baseline, and the tables that it reads whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, assert_never

from tableferry.errors import Finding, TableError
from tableferry.pipelines.model import sql, topics
from tableferry.pipelines.model.flows import (
    AUTO_LOADER,
    DeltaSource,
    HistorySource,
    JoinSource,
    PythonSource,
    ReaderSource,
    SqlSource,
    Start,
    View,
    explicit_start,
)
from tableferry.spark.tables import TableName

_HOW_IN_SQL = (
    "read it through a delta view with readerOptions.startingVersion and name that view in STREAM(…)"
)

_SKIPPING_CHANGES = ("skipchangecommits", "ignorechanges", "ignorefiledeletion")
_IGNORE_DELETES = "ignoredeletes"

_OWN_START = "its own options"

StopsAt = Literal["changes", "changes except deletes", "nothing"]


@dataclass(frozen=True)
class Read:
    """A table, topic or folder that a view streams.

    Attributes:
        explicit: The start that the user's own reader options give, or None.
        unmanaged: Why the start can't be managed, or None.
        kafka: The reader options of Kafka, which has offsets instead of versions; None for a table.
        start_remedy: The advice on how to set a start in the spec.
        is_auto_loader: Auto Loader reads it, and its options determine the start.
        stops_at: The kind of commits that fail a stream with the view's reader options. ``changes`` are
            commits that delete or change rows.
    """

    view: str
    table: TableName
    location: str
    explicit: Start | None = None
    unmanaged: Finding | None = None
    kafka: Mapping[str, str] | None = None
    start_remedy: str = "give readerOptions.startingVersion"
    is_auto_loader: bool = False
    stops_at: StopsAt = "changes"

    @property
    def is_versionless(self) -> bool:
        """Whether only a checkpoint records its progress, as for Kafka topics and files."""
        return self.kafka is not None or self.is_auto_loader


def list_input_table_keys(views: Mapping[str, View], name: str) -> frozenset[str]:
    """Return the keys of the tables that a view names, streamed or read whole. Python views name no table."""
    keys: set[str] = set()
    for view_name in list_upstream_views(views, name):
        match views[view_name].source:
            case DeltaSource(table):
                keys.add(table.key)
            case JoinSource(sides):
                keys |= {side.source.table.key for side in sides}
            case SqlSource(statement):
                references = [reference.parts for reference in sql.find_references(statement)]
                keys |= {TableName(parts).key for parts in references if len(parts) <= 3}
            case PythonSource() | ReaderSource() | HistorySource():
                pass
            case _:
                assert_never(views[view_name].source)
    return frozenset(keys)


def list_upstream_views(views: Mapping[str, View], name: str) -> tuple[str, ...]:
    """Return a view and the views that its SQL names, inputs first."""
    ordered: dict[str, None] = {}

    def visit(view_name: str, above: tuple[str, ...]) -> None:
        view = views[view_name]
        if isinstance(view.source, SqlSource):
            for reference in sql.find_references(view.source.statement):
                inner = reference.parts[-1]
                if len(reference.parts) == 1 and inner in views and inner not in above:
                    visit(inner, (*above, inner))
        ordered[view_name] = None

    visit(name, (name,))
    return tuple(ordered)


def list_streamed_reads(
    views: Mapping[str, View],
    name: str,
    python: Mapping[str, tuple[Read, ...]],
    above: tuple[str, ...] = (),
) -> tuple[Read, ...]:
    """Return the sources that a view streams, also through the views that its SQL streams.

    A batch view has none. An SQL view without a stream has one unmanaged read with the reason.

    Args:
        views: The views of the data flow, by name.
        name: The view.
        python: The sources of the Python views, by view; a view that is missing streams nothing.
        above: The views that stream this one, for the recursion.

    Raises:
        TableError: Views stream each other in a cycle, or a name has more than three parts.
    """
    view = views[name]
    if name in above:
        circle = " → ".join((*above[above.index(name) :], name))
        raise TableError("VIEWS_STREAM_IN_CIRCLE", location=view.location, circle=circle)
    match view.source:
        case _ if view.mode == "batch":
            return ()
        case DeltaSource() as source:
            return (_delta(name, source, view.location),)
        case JoinSource(sides):
            return tuple(_delta(name, side.source, view.location) for side in sides if side.mode == "stream")
        case SqlSource(statement):
            return _sql(views, name, statement, python, (*above, name))
        case PythonSource():
            return python.get(name, ())
        case ReaderSource() as source:
            return (_reader(name, source, view.location),)
        case HistorySource():
            return ()
        case _:
            assert_never(view.source)


def find_skipping_options(source: DeltaSource) -> frozenset[str]:
    """Return the reader options, in lower case, by which a stream skips commits that delete or change rows.

    Delta accepts ``true`` and ``false`` as their values, in any case.
    """
    given = {option.lower() for option, value in source.options.items() if value.lower() == "true"}
    return frozenset(given & {*_SKIPPING_CHANGES, _IGNORE_DELETES})


def _delta(name: str, source: DeltaSource, location: str) -> Read:
    skipping = find_skipping_options(source)
    stops_at: StopsAt = "changes except deletes" if _IGNORE_DELETES in skipping else "changes"
    if source.change_feed or not skipping.isdisjoint(_SKIPPING_CHANGES):
        stops_at = "nothing"
    return Read(name, source.table, location, explicit_start(source.options), stops_at=stops_at)


def _reader(name: str, source: ReaderSource, location: str) -> Read:
    unmanaged = Finding("SOURCE_NOT_A_TABLE", format=source.format)
    if source.format == "kafka":
        options, remedy = source.options, "give readerOptions.startingOffsets"
        start = _OWN_START if topics.has_start_offsets(options) else None
        return Read(name, topics.source_name(options), location, start, unmanaged, options, remedy)
    if source.format == AUTO_LOADER:
        folder = TableName.at(f"{AUTO_LOADER}:{source.path or '/'}")
        return Read(name, folder, location, None, unmanaged, is_auto_loader=True)
    # The spec permits other formats only with their own start, or without managed starts.
    return Read(name, TableName.at(f"{source.format}:{name}"), location, _OWN_START, unmanaged)


def _sql(
    views: Mapping[str, View],
    name: str,
    statement: str,
    python: Mapping[str, tuple[Read, ...]],
    above: tuple[str, ...],
) -> tuple[Read, ...]:
    reads: list[Read] = []
    for reference in sql.find_references(statement):
        if not reference.streamed:
            continue
        inner = reference.parts[-1]
        if len(reference.parts) == 1 and inner in views:
            if inner != name:
                reads += list_streamed_reads(views, inner, python, above)
        elif len(reference.parts) > 3:
            raise TableError(
                "NAME_WITH_TOO_MANY_PARTS", location=views[name].location, name=".".join(reference.parts)
            )
        else:
            reads.append(
                Read(name, TableName(reference.parts), views[name].location, start_remedy=_HOW_IN_SQL)
            )
    if not reads:
        nothing = Finding("NO_STREAM_IN_SQL")
        return (Read(name, TableName.at(f"sql:{name}"), views[name].location, None, nothing),)
    return tuple(reads)
