"""What a plan is made from and what it says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from tableferry.errors import Finding
from tableferry.pipelines.model.facts import LegacyWrites
from tableferry.pipelines.model.flows import DataFlow, Flow, HistorySource, Project
from tableferry.pipelines.model.phases import Action, Phase
from tableferry.pipelines.model.steps import DefineView, Definition, Start, StateStep, Step
from tableferry.pipelines.model.target_state import MigrationStart, TargetState
from tableferry.spark.tables import TableName
from tableferry.verify import Verdict

EngineKind = Literal["streaming", "databricks", "declarative"]
"""What runs a plan's flows: Tableferry itself, a pipeline on Databricks, or one of Spark's own."""

LookBack = int | datetime
"""With how many moments of its sources a legacy table is compared at most, or with those since which time."""

LOOK_BACK = 100
"""With how many it's compared unless the user says it."""

HISTORY_VIEW = "v_tableferry_history"
HISTORY_FLOW = "f_tableferry_history"


def pinned_name(target: TableName) -> TableName:
    """Name the clone of the legacy table that the copy into a target streams."""
    return TableName((*target.parts[:-1], f"{target.table}__tableferry_pinned"))


@dataclass(frozen=True)
class SourceWait:
    """A source that keeps a flow out: it stands at ``current`` and must move past ``baseline``."""

    table: TableName
    baseline: int | None
    current: int | None
    why: Finding


@dataclass(frozen=True)
class PlannedFlow:
    """What happens to one flow.

    Attributes:
        action: What the run does with it: `phases.ACTIONS` explains the values.
        starts: Where its streams start, by view and table key; None goes on from the checkpoint.
        ahead: A start is ahead of its source, which has no commit there yet.
        seed: The offset, as Spark writes it, that its fresh checkpoint begins at; empty where ``starts`` say
            where it begins.
    """

    flow: Flow
    action: Action
    starts: Mapping[str, Mapping[str, Start | None]] = field(default_factory=dict)
    waits: tuple[SourceWait, ...] = ()
    ahead: bool = False
    seed: str = ""


@dataclass(frozen=True)
class TargetPlan:
    """What happens to one target, and why.

    Attributes:
        steps: What the run does, in order; empty if nothing is to do.
        notes: What a careful reader should know.
        warnings: What the user should do something about, while the run continues.
        refusals: Why it can't continue.
        migration_start: Its baselines, recorded or about to be.
        state: Its state as found.
        copy: The history is copied in this run.
        generation: The generation that its flows fill.
        legacy_writes: What its legacy table was given since the copy is pinned; None where nobody asked.
        nearest: How its legacy table compares with the nearest versions of the sources, where none is the
            hand-over point.
    """

    dataflow: DataFlow
    phase: Phase
    steps: tuple[Step, ...] = ()
    flows: tuple[PlannedFlow, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[Finding, ...] = ()
    refusals: tuple[Finding, ...] = ()
    migration_start: MigrationStart | None = None
    state: TargetState = field(default_factory=TargetState)
    copy: bool = False
    generation: int = 0
    legacy_writes: LegacyWrites | None = None
    nearest: Verdict | None = None

    @property
    def target(self) -> TableName:
        """The table that it fills."""
        return self.dataflow.target.name

    @property
    def history(self) -> HistorySource | None:
        """What its history is copied from, once that is pinned; None without a migration."""
        migration, start, cdc = self.dataflow.migration, self.migration_start, self.dataflow.target.cdc
        return HistorySource(migration, start.copy.version, cdc) if migration and start else None

    @property
    def copied_from(self) -> HistorySource | None:
        """What its history is copied from in this run; None where it isn't copied."""
        return self.history if self.copy else None

    @property
    def clone(self) -> TableName | None:
        """The clone that its copy streams; None where it reads the legacy table itself, or there is none."""
        sources = (step.view.source for step in self.steps if isinstance(step, DefineView))
        return next((source.clone for source in sources if isinstance(source, HistorySource)), None)

    @property
    def state_steps(self) -> tuple[StateStep, ...]:
        """The steps that change only what Tableferry remembers, or drop data for a full refresh."""
        return tuple(step for step in self.steps if isinstance(step, StateStep))

    @property
    def definitions(self) -> tuple[Definition, ...]:
        """The steps that define tables, views and flows on an engine."""
        return tuple(step for step in self.steps if isinstance(step, Definition))

    @property
    def waits(self) -> tuple[SourceWait, ...]:
        """Everything that its flows wait for, each once."""
        return tuple(dict.fromkeys(wait for flow in self.flows for wait in flow.waits))


@dataclass(frozen=True)
class Plan:
    """What one run of a project does: its targets in the order in which they are filled.

    Attributes:
        pipeline_id: The pipeline whose state is used.
        engine: What runs the flows.
    """

    project: Project
    pipeline_id: str
    targets: tuple[TargetPlan, ...]
    engine: EngineKind = "streaming"

    @property
    def in_pipeline(self) -> bool:
        """Whether a declarative pipeline runs the flows."""
        return self.engine != "streaming"

    @property
    def refusals(self) -> tuple[Finding, ...]:
        """Why the run is refused as a whole; empty if it may go on."""
        return tuple(refusal for target in self.targets for refusal in target.refusals)

    @property
    def steps(self) -> tuple[Step, ...]:
        """All steps in the order in which they are performed: what is remembered first."""
        state_steps = [step for target in self.targets for step in target.state_steps]
        return (*state_steps, *(step for target in self.targets for step in target.definitions))


@dataclass(frozen=True)
class Request:
    """How a plan is asked for.

    Attributes:
        pipeline_id: The pipeline under whose id state is recorded.
        full_refresh: Keys of the targets to rebuild.
        adopt: Take over state that another pipeline recorded.
        only: Keys of the targets to plan; empty means all.
        drop_history: Rebuild finished migrations too, whose history doesn't come back.
        through_connect: A Spark Connect client is to run the flows.
    """

    pipeline_id: str
    now: datetime
    full_refresh: frozenset[str] = frozenset()
    adopt: bool = False
    only: frozenset[str] = frozenset()
    engine: EngineKind = "streaming"
    drop_history: bool = False
    through_connect: bool = False

    @property
    def in_pipeline(self) -> bool:
        """Whether a declarative pipeline runs the flows, keeps their checkpoints and refreshes in full."""
        return self.engine != "streaming"
