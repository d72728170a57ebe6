"""The facts that a plan is decided from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter

from tableferry.amounts import counted
from tableferry.errors import Finding
from tableferry.formats.delta.row_changes import RowChanges
from tableferry.pipelines.model.flows import DataFlow, Flow
from tableferry.pipelines.model.identities import Recorded
from tableferry.pipelines.model.reads import Read, looked_up
from tableferry.pipelines.model.source_offsets import KafkaOffset, KafkaRange, Offset
from tableferry.pipelines.model.target_state import Certainty, TargetState
from tableferry.spark.tables import TableFacts
from tableferry.verify import Verdict


@dataclass(frozen=True)
class Checkpoint:
    """What a flow's checkpoint says.

    Attributes:
        offsets: By table id; Delta tables alone have one.
        kafka: How far it has read Kafka, by the source's id.
        done: A run-once flow has run.
        others: It reads a source that isn't a Delta table, or that had nothing to read yet.
        offered: The number of the newest batch that was started, or None.
        committed: The number of the newest batch that was finished, or None.
        id: What the target knows it by; empty where nobody has started it.
        has_start_offset: Its first two batches contain only the offset where it starts, and no rows.
    """

    offsets: Mapping[str, Offset] = field(default_factory=dict)
    kafka: Mapping[str, KafkaOffset] = field(default_factory=dict)
    done: bool = False
    others: bool = False
    offered: int | None = None
    committed: int | None = None
    id: str = ""
    has_start_offset: bool = False

    @property
    def started(self) -> bool:
        """Whether the flow has finished a batch, so that it goes on from here and needs no start."""
        return self.committed is not None

    def has_read(self, source: TableFacts) -> bool:
        """Say whether the flow has started to read a table; it may have started with those of another."""
        known = source.table_id in self.offsets or not (self.offsets and source.table_id)
        return self.started and known

    @property
    def pending(self) -> bool:
        """Whether a batch was started and not finished."""
        return self.offered != self.committed

    @property
    def caught_up(self) -> bool:
        """Whether the flow is done, or has taken all that its sources held when it ran last."""
        known = bool(self.offsets or self.kafka)
        whole = known and all(offset.whole for offset in self.offsets.values())
        return self.done or (whole and not self.pending)


@dataclass(frozen=True)
class HandOver:
    """A version of a legacy table of which it's known how far into the sources it reaches.

    Attributes:
        positions: The last version of each source whose rows it holds, by the source's table id.
        batches: The newest batch of each old stream that it holds, by the query's id.
        certainty: What says so.
        why: The same in words, where it's proved.
        within: Where that is within the commit behind, by the source's table id, as Spark wrote it.
        kafka: How far into Kafka's topics it reaches, by the source's id.
    """

    version: int
    positions: Mapping[str, int]
    batches: Mapping[str, int]
    certainty: Certainty = "recorded"
    why: str = ""
    within: Mapping[str, str] = field(default_factory=dict)
    kafka: Mapping[str, KafkaOffset] = field(default_factory=dict)


@dataclass(frozen=True)
class NoHandOver:
    """Nobody knows how far into its sources a legacy table reaches.

    Attributes:
        why: The finding.
        nearest: How it compares with the versions of the sources that are nearest.
    """

    why: Finding
    nearest: Verdict | None = None


@dataclass(frozen=True)
class LegacyWrites:
    """What was committed to a legacy table after the version that its copy is pinned to.

    Attributes:
        batches: The newest batch of each old stream from which the migration goes on, by the query's id.
        first: The first version of these batches and of ``added``; None where there is none.
        others: The versions that others have made, the newest first, by what they call their operation.
        more: There are older ones that weren't looked at.
        added: Of a table that was taken over, those of ``others`` that added rows.
        mixed: The flows of the migration wrote after ``first``.
    """

    batches: Mapping[str, int] = field(default_factory=dict)
    first: int | None = None
    others: Mapping[str, Sequence[int]] = field(default_factory=dict)
    more: bool = False
    added: Mapping[str, Sequence[int]] = field(default_factory=dict)
    mixed: bool = False

    def __str__(self) -> str:
        """Name the others' commits, in a few words."""
        return self.named(self.others)

    def named(self, commits: Mapping[str, Sequence[int]]) -> str:
        """Name some commits, in a few words."""
        named = [
            f"{operation or 'a commit that its log tells no more of'} ({counted(len(versions), 'version')}, "
            f"the newest is {versions[0]})"
            for operation, versions in commits.items()
        ]
        return ", ".join(named) + (" and maybe others before" if self.more and named else "")


@dataclass(frozen=True)
class Facts:
    """Everything a decision is made from.

    Attributes:
        tables: Facts by `TableName.key`; None for a table that isn't there.
        stored: State by the target's key.
        orphans: Checkpoints of flows that the spec no longer has, by the target's key and the flow's name.
        adoptable: The one other pipeline's state by the target's key, where there is one.
        earlier: State folders of migrations of targets that the project doesn't have, by the legacy table's
            id.
        checkpoints: By the target's key and the flow's name.
        reads: What each flow follows, by the target's key and the flow's name.
        filled: Keys of targets that hold rows, asked only where no state is recorded.
        earliest: The oldest streamable version by table key, asked only where a stream is to start.
        rows: Row counts by table key, asked only where a source is read from its start.
        row_changes: The first commit after a flow's position that its stream stops at, by the target's key,
            the flow's name and the table's key.
        recorded: What is recorded of a table that flows fill, by its key; absent while there is none. Of a
            pipeline's tables only those that hold a copied history, and none while it is being defined.
        hand_overs: Where old jobs hand over, or why nobody knows, by the target's key; asked only of
            migrations that haven't started, and name checkpoints or are to be compared by content. The latter
            are absent where nothing is to start.
        legacy_writes: What was committed to a legacy table since its copy is pinned, or since it was taken
            over, by the target's key; of copies it's asked only for people.
        brokers: What the brokers hold of Kafka's topics, or why they can't be asked, by the key of the
            `Read`; asked only where a flow is to start from an old stream's offset.
        auto_loader: Whether Auto Loader exists where the flows run; asked only if a view reads by it.
        state: Where the state is, for messages.
    """

    tables: Mapping[str, TableFacts | None]
    stored: Mapping[str, TargetState]
    reads: Mapping[tuple[str, str], tuple[Read, ...]]
    checkpoints: Mapping[tuple[str, str], Checkpoint] = field(default_factory=dict)
    orphans: Mapping[str, Mapping[str, Checkpoint]] = field(default_factory=dict)
    adoptable: Mapping[str, TargetState] = field(default_factory=dict)
    earlier: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    filled: frozenset[str] = frozenset()
    earliest: Mapping[str, int] = field(default_factory=dict)
    rows: Mapping[str, int] = field(default_factory=dict)
    row_changes: Mapping[tuple[str, str, str], RowChanges] = field(default_factory=dict)
    recorded: Mapping[str, Recorded] = field(default_factory=dict)
    hand_overs: Mapping[str, HandOver | NoHandOver] = field(default_factory=dict)
    legacy_writes: Mapping[str, LegacyWrites] = field(default_factory=dict)
    brokers: Mapping[str, KafkaRange | Finding] = field(default_factory=dict)
    auto_loader: bool = True
    state: str = ""

    def follows(self, dataflow: DataFlow, flow: Flow) -> tuple[Read, ...]:
        """Return what a flow follows."""
        return self.reads.get((dataflow.key, flow.name), ())

    def needs(self, dataflow: DataFlow, flow: Flow) -> frozenset[str]:
        """Return the keys of the tables that a flow reads, those that it only looks up included."""
        return looked_up(dataflow.views, flow.view) | self.followed(dataflow, flow)

    def followed(self, dataflow: DataFlow, flow: Flow) -> frozenset[str]:
        """Return the keys of the tables that a flow follows."""
        return frozenset(read.table.key for read in self.follows(dataflow, flow))

    def in_order(self, into: Mapping[str, Sequence[tuple[DataFlow, Flow]]]) -> tuple[str, ...]:
        """Order tables so that each comes after those that the flows into it read.

        Where that goes in a circle, what is only looked up gives way; else they stay as they are.
        """
        for read in (self.needs, self.followed):
            needs = {
                key: frozenset(table for flow in flows for table in read(*flow)) & into.keys() - {key}
                for key, flows in into.items()
            }
            try:
                return tuple(TopologicalSorter(needs).static_order())
            except CycleError:
                continue
        return tuple(into)
