"""The declarative pipeline that runs the flows of a plan, as planning needs it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

from tableferry.pipelines.model.facts import Checkpoint
from tableferry.spark.tables import TableName

PipelineKind = Literal["databricks", "declarative"]


FlowNames = Collection[tuple[TableName, str]]
"""Flows by the spec's own target and their name in the spec."""


FlowCheckpoints = Mapping[tuple[str, str], Checkpoint]
"""How far flows are, by the target's key and their name in the spec."""


StartTimes = Mapping[str, datetime]
"""When targets' migrations started, by the target's key; what their flows did before doesn't count."""


NO_START_TIMES: StartTimes = {}


class Pipeline(Protocol):
    """A declarative pipeline."""

    @property
    def kind(self) -> PipelineKind:
        """Which engine defines its flows."""

    def progress(self, flows: FlowNames, starts: StartTimes = NO_START_TIMES) -> FlowCheckpoints:
        """Say how far flows are; those that nobody can ask about now aren't named."""


@dataclass(frozen=True)
class LoadingPipeline:
    """A pipeline whose source files are being loaded, and that can't be asked anything meanwhile."""

    kind: PipelineKind

    def progress(self, flows: FlowNames, starts: StartTimes = NO_START_TIMES) -> FlowCheckpoints:
        """Know nothing."""
        return {}
