"""Decides which views come along, where to, in which order and with which text: pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tableferry.amounts import joined
from tableferry.errors import Refused
from tableferry.fleet.jobs.job import Job, State, TargetFormat
from tableferry.fleet.jobs.names import Names
from tableferry.fleet.jobs.transitions import BACK
from tableferry.fleet.view_moves.references import NotRewritable, ViewText, reads_files
from tableferry.fleet.view_moves.rewriting import rewritten
from tableferry.fleet.view_moves.view import View
from tableferry.spark.tables import DEFAULT_CATALOG, TableName

_HIVE_METASTORE = "hive_metastore"


class Waits(Refused):
    """A view reads what isn't moved yet, and nobody said that it may all the same."""


@dataclass(frozen=True)
class ViewMove:
    """A view's way to its new place.

    Attributes:
        view: The old view.
        new: The new one's name.
        text: The new one's query.
        stays: What it goes on to read in its old place.
        bases: The jobs whose tables it reads by their new names.
        over: Views that it reads by their new names.
    """

    view: View
    new: TableName
    text: str
    stays: tuple[TableName, ...] = ()
    bases: tuple[Job, ...] = ()
    over: tuple[TableName, ...] = ()


@dataclass
class Places:
    """Where everything is that a view may read.

    Attributes:
        iceberg_catalog: Another name of the session's catalog, by which Iceberg tables are read.
        jobs: The jobs of tables, by their own and their new tables' names.
        moved: Views that have come along, by their old names: their new ones.
        left: Views that haven't, by their old names.
    """

    iceberg_catalog: str
    jobs: Mapping[str, Job]
    moved: dict[str, TableName] = field(default_factory=dict)
    left: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, jobs: Iterable[Job], iceberg_catalog: str) -> Places:
        """Return where these jobs' tables are."""
        places = cls(iceberg_catalog, {})
        by_name: dict[str, Job] = {}
        for job in jobs:
            by_name[places.key(job.name)] = job
            if switched(job):
                by_name.setdefault(places.key(Names.of(job).target), job)
        places.jobs = by_name
        return places

    def key(self, name: TableName) -> str:
        """Return what all names of one table share, whichever catalog it's reached by."""
        catalog, *rest = name.parts
        same = (self.iceberg_catalog.lower(), _HIVE_METASTORE)
        return TableName((DEFAULT_CATALOG, *rest)).key if catalog.lower() in same else name.key

    def spellings(self, name: TableName) -> tuple[TableName, ...]:
        """Return the names of a table in all catalogs that it's reached by."""
        if self.key(name) == name.key and name.parts[0].lower() != DEFAULT_CATALOG:
            return (name,)
        return tuple(TableName((catalog, *name.parts[1:])) for catalog in (DEFAULT_CATALOG, _HIVE_METASTORE))

    def job_of(self, name: TableName) -> Job | None:
        """Return the job whose table this is, by its old or its new name."""
        return self.jobs.get(self.key(name))

    def new_name(self, name: TableName) -> TableName:
        """Return what a table or a view is read by now."""
        key = self.key(name)
        if key in self.moved:
            return self.moved[key]
        job = self.jobs.get(key)
        if job is None or not (switched(job) and Names.of(job).elsewhere):
            return name
        return read_as(job, self.iceberg_catalog)


def read_as(job: Job, iceberg_catalog: str) -> TableName:
    """Return the name that a job's new table is read by: an Iceberg table's through Iceberg's own catalog."""
    target = Names.of(job).target
    if job.target_format is TargetFormat.ICEBERG and target.parts[0] == DEFAULT_CATALOG:
        return TableName((iceberg_catalog, *target.parts[1:]))
    return target


def switched(job: Job) -> bool:
    """Say whether a job's new table is the live one, and stays so."""
    return job.state in (State.WRITES_UNBLOCKED, State.HIVE_DROPPED) and job.pair not in BACK


def destination(schema: TableName, jobs: Iterable[Job]) -> TableName:
    """Return the schema that a schema's views go to: where its tables have gone.

    Raises:
        Refused: They have gone to several.
    """
    schemas = {TableName(Names.of(job).target.parts[:-1]) for job in jobs if switched(job)}
    if len(schemas) != 1:
        raise Refused(
            "VIEWS_OF_SEVERAL_SCHEMAS", schema=schema, schemas=joined([str(name) for name in sorted(schemas)])
        )
    return schemas.pop()


def in_order(reads: Mapping[str, Collection[str]]) -> tuple[list[str], list[str]]:
    """Put views after those that they read.

    Args:
        reads: The keys of the views, and of those that each reads.

    Returns:
        The order, and the views that can't have one, as they are over themselves or over such views.
    """
    ordered: list[str] = []
    done: set[str] = set()
    left = {view: set(others) & set(reads) for view, others in reads.items()}
    while ready := sorted(view for view, others in left.items() if others <= done):
        ordered += ready
        done |= set(ready)
        for view in ready:
            del left[view]
    return ordered, sorted(left)


def needed(chosen: Iterable[str], reads: Mapping[str, Collection[str]]) -> set[str]:
    """Return views, and all views that they are over."""
    reached: set[str] = set()
    more = set(chosen)
    while more:
        reached |= more
        more = {other for view in more for other in reads.get(view, ()) if other in reads} - reached
    return reached


def decide(view: View, text: ViewText, schema: TableName, places: Places, *, partial: bool) -> ViewMove:
    """Return a view's move; the views that it reads were decided before.

    Args:
        view: The view.
        text: Its query, parsed.
        schema: Its new place.
        places: Where all is that it reads.
        partial: Whether it may go on to read what hasn't moved, in its old place.

    Raises:
        Waits: It reads what hasn't moved.
        NotRewritable: Its text can't be written with the new names.
    """
    names = {places.key(reference.name): reference.name for reference in text.references}
    waiting = {
        name: why for name in names.values() if not reads_files(name) and (why := _not_moved(name, places))
    }
    if waiting and not partial:
        sources = joined([f"{name} ({why})" for name, why in sorted(waiting.items())])
        raise Waits("VIEW_SOURCES_NOT_MOVED", sources=sources)
    jobs = {job.task_id: job for name in names.values() if (job := places.job_of(name)) and switched(job)}
    return ViewMove(
        view,
        TableName((*schema.parts, view.name.table)),
        rewritten(text, places.new_name),
        tuple(sorted(waiting)),
        tuple(jobs.values()),
        tuple(places.moved[key] for key in sorted(names) if key in places.moved),
    )


def _not_moved(name: TableName, places: Places) -> str:
    """Say why a table or view isn't where it is to be; empty if it is."""
    key = places.key(name)
    if key in places.moved:
        return ""
    if key in places.left:
        return "a view that stays"
    job = places.jobs.get(key)
    if job is None:
        return "no migration of this fleet has moved it"
    if switched(job):
        return ""
    return f"its job is at {job.state}"


def circle(views: Sequence[TableName]) -> NotRewritable:
    """Return the reason why views that are over themselves stay."""
    return NotRewritable("VIEW_CYCLE", views=joined([str(view) for view in views]))
