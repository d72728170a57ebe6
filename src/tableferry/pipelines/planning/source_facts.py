"""Read facts of the flows' sources: oldest versions, row changes, row counts, and brokers' offsets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tableferry.errors import Finding, TableError
from tableferry.formats.delta.commits import Commit, commits_since
from tableferry.formats.delta.row_changes import RowChanges
from tableferry.pipelines.handover import kafka
from tableferry.pipelines.model.facts import Checkpoint
from tableferry.pipelines.model.flows import DataFlow, Start
from tableferry.pipelines.model.reads import Read
from tableferry.pipelines.model.target_state import MigrationStart, TargetState
from tableferry.pipelines.model.topics import KafkaRange
from tableferry.pipelines.planning.target_needs import TargetNeeds
from tableferry.spark import catalog
from tableferry.spark.tables import TableFacts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FlowKey = tuple[str, str]
"""The key of a spec's own target, and the name of a flow."""


@dataclass(frozen=True)
class SourceReader:
    """Reads facts of the sources of the chosen flows.

    Attributes:
        reads: The sources of each flow.
        states: The state of each target.
        tables: The metadata of the sources.
    """

    spark: SparkSession
    reads: Mapping[FlowKey, tuple[Read, ...]]
    states: Mapping[str, TargetState]
    needs: Mapping[str, TargetNeeds]
    checkpoints: Mapping[FlowKey, Checkpoint]
    tables: Mapping[str, TableFacts | None]

    def read_earliest_versions(self) -> Mapping[str, int]:
        """Return the oldest readable version of each source for which a start version may be set."""
        sources: dict[str, TableFacts] = {}
        for target, flow, read, source in self._list_sources():
            checkpoint = self.checkpoints[target, flow]
            # Before its second batch, a flow repeats its first one, which begins at the start version.
            restarts = self.needs[target].flows_restart or not checkpoint.committed
            needs_start = restarts or not checkpoint.has_read(source)
            start = _start_of(read, self.states[target].migration_start)
            if needs_start and isinstance(start, int) and source.version >= start > 0:
                sources[read.table.key] = source
        return catalog.parallel_dict(lambda table: catalog.earliest_version(self.spark, table), sources)

    def find_row_changes(self) -> Mapping[tuple[str, str, str], RowChanges]:
        """Find the first unread commit that stops each flow, by target, flow and source.

        Flows without a position aren't checked: a flow that reads a source from its start reads a snapshot
        first, and a pipeline doesn't expose positions.
        """
        unread: dict[tuple[str, str, str], tuple[Read, tuple[str, int]]] = {}
        positions: dict[tuple[str, int], tuple[TableFacts, int]] = {}
        for target, flow, read, source in self._list_sources():
            if read.stops_at == "nothing" or read.unmanaged:
                continue
            first = self._first_unread(target, flow, read, source)
            if isinstance(first, int) and source.version >= first:
                position = (read.table.key, first - 1)
                unread[target, flow, read.table.key] = (read, position)
                positions[position] = (source, first - 1)
        # Flows at the same position of a source share its commits.
        commits = catalog.parallel_dict(lambda position: commits_since(self.spark, *position), positions)
        changes = {key: _first_change(read, commits[position]) for key, (read, position) in unread.items()}
        return {key: change for key, change in changes.items() if change}

    def _list_sources(self) -> Iterator[tuple[str, str, Read, TableFacts]]:
        """Yield the target and the name of each flow with each of its sources that exists."""
        for (target, flow), reads in self.reads.items():
            for read in reads:
                if source := self.tables.get(read.table.key):
                    yield target, flow, read, source

    def _first_unread(self, target: str, flow: str, read: Read, source: TableFacts) -> Start | None:
        checkpoint = self.checkpoints[target, flow]
        if self.needs[target].flows_restart or not checkpoint.has_started:
            return _start_of(read, self.states[target].migration_start)
        offset = checkpoint.offsets.get(source.table_id)
        if offset is None:
            return None
        return offset.version if offset.whole else offset.version + 1

    def read_brokers(self, dataflows: Sequence[DataFlow]) -> Mapping[str, KafkaRange | Finding]:
        """Return the offsets of each topic at which a flow starts, or why the broker doesn't answer."""
        options: dict[str, Mapping[str, str]] = {}
        for dataflow in dataflows:
            for flow in dataflow.streaming_flows:
                key = (dataflow.key, flow.name)
                if self.needs[dataflow.key].flows_restart or not self.checkpoints[key].has_started:
                    options |= {
                        read.table.key: read.kafka
                        for read in self.reads[key]
                        if read.kafka is not None and read.explicit is None
                    }
        ranges: dict[str, KafkaRange | Finding] = {}
        for topic, topic_options in options.items():
            try:
                ranges[topic] = kafka.read_offset_range(self.spark, topic_options)
            except TableError as error:
                ranges[topic] = error.finding
        return ranges

    def count_rows(self, dataflows: Sequence[DataFlow]) -> Mapping[str, int]:
        """Count the rows of each source that is read from its start."""
        sources = {
            read.table.key: read.table
            for dataflow in dataflows
            if dataflow.migration and not dataflow.migration.auto_starting_versions
            for flow in dataflow.flows
            for read in self.reads.get((dataflow.key, flow.name), ())
            if read.explicit is None and self.tables.get(read.table.key)
        }
        return catalog.parallel_dict(lambda name: self.spark.table(name.sql).count(), sources)


def _start_of(read: Read, start: MigrationStart | None) -> Start | None:
    """Return the start of a flow in a source: the spec's, or the version after the baseline, or None."""
    if read.explicit is not None:
        return read.explicit
    baseline = start.baselines.get(read.table.key) if start else None
    return baseline.version + 1 if baseline else None


def _first_change(read: Read, commits: Sequence[Commit]) -> RowChanges | None:
    """Return the oldest of these commits, newest first, that stops a stream of a view."""
    changes = (change for commit in reversed(commits) if (change := commit.row_changes))
    if read.stops_at == "changes except deletes":
        return next((change for change in changes if not change.only_deletes), None)
    return next(changes, None)
