"""Gather the facts that a plan is decided from; `target_needs` decides which of them a target needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

from tableferry import storage
from tableferry.errors import StateError, TableError
from tableferry.pipelines.handover import stream_checkpoints
from tableferry.pipelines.handover.finder import HandOverFinder
from tableferry.pipelines.model import reads
from tableferry.pipelines.model.facts import Checkpoint, Facts, LegacyWrites
from tableferry.pipelines.model.flows import AUTO_LOADER, DataFlow, Project, PythonSource, ReaderSource
from tableferry.pipelines.model.identities import TableEvidence
from tableferry.pipelines.model.plan import PlanRequest
from tableferry.pipelines.model.reads import Read
from tableferry.pipelines.model.target_state import MigrationStart, TargetState
from tableferry.pipelines.planning.pipeline_port import LoadingPipeline, Pipeline
from tableferry.pipelines.planning.source_facts import FlowKey, SourceReader
from tableferry.pipelines.planning.table_evidence import EvidenceReader, read_pipeline_evidence
from tableferry.pipelines.planning.target_needs import TargetNeeds, decide_needs
from tableferry.pipelines.sources import views
from tableferry.pipelines.state import checkpoints
from tableferry.pipelines.state.store import StateStore
from tableferry.spark import catalog, session
from tableferry.spark.tables import TableFacts, TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_T = TypeVar("_T")
_R = TypeVar("_R")

Reads = Mapping[FlowKey, tuple[Read, ...]]
Tables = Mapping[str, TableFacts | None]
Orphans = Mapping[str, Mapping[str, Checkpoint]]


def rename_legacy_tables(project: Project, states: Mapping[str, TargetState]) -> Project:
    """Return the project with the current names of legacy tables whose readers were cut over.

    The specs have the old name, which is a view of the target now.
    """

    def rename(dataflow: DataFlow) -> DataFlow:
        migration, cutover = dataflow.migration, states[dataflow.key].cutover
        if migration is None or cutover is None or migration.table.key != cutover.name.key:
            return dataflow
        return replace(dataflow, migration=replace(migration, table=cutover.legacy_name))

    if all(state.cutover is None for state in states.values()):
        return project
    return replace(project, dataflows=tuple(map(rename, project.dataflows)))


@dataclass(frozen=True)
class Gatherer:
    """Gathers the facts of a project.

    Attributes:
        request: The options of the plan. Only the tables of the chosen targets are read.
    """

    project: Project
    spark: SparkSession
    store: StateStore
    request: PlanRequest
    pipeline: Pipeline | None = None

    def gather(self, *, for_report: bool = False) -> Facts:
        """Gather the facts; `for_report` adds those for people, such as row counts, one query each."""
        return self._with_renamed(self._find_renamed_folders())._gather(for_report=for_report)

    def _gather(self, *, for_report: bool) -> Facts:
        stored, flow_checkpoints = self._read_state()
        project = rename_legacy_tables(self.project, stored)
        return replace(self, project=project)._gather_with(stored, flow_checkpoints, for_report=for_report)

    def _gather_with(
        self,
        stored: Mapping[str, TargetState],
        flow_checkpoints: Mapping[FlowKey, Checkpoint],
        *,
        for_report: bool,
    ) -> Facts:
        flow_reads = self._list_reads()
        adoptable = self._read_adoptable_state(stored)
        states = {
            key: state if state.migration_start else adoptable.get(key, state)
            for key, state in stored.items()
        }
        needs = {
            dataflow.key: decide_needs(
                dataflow,
                stored[dataflow.key],
                states[dataflow.key],
                self.pipeline,
                is_refreshed=dataflow.key in self.request.full_refresh,
                for_report=for_report,
            )
            for dataflow in self._chosen
        }
        chosen_reads = {key: found for key, found in flow_reads.items() if key[0] in needs}
        tables = self._read_tables(needs, chosen_reads)
        filled = self._find_filled_targets(needs, tables)
        orphans = self._read_orphans(needs, stored)
        if self.pipeline:
            filled_by_pipeline = [flow for flow in self._chosen if needs[flow.key].filled_tables]
            evidence = read_pipeline_evidence(filled_by_pipeline, stored, tables)
        else:
            reader = EvidenceReader(self.spark, stored, tables, flow_checkpoints, self.request.full_refresh)
            evidence = reader.read(self._chosen)
        sources = SourceReader(self.spark, chosen_reads, states, needs, flow_checkpoints, tables)
        finder = HandOverFinder(
            self.spark,
            self.project,
            tables,
            chosen_reads,
            in_pipeline=self.pipeline is not None,
            look_back=self.request.look_back,
        )
        is_defining = isinstance(self.pipeline, LoadingPipeline)
        return Facts(
            tables=tables,
            states=stored,
            reads=flow_reads,
            checkpoints=flow_checkpoints,
            orphaned_checkpoints=orphans,
            adoptable_states=adoptable,
            renamed_state_folders=self.store.renamed_folders,
            unclaimed_state_folders=(
                self.store.find_unclaimed_folders(stored)
                if any(target_needs.target for target_needs in needs.values())
                else {}
            ),
            nonempty_targets=filled,
            earliest={} if is_defining else sources.read_earliest_versions(),
            rows=sources.count_rows(self._chosen) if for_report else {},
            row_changes={} if is_defining else sources.find_row_changes(),
            table_evidence=evidence,
            hand_overs=finder.find([dataflow for dataflow in self._chosen if needs[dataflow.key].hand_over]),
            legacy_writes=self._list_legacy_writes(needs, states, evidence, orphans),
            brokers=sources.read_brokers([flow for flow in self._chosen if needs[flow.key].brokers]),
            auto_loader=self._has_auto_loader(),
            state=str(self.store.volume),
        )

    def is_current(self, facts: Facts) -> bool:
        """Return whether the recorded state is the same as in these facts; reads no table."""
        adopting = self._with_renamed(facts.renamed_state_folders)
        return (facts.states, facts.checkpoints) == adopting._read_state()

    @property
    def _chosen(self) -> Sequence[DataFlow]:
        return self.project.select_dataflows(self.request.only)

    def _list_reads(self) -> Reads:
        """List the tables that each streaming flow reads; for Python views by a call of their function."""
        analyze = not isinstance(self.pipeline, LoadingPipeline)
        found = {}
        for dataflow in self.project.dataflows:
            python = {
                view.name: views.list_python_reads(self.spark, view, view.source.code, analyze=analyze)
                for view in dataflow.views.values()
                if isinstance(view.source, PythonSource) and view.mode == "stream"
            }
            for flow in dataflow.streaming_flows:
                found[dataflow.key, flow.name] = reads.list_streamed_reads(dataflow.views, flow.view, python)
        return found

    def _read_state(self) -> tuple[Mapping[str, TargetState], Mapping[FlowKey, Checkpoint]]:
        """Read the state of all targets, and the checkpoints of the chosen targets' flows."""
        stored = self._read_states()
        flows = [(dataflow.target.name, flow.name) for dataflow in self._chosen for flow in dataflow.flows]
        if self.pipeline is not None:
            return stored, self.pipeline.read_progress(flows, self._list_start_times(stored))

        def read_checkpoint(flow: tuple[TableName, str]) -> Checkpoint:
            target, name = flow
            folder = self.store.checkpoint_folder(target, stored[target.key].generation, name)
            try:
                return checkpoints.read(folder)
            except StateError:
                # A full refresh drops the checkpoint, and is the remedy for an unreadable one.
                if target.key not in self.request.full_refresh:
                    raise
                return Checkpoint(offered=0)

        keys = [(target.key, name) for target, name in flows]
        return stored, dict(zip(keys, self._map_files(read_checkpoint, flows), strict=True))

    def _read_states(self) -> Mapping[str, TargetState]:
        """Read the state of all targets."""
        targets = [dataflow.target.name for dataflow in self.project.dataflows]
        states = self._map_files(self.store.read, targets)
        return dict(zip((name.key for name in targets), states, strict=True))

    def _with_renamed(self, folders: Mapping[str, str]) -> Gatherer:
        """Return a gatherer that reads the state of renamed targets in these folders."""
        return replace(self, store=replace(self.store, renamed_folders=folders))

    def _find_renamed_folders(self) -> Mapping[str, str]:
        """Find the state folder of each chosen target that was renamed, if the plan may adopt it.

        Such a folder is the only unclaimed one of a migration of the same legacy table.
        """
        if not self.request.adopt:
            return {}
        states = self._read_states()
        unclaimed = dict(self.store.find_unclaimed_folders(states))
        found: dict[str, str] = {}
        for dataflow in self._chosen:
            migration = dataflow.migration
            if not (unclaimed and migration and states[dataflow.key].is_new):
                continue
            try:
                legacy = catalog.facts(self.spark, migration.table)
            except TableError as error:
                raise error.at(migration.location) from error
            if legacy and len(unclaimed.get(legacy.table_id, ())) == 1:
                (found[dataflow.key],) = unclaimed.pop(legacy.table_id)
        return found

    def _list_start_times(self, stored: Mapping[str, TargetState]) -> Mapping[str, datetime]:
        """Return when each migration started; now if its start isn't recorded."""
        now = datetime.now(UTC)
        return {
            key: state.migration_start.recorded_at if state.migration_start else now
            for dataflow in self._chosen
            if dataflow.migration and not (state := stored[key := dataflow.key]).finished
        }

    def _map_files(self, work: Callable[[_T], _R], items: Sequence[_T]) -> list[_R]:
        """Read state files: concurrently through the workspace's API, in turn from a mounted volume."""
        if storage.is_mounted(self.store.volume):
            return [work(item) for item in items]
        return catalog.parallel_map(work, items)

    def _read_adoptable_state(self, stored: Mapping[str, TargetState]) -> Mapping[str, TargetState]:
        """Read the state of the other pipeline that migrates the same target, if there is exactly one."""
        return {
            dataflow.key: StateStore(self.store.volume, others[0]).read(dataflow.target.name)
            for dataflow in self._chosen
            if dataflow.migration and len(others := stored[dataflow.key].elsewhere) == 1
        }

    def _read_orphans(self, needs: Mapping[str, TargetNeeds], stored: Mapping[str, TargetState]) -> Orphans:
        """Read the checkpoints of flows that were removed from the spec."""
        found = {}
        for dataflow in self._chosen:
            if needs[dataflow.key].orphans:
                target, generation = dataflow.target.name, stored[dataflow.key].generation
                known = {flow.name for flow in dataflow.flows} | dataflow.disabled
                removed = sorted(set(self.store.list_flows(target, generation, known)) - known)
                folders = {name: self.store.checkpoint_folder(target, generation, name) for name in removed}
                found[dataflow.key] = {name: checkpoints.read(folder) for name, folder in folders.items()}
        return found

    def _read_tables(self, needs: Mapping[str, TargetNeeds], chosen_reads: Reads) -> Tables:
        """Read the metadata of the sources and of the tables that each target needs.

        The metadata of tables that a pipeline fills is read as far as its platform exposes it.
        """
        names: dict[str, TableName] = {}
        filled: dict[str, TableName] = {}
        locations: dict[str, str] = {}
        for read in chain.from_iterable(chosen_reads.values()):
            locations[read.table.key] = read.location
            if not read.unmanaged:
                names[read.table.key] = read.table
        for dataflow in self._chosen:
            target, migration = dataflow.target.name, dataflow.migration
            if self.pipeline is None:
                names |= {table.name.key: table.name for table in dataflow.tables}
            elif needs[target.key].filled_tables:
                filled |= {table.name.key: table.name for table in dataflow.tables}
            if migration and needs[target.key].legacy_table:
                names[migration.table.key] = migration.table
                locations[migration.table.key] = migration.location
            if needs[target.key].target or target.key in self.store.renamed_folders:
                names[target.key] = target
        is_defining = isinstance(self.pipeline, LoadingPipeline)
        details = catalog.session_details(self.spark, names.values())

        def read_facts(name: TableName) -> TableFacts | None:
            of_pipeline = name.key not in names
            try:
                return catalog.facts(
                    self.spark, name, defining=is_defining or of_pipeline, details=details.get(name.key)
                )
            except TableError as error:
                if of_pipeline:
                    return TableFacts(name, "", -1)
                location = locations.get(name.key)
                raise error.at(location) if location else error from error

        return catalog.parallel_dict(read_facts, {**filled, **names})

    def _find_filled_targets(self, needs: Mapping[str, TargetNeeds], tables: Tables) -> frozenset[str]:
        """Return the keys of the unstarted targets that already have rows."""
        names = {
            dataflow.key: dataflow.target.name
            for dataflow in self._chosen
            if needs[dataflow.key].target_rows and tables[dataflow.key] is not None
        }
        rows = catalog.parallel_dict(lambda name: self.spark.table(name.sql).take(1), names)
        return frozenset(key for key, first in rows.items() if first)

    def _list_legacy_writes(
        self,
        needs: Mapping[str, TargetNeeds],
        states: Mapping[str, TargetState],
        evidence: Mapping[str, TableEvidence],
        orphans: Orphans,
    ) -> Mapping[str, LegacyWrites]:
        """List the commits to each legacy table since its copy was pinned, if the table can be read."""
        starts = {
            key: start
            for key, target_needs in needs.items()
            if target_needs.legacy_writes and (start := states[key].migration_start)
        }
        details = catalog.session_details(self.spark, [start.copy.table for start in starts.values()])

        def list_writes(start: MigrationStart) -> LegacyWrites | None:
            key, known = start.target.key, details.get(start.copy.table.key)
            own_queries: frozenset[str] = frozenset()
            if key in evidence:
                removed_flows = orphans.get(key, {}).values()
                own_queries = evidence[key].queries | {flow.id for flow in removed_flows if flow.id}
            try:
                return stream_checkpoints.list_legacy_writes(self.spark, start, own_queries, known)
            except TableError:  # After the copy, users may drop the table, or reuse its name.
                return None

        found = catalog.parallel_dict(list_writes, starts)
        return {key: writes for key, writes in found.items() if writes is not None}

    def _has_auto_loader(self) -> bool:
        """Return whether Auto Loader exists where the flows run, if a view needs it; otherwise True."""
        if self.pipeline is not None and self.pipeline.kind == "databricks":
            return True
        sources = (view.source for dataflow in self._chosen for view in dataflow.views.values())
        if not any(isinstance(source, ReaderSource) and source.format == AUTO_LOADER for source in sources):
            return True
        return session.on_databricks(self.spark, asked=not isinstance(self.pipeline, LoadingPipeline))
