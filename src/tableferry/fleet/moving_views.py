"""Brings the views over tables that went to another schema or catalog there too: look, decide, make."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tableferry.errors import Refused, TableError, TableferryError, first_line
from tableferry.fleet.jobs.job import Job
from tableferry.fleet.jobs.names import Names
from tableferry.fleet.operations.table_requests import Pattern, parse
from tableferry.fleet.queue.selections import Selection, moved_elsewhere, named, numbered, of_schemas
from tableferry.fleet.queue.statements import chunks
from tableferry.fleet.queue.store import Store
from tableferry.fleet.view_moves import references
from tableferry.fleet.view_moves.planning import (
    Places,
    ViewMove,
    Waits,
    circle,
    decide,
    destination,
    in_order,
    needed,
    switched,
)
from tableferry.fleet.view_moves.references import NotRewritable, ViewText
from tableferry.fleet.view_moves.reports import ViewReport, ViewsReport
from tableferry.fleet.view_moves.view import View, statement
from tableferry.fleet.warehouse import new_views
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.new_views import TakesNoViews
from tableferry.progress import task
from tableferry.spark.catalog import SPARK_ERRORS
from tableferry.spark.tables import TableName

_log = logging.getLogger(__name__)

_ANY = "*"


@dataclass(frozen=True)
class ViewOptions:
    """Which views come along, and how.

    Attributes:
        views: Schemas, views, and patterns of these; empty means all views over tables that have moved.
        partial: Whether a view comes along that also reads what hasn't moved, and goes on to read it there.
        dry_run: Say what would be done, and do nothing.
    """

    views: Sequence[str] = ()
    partial: bool = False
    dry_run: bool = False


@dataclass
class _Found:
    """The views of the schemas, by their keys.

    Attributes:
        views: The views.
        texts: Their texts, parsed; of one that can't be, the reason.
        reads: Of each, the keys of what it reads.
    """

    views: dict[str, View] = field(default_factory=dict)
    texts: dict[str, ViewText | NotRewritable] = field(default_factory=dict)
    reads: dict[str, set[str]] = field(default_factory=dict)


def move_views(store: Store, warehouse: Warehouse, options: ViewOptions) -> ViewsReport:
    """Make the views over tables that have moved elsewhere anew, beside their new tables; the old ones stay.

    Views are made after those that they read, each by itself: one that can't come along is reported, and the
    others go on. What was made is known by a property, so that a run after a crash makes what is missing.

    Raises:
        TableError: A schema's views may not be looked at, or a pattern means none.
    """
    selected = [_pattern(text) for text in options.views]
    jobs = [job for job in _jobs(store, moved_elsewhere()) if switched(job) and Names.of(job).elsewhere]
    schemas = sorted({TableName(job.name.parts[:-1]) for job in jobs})
    with task(_log, "move views") as running:
        siblings = [job for job in _jobs(store, of_schemas(schemas)) if switched(job)]
        places = Places.of([*jobs, *siblings], warehouse.iceberg_catalog)
        found = _find(warehouse, schemas, places)
        read = [reference.name for text in found.texts.values() for reference in _references(text)]
        unknown = [name for name in read if len(name.parts) == 3 and places.job_of(name) is None]
        spellings = [spelling for name in unknown for spelling in places.spellings(name)]
        others = [job for some in _portions(spellings) for job in _jobs(store, some)]
        places = Places.of([*jobs, *siblings, *others], warehouse.iceberg_catalog)
        chosen = _chosen(found, selected, options.views)
        # A view over no table that has moved needs no new place.
        touched = {key for key in chosen if _touched(key, found, places)}
        run = _Run(store, warehouse, options, places, {}, siblings)
        wanted = needed(touched, found.reads)
        order, circling = in_order({key: found.reads[key] for key in wanted})
        running.update("views", 0, len(wanted))
        for key in order:
            run.take(found.views[key], found.texts[key])
            running.update("views", len(run.reports), len(wanted))
        reason = circle([found.views[key].name for key in circling])
        for key in circling:
            run.reports[key] = ViewReport(found.views[key].name, "refused", error=str(reason))
    return ViewsReport(tuple(run.reports.values()), tuple(run.remedies))


def _jobs(store: Store, selection: Selection) -> list[Job]:
    """Return jobs of the queue, and of its archive."""
    # One that is archived meanwhile is found twice.
    found = {job.task_id: job for jobs in (store.jobs, store.archived) for job in jobs(selection)}
    return list(found.values())


def _portions(names: Iterable[TableName]) -> Iterator[Selection]:
    """Select the jobs of tables by some at a time, as a database takes only so many values in a statement."""
    return map(named, chunks(dict.fromkeys(names)))


def _find(warehouse: Warehouse, schemas: Iterable[TableName], places: Places) -> _Found:
    def is_no_table(name: TableName) -> bool:
        """Leave out the views by which tables are read under their old names: there may be thousands."""
        job = places.job_of(name)
        return job is None or places.key(job.name) != places.key(name)

    found = _Found()
    for schema in schemas:
        for view in new_views.read(warehouse, schema, is_no_table):
            key = places.key(view.name)
            text: ViewText | NotRewritable
            try:
                text = references.parse(view.text, view.namespace)
            except NotRewritable as error:
                text = error
            found.views[key], found.texts[key] = view, text
            found.reads[key] = {places.key(reference.name) for reference in _references(text)}
    return found


def _references(text: ViewText | NotRewritable) -> Sequence[references.Reference]:
    return () if isinstance(text, NotRewritable) else text.references


def _touched(key: str, found: _Found, places: Places) -> bool:
    """Say whether a view reads a table that has moved, itself or through others; unknown counts as yes."""
    reached = needed([key], found.reads)
    return any(
        isinstance(found.texts[view], NotRewritable)
        or any(
            places.new_name(reference.name) != reference.name for reference in _references(found.texts[view])
        )
        for view in reached
    )


def _pattern(text: str) -> Pattern:
    """Read a schema, a view or a pattern; without a catalog it means each.

    Raises:
        TableError: It's none.
    """
    if not any(mark in text for mark in "./"):
        return Pattern(_ANY, text.strip().strip("`").lower(), _ANY)
    name = parse(text, _ANY)
    return name if isinstance(name, Pattern) else Pattern(*name.parts)


def _chosen(found: _Found, patterns: Sequence[Pattern], written: Sequence[str]) -> set[str]:
    """Return the views that patterns mean; without any, all.

    Raises:
        TableError: One means none.
    """
    if not patterns:
        return set(found.views)
    chosen: set[str] = set()
    for pattern, text in zip(patterns, written, strict=True):
        lower = {key: TableName(tuple(map(str.lower, view.name.parts))) for key, view in found.views.items()}
        matching = {key for key, name in lower.items() if pattern.matches(name)}
        if not matching:
            raise TableError("VIEW_PATTERN_WITHOUT_MATCH", text=text)
        chosen |= matching
    return chosen


@dataclass
class _Run:
    """A run over views that are in order.

    Attributes:
        reports: What became of each view, by its key.
        siblings: The jobs of the schemas' tables that are switched.
        remedies: Sentences that hold for several views.
        viewless: The catalogs that keep no views.
    """

    store: Store
    warehouse: Warehouse
    options: ViewOptions
    places: Places
    reports: dict[str, ViewReport]
    siblings: Sequence[Job]
    remedies: list[str] = field(default_factory=list)
    viewless: set[str] = field(default_factory=set)
    planned: set[TableName] = field(default_factory=set)

    def take(self, view: View, text: ViewText | NotRewritable) -> None:
        """Bring a view along, and note what became of it."""
        key = self.places.key(view.name)
        try:
            report = self._taken(view, text)
        except Waits as error:
            report = ViewReport(view.name, "waiting", error=error.one_line)
        except TableferryError as error:
            report = ViewReport(view.name, "refused", error=error.one_line)
        except SPARK_ERRORS as error:
            report = ViewReport(view.name, "refused", error=f"Spark failed ({first_line(error)})")
        self.reports[key] = report
        if report.new is None:
            self.places.left.add(key)
        else:
            self.places.moved[key] = report.new
        _log.info(
            "%s: %s", view.name, report.outcome,
            extra={"event": "view", "view": str(view.name), "outcome": report.outcome},
        )  # fmt: skip

    def _taken(self, view: View, text: ViewText | NotRewritable) -> ViewReport:
        if isinstance(text, NotRewritable):
            raise text
        schema = TableName(view.name.parts[:-1])
        jobs = [job for job in self.siblings if TableName(job.name.parts[:-1]) == schema]
        move = decide(view, text, destination(schema, jobs), self.places, partial=self.options.partial)
        catalog = move.new.parts[0]
        if catalog in self.viewless:
            raise TakesNoViews("CATALOG_WITHOUT_VIEWS", catalog=catalog)
        there = new_views.is_there(self.warehouse, move)
        loses = new_views.lost_settings(self.warehouse, move)
        report = ViewReport(view.name, "there", move.new, stays=move.stays, loses=loses)
        warehouse = replace(self.warehouse, guard=lambda: self._demand_switched(move))
        if there:
            if not self.options.dry_run:
                new_views.carry_access(warehouse, move)
            return report
        report = replace(report, statement=statement(view, move.new, move.text, replace=there is False))
        new_views.check(self.warehouse, move, analyse=not self.planned.intersection(move.over))
        if self.options.dry_run:
            self.planned.add(move.new)
            return replace(report, outcome="planned")
        try:
            new_views.make(warehouse, move, replace=there is False)
        except TakesNoViews as error:
            self.viewless.add(catalog)
            self.remedies.append(_VIEWLESS.format(catalog=catalog))
            raise TakesNoViews("CATALOG_WITHOUT_VIEWS", catalog=catalog) from error
        new_views.carry_access(warehouse, move)
        return replace(report, outcome="moved" if there is None else "replaced")

    def _demand_switched(self, move: ViewMove) -> None:
        """Make sure that the tables are still where they were, right before a view over them is changed.

        Raises:
            Refused: One is being reverted, or has another target by now.
        """
        ids = [job.task_id for job in move.bases]
        jobs = _jobs(self.store, numbered(ids)) if ids else []
        now: Mapping[int, Job] = {job.task_id: job for job in jobs}
        for job in move.bases:
            current = now.get(job.task_id)
            if current is None or not switched(current) or Names.of(current) != Names.of(job):
                raise Refused("JOB_CHANGED_DURING_VIEW_MOVE", table=job.name)


_VIEWLESS = (
    "Catalog {catalog} takes no views: use one that does (spark_catalog, Unity Catalog, Iceberg's REST, "
    "Nessie and Hive catalogs, and its JDBC catalog with jdbc.schema-version=V1), or make the views "
    "elsewhere by hand."
)
