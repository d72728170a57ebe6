"""Gathers what a plan is decided from: state files, checkpoints, one catalog query for each table."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

from tableferry import storage
from tableferry.errors import Finding, StateError, TableError
from tableferry.formats.delta.commits import (
    Commit,
    commits_after,
    commits_since,
    newest_batches,
    set_back,
)
from tableferry.formats.delta.row_changes import RowChanges
from tableferry.pipelines.handover import foreign_writes, kafka, stream_checkpoints
from tableferry.pipelines.handover.finder import HandOverFinder
from tableferry.pipelines.model import reads
from tableferry.pipelines.model.facts import Checkpoint, Facts, HandOver, LegacyWrites, UnknownHandOver
from tableferry.pipelines.model.flows import (
    AUTO_LOADER,
    DataFlow,
    Project,
    PythonSource,
    ReaderSource,
    event_log_name,
)
from tableferry.pipelines.model.identities import (
    ForeignWrites,
    TableEvidence,
    TableRollback,
    parse_identity_property,
)
from tableferry.pipelines.model.plan import LookBack
from tableferry.pipelines.model.reads import Read
from tableferry.pipelines.model.source_offsets import KafkaRange
from tableferry.pipelines.model.steps import Start
from tableferry.pipelines.model.target_state import MigrationStart, TargetState
from tableferry.pipelines.planning.pipeline_port import LoadingPipeline, Pipeline
from tableferry.pipelines.sources import python_code
from tableferry.pipelines.state import checkpoints
from tableferry.pipelines.state.store import StateStore
from tableferry.spark import catalog, session
from tableferry.spark.tables import TableFacts, TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FlowKey = tuple[str, str]

_T = TypeVar("_T")
_R = TypeVar("_R")


@dataclass(frozen=True)
class Gatherer:
    """Gathers the facts of a project.

    Attributes:
        only: Keys of the targets that are planned; empty means all. No table of another one is asked for.
        refreshed: Keys of targets that are to be rebuilt, whose copy is needed again.
        look_back: How many moments of the sources a legacy table may be compared with, to find where it
            hands over; 0 where nothing is to start.
    """

    project: Project
    spark: SparkSession
    store: StateStore
    only: Collection[str] = ()
    refreshed: Collection[str] = ()
    pipeline: Pipeline | None = None
    look_back: LookBack = 0

    def gather(self, *, count_rows: bool = False) -> Facts:
        """Gather them; to count the rows of sources that are read from their start costs a query each."""
        chosen = self.project.select_dataflows(self.only)
        all_flows = self._all_reads()
        keys = {dataflow.key for dataflow in chosen}
        followed = {key: flow_reads for key, flow_reads in all_flows.items() if key[0] in keys}
        stored, progress = self._remembered()
        adoptable: dict[str, TargetState] = {}
        for dataflow in chosen:
            target = dataflow.target.name
            elsewhere = stored[target.key].elsewhere
            if dataflow.migration and len(elsewhere) == 1:
                adoptable[target.key] = StateStore(self.store.volume, elsewhere[0]).read(target)
        known = {
            key: state if state.migration_start else adoptable.get(key, state)
            for key, state in stored.items()
        }
        names: dict[str, TableName] = {}
        locations: dict[str, str] = {}
        for read in chain.from_iterable(followed.values()):
            locations[read.table.key] = read.location
            if not read.unmanaged:
                names[read.table.key] = read.table
        unstarted: list[TableName] = []
        is_new = False
        for dataflow in chosen:
            target, migration = dataflow.target.name, dataflow.migration
            state = known[target.key]
            if self.pipeline is None:
                names |= {table.name.key: table.name for table in dataflow.tables}
            if state.finished or migration is None:
                continue
            if not state.copied or state.resetting or target.key in self.refreshed:
                names[migration.table.key] = migration.table
                locations[migration.table.key] = migration.location
            if state.migration_start is None:
                is_new = True
                names[target.key] = target
                if not migration.take_over:
                    unstarted.append(target)
        tables = self._tables(names, locations)
        filled_by_pipeline = self._filled_by_pipeline(chosen, stored, tables)
        tables = {**tables, **filled_by_pipeline}
        filled = catalog.parallel_map(
            lambda name: name.key if self.spark.table(name.sql).take(1) else "",
            [name for name in unstarted if tables[name.key] is not None],
        )
        orphans = {
            dataflow.key: self._orphans(dataflow, stored)
            for dataflow in chosen
            if dataflow.key not in self.refreshed and self.pipeline is None
        }
        recorded = (
            self._recorded_of_pipeline(stored, filled_by_pipeline)
            if self.pipeline
            else self._recorded(stored, tables, progress)
        )
        own = {
            dataflow.key: recorded[dataflow.key].queries
            | {checkpoint.id for checkpoint in orphans.get(dataflow.key, {}).values() if checkpoint.id}
            for dataflow in chosen
            if dataflow.key in recorded
        }
        return Facts(
            tables=tables,
            states=stored,
            reads=all_flows,
            checkpoints=progress,
            orphaned_checkpoints=orphans,
            adoptable_states=adoptable,
            unclaimed_state_folders=self.store.find_unclaimed_folders(stored) if is_new else {},
            nonempty_targets=frozenset(filled) - {""},
            # A flow that is being defined can't be asked whether it has started: Delta refuses a bad start.
            earliest={}
            if isinstance(self.pipeline, LoadingPipeline)
            else self._earliest(followed, known, progress, tables),
            rows=self._row_counts(followed, tables) if count_rows else {},
            row_changes=self._row_changes(followed, known, progress, tables),
            table_evidence=recorded,
            hand_overs=self._hand_overs(chosen, known, tables, followed),
            legacy_writes=self._legacy_writes(chosen, known, own, all_of_them=count_rows),
            brokers=self._brokers(chosen, known, progress, followed),
            auto_loader=self._has_auto_loader(),
            state=str(self.store.volume),
        )

    def _hand_overs(
        self,
        chosen: Sequence[DataFlow],
        known: Mapping[str, TargetState],
        tables: Mapping[str, TableFacts | None],
        followed: Mapping[FlowKey, tuple[Read, ...]],
    ) -> Mapping[str, HandOver | UnknownHandOver]:
        # A pipeline that is being defined is refused unless its start is recorded.
        if isinstance(self.pipeline, LoadingPipeline):
            return {}
        starting = [
            dataflow
            for dataflow in chosen
            if not known[dataflow.key].migration_start and not known[dataflow.key].finished
        ]
        in_pipeline = self.pipeline is not None
        finder = HandOverFinder(self.spark, self.project, tables, followed, in_pipeline, self.look_back)
        return finder.find(starting)

    def _brokers(
        self,
        chosen: Sequence[DataFlow],
        known: Mapping[str, TargetState],
        progress: Mapping[FlowKey, Checkpoint],
        followed: Mapping[FlowKey, tuple[Read, ...]],
    ) -> Mapping[str, KafkaRange | Finding]:
        """Ask brokers what they hold where a flow is to start from an old stream's offset."""
        if isinstance(self.pipeline, LoadingPipeline):
            return {}
        asked: dict[str, Mapping[str, str]] = {}
        for dataflow in chosen:
            state, migration = known[dataflow.key], dataflow.migration
            if migration is None or migration.hand_over != "checkpoint" or state.finished:
                continue
            anew = dataflow.key in self.refreshed or state.resetting
            for flow in dataflow.streaming_flows:
                if anew or not progress[dataflow.key, flow.name].has_started:
                    asked |= {
                        read.table.key: read.kafka
                        for read in followed[dataflow.key, flow.name]
                        if read.kafka is not None and read.explicit is None
                    }
        held: dict[str, KafkaRange | Finding] = {}
        for key, options in asked.items():
            try:
                held[key] = kafka.read_offset_range(self.spark, options)
            except TableError as error:
                held[key] = error.finding
        return held

    def _has_auto_loader(self) -> bool:
        """Return whether Auto Loader exists where the flows run; ask the session only if a view needs it."""
        if self.pipeline is not None and self.pipeline.kind == "databricks":
            return True
        chosen = self.project.select_dataflows(self.only)
        sources = (view.source for dataflow in chosen for view in dataflow.views.values())
        if not any(isinstance(source, ReaderSource) and source.format == AUTO_LOADER for source in sources):
            return True
        return session.on_databricks(self.spark, asked=not isinstance(self.pipeline, LoadingPipeline))

    def _legacy_writes(
        self,
        chosen: Sequence[DataFlow],
        known: Mapping[str, TargetState],
        own: Mapping[str, frozenset[str]],
        *,
        all_of_them: bool,
    ) -> Mapping[str, LegacyWrites]:
        """Look at what legacy tables were given since their copies are pinned, where they can be read."""
        starts = {
            dataflow.key: start
            for dataflow in chosen
            if (start := known[dataflow.key].migration_start)
            and dataflow.migration
            and (all_of_them or start.is_take_over)
        }

        def since(key: str) -> LegacyWrites | None:
            try:
                return stream_checkpoints.list_legacy_writes(
                    self.spark, starts[key], own.get(key, frozenset())
                )
            except TableError:  # It may go once it is copied, and have its name for something else.
                return None

        found = zip(starts, catalog.parallel_map(since, starts), strict=True)
        return {key: writes for key, writes in found if writes is not None}

    def hold(self, facts: Facts) -> bool:
        """Say whether nobody has run the project since its facts were gathered; asks no table."""
        return (facts.states, facts.checkpoints) == self._remembered()

    def _all_reads(self) -> Mapping[FlowKey, tuple[Read, ...]]:
        """Return what every streaming flow follows; Python views are asked by running their function."""
        asked = not isinstance(self.pipeline, LoadingPipeline)
        followed = {}
        for dataflow in self.project.dataflows:
            python = {
                view.name: python_code.list_python_reads(self.spark, view, view.source.code, analyze=asked)
                for view in dataflow.views.values()
                if isinstance(view.source, PythonSource) and view.mode == "stream"
            }
            for flow in dataflow.streaming_flows:
                key = (dataflow.key, flow.name)
                followed[key] = reads.list_streamed_reads(dataflow.views, flow.view, python)
        return followed

    def _remembered(self) -> tuple[Mapping[str, TargetState], Mapping[FlowKey, Checkpoint]]:
        """Read the state of all targets, and how far the flows of the chosen ones are."""
        targets = [dataflow.target.name for dataflow in self.project.dataflows]
        stored = dict(zip((name.key for name in targets), self._each(self.store.read, targets), strict=True))

        def progress(flow: tuple[TableName, str]) -> Checkpoint:
            name, named = flow
            try:
                return checkpoints.read(
                    self.store.checkpoint_folder(name, stored[name.key].generation, named)
                )
            except StateError:
                # A full refresh drops it, and is the remedy for one that can't be read.
                if name.key not in self.refreshed:
                    raise
                return Checkpoint(offered=0)

        flows = [
            (dataflow.target.name, flow.name)
            for dataflow in self.project.select_dataflows(self.only)
            for flow in dataflow.flows
        ]
        if self.pipeline is not None:
            return stored, self.pipeline.read_progress(flows, self._starts(stored))
        keys = [(name.key, flow) for name, flow in flows]
        return stored, dict(zip(keys, self._each(progress, flows), strict=True))

    def _starts(self, stored: Mapping[str, TargetState]) -> Mapping[str, datetime]:
        """Return when migrations started; one that isn't recorded yet starts now, at the earliest."""
        now = datetime.now(UTC)
        return {
            key: state.migration_start.recorded_at if state.migration_start else now
            for dataflow in self.project.select_dataflows(self.only)
            if dataflow.migration and not (state := stored[key := dataflow.key]).finished
        }

    def _each(self, work: Callable[[_T], _R], items: Sequence[_T]) -> list[_R]:
        """Read state for several items.

        Through the workspace's API each file is a request to wait for; elsewhere threads cost more than
        they save.
        """
        if storage.is_mounted(self.store.volume):
            return [work(item) for item in items]
        return catalog.parallel_map(work, items)

    def _orphans(self, dataflow: DataFlow, stored: Mapping[str, TargetState]) -> Mapping[str, Checkpoint]:
        target, generation = dataflow.target.name, stored[dataflow.key].generation
        known = {flow.name for flow in dataflow.flows} | dataflow.disabled
        gone = set(self.store.list_flows(target, generation, known)) - known
        return {
            flow: checkpoints.read(self.store.checkpoint_folder(target, generation, flow))
            for flow in sorted(gone)
        }

    def _tables(
        self, names: Mapping[str, TableName], locations: Mapping[str, str]
    ) -> Mapping[str, TableFacts | None]:
        defining = isinstance(self.pipeline, LoadingPipeline)
        details = catalog.session_details(self.spark, names.values())

        def facts(name: TableName) -> TableFacts | None:
            known = details.get(name.key)
            if name.key in details and known is None:
                return None
            try:
                return catalog.facts(self.spark, name, defining=defining, details=known)
            except TableError as error:
                location = locations.get(name.key)
                raise error.at(location) if location else error from error

        return dict(zip(names, catalog.parallel_map(facts, names.values()), strict=True))

    def _filled_by_pipeline(
        self,
        chosen: Sequence[DataFlow],
        stored: Mapping[str, TargetState],
        tables: Mapping[str, TableFacts | None],
    ) -> Mapping[str, TableFacts | None]:
        """Ask for the tables of a pipeline that hold a copied history, as far as its platform tells."""
        if self.pipeline is None or isinstance(self.pipeline, LoadingPipeline):
            return {}
        names = [
            table.name
            for dataflow in chosen
            if (state := stored[dataflow.key]).copied or state.finished
            for table in dataflow.tables
        ]

        def facts(name: TableName) -> TableFacts | None:
            if name.key in tables:
                return tables[name.key]
            try:
                return catalog.facts(self.spark, name, defining=True)
            except TableError:
                return TableFacts(name, "", -1)

        return dict(zip((name.key for name in names), catalog.parallel_map(facts, names), strict=True))

    def _recorded_of_pipeline(
        self, stored: Mapping[str, TargetState], tables: Mapping[str, TableFacts | None]
    ) -> Mapping[str, TableEvidence]:
        """Return what is recorded of a pipeline's tables, which have no checkpoints here."""
        recorded = {}
        for dataflow in self.project.select_dataflows(self.only):
            owner = dataflow.target.name
            keys = [table.name.key for table in dataflow.tables if table.name.key in tables]
            state = stored[owner.key]
            identities = state.identities_of(state.generation)
            for key in keys:
                facts = tables[key]
                table_id = facts.table_id if facts else None
                recorded[key] = TableEvidence(
                    table_id, parse_identity_property(facts) if facts else None, identities.get(key)
                )
        return recorded

    def _recorded(
        self,
        stored: Mapping[str, TargetState],
        tables: Mapping[str, TableFacts | None],
        progress: Mapping[FlowKey, Checkpoint],
    ) -> Mapping[str, TableEvidence]:
        """Ask each table that flows fill what is recorded of them there and in the state."""
        recorded = {}
        for dataflow in self.project.select_dataflows(self.only):
            owner = dataflow.target.name
            state = stored[owner.key]
            identities, versions = state.identities_of(state.generation), state.versions_of(state.generation)
            for table in dataflow.tables:
                key = table.name.key
                facts = tables.get(key)
                if facts is None:
                    continue
                table_identities = (parse_identity_property(facts), identities.get(key))
                # A merge makes commits of its own, which say nothing of the stream that brought their rows.
                queries = frozenset(
                    progress[owner.key, flow.name].id
                    for flow in dataflow.streaming_flows
                    if flow.target.key == key and flow.kind == "append"
                ) | {
                    flow_identity.checkpoint
                    for identity in table_identities
                    for flow_identity in (identity.flows.values() if identity else ())
                    if not flow_identity.settings
                }
                commits = self._commits_since(facts, versions)
                set_back = _set_back(facts, versions, commits)
                writes: tuple[ForeignWrites, ...] = ()
                at = {key: facts.version}
                if table.cdc and set_back is None and (log := event_log_name(table.name)).key in versions:
                    # Rows are worked out from the events of their key: without some they come out wrong.
                    log_facts = catalog.facts(self.spark, log)
                    if log_facts is None:
                        set_back = TableRollback(log, versions[log.key], None)
                    else:
                        log_commits = self._commits_since(log_facts, versions)
                        set_back = _set_back(log_facts, versions, log_commits)
                        at[log.key] = log_facts.version
                        if set_back is None and owner.key not in self.refreshed:
                            writes = foreign_writes.find_foreign_writes(
                                self.spark, table.cdc, facts, log_facts, commits, log_commits
                            )
                queries -= {""}
                batches = newest_batches(self.spark, facts, queries)
                recorded[key] = TableEvidence(
                    facts.table_id, *table_identities, batches, set_back, writes, at, queries
                )
        return recorded

    def _commits_since(self, table: TableFacts, versions: Mapping[str, int]) -> Sequence[Commit]:
        """Return the commits since a table's flows last ran, the newest first, if that is known."""
        left_at = versions.get(table.name.key)
        if left_at is None or table.version <= left_at:
            return ()
        return commits_after(self.spark, table.name, left_at)

    def _earliest(
        self,
        followed: Mapping[FlowKey, tuple[Read, ...]],
        stored: Mapping[str, TargetState],
        progress: Mapping[FlowKey, Checkpoint],
        tables: Mapping[str, TableFacts | None],
    ) -> Mapping[str, int]:
        """Ask for the oldest readable commit of every source that a start may be given for."""
        sources: dict[str, TableFacts] = {}
        for (target, flow), flow_reads in followed.items():
            migration_start = stored[target].migration_start
            checkpoint = progress[target, flow]
            anew = target in self.refreshed or stored[target].resetting or not checkpoint.committed
            for read in flow_reads:
                source = tables.get(read.table.key)
                if source and not anew and checkpoint.has_read(source):
                    continue
                start = _given_start(read, migration_start)
                if source and isinstance(start, int) and source.version >= start > 0:
                    sources[read.table.key] = source
        versions = catalog.parallel_map(
            lambda table: catalog.earliest_version(self.spark, table), sources.values()
        )
        return dict(zip(sources, versions, strict=True))

    def _row_changes(
        self,
        followed: Mapping[FlowKey, tuple[Read, ...]],
        stored: Mapping[str, TargetState],
        progress: Mapping[FlowKey, Checkpoint],
        tables: Mapping[str, TableFacts | None],
    ) -> Mapping[tuple[str, str, str], RowChanges]:
        """Find the first commit that stops each flow, in the commits of its sources that it hasn't read.

        A flow that reads a table from its start reads a snapshot first, and the flows of a pipeline don't
        show their positions; neither is checked.
        """
        if isinstance(self.pipeline, LoadingPipeline):
            return {}
        unread: dict[tuple[str, str, str], tuple[Read, tuple[str, int]]] = {}
        sources: dict[tuple[str, int], TableFacts] = {}
        for (target, flow), flow_reads in followed.items():
            checkpoint = progress[target, flow]
            is_fresh = target in self.refreshed or stored[target].resetting or not checkpoint.has_started
            for read in flow_reads:
                source = tables.get(read.table.key)
                if source is None or read.stops_at == "nothing" or read.unmanaged:
                    continue
                first: Start | None = None
                if is_fresh:
                    first = _given_start(read, stored[target].migration_start)
                elif offset := checkpoint.offsets.get(source.table_id):
                    first = offset.version if offset.whole else offset.version + 1
                if isinstance(first, int) and source.version >= first:
                    position = (read.table.key, first - 1)
                    unread[target, flow, read.table.key] = (read, position)
                    sources[position] = source
        # Flows at the same position of a source share its commits.
        found = catalog.parallel_map(
            lambda position: commits_since(self.spark, sources[position], position[1]), sources
        )
        commits = dict(zip(sources, found, strict=True))
        changes = {key: _first_change(read, commits[position]) for key, (read, position) in unread.items()}
        return {key: change for key, change in changes.items() if change}

    def _row_counts(
        self, followed: Mapping[FlowKey, tuple[Read, ...]], tables: Mapping[str, TableFacts | None]
    ) -> Mapping[str, int]:
        sources = {
            read.table.key: read.table
            for dataflow in self.project.select_dataflows(self.only)
            if dataflow.migration and not dataflow.migration.auto_starting_versions
            for flow in dataflow.flows
            for read in followed.get((dataflow.key, flow.name), ())
            if read.explicit is None and tables.get(read.table.key)
        }
        counts = catalog.parallel_map(lambda name: self.spark.table(name.sql).count(), sources.values())
        return dict(zip(sources, counts, strict=True))


def _given_start(read: Read, start: MigrationStart | None) -> Start | None:
    """Return where a new flow starts in a table: the spec's start, or after the baseline, if it has one."""
    baseline = start.baselines.get(read.table.key) if start else None
    return read.explicit if read.explicit is not None else baseline.version + 1 if baseline else None


def _first_change(read: Read, commits: Sequence[Commit]) -> RowChanges | None:
    """Return the oldest of these commits, the newest of which come first, that stops a stream of a view."""
    changes = (change for commit in reversed(commits) if (change := commit.row_changes))
    if read.stops_at == "changes except deletes":
        return next((change for change in changes if not change.only_deletes), None)
    return next(changes, None)


def _set_back(
    table: TableFacts, versions: Mapping[str, int], commits: Sequence[Commit]
) -> TableRollback | None:
    left_at = versions.get(table.name.key)
    if left_at is None or table.version == left_at:
        return None
    version = set_back(commits, left_at) if table.version > left_at else table.version
    return None if version is None else TableRollback(table.name, left_at, version)
