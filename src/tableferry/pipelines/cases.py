"""One target while it is decided: what is known of it, and what was found so far."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tableferry.pipelines.flows import DataFlow, Flow
from tableferry.pipelines.plans import Checkpoint, Facts, Request
from tableferry.pipelines.reads import Read
from tableferry.pipelines.state import Stored
from tableferry.pipelines.steps import Step
from tableferry.tables import TableName


@dataclass
class Case:
    """One target while it is decided.

    Attributes:
        dataflow: Its spec.
        dataflows: All specs of the project, each behind those whose targets it reads.
        producers: The spec that makes a table, by the table's key.
        facts: What is known.
        request: What is asked for.
        filling: Keys of the tables into which this run brings rows, those of earlier targets included.
        stored: Its state, as it will be once it is adopted.
        steps: What the run will do, so far.
        notes: What a careful reader should know, so far.
        refusals: Why it can't go on, so far.
    """

    dataflow: DataFlow
    dataflows: Sequence[DataFlow]
    producers: Mapping[str, DataFlow]
    facts: Facts
    request: Request
    filling: set[str]
    stored: Stored
    steps: list[Step] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)

    @property
    def name(self) -> TableName:
        """The target."""
        return self.dataflow.target.name

    @property
    def live(self) -> tuple[Flow, ...]:
        """Its flows that run for as long as commits arrive."""
        return self.dataflow.live

    @property
    def copied(self) -> bool:
        """Whether the generation on disk holds the whole copied history."""
        return self.stored.copied and not self.stored.resetting

    @property
    def started(self) -> bool:
        """Whether every live flow has finished a batch."""
        return all(self.checkpoint(flow).started for flow in self.live)

    def follows(self, flow: Flow) -> tuple[Read, ...]:
        """Return what one of its flows follows."""
        return self.facts.follows(self.dataflow, flow)

    def reads(self) -> Iterable[Read]:
        """Return what its live flows follow."""
        return (read for flow in self.live for read in self.follows(flow))

    def makes(self, read: Read) -> bool:
        """Say whether its own spec makes a table: all its rows are new, for its own sources are tracked."""
        return self.producers.get(read.table.key) is self.dataflow

    def checkpoint(self, flow: Flow) -> Checkpoint:
        """Return a flow's checkpoint, under whichever name it has one."""
        found = self.facts.checkpoints.get((self.name.key, flow.name), Checkpoint())
        return found if found != Checkpoint() else self.renamed(flow)[1]

    def checkpoint_ids(self) -> frozenset[str]:
        """Return the ids of all checkpoints that are there, also of flows that the spec no longer has."""
        mine = [one for (owner, _), one in self.facts.checkpoints.items() if owner == self.name.key]
        return frozenset(one.id for one in [*mine, *self.facts.orphans.get(self.name.key, {}).values()])

    def renamed(self, flow: Flow) -> tuple[str, Checkpoint]:
        """Find the checkpoint that a flow had under a name that the spec no longer has.

        It has read the same tables. A start of the user's own means a new flow.
        """
        nothing = ("", Checkpoint())
        reads = self.follows(flow)
        ids = {source.table_id for read in reads if (source := self.facts.tables.get(read.table.key))}
        if len(ids) != len({read.table.key for read in reads}) or any(
            read.explicit is not None for read in reads
        ):
            return nothing
        orphans = self.facts.orphans.get(self.name.key, {})
        found = [
            (name, one)
            for name, one in orphans.items()
            if one.offsets and (one.offsets.keys() == ids or (one.others and one.offsets.keys() < ids))
        ]
        if len(found) > 1:
            self.refusals.append(
                f"{flow.place}: {flow.name} is new, and {' and '.join(name for name, _ in found)}, which "
                "the spec no longer has, read the same tables: give the flow the name of the one that it "
                "continues"
            )
        return found[0] if len(found) == 1 else nothing
