"""Move views: read them, decide, and create them beside their new tables."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from tableferry.errors import Finding, Refused, TableError, TableferryError, first_line
from tableferry.fleet.jobs.job import Job
from tableferry.fleet.jobs.names import Names
from tableferry.fleet.operations.table_requests import Pattern, parse
from tableferry.fleet.queue.conditions import chunks
from tableferry.fleet.queue.selections import Selection, moved_elsewhere, named, numbered, of_schemas
from tableferry.fleet.queue.store import Store
from tableferry.fleet.views import catalog
from tableferry.fleet.views.planning import (
    Places,
    View,
    ViewMove,
    decide,
    destination,
    in_order,
    is_switched,
    with_inputs,
)
from tableferry.fleet.views.texts import NotMovable, list_tables
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.progress import task
from tableferry.spark.catalog import SPARK_ERRORS
from tableferry.spark.tables import TableName

_log = logging.getLogger(__name__)

_ANY = "*"

Outcome = Literal["moved", "replaced", "there", "planned", "waiting", "refused"]


@dataclass(frozen=True)
class ViewOptions:
    """The views to move.

    Attributes:
        views: Schemas, views, and patterns of these; empty means all views in their old schemas.
        partial: Whether a view is moved that also reads what hasn't moved.
        dry_run: Whether the statements are only returned.
    """

    views: Sequence[str] = ()
    partial: bool = False
    dry_run: bool = False


@dataclass(frozen=True)
class ViewReport:
    """The result for one view.

    Attributes:
        view: The old view.
        outcome: ``moved``, ``replaced`` (its definition had changed), ``there`` (moved before), ``planned``
            (dry run), ``waiting`` (for what it reads) or ``refused``.
        new: The new view; None if it doesn't exist.
        finding: The reason why the view waits or is refused.
        stays: The tables and views that the new view still reads in their old place.
        statement: The statement that creates the new view.
        loses: The settings of the old view that the new view's catalog doesn't store.
    """

    view: TableName
    outcome: Outcome
    new: TableName | None = None
    finding: Finding | None = None
    stays: tuple[TableName, ...] = ()
    statement: str = ""
    loses: str = ""


def move_views(store: Store, warehouse: Warehouse, options: ViewOptions) -> list[ViewReport]:
    """For each view over moved tables, create a new view in the schema of its new tables.

    Only views in the old schemas of moved tables are considered. The old view stays, and the new one gets its
    owner, grants and tags. The views that a chosen view reads are moved before it. A new view of an earlier
    run is recognised by a property, and replaced if the old one's definition changed. A view that can't be
    moved is reported, and the others are moved. A dry run changes nothing.

    Raises:
        TableError: The views of a schema can't be listed, or a pattern is invalid or matches none.
    """
    jobs = [job for job in _jobs(store, moved_elsewhere()) if is_switched(job) and Names.of(job).elsewhere]
    schemas = sorted({TableName(job.name.parts[:-1]) for job in jobs})
    siblings = [job for job in _jobs(store, of_schemas(schemas)) if is_switched(job)]
    places = Places(warehouse.iceberg_catalog)
    places.add([*jobs, *siblings])
    run = _Run(store, warehouse, options, places, siblings)
    with task(_log, "move views") as running:
        for schema in schemas:
            run.read(schema)
        unknown = {name for names in run.inputs.values() for name in names if len(name.parts) == 3}
        others = {job_name for name in unknown for job_name in places.job_names(name)}
        for some in chunks(sorted(others)):
            places.add(job for job in _jobs(store, named(some)) if places.key(job.name) not in places.jobs)
        order, circular = run.order()
        for number, key in enumerate(order, start=1):
            run.move(key)
            running.update("views", number, len(order))
    views = [run.views[key].name for key in circular]
    return [
        *run.reports,
        *(ViewReport(view, "refused", None, Finding("VIEW_CYCLE", views=views)) for view in views),
    ]


def _jobs(store: Store, selection: Selection) -> list[Job]:
    """Return jobs of the queue and of its archive; one that is archived meanwhile is in both."""
    return list(
        {job.task_id: job for jobs in (store.jobs, store.archived) for job in jobs(selection)}.values()
    )


def _pattern(text: str) -> Pattern:
    """Parse a schema, a view or a pattern; a missing catalog matches each.

    Raises:
        TableError: It is invalid.
    """
    if not any(mark in text for mark in "./"):
        return Pattern(_ANY, text.strip().strip("`").lower(), _ANY)
    name = parse(text, _ANY)
    return name if isinstance(name, Pattern) else Pattern(*name.parts)


@dataclass
class _Run:
    """One run.

    Attributes:
        places: The places of tables and views.
        siblings: The switched jobs of all tables in the views' schemas.
        views: The views, by key.
        inputs: The tables and views that each view reads, by key; empty for a query that can't be parsed.
        unparsed: The keys of views whose query can't be parsed.
        planned: The new views of a dry run.
    """

    store: Store
    warehouse: Warehouse
    options: ViewOptions
    places: Places
    siblings: Sequence[Job]
    views: dict[str, View] = field(default_factory=dict)
    inputs: dict[str, list[TableName]] = field(default_factory=dict)
    unparsed: set[str] = field(default_factory=set)
    planned: set[TableName] = field(default_factory=set)
    reports: list[ViewReport] = field(default_factory=list)

    def read(self, schema: TableName) -> None:
        """Read the views of a schema, without those that replaced tables under their old names."""

        def is_no_table(name: TableName) -> bool:
            job = self.places.jobs.get(self.places.key(name))
            return job is None or self.places.key(job.name) != self.places.key(name)

        for view in catalog.read_views(self.warehouse, schema, is_no_table):
            key = self.places.key(view.name)
            self.views[key], self.inputs[key] = view, []
            try:
                self.inputs[key] = list_tables(view.text, view.namespace)
            except NotMovable:
                self.unparsed.add(key)

    def order(self) -> tuple[list[str], list[str]]:
        """Return the views to move, each after the views that it reads, and those that read each other.

        Raises:
            TableError: A pattern matches no view.
        """
        reads = {key: {self.places.key(name) for name in names} for key, names in self.inputs.items()}
        # A view over no moved table stays where it is.
        over_moved = {
            key
            for key, names in self.inputs.items()
            if key in self.unparsed or any(self.places.new_name(name) != name for name in names)
        }
        touched = {key for key in self._selected() if with_inputs([key], reads) & over_moved}
        return in_order({key: reads[key] for key in with_inputs(touched, reads)})

    def _selected(self) -> set[str]:
        if not self.options.views:
            return set(self.views)
        selected: set[str] = set()
        lower = {key: TableName(tuple(map(str.lower, view.name.parts))) for key, view in self.views.items()}
        for text in self.options.views:
            pattern = _pattern(text)
            matching = {key for key, name in lower.items() if pattern.matches(name)}
            if not matching:
                raise TableError("VIEW_PATTERN_WITHOUT_MATCH", text=text)
            selected |= matching
        return selected

    def move(self, key: str) -> None:
        """Move a view, and report the result."""
        name = self.views[key].name
        try:
            report = self._move(self.views[key])
        except TableferryError as error:
            outcome: Outcome = "waiting" if error.condition == "VIEW_SOURCES_NOT_MOVED" else "refused"
            report = ViewReport(name, outcome, finding=error.finding)
        except SPARK_ERRORS as error:
            report = ViewReport(name, "refused", finding=Finding("OTHER_ERROR", reason=first_line(error)))
        self.reports.append(report)
        if report.new is None:
            self.places.left.add(key)
        else:
            self.places.moved[key] = report.new
        extra = {"event": "view", "view": str(name), "outcome": report.outcome}
        _log.info("%s: %s", name, report.outcome, extra=extra)

    def _move(self, view: View) -> ViewReport:
        schema = TableName(view.name.parts[:-1])
        new_schema = destination(
            schema, [job for job in self.siblings if TableName(job.name.parts[:-1]) == schema]
        )
        move = decide(view, new_schema, self.places, partial=self.options.partial)
        warehouse = replace(self.warehouse, guard=lambda: self._require_switched(move))
        current = catalog.is_current(warehouse, move)
        loses = catalog.lost_settings(warehouse, move)
        if current:
            if not self.options.dry_run:
                catalog.carry_access(warehouse, move)
            return ViewReport(view.name, "there", move.new, stays=move.stays, loses=loses)
        replaces = current is False
        catalog.check(warehouse, move, sources_exist=not self.planned.intersection(move.over))
        outcome: Outcome = "replaced" if replaces else "moved"
        if self.options.dry_run:
            self.planned.add(move.new)
            outcome = "planned"
        else:
            catalog.create(warehouse, move, replace=replaces)
            catalog.carry_access(warehouse, move)
        statement = move.statement(replace=replaces)
        return ViewReport(view.name, outcome, move.new, None, move.stays, statement, loses)

    def _require_switched(self, move: ViewMove) -> None:
        """Check that no table of the view is being reverted, or has another new name.

        Raises:
            Refused: One is.
        """
        ids = [job.task_id for job in move.bases]
        now = {job.task_id: job for job in _jobs(self.store, numbered(ids))} if ids else {}
        for job in move.bases:
            current = now.get(job.task_id)
            if current is None or not is_switched(current) or Names.of(current) != Names.of(job):
                raise Refused("JOB_CHANGED_DURING_VIEW_MOVE", table=job.name)
