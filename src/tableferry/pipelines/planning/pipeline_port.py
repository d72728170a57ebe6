"""The interface of the declarative pipeline that runs the flows of a plan."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

from tableferry.pipelines.model.facts import Checkpoint
from tableferry.spark.tables import TableName

PipelineKind = Literal["databricks", "declarative"]

FlowNames = Collection[tuple[TableName, str]]
"""Flows, each by the target of its spec and its name in the spec."""

FlowCheckpoints = Mapping[tuple[str, str], Checkpoint]
"""The checkpoints of flows, by the key of the spec's target and the flow's name in the spec."""

StartTimes = Mapping[str, datetime]
"""The start times of migrations, by the target's key; earlier updates of their flows don't count."""


class Pipeline(Protocol):
    """A declarative pipeline."""

    @property
    def kind(self) -> PipelineKind:
        """The engine that defines its flows."""

    def read_progress(self, flows: FlowNames, starts: StartTimes) -> FlowCheckpoints:
        """Return the checkpoints of flows; a flow whose progress is unknown is missing from the result."""


@dataclass(frozen=True)
class LoadingPipeline:
    """A pipeline that is loading its source files, and can't report the progress of its flows until then."""

    kind: PipelineKind

    def read_progress(self, flows: FlowNames, starts: StartTimes) -> FlowCheckpoints:
        """Return nothing, because the progress of every flow is unknown."""
        return {}
