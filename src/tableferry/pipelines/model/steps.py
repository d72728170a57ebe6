"""The steps of a plan, as data. ``str(step)`` is the step's line in a plan.

`engines.performer` performs the steps that change state; an `engines.port.Engine` performs the definitions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tableferry.pipelines.model.flows import CdcSettings, DataFlow, Flow, HistorySource, Target, View
from tableferry.pipelines.model.identities import FlowSettings, TableIdentity
from tableferry.pipelines.model.target_state import Baseline, MigrationStart
from tableferry.spark.tables import TableName

Start = int | str
"""A starting version, ``latest``, or ``timestamp:…`` for a starting timestamp."""


@dataclass(frozen=True)
class Adopt:
    """Take over the state that another pipeline recorded of this target."""

    target: TableName
    pipeline_id: str

    def __str__(self) -> str:
        return f"adopt the state of {self.target} from pipeline {self.pipeline_id}"


@dataclass(frozen=True)
class AdoptRenamed:
    """Use the state of a migration whose target had another name.

    Attributes:
        folder: The name of the folders that its state is in.
    """

    target: TableName
    folder: str

    def __str__(self) -> str:
        return f"rename the state in {self.folder} to that of {self.target}"


@dataclass(frozen=True)
class RecordStart:
    """Record the baselines and the pinned copy, before the first row is copied."""

    migration_start: MigrationStart

    def __str__(self) -> str:
        start = self.migration_start
        sources = ", ".join(map(self._baseline, sorted(start.baselines.values())))
        copy = f"copy pinned to {start.copy.table}@{start.copy.version}"
        baselines = f"baselines {sources}" if sources else "no baselines"
        return f"record where {start.target} begins: {copy}, {baselines}"

    def _baseline(self, baseline: Baseline) -> str:
        if baseline.is_kafka:
            return f"{baseline.table} at {baseline.within}"
        part = f" and a part of {baseline.version + 1}" if baseline.within else ""
        return f"{baseline.table}@{baseline.version}{part}"


@dataclass(frozen=True)
class Reset:
    """Drop the target's data and checkpoints, so that the same history is rebuilt.

    Attributes:
        target: The target.
        tables: The tables that are emptied: it, its staging tables, and their logs of events.
        generation: The generation that starts.
        run_once: Names of the flows that run a single time, by the key of the table that they fill.
    """

    target: TableName
    tables: tuple[TableName, ...]
    generation: int
    run_once: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"drop the data and checkpoints of {self.target}: {', '.join(map(str, self.tables))}"


@dataclass(frozen=True)
class RenameFlow:
    """Let a flow go on from the checkpoint that it had under another name."""

    target: TableName
    generation: int
    old: str
    new: str

    def __str__(self) -> str:
        return f"let {self.new} of {self.target} go on from the checkpoint of {self.old}"


@dataclass(frozen=True)
class RemoveMigration:
    """Take out a migration that is complete and switched off."""

    target: TableName

    def __str__(self) -> str:
        return f"remove the state files of {self.target}: its migration is over"


@dataclass(frozen=True)
class RecordTableIdentity:
    """Record which table a pipeline fills, so that another one in its place is known for another.

    Attributes:
        target: The spec's own target.
        generation: The target's generation.
        table: The table.
        identity: What its rows rest on.
    """

    target: TableName
    generation: int
    table: TableName
    identity: TableIdentity

    def __str__(self) -> str:
        return f"record which table {self.table} is"


@dataclass(frozen=True)
class RecordVersions:
    """Record that what other processes wrote to a CDC target and its event log fits together.

    Attributes:
        target: The spec's own target.
        generation: The target's generation.
        versions: The versions up to which it was checked, by the table's key.
    """

    target: TableName
    generation: int
    versions: Mapping[str, int]

    def __str__(self) -> str:
        checked = ", ".join(f"{key}@{version}" for key, version in sorted(self.versions.items()))
        return f"record that rows removed by other processes are gone from both of {checked}"


@dataclass(frozen=True)
class DefineTable:
    """Make sure that a streaming table is there.

    Attributes:
        create: It may be made; else it must be there, for flows have filled it already.
        history: The table and version whose history it holds, or will; empty for none.
    """

    target: Target
    create: bool = True
    history: str = ""

    def __str__(self) -> str:
        return f"create {self.target.name} unless it's there" if self.create else f"fill {self.target.name}"


@dataclass(frozen=True)
class DefineView:
    """Name an input.

    Attributes:
        owner: The spec's own target; a view's name is known to the flows of its spec alone.
        starts: Where its streams start, by `TableName.key`; a table that isn't named is read from its start,
            and None goes on from a checkpoint, whatever start the user's own options name.
        once: Only a run-once flow reads it.
    """

    view: View
    owner: TableName
    starts: Mapping[str, Start | None] = field(default_factory=dict)
    once: bool = False

    def __str__(self) -> str:
        source = self.view.source
        if isinstance(source, HistorySource):
            return f"read {self.view.name}: {source.migration.table} as of version {source.version}"
        if self.once or self.view.mode == "batch":
            return f"read {self.view.name} whole"
        starts = (
            f" from {key}@{'checkpoint' if start is None else start}"
            for key, start in sorted(self.starts.items())
        )
        return f"read {self.view.name}" + ("".join(starts) or " from the start")


@dataclass(frozen=True)
class DefineAppend:
    """Append a view's rows to the target.

    Attributes:
        owner: The spec's own target, to which the checkpoint belongs.
        generation: The owner's generation.
        identify: Record this of the flow before it brings rows; None where that is done.
        ahead: It starts where one of its sources has no commit yet.
        seed: The offset that its fresh checkpoint is to begin at, as Spark writes it.
    """

    flow: Flow
    owner: TableName
    generation: int
    once: bool = False
    identify: FlowSettings | None = None
    ahead: bool = False
    seed: str = ""

    def __str__(self) -> str:
        how = ", once" if self.once else ""
        return f"append {self.flow.view} to {self.flow.target}{how}"


@dataclass(frozen=True)
class EventsBefore:
    """The events that a target's flows made of their sources up to the baselines.

    Attributes:
        until: The last version of each source, by `TableName.key`.
    """

    dataflow: DataFlow
    until: Mapping[str, int]


@dataclass(frozen=True)
class DefineAutoCdc:
    """Apply a view's events to the target as AUTO CDC does; most fields mean what `DefineAppend`'s do.

    Attributes:
        events_before: What tells the sequences of copied rows that have none; None where that isn't known.
    """

    flow: Flow
    owner: TableName
    generation: int
    settings: CdcSettings
    once: bool = False
    identify: FlowSettings | None = None
    ahead: bool = False
    seed: str = ""
    events_before: EventsBefore | None = None

    def __str__(self) -> str:
        kind = f"SCD type {self.settings.scd_type}" + (", once" if self.once else "")
        return f"apply {self.flow.view} to {self.flow.target} as {kind}"


@dataclass(frozen=True)
class DefineSnapshots:
    """Take a table's snapshots, which are compared with what it holds; the owner is the spec's own target."""

    target: Target
    owner: TableName

    def __str__(self) -> str:
        snapshots = self.target.snapshots
        assert snapshots is not None
        what = snapshots.source if isinstance(snapshots.source, str) else "historical snapshots"
        return f"apply {what} to {self.target.name} as SCD type {snapshots.scd_type}"


StateStep = (
    Adopt
    | AdoptRenamed
    | RecordStart
    | Reset
    | RenameFlow
    | RemoveMigration
    | RecordTableIdentity
    | RecordVersions
)
FlowDefinition = DefineAppend | DefineAutoCdc
Definition = DefineTable | DefineView | DefineSnapshots | FlowDefinition
Step = StateStep | Definition
