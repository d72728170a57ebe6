"""Decide which views move, to which schema, in which order and with which query. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from tableferry.errors import Refused
from tableferry.fleet.jobs.job import Job, State, TargetFormat
from tableferry.fleet.jobs.names import Names
from tableferry.fleet.jobs.transitions import BACK
from tableferry.fleet.views.texts import list_tables, reads_files, with_names
from tableferry.spark.quoting import literal, pairs, quote
from tableferry.spark.redaction import HIDDEN
from tableferry.spark.tables import DEFAULT_CATALOG, TableName

SOURCE = "tableferry.source"
"""The property of a moved view with the key of its old view."""

DEFINITION = "tableferry.definition"
"""The property of a moved view with a digest of its definition."""

_HIVE_METASTORE = "hive_metastore"
_SCHEMA_MODES = ("BINDING", "TYPE EVOLUTION", "EVOLUTION")
# The catalog or Spark sets these, or they are carried over in another way.
_SYSTEM = frozenset({"comment", "last_modified_by", "last_modified_time", "owner", "transient_lastddltime"})
_SYSTEM_PREFIXES = ("spark.sql.", "tableferry.", "view.")


@dataclass(frozen=True)
class View:
    """A persistent view, as DESCRIBE reports it.

    Attributes:
        namespace: The catalog and the schema of names without these in the query.
        columns: The names of its columns, with their comments.
        settings: The Spark settings of the session that created it.
        output: The names of its query's columns when it was created; empty if unknown.
    """

    name: TableName
    text: str
    namespace: tuple[str, ...]
    columns: tuple[tuple[str, str], ...] = ()
    comment: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    owner: str = ""
    schema_mode: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    output: tuple[str, ...] = ()

    @property
    def evolving(self) -> bool:
        """Whether its columns are those of its query at each read."""
        return self.schema_mode == "EVOLUTION"


@dataclass(frozen=True)
class ViewMove:
    """The move of one view.

    Attributes:
        view: The old view.
        new: The new view's name.
        text: The new view's query.
        unmoved_text: The same query with the old names in full.
        stays: The tables and views that the new view still reads in their old place.
        bases: The jobs of the tables that it reads.
        over: The moved views that it reads.
    """

    view: View
    new: TableName
    text: str
    unmoved_text: str
    stays: tuple[TableName, ...] = ()
    bases: tuple[Job, ...] = ()
    over: tuple[TableName, ...] = ()

    @property
    def definition(self) -> str:
        """A digest of the new view's definition."""
        view = self.view
        parts = (self.text, view.columns, view.comment, sorted(_own(view).items()), view.schema_mode)
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]

    def statement(self, *, replace: bool) -> str:
        """Return the statement that creates the new view."""
        view = self.view
        clauses = [f"{'CREATE OR REPLACE' if replace else 'CREATE'} VIEW {self.new.sql}"]
        if not view.evolving:
            columns = (
                quote(name) + (f" COMMENT {literal(comment)}" if comment else "")
                for name, comment in view.columns
            )
            clauses.append(f"({', '.join(columns)})")
        if view.comment:
            clauses.append(f"COMMENT {literal(view.comment)}")
        properties = {**_own(view), SOURCE: view.name.key, DEFINITION: self.definition}
        clauses.append(f"TBLPROPERTIES {pairs(properties)}")
        if view.schema_mode in _SCHEMA_MODES:
            clauses.append(f"WITH SCHEMA {view.schema_mode}")
        return f"{' '.join(clauses)} AS {self.text}"


def _own(view: View) -> dict[str, str]:
    return {
        key: value
        for key, value in view.properties.items()
        if value != HIDDEN and key.lower() not in _SYSTEM and not key.lower().startswith(_SYSTEM_PREFIXES)
    }


@dataclass
class Places:
    """The current places of the tables and views that a view may read.

    Attributes:
        iceberg_catalog: The name by which Iceberg tables of the default catalog are read.
        jobs: The jobs of tables, by the keys of their old and new names.
        moved: The new names of moved views, by the keys of their old names.
        left: The keys of views that stay.
    """

    iceberg_catalog: str
    jobs: dict[str, Job] = field(default_factory=dict)
    moved: dict[str, TableName] = field(default_factory=dict)
    left: set[str] = field(default_factory=set)

    def add(self, jobs: Iterable[Job]) -> None:
        """Add the tables of jobs."""
        for job in jobs:
            self.jobs[self.key(job.name)] = job
            if is_switched(job):
                self.jobs.setdefault(self.key(Names.of(job).target), job)

    def key(self, name: TableName) -> str:
        """Return the normalized name of a table, the same for each catalog that reads it."""
        catalog, *rest = name.parts
        same = catalog.lower() in (self.iceberg_catalog.lower(), _HIVE_METASTORE)
        return TableName((DEFAULT_CATALOG, *rest)).key if same else name.key

    def job_names(self, name: TableName) -> list[TableName]:
        """Return the names that a job of this table may have."""
        if self.key(name) == name.key and name.parts[0].lower() != DEFAULT_CATALOG:
            return [name]
        return [TableName((catalog, *name.parts[1:])) for catalog in (DEFAULT_CATALOG, _HIVE_METASTORE)]

    def new_name(self, name: TableName) -> TableName:
        """Return the name by which a table or a view is read now."""
        key = self.key(name)
        if key in self.moved:
            return self.moved[key]
        job = self.jobs.get(key)
        if job is None or not (is_switched(job) and Names.of(job).elsewhere):
            return name
        target = Names.of(job).target
        if job.target_format is TargetFormat.ICEBERG and target.parts[0] == DEFAULT_CATALOG:
            return TableName((self.iceberg_catalog, *target.parts[1:]))
        return target

    def not_moved(self, name: TableName) -> str:
        """Return why a table or a view isn't in its final place; empty if it is."""
        key = self.key(name)
        job = self.jobs.get(key)
        if reads_files(name) or key in self.moved or (job and is_switched(job)):
            return ""
        if key in self.left:
            return f"{name} (a view that stays)"
        why = f"its job is at {job.state}" if job else "no migration of this fleet has moved it"
        return f"{name} ({why})"


def is_switched(job: Job) -> bool:
    """Return whether a job's new table is the live one and isn't being reverted."""
    return job.state in (State.WRITES_UNBLOCKED, State.HIVE_DROPPED) and job.pair not in BACK


def destination(schema: TableName, jobs: Iterable[Job]) -> TableName:
    """Return the schema to which the tables of a schema moved, which is its views' new schema.

    Raises:
        Refused: The tables moved to several schemas.
    """
    schemas = {TableName(Names.of(job).target.parts[:-1]) for job in jobs if is_switched(job)}
    if len(schemas) != 1:
        raise Refused("VIEWS_OF_SEVERAL_SCHEMAS", schema=schema, schemas=sorted(map(str, schemas)))
    return schemas.pop()


def in_order(reads: Mapping[str, Collection[str]]) -> tuple[list[str], list[str]]:
    """Return views after the views that they read, and those that read each other in a circle.

    Args:
        reads: The keys of the views, and of the tables and views that each reads.
    """
    ordered: dict[str, None] = {}
    left = {view: set(others) & set(reads) for view, others in reads.items()}
    while ready := sorted(view for view, others in left.items() if others <= ordered.keys()):
        ordered |= dict.fromkeys(ready)
        for view in ready:
            del left[view]
    return [*ordered], sorted(left)


def with_inputs(views: Iterable[str], reads: Mapping[str, Collection[str]]) -> set[str]:
    """Return the keys of views, and of all views that they read."""
    reached: set[str] = set()
    more = set(views)
    while more:
        reached |= more
        more = {other for view in more for other in reads.get(view, ()) if other in reads} - reached
    return reached


def decide(view: View, schema: TableName, places: Places, *, partial: bool) -> ViewMove:
    """Return the move of a view, after those of the views that it reads.

    Args:
        view: The view.
        schema: Its new schema.
        places: The places of the tables and views that it reads.
        partial: Whether it may still read what hasn't moved.

    Raises:
        Refused: VIEW_SOURCES_NOT_MOVED, or the view can't be created with the new names.
    """
    names = {places.key(name): name for name in list_tables(view.text, view.namespace)}
    waiting = {name: why for name in names.values() if (why := places.not_moved(name))}
    if waiting and not partial:
        raise Refused("VIEW_SOURCES_NOT_MOVED", sources=sorted(waiting.values()))
    jobs = {job.task_id: job for key in names if (job := places.jobs.get(key)) and is_switched(job)}
    return ViewMove(
        view,
        TableName((*schema.parts, view.name.table)),
        with_names(view.text, view.namespace, places.new_name),
        with_names(view.text, view.namespace, lambda name: name),
        tuple(sorted(waiting)),
        tuple(jobs.values()),
        tuple(places.moved[key] for key in sorted(names) if key in places.moved),
    )
