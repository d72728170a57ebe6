"""Gathers what a plan is decided from: state files, checkpoints, one catalog query for each table."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from tableferry import catalog, files
from tableferry.commits import commits_after, newest_batches, set_back
from tableferry.errors import StateError, TableError
from tableferry.pipelines import checkpoints, python_code, reads
from tableferry.pipelines.flows import DataFlow, Project, PythonSource
from tableferry.pipelines.identities import Recorded, on_table
from tableferry.pipelines.pipeline import Defining, Pipeline
from tableferry.pipelines.plans import Checkpoint, Facts
from tableferry.pipelines.reads import Read
from tableferry.pipelines.state import StateStore, Stored
from tableferry.tables import TableFacts, TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FlowKey = tuple[str, str]

_T = TypeVar("_T")
_R = TypeVar("_R")


def gather(
    project: Project,
    spark: SparkSession,
    store: StateStore,
    *,
    only: Collection[str] = (),
    refreshed: Collection[str] = (),
    count_rows: bool = False,
    pipeline: Pipeline | None = None,
) -> Facts:
    """Gather the facts of a project.

    Args:
        project: What is planned.
        spark: Where its tables are.
        store: Where its state is.
        only: Keys of the targets that are planned; empty means all. No table of another one is asked for.
        refreshed: Keys of targets that are to be rebuilt, whose copy is needed again.
        count_rows: Count the rows of sources that are read from their start; costs a metadata query each.
        pipeline: What runs the flows, unless Tableferry itself does.
    """
    chosen = _chosen(project, only)
    everything = all_reads(project, spark, asked=not isinstance(pipeline, Defining))
    keys = {one.target.name.key for one in chosen}
    followed = {key: found for key, found in everything.items() if key[0] in keys}
    stored, progress = _remembered(project, store, only, refreshed, pipeline)
    adoptable = {
        one.target.name.key: StateStore(store.volume, stored[one.target.name.key].elsewhere[0]).read(
            one.target.name
        )
        for one in chosen
        if one.migration and len(stored[one.target.name.key].elsewhere) == 1
    }
    known = {key: one if one.migration_start else adoptable.get(key, one) for key, one in stored.items()}
    names = {read.table.key: read.table for found in followed.values() for read in found if not read.unseen}
    places = {read.table.key: read.place for found in followed.values() for read in found}
    unbegun: list[TableName] = []
    for one in chosen:
        key = one.target.name.key
        if pipeline is None:
            names |= {table.name.key: table.name for table in (one.target, *one.staging)}
        if known[key].finished:
            continue
        if one.migration and (not known[key].copied or known[key].resetting or key in refreshed):
            names[one.migration.table.key] = one.migration.table
            places[one.migration.table.key] = one.migration.place
        if one.migration and known[key].migration_start is None:
            names[key] = one.target.name
            unbegun.append(one.target.name)
    tables = _tables(spark, names, places)
    filled = catalog.parallel_map(
        lambda name: name.key if spark.table(name.sql).take(1) else "",
        [name for name in unbegun if tables[name.key] is not None],
    )
    orphans = {
        one.target.name.key: _orphans(one, store, stored)
        for one in chosen
        if one.target.name.key not in refreshed and pipeline is None
    }
    return Facts(
        tables=tables,
        stored=stored,
        reads=everything,
        checkpoints=progress,
        orphans=orphans,
        adoptable=adoptable,
        filled=frozenset(filled) - {""},
        # A flow that is being defined can't be asked whether it has started; if not, Delta refuses the start.
        earliest=_earliest(spark, followed, known, progress, tables, refreshed)
        if not isinstance(pipeline, Defining)
        else {},
        rows=_row_counts(chosen, spark, followed, tables) if count_rows else {},
        recorded={} if pipeline else _recorded(chosen, spark, store, stored, tables, progress),
        state=str(store.volume),
    )


def hold(
    found: Facts,
    project: Project,
    store: StateStore,
    only: Collection[str],
    refreshed: Collection[str],
    pipeline: Pipeline | None = None,
) -> bool:
    """Say whether nobody has run the project since its facts were gathered; asks no table."""
    return (found.stored, found.checkpoints) == _remembered(project, store, only, refreshed, pipeline)


def all_reads(
    project: Project, spark: SparkSession, *, asked: bool = True
) -> Mapping[FlowKey, tuple[Read, ...]]:
    """Return what every live flow follows; Python views are asked by running their function.

    Args:
        project: The flows.
        spark: Where their tables are.
        asked: As for `python_code.seen_by_python`.
    """
    found = {}
    for one in project.dataflows:
        python = {
            view.name: python_code.seen_by_python(spark, view, view.source.code, asked=asked)
            for view in one.views.values()
            if isinstance(view.source, PythonSource) and view.mode == "stream"
        }
        for flow in one.flows:
            if not flow.once:
                found[one.target.name.key, flow.name] = reads.followed(one.views, flow.view, python)
    return found


def _chosen(project: Project, only: Collection[str]) -> list[DataFlow]:
    return [one for one in project.dataflows if not only or one.target.name.key in only]


def _remembered(
    project: Project,
    store: StateStore,
    only: Collection[str],
    refreshed: Collection[str],
    pipeline: Pipeline | None,
) -> tuple[Mapping[str, Stored], Mapping[FlowKey, Checkpoint]]:
    """Read the state of all targets, and how far the flows of the chosen ones are."""
    targets = [one.target.name for one in project.dataflows]
    stored = dict(zip((name.key for name in targets), _each(store, store.read, targets), strict=True))

    def progress(flow: tuple[TableName, str]) -> Checkpoint:
        name, named = flow
        try:
            return checkpoints.read(store.checkpoint(name, stored[name.key].generation, named))
        except StateError:
            # A full refresh drops it, and is the remedy for one that can't be read.
            if name.key not in refreshed:
                raise
            return Checkpoint(offered=0)

    flows = [(one.target.name, flow.name) for one in _chosen(project, only) for flow in one.flows]
    if pipeline is not None:
        return stored, pipeline.progress(flows)
    keys = [(name.key, flow) for name, flow in flows]
    return stored, dict(zip(keys, _each(store, progress, flows), strict=True))


def _each(store: StateStore, work: Callable[[_T], _R], items: Sequence[_T]) -> list[_R]:
    """Read state for several items.

    Through the workspace's API each file is a request to wait for; here, threads cost more than they save.
    """
    if files.is_mounted(store.volume):
        return [work(item) for item in items]
    return catalog.parallel_map(work, items)


def _orphans(one: DataFlow, store: StateStore, stored: Mapping[str, Stored]) -> Mapping[str, Checkpoint]:
    name, generation = one.target.name, stored[one.target.name.key].generation
    gone = set(store.flows(name, generation)) - {flow.name for flow in one.flows} - one.disabled
    return {flow: checkpoints.read(store.checkpoint(name, generation, flow)) for flow in sorted(gone)}


def _tables(
    spark: SparkSession, names: Mapping[str, TableName], places: Mapping[str, str]
) -> Mapping[str, TableFacts | None]:
    def facts(name: TableName) -> TableFacts | None:
        try:
            return catalog.facts(spark, name)
        except TableError as error:
            place = places.get(name.key)
            raise TableError(f"{place}: {error}" if place else str(error)) from error

    return dict(zip(names, catalog.parallel_map(facts, names.values()), strict=True))


def _recorded(
    dataflows: Iterable[DataFlow],
    spark: SparkSession,
    store: StateStore,
    stored: Mapping[str, Stored],
    tables: Mapping[str, TableFacts | None],
    progress: Mapping[FlowKey, Checkpoint],
) -> Mapping[str, Recorded]:
    """Ask each table that flows fill what is recorded of them there and in the state."""
    found = {}
    for one in dataflows:
        owner = one.target.name
        in_state = store.identities(owner, stored[owner.key].generation)
        versions = store.versions(owner, stored[owner.key].generation)
        for table in (one.target, *one.staging):
            facts = tables.get(table.name.key)
            if facts is None:
                continue
            left_at = versions.get(table.name.key)
            said = on_table(facts)
            # A merge makes commits of its own, which say nothing of the stream that brought their rows.
            queries = {
                progress[owner.key, flow.name].id
                for flow in one.streaming_flows
                if flow.target.key == table.name.key and flow.kind == "append"
            } | {
                identity.checkpoint
                for recorded in (said, in_state.get(table.name.key))
                for identity in (recorded.flows.values() if recorded else ())
                if not identity.settings
            }
            batches = newest_batches(spark, facts, queries - {""})
            found[table.name.key] = Recorded(
                facts.table_id,
                said,
                in_state.get(table.name.key),
                batches,
                left_at,
                None if left_at is None else _set_back(spark, facts, left_at),
            )
    return found


def _set_back(spark: SparkSession, table: TableFacts, left_at: int) -> int | None:
    if table.version < left_at:
        return table.version
    return set_back(commits_after(spark, table.name, left_at), left_at) if table.version > left_at else None


def _earliest(
    spark: SparkSession,
    followed: Mapping[FlowKey, tuple[Read, ...]],
    stored: Mapping[str, Stored],
    progress: Mapping[FlowKey, Checkpoint],
    tables: Mapping[str, TableFacts | None],
    refreshed: Collection[str],
) -> Mapping[str, int]:
    """Ask for the oldest readable commit of every source that a start may be given for."""
    wanted: dict[str, TableFacts] = {}
    for (target, flow), found in followed.items():
        migration_start = stored[target].migration_start
        checkpoint = progress[target, flow]
        anew = target in refreshed or stored[target].resetting or not checkpoint.committed
        for read in found:
            facts = tables.get(read.table.key)
            if facts and not anew and checkpoint.has_read(facts):
                continue
            baseline = migration_start.baselines.get(read.table.key) if migration_start else None
            start = read.explicit if read.explicit is not None else baseline.version + 1 if baseline else None
            if facts and isinstance(start, int) and facts.version >= start > 0:
                wanted[read.table.key] = facts
    found_versions = catalog.parallel_map(
        lambda table: catalog.earliest_version(spark, table), wanted.values()
    )
    return dict(zip(wanted, found_versions, strict=True))


def _row_counts(
    dataflows: Iterable[DataFlow],
    spark: SparkSession,
    followed: Mapping[FlowKey, tuple[Read, ...]],
    tables: Mapping[str, TableFacts | None],
) -> Mapping[str, int]:
    wanted = {
        read.table.key: read.table
        for one in dataflows
        if one.migration and not one.migration.auto_starting_versions
        for read in _reads_of(one, followed)
        if read.explicit is None and tables.get(read.table.key)
    }
    counts = catalog.parallel_map(lambda name: spark.table(name.sql).count(), wanted.values())
    return dict(zip(wanted, counts, strict=True))


def _reads_of(dataflow: DataFlow, followed: Mapping[FlowKey, tuple[Read, ...]]) -> list[Read]:
    return [
        read for flow in dataflow.flows for read in followed.get((dataflow.target.name.key, flow.name), ())
    ]
