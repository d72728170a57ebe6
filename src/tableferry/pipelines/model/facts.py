"""The facts that a plan is decided from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter

from tableferry.amounts import counted
from tableferry.errors import Finding
from tableferry.formats.delta.row_changes import RowChanges
from tableferry.pipelines.model.flows import DataFlow, Flow
from tableferry.pipelines.model.identities import TableEvidence
from tableferry.pipelines.model.reads import Read, list_input_table_keys
from tableferry.pipelines.model.source_offsets import DeltaOffset
from tableferry.pipelines.model.target_state import Certainty, TargetState
from tableferry.pipelines.model.topics import KafkaOffset, KafkaRange
from tableferry.spark.tables import TableFacts
from tableferry.verify import Verdict


@dataclass(frozen=True)
class Checkpoint:
    """The progress that a flow's checkpoint records.

    Attributes:
        offsets: Positions in Delta tables, by table id.
        kafka: Positions in Kafka topics, by source id.
        done: A run-once flow has run.
        has_untracked_sources: The flow also reads a source that isn't a Delta table, or that had no data yet.
        offered: The number of the newest batch that was started, or None.
        committed: The number of the newest batch that was finished, or None.
        id: The id under which the target's log counts its batches; empty before the first start.
        has_start_offset: Its first two batches contain only the offset where it starts, and no rows.
    """

    offsets: Mapping[str, DeltaOffset] = field(default_factory=dict)
    kafka: Mapping[str, KafkaOffset] = field(default_factory=dict)
    done: bool = False
    has_untracked_sources: bool = False
    offered: int | None = None
    committed: int | None = None
    id: str = ""
    has_start_offset: bool = False

    @property
    def has_started(self) -> bool:
        """Whether the flow has finished a batch, so that it continues and needs no start."""
        return self.committed is not None

    def has_read(self, source: TableFacts) -> bool:
        """Return whether the flow has started to read a table, which may be one of several."""
        known = source.table_id in self.offsets or not (self.offsets and source.table_id)
        return self.has_started and known

    @property
    def has_pending_batch(self) -> bool:
        """Whether a batch was started and not finished."""
        return self.offered != self.committed

    @property
    def is_caught_up(self) -> bool:
        """Whether the flow is done, or had processed all of its sources when it last ran."""
        known = bool(self.offsets or self.kafka)
        whole = known and all(offset.whole for offset in self.offsets.values())
        return self.done or (whole and not self.has_pending_batch)


@dataclass(frozen=True)
class HandOver:
    """A version of the legacy table with a known position in each source.

    Attributes:
        positions: The last version of each source that the legacy table contains, by the source's table id.
        batches: The newest batch of each old stream that it contains, by the query's id.
        certainty: The kind of evidence.
        why: The evidence in words, if it is a proof.
        within: The offset within the next commit, as Spark writes it, by the source's table id.
        kafka: The positions in Kafka topics, by source id.
    """

    version: int
    positions: Mapping[str, int]
    batches: Mapping[str, int]
    certainty: Certainty = "recorded"
    why: str = ""
    within: Mapping[str, str] = field(default_factory=dict)
    kafka: Mapping[str, KafkaOffset] = field(default_factory=dict)


@dataclass(frozen=True)
class UnknownHandOver:
    """The hand-over point of a legacy table can't be determined.

    Attributes:
        why: The finding.
        nearest: The comparison with the nearest versions of the sources.
    """

    why: Finding
    nearest: Verdict | None = None


@dataclass(frozen=True)
class LegacyWrites:
    """Commits to a legacy table after its pinned version.

    Attributes:
        batches: The newest batch of each old stream that the migration continues, by the query's id.
        first: The first version of these batches and of ``foreign_appends``; None without any.
        foreign_commits: Versions that other writers committed, the newest first, by operation.
        is_truncated: Older commits weren't read.
        foreign_appends: If the table was taken over, the ``foreign_commits`` that added rows.
        is_interleaved: The flows of the migration wrote after ``first``.
    """

    batches: Mapping[str, int] = field(default_factory=dict)
    first: int | None = None
    foreign_commits: Mapping[str, Sequence[int]] = field(default_factory=dict)
    is_truncated: bool = False
    foreign_appends: Mapping[str, Sequence[int]] = field(default_factory=dict)
    is_interleaved: bool = False

    def __str__(self) -> str:
        """List the commits of other writers."""
        return self.describe(self.foreign_commits)

    def describe(self, commits: Mapping[str, Sequence[int]]) -> str:
        """List commits by operation, each with the number of versions and the newest one."""
        named = [
            f"{operation or 'a commit without a recorded operation'} ({counted(len(versions), 'version')}, "
            f"the newest is {versions[0]})"
            for operation, versions in commits.items()
        ]
        return ", ".join(named) + (" and possibly earlier commits" if self.is_truncated and named else "")


@dataclass(frozen=True)
class Facts:
    """Everything that a plan is decided from.

    Target keys and table keys are `TableName.key`. A flow's key is its target's key and its name.

    Attributes:
        tables: Metadata by table key; None for a table that doesn't exist.
        states: Recorded states by target key.
        reads: The tables, topics and files that a flow streams, by flow key.
        checkpoints: By flow key.
        orphaned_checkpoints: Checkpoints of flows that aren't in the spec, by target key and flow name.
        adoptable_states: The state that exactly one other pipeline recorded, by target key.
        renamed_state_folders: State folders of targets that were renamed, by the key of the new name. Their
            states and checkpoints are read as if they had been adopted. Read only if the plan may adopt them.
        unclaimed_state_folders: State folders of targets outside the project, by the legacy table's id. Those
            in ``renamed_state_folders`` are claimed.
        nonempty_targets: Keys of targets that contain rows. Read only for targets without recorded state.
        earliest: The oldest version that can be streamed, by table key. Read only if a stream is to start.
        rows: Row counts by table key. Read only for a source that is read from its start.
        row_changes: The first commit after a flow's position that fails its stream, by target key, flow name
            and table key.
        table_evidence: Identity and batches of a table that flows fill, by table key. A table that doesn't
            exist has no entry. In a pipeline, only tables with copied history have one, and while the
            pipeline is being defined, no table has.
        hand_overs: The hand-over point, or why it is unknown, by target key. Determined only for
            migrations that haven't started and that name checkpoints or compare content. Content is
            compared only if a flow is to start.
        legacy_writes: Commits to a legacy table after its pinned version, or after it was taken over, by
            target key. For copies they are only shown to the user.
        brokers: The offsets that a Kafka broker has, or why it can't be read, by the key of the `Read`. Read
            only if a flow is to start at an old stream's offset.
        auto_loader: Auto Loader exists where the flows run. Determined only if a view reads with it.
        state: The folder of the state, for messages.
    """

    tables: Mapping[str, TableFacts | None]
    states: Mapping[str, TargetState]
    reads: Mapping[tuple[str, str], tuple[Read, ...]]
    checkpoints: Mapping[tuple[str, str], Checkpoint] = field(default_factory=dict)
    orphaned_checkpoints: Mapping[str, Mapping[str, Checkpoint]] = field(default_factory=dict)
    adoptable_states: Mapping[str, TargetState] = field(default_factory=dict)
    renamed_state_folders: Mapping[str, str] = field(default_factory=dict)
    unclaimed_state_folders: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    nonempty_targets: frozenset[str] = frozenset()
    earliest: Mapping[str, int] = field(default_factory=dict)
    rows: Mapping[str, int] = field(default_factory=dict)
    row_changes: Mapping[tuple[str, str, str], RowChanges] = field(default_factory=dict)
    table_evidence: Mapping[str, TableEvidence] = field(default_factory=dict)
    hand_overs: Mapping[str, HandOver | UnknownHandOver] = field(default_factory=dict)
    legacy_writes: Mapping[str, LegacyWrites] = field(default_factory=dict)
    brokers: Mapping[str, KafkaRange | Finding] = field(default_factory=dict)
    auto_loader: bool = True
    state: str = ""

    def streamed_reads(self, dataflow: DataFlow, flow: Flow) -> tuple[Read, ...]:
        """Return the sources that a flow streams."""
        return self.reads.get((dataflow.key, flow.name), ())

    def input_table_keys(self, dataflow: DataFlow, flow: Flow) -> frozenset[str]:
        """Return the keys of the tables that a flow streams or reads whole."""
        return list_input_table_keys(dataflow.views, flow.view) | self.streamed_table_keys(dataflow, flow)

    def streamed_table_keys(self, dataflow: DataFlow, flow: Flow) -> frozenset[str]:
        """Return the keys of the tables that a flow streams."""
        return frozenset(read.table.key for read in self.streamed_reads(dataflow, flow))

    def order_tables(self, flows_by_table: Mapping[str, Sequence[tuple[DataFlow, Flow]]]) -> tuple[str, ...]:
        """Order tables so that each table follows the inputs of the flows that fill it.

        If inputs form a cycle, only streamed inputs count. If these form one too, the order stays.
        """
        for list_inputs in (self.input_table_keys, self.streamed_table_keys):
            inputs = {
                key: frozenset(table for flow in flows for table in list_inputs(*flow))
                & flows_by_table.keys() - {key}
                for key, flows in flows_by_table.items()
            }
            try:
                return tuple(TopologicalSorter(inputs).static_order())
            except CycleError:
                continue
        return tuple(flows_by_table)
