"""The steps of a plan, as data. ``str(step)`` is the step's line in a plan.

`engines.performer` performs the steps that change state; an `engines.port.Engine` performs the definitions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tableferry.errors import Finding
from tableferry.pipelines.model.flows import (
    CdcSettings,
    DataFlow,
    Expectation,
    Flow,
    HistorySource,
    MetadataColumn,
    Start,
    Target,
    View,
)
from tableferry.pipelines.model.identities import FlowSettings, TableIdentity
from tableferry.pipelines.model.phases import Action
from tableferry.pipelines.model.target_state import Baseline, MigrationStart
from tableferry.spark.tables import TableName


@dataclass(frozen=True)
class AdoptState:
    """Adopt the state that another pipeline recorded of this target."""

    target: TableName
    pipeline_id: str

    def __str__(self) -> str:
        return f"adopt the state of {self.target} from pipeline {self.pipeline_id}"


@dataclass(frozen=True)
class AdoptRenamedState:
    """Adopt the state of a target that was renamed.

    Attributes:
        folder: The name of the old target's state folders.
    """

    target: TableName
    folder: str

    def __str__(self) -> str:
        return f"rename the state in {self.folder} to that of {self.target}"


@dataclass(frozen=True)
class RecordStart:
    """Record the baselines and the pinned version, before the first row is copied."""

    migration_start: MigrationStart

    def __str__(self) -> str:
        start = self.migration_start
        sources = ", ".join(map(self._baseline, sorted(start.baselines.values())))
        copy = f"copy pinned to {start.copy.table}@{start.copy.version}"
        baselines = f"baselines {sources}" if sources else "no baselines"
        return f"record the start of {start.target}: {copy}, {baselines}"

    def _baseline(self, baseline: Baseline) -> str:
        if baseline.is_kafka:
            return f"{baseline.table} at {baseline.within}"
        part = f" and a part of {baseline.version + 1}" if baseline.within else ""
        return f"{baseline.table}@{baseline.version}{part}"


@dataclass(frozen=True)
class ResetTarget:
    """Drop the target's data and checkpoints, so that the same history is copied again.

    Attributes:
        target: The target.
        tables: The tables to empty: the target, its staging tables, and their event logs.
        generation: The generation that starts.
        run_once: Names of the run-once flows, by the key of the table that they fill.
    """

    target: TableName
    tables: tuple[TableName, ...]
    generation: int
    run_once: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"drop the data and checkpoints of {self.target}: {', '.join(map(str, self.tables))}"


@dataclass(frozen=True)
class RenameFlow:
    """Rename the checkpoint of a flow, so that the renamed flow continues from it."""

    target: TableName
    generation: int
    old: str
    new: str

    def __str__(self) -> str:
        return f"continue {self.new} of {self.target} from the checkpoint of {self.old}"


@dataclass(frozen=True)
class RemoveMigration:
    """Remove the state of a complete migration that the spec doesn't enable."""

    target: TableName

    def __str__(self) -> str:
        return f"remove the state files of {self.target}: its migration is over"


@dataclass(frozen=True)
class RecordTableIdentity:
    """Record the identity of a table that a pipeline fills, so that a recreated table is detected.

    Attributes:
        target: The target of the spec.
        generation: The target's generation.
        table: The table.
        identity: Its identity.
    """

    target: TableName
    generation: int
    table: TableName
    identity: TableIdentity

    def __str__(self) -> str:
        return f"record the identity of {self.table}"


@dataclass(frozen=True)
class RecordVersions:
    """Record up to which versions foreign writes to a CDC target and its event log were found consistent.

    Attributes:
        target: The target of the spec.
        generation: The target's generation.
        versions: The last checked versions, by the table's key.
    """

    target: TableName
    generation: int
    versions: Mapping[str, int]

    def __str__(self) -> str:
        checked = ", ".join(f"{key}@{version}" for key, version in sorted(self.versions.items()))
        return f"record that rows removed by other processes are gone from both of {checked}"


@dataclass(frozen=True)
class DefineTable:
    """Create a streaming table unless it exists.

    Attributes:
        create: If False, the table must exist, because flows have filled it.
        history: The copied table and version, or empty.
    """

    target: Target
    create: bool = True
    history: str = ""

    def __str__(self) -> str:
        return f"create {self.target.name} unless it exists" if self.create else f"fill {self.target.name}"


@dataclass(frozen=True)
class DefineView:
    """Define a view.

    Attributes:
        owner: The target of the spec. Only flows of that spec can read the view.
        starts: The start of each stream, by `TableName.key`. A table without an entry is read from its start.
            None continues from a checkpoint and overrides the start in the user's options.
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
class SourceWait:
    """A flow waits until a source at version ``current`` has a commit after ``baseline``."""

    table: TableName
    why: Finding
    baseline: int | None = None
    current: int | None = None


@dataclass(frozen=True)
class BaselineEvents:
    """The events that the sources of a target contain up to the baselines.

    Attributes:
        until: The last version of each source, by `TableName.key`.
    """

    dataflow: DataFlow
    until: Mapping[str, int]


@dataclass(frozen=True)
class PlannedFlow:
    """A flow in a plan. All engines and a bundle's `src/migration` consume it; as a step it defines the flow.

    Attributes:
        flow: The flow in the spec, or the initial copy. In a `PipelinePlan` it has its names in the pipeline.
        table: The table that it fills.
        owner: The target of the spec, which owns the checkpoint.
        generation: The owner's generation.
        action: The run's action, see `phases.ACTIONS`.
        is_initial_copy: Whether it copies the legacy table.
        streamed: Whether it reads its view as a stream; otherwise as a batch of the rows that exist now.
        starts: The start of each stream, by view and table key; None continues from the checkpoint.
        starts_ahead: The start of a source has no commit yet.
        start_offset: The offset of its fresh checkpoint, as Spark writes it; empty if ``starts`` apply.
        unrecorded_settings: The settings to record before the first rows; None if they are recorded.
        baseline_events: The events that contain the sequences of copied rows; None if these aren't available.
    """

    flow: Flow
    table: Target
    owner: TableName
    generation: int
    action: Action
    is_initial_copy: bool = False
    streamed: bool = True
    starts: Mapping[str, Mapping[str, Start | None]] = field(default_factory=dict)
    waits: tuple[SourceWait, ...] = ()
    starts_ahead: bool = False
    start_offset: str = ""
    unrecorded_settings: FlowSettings | None = None
    baseline_events: BaselineEvents | None = None

    @property
    def is_running(self) -> bool:
        """Whether the run starts or continues it."""
        return self.action in ("start", "continue")

    @property
    def name(self) -> str:
        """The name of the flow."""
        return self.flow.name

    @property
    def target(self) -> TableName:
        """The name of the table that it fills."""
        return self.flow.target

    @property
    def location(self) -> str:
        """Its place in the spec, for messages."""
        return self.flow.location

    @property
    def once(self) -> bool:
        """Whether it is a run-once flow. A full refresh runs it again."""
        return self.flow.once

    @property
    def spark_conf(self) -> Mapping[str, str]:
        """Spark settings of the flow."""
        return self.table.spark_conf

    @property
    def cdc(self) -> CdcSettings | None:
        """The AUTO CDC settings; None for an append flow."""
        return self.table.cdc if self.flow.kind == "cdc" else None

    @property
    def expectations(self) -> tuple[Expectation, ...]:
        """Data quality rules; none for the initial copy, which is compared instead."""
        return () if self.is_initial_copy else self.table.expectations

    @property
    def metadata(self) -> tuple[MetadataColumn, ...]:
        """Operational metadata columns; none for the initial copy, which copies those columns."""
        return () if self.is_initial_copy else self.table.metadata

    def __str__(self) -> str:
        once = ", once" if self.once else ""
        if self.cdc:
            return f"apply {self.flow.view} to {self.target} as SCD type {self.cdc.scd_type}{once}"
        return f"append {self.flow.view} to {self.target}{once}"


@dataclass(frozen=True)
class DefineSnapshots:
    """Apply snapshots to a target as AUTO CDC does. The owner is the target of the spec."""

    target: Target
    owner: TableName

    def __str__(self) -> str:
        snapshots = self.target.snapshots
        assert snapshots is not None
        source = snapshots.source if isinstance(snapshots.source, str) else "historical snapshots"
        return f"apply {source} to {self.target.name} as SCD type {snapshots.scd_type}"


StateStep = (
    AdoptState
    | AdoptRenamedState
    | RecordStart
    | ResetTarget
    | RenameFlow
    | RemoveMigration
    | RecordTableIdentity
    | RecordVersions
)
Definition = DefineTable | DefineView | DefineSnapshots | PlannedFlow
Step = StateStep | Definition
