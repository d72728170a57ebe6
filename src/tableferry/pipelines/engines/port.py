"""The interface of an engine: it receives a plan's tables, views and flows, and runs them later.

`testing.RecordingEngine` records the definitions for tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, assert_never

from tableferry.pipelines.model.steps import (
    DefineSnapshots,
    DefineTable,
    DefineView,
    Definition,
    PlannedFlow,
)

EffectHook = Callable[[str], None]
"""Called with a description right before each effect; an exception prevents the effect."""


@dataclass(frozen=True)
class FlowResult:
    """The result of a flow in one run.

    Attributes:
        rows: The number of rows that its commits added to the target, or for AUTO CDC of events that they
            added to the target's log; None if commits have no metrics
            (``spark.databricks.delta.history.metricsEnabled``).
        violations: How many of the rows that it read violate each expectation that warns or drops.
    """

    flow: PlannedFlow
    rows: int | None
    violations: Mapping[str, int] = field(default_factory=dict)


class Engine(Protocol):
    """An engine, with one method for each kind of definition."""

    def define_view(self, definition: DefineView) -> None:
        """Define a view that flows read."""

    def define_table(self, definition: DefineTable) -> None:
        """Define a streaming table."""

    def define_flow(self, flow: PlannedFlow) -> None:
        """Define an append flow or an AUTO CDC flow, which runs once or as commits arrive."""

    def define_snapshots(self, definition: DefineSnapshots) -> None:
        """Define an AUTO CDC FROM SNAPSHOT flow into a table."""


class RunnableEngine(Engine, Protocol):
    """An engine that also runs the flows."""

    def run(self, on_result: Callable[[FlowResult], None]) -> None:
        """Run every flow once; call ``on_result`` after each flow, before the next one."""


def apply_definitions(definitions: Iterable[Definition], engine: Engine) -> None:
    """Call the engine's method for each definition, in order; nothing runs yet."""
    for definition in definitions:
        match definition:
            case DefineTable():
                engine.define_table(definition)
            case DefineView():
                engine.define_view(definition)
            case PlannedFlow():
                engine.define_flow(definition)
            case DefineSnapshots():
                engine.define_snapshots(definition)
            case _:
                assert_never(definition)
