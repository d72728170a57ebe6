"""The plan of a run: targets, flows, steps and findings."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from tableferry.errors import Finding
from tableferry.pipelines.model.facts import LegacyWrites
from tableferry.pipelines.model.flows import DataFlow, HistorySource, Project
from tableferry.pipelines.model.phases import Phase
from tableferry.pipelines.model.steps import (
    DefineView,
    Definition,
    PlannedFlow,
    SourceWait,
    StateStep,
    Step,
)
from tableferry.pipelines.model.target_state import MigrationStart, TargetState
from tableferry.spark.tables import TableName
from tableferry.verify import Verdict

EngineKind = Literal["streaming", "databricks", "declarative"]
"""The engine of the flows: Tableferry, a pipeline on Databricks, or a pipeline of Apache Spark."""

LookBack = int | datetime
"""The limit of a content comparison: the number of source versions, or the time of the oldest one."""

DEFAULT_LOOK_BACK = 100
"""The default number of source versions."""


def pinned_clone_name(target: TableName) -> TableName:
    """Return the name of the clone that the initial copy streams."""
    return TableName((*target.parts[:-1], f"{target.table}__tableferry_pinned"))


@dataclass(frozen=True)
class TargetPlan:
    """A target in a plan.

    Attributes:
        steps: The steps of the run, in order.
        notes: Additional information.
        warnings: Findings that need an action of the user, but don't prevent the run.
        refusals: Findings that prevent the run.
        migration_start: The baselines, recorded or about to be recorded.
        state: The recorded state before the run.
        copy: The run copies the history.
        generation: The generation that its flows fill.
        legacy_writes: Commits to the legacy table after the pinned version; None if they weren't read.
        nearest: The comparison of the legacy table with the nearest source versions, if no hand-over point
            was found.
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
        """The name of the target."""
        return self.dataflow.target.name

    @property
    def history(self) -> HistorySource | None:
        """The source of its copied history; None before it is pinned, and without a migration."""
        migration, start, cdc = self.dataflow.migration, self.migration_start, self.dataflow.target.cdc
        return HistorySource(migration, start.copy.version, cdc) if migration and start else None

    @property
    def copied_history(self) -> HistorySource | None:
        """The source of the history that this run copies, or None."""
        return self.history if self.copy else None

    @property
    def clone(self) -> TableName | None:
        """The clone that its copy streams, or None."""
        sources = (step.view.source for step in self.steps if isinstance(step, DefineView))
        return next((source.clone for source in sources if isinstance(source, HistorySource)), None)

    @property
    def state_steps(self) -> tuple[StateStep, ...]:
        """The steps that change the recorded state, or drop data for a full refresh."""
        return tuple(step for step in self.steps if isinstance(step, StateStep))

    @property
    def definitions(self) -> tuple[Definition, ...]:
        """The steps that define tables, views and flows on an engine."""
        return tuple(step for step in self.steps if isinstance(step, Definition))

    @property
    def waits(self) -> tuple[SourceWait, ...]:
        """The distinct waits of its flows."""
        return tuple(dict.fromkeys(wait for flow in self.flows for wait in flow.waits))


@dataclass(frozen=True)
class Plan:
    """The plan of one run of a project.

    Attributes:
        pipeline_id: The id under which state is recorded.
        targets: The targets in the order in which they are filled.
        engine: The engine of the flows.
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
        """The findings that prevent the run."""
        return tuple(refusal for target in self.targets for refusal in target.refusals)

    @property
    def steps(self) -> tuple[Step, ...]:
        """All steps in the order in which they are performed: the state steps first."""
        state_steps = [step for target in self.targets for step in target.state_steps]
        return (*state_steps, *(step for target in self.targets for step in target.definitions))


@dataclass(frozen=True)
class PlanRequest:
    """The options of a plan.

    Attributes:
        pipeline_id: The id under which state is recorded.
        full_refresh: Keys of the targets to rebuild.
        adopt: Adopt state that another pipeline, or a target that was renamed, recorded.
        only: Keys of the targets to plan; empty means all.
        drop_history: Rebuild also finished migrations, without their copied history.
        through_connect: A Spark Connect client runs the flows.
        look_back: The limit of the comparison of a legacy table with source versions. With 0, no rows are
            compared.
    """

    pipeline_id: str
    now: datetime
    full_refresh: frozenset[str] = frozenset()
    adopt: bool = False
    only: frozenset[str] = frozenset()
    engine: EngineKind = "streaming"
    drop_history: bool = False
    through_connect: bool = False
    look_back: LookBack = 0

    @property
    def in_pipeline(self) -> bool:
        """Whether a declarative pipeline runs the flows, keeps their checkpoints and refreshes in full."""
        return self.engine != "streaming"
