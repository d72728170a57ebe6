"""The input of the planning functions for one target (facts and request) and their output (findings)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tableferry.errors import Finding
from tableferry.errors.catalogue import conditions
from tableferry.pipelines.model import topics
from tableferry.pipelines.model.facts import Checkpoint, Facts
from tableferry.pipelines.model.flows import RESET_ALLOWED, DataFlow, Flow, Migration, Target, View
from tableferry.pipelines.model.identities import TableEvidence
from tableferry.pipelines.model.plan import PlanRequest
from tableferry.pipelines.model.reads import Read
from tableferry.pipelines.model.steps import Step
from tableferry.pipelines.model.target_state import Baseline, MigrationStart, TargetState
from tableferry.spark.tables import TableName


@dataclass(frozen=True)
class Findings:
    """The steps, notes, warnings and refusals that planning functions return, in the order of the checks."""

    steps: tuple[Step, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[Finding, ...] = ()
    refusals: tuple[Finding, ...] = ()

    def __add__(self, later: Findings) -> Findings:
        """Append the findings of a later check."""
        return Findings(
            self.steps + later.steps,
            self.notes + later.notes,
            self.warnings + later.warnings,
            self.refusals + later.refusals,
        )

    def __bool__(self) -> bool:
        """Return whether any step, note, warning or refusal was found."""
        return bool(self.steps or self.notes or self.warnings or self.refusals)


def plan_steps(*steps: Step) -> Findings:
    """Return steps that the run will perform."""
    return Findings(steps=steps)


def add_note(note: str) -> Findings:
    """Return a fact that the user should know and that needs no action."""
    return Findings(notes=(note,))


def refuse_all(refusals: Iterable[Finding]) -> Findings:
    """Return conditions that stop the target."""
    return Findings(refusals=tuple(refusals))


_Part = Target | Flow | View | Read | Migration


@dataclass(frozen=True)
class PlanningContext:
    """The facts, the request and the earlier decisions from which one target is planned.

    Attributes:
        dataflows: All specs of the project, ordered: a spec follows the specs whose targets it reads.
        producers: The spec that fills a table, by the table's key.
        filling: Keys of the tables to which this run writes, among the targets planned up to now.
        stored: Its state; an adopted state counts as its own.
        migration_start: The start of its migration, or None until it's planned.
        generation: The generation that its flows fill; each full refresh starts another one.
    """

    dataflow: DataFlow
    dataflows: Sequence[DataFlow]
    producers: Mapping[str, DataFlow]
    facts: Facts
    request: PlanRequest
    filling: frozenset[str]
    stored: TargetState
    migration_start: MigrationStart | None = None
    generation: int = 0

    @property
    def target(self) -> TableName:
        """The name of the table that is planned."""
        return self.dataflow.target.name

    @property
    def migration(self) -> Migration | None:
        """Its migration; None if the spec has no migration or the migration is finished."""
        return None if self.stored.finished else self.dataflow.migration

    @property
    def is_refreshed(self) -> bool:
        """Whether the request names it for a full refresh."""
        return self.target.key in self.request.full_refresh

    @property
    def is_copied(self) -> bool:
        """Whether the stored generation contains the whole initial copy."""
        return self.stored.copied and not self.stored.resetting

    @property
    def needs_copy(self) -> bool:
        """Whether this run, or the pipeline, performs the initial copy."""
        if self.migration is None or self.migration.take_over:
            return False
        return not (self.is_copied and self.generation == self.stored.generation)

    @property
    def fills_new_generation(self) -> bool:
        """Whether its flows fill another generation than the stored one, and start without checkpoints."""
        return self.generation != self.stored.generation or self.stored.resetting

    @property
    def rebuild_advice(self) -> str:
        """How to fill the target again, with its history: by a full refresh of the run or of its pipeline."""
        if not self.request.in_pipeline:
            return f"rebuild it with --full-refresh {self.target}"
        return (
            f'remove "tables" from the state.json of {self.target} under {self.facts.state}/checkpoints and '
            "refresh it in full in its pipeline, for which its tableProperties must set "
            f"{RESET_ALLOWED} to true"
        )

    def finding(self, condition: str, /, **about: object) -> Finding:
        """Return a finding about the target, or about parts of its spec.

        A part of the spec in ``about`` counts as its name, and the first one also gives the location. The
        parameters ``target``, ``file``, ``state`` and ``advice`` (to rebuild the target) are known.
        """
        known: dict[str, object] = {
            "target": self.target,
            "file": self.dataflow.file,
            "state": self.facts.state,
            "advice": self.rebuild_advice,
            "location": next((part.location for part in about.values() if isinstance(part, _Part)), None),
            "how": next((part.start_remedy for part in about.values() if isinstance(part, Read)), None),
            **{name: _name_part(value) for name, value in about.items()},
        }
        needed = known.keys() & conditions()[condition].parameters
        return Finding(condition, **{name: value for name, value in known.items() if name in needed})

    def refuse(self, condition: str, /, **about: object) -> Findings:
        """Return a `finding` that stops the target."""
        return refuse_all([self.finding(condition, **about)])

    def warn(self, condition: str, /, **about: object) -> Findings:
        """Return a `finding` that the user should resolve, although the target continues."""
        return Findings(warnings=(self.finding(condition, **about),))

    def find_baseline(self, read: Read) -> Baseline | None:
        """Return the recorded baseline of a source, or None."""
        return self.migration_start.baselines.get(read.table.key) if self.migration_start else None

    def list_recorded_tables(self) -> Iterator[tuple[Target, TableEvidence]]:
        """Yield the tables that its flows fill, each with its recorded identity."""
        for table in self.dataflow.tables:
            if recorded := self.facts.table_evidence.get(table.name.key):
                yield table, recorded

    def list_reads(self, flow: Flow) -> tuple[Read, ...]:
        """Return the sources that one of its flows streams from."""
        return self.facts.streamed_reads(self.dataflow, flow)

    def find_table(self, flow: Flow) -> Target:
        """Return the table of the spec that a flow fills."""
        return next(table for table in self.dataflow.tables if table.name.key == flow.target.key)

    def list_all_reads(self) -> Iterable[Read]:
        """Return the sources of all its streaming flows."""
        return (read for flow in self.dataflow.streaming_flows for read in self.list_reads(flow))

    def list_readers(self) -> Iterable[DataFlow]:
        """Return the other specs whose flows stream from the target without an explicit start."""
        return (
            reader
            for reader in self.dataflows
            if reader is not self.dataflow
            and any(
                read.table.key == self.target.key and read.explicit is None
                for flow in reader.streaming_flows
                for read in self.facts.streamed_reads(reader, flow)
            )
        )

    def is_own_table(self, read: Read) -> bool:
        """Return whether the target's own spec fills a table, all of whose rows are then new."""
        return self.producers.get(read.table.key) is self.dataflow

    def find_checkpoint(self, flow: Flow) -> Checkpoint:
        """Return the checkpoint of a flow, under its own name or the name that it had before a rename."""
        return self._find_own_checkpoint(flow) or next(iter(self._find_renamed(flow).values()), Checkpoint())

    def list_checkpoint_ids(self) -> frozenset[str]:
        """Return the ids of all checkpoints, including those of flows that were removed from the spec."""
        own = (
            checkpoint
            for (owner, _), checkpoint in self.facts.checkpoints.items()
            if owner == self.target.key
        )
        return frozenset(checkpoint.id for checkpoint in (*own, *self._orphans.values()))

    def find_old_name(self, flow: Flow) -> str:
        """Return the earlier name of a renamed flow; empty for a flow with its own checkpoint or none."""
        return next(iter(self._find_renamed(flow)), "")

    def check_ambiguous_rename(self, flow: Flow) -> Findings:
        """Refuse a flow that could resume from more than one checkpoint of removed flows."""
        candidates = self._find_candidates(flow)
        if len(candidates) < 2:
            return Findings()
        return self.refuse("RENAMED_FLOW_AMBIGUOUS", flow=flow, candidates=[*candidates])

    def check_repeated_read(self, flow: Flow) -> Findings:
        """Refuse a flow whose explicit start precedes the position of a removed flow on the same source."""
        if self._find_own_checkpoint(flow):
            return Findings()
        findings = Findings()
        for read in self.list_reads(flow):
            source = self.facts.tables.get(read.table.key)
            if not source or read.explicit is None:
                continue
            for name, checkpoint in self._orphans.items():
                offset = checkpoint.offsets.get(source.table_id)
                if offset is None or (isinstance(read.explicit, int) and offset.is_before(read.explicit)):
                    continue
                last = offset.version - 1 if offset.whole else offset.version
                later = f" or start {flow.name} at version {offset.version} or later" if offset.whole else ""
                findings += self.refuse(
                    "RENAMED_FLOW_READS_AGAIN",
                    flow=flow,
                    start=read.explicit,
                    table=read,
                    old=name,
                    last=last,
                    later=later,
                )
        return findings

    @property
    def _orphans(self) -> Mapping[str, Checkpoint]:
        return self.facts.orphaned_checkpoints.get(self.target.key, {})

    def _find_own_checkpoint(self, flow: Flow) -> Checkpoint | None:
        checkpoint = self.facts.checkpoints.get((self.target.key, flow.name))
        return None if checkpoint == Checkpoint() else checkpoint

    def _find_renamed(self, flow: Flow) -> Mapping[str, Checkpoint]:
        candidates = self._find_candidates(flow)
        return candidates if len(candidates) == 1 else {}

    def _find_candidates(self, flow: Flow) -> Mapping[str, Checkpoint]:
        """Find the checkpoints of removed flows from which a flow without a checkpoint can resume.

        Such a checkpoint has read the same sources. An explicit start marks a flow as new.
        """
        if self._find_own_checkpoint(flow):
            return {}
        reads = self.list_reads(flow)
        ids = {source.table_id for read in reads if (source := self.facts.tables.get(read.table.key))}
        kafka = [read.kafka for read in reads if read.kafka is not None]
        if len(ids) + len(kafka) != len({read.table.key for read in reads}) or any(
            read.explicit is not None for read in reads
        ):
            return {}
        return {
            name: checkpoint
            for name, checkpoint in self._orphans.items()
            if (checkpoint.offsets or checkpoint.kafka)
            and (
                checkpoint.offsets.keys() == ids
                or (checkpoint.has_untracked_sources and checkpoint.offsets.keys() < ids)
            )
            and _has_read_topics(checkpoint, kafka)
        }


def _name_part(value: object) -> object:
    """Return the name of a part of the spec; any other value as it is."""
    match value:
        case Target() | Flow() | View():
            return value.name
        case Read() | Migration():
            return value.table
        case _:
            return value


def _has_read_topics(checkpoint: Checkpoint, kafka: Sequence[Mapping[str, str]]) -> bool:
    """Return whether a checkpoint's topics are those to which readers with these options subscribe."""
    return len(checkpoint.kafka) == len(kafka) and all(
        any(topics.is_subscribed(options, offset) for options in kafka)
        for offset in checkpoint.kafka.values()
    )
