"""A fake of a pipeline on Databricks: the flows that its event log reports as completed."""

from __future__ import annotations

from tableferry.pipelines.model.facts import Checkpoint
from tableferry.pipelines.planning.pipeline_port import (
    FlowCheckpoints,
    FlowNames,
    PipelineKind,
    StartTimes,
)


class FakePipeline:
    """A pipeline on Databricks whose event log reports that these flows have completed.

    ``since`` records the ``starts`` of each call.
    """

    kind: PipelineKind = "databricks"

    def __init__(self, *flows: str) -> None:
        self.flows = flows
        self.since: list[StartTimes] = []

    def read_progress(self, flows: FlowNames, starts: StartTimes) -> FlowCheckpoints:
        self.since.append(starts)
        return {
            (owner.key, flow): Checkpoint(done=True, has_untracked_sources=True, offered=0, committed=0)
            if flow in self.flows
            else Checkpoint()
            for owner, flow in flows
        }
