"""Progress of the flows of an open-source declarative pipeline, from its checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tableferry.pipelines.engines.declarative.plan_builder import flow_name
from tableferry.pipelines.model.facts import Checkpoint
from tableferry.pipelines.planning.pipeline_port import (
    FlowCheckpoints,
    FlowNames,
    PipelineKind,
    StartTimes,
)
from tableferry.pipelines.state import checkpoints


@dataclass(frozen=True)
class SparkPipeline:
    """An open-source pipeline, which keeps its checkpoints in its storage folder.

    Attributes:
        storage: The folder in ``storage`` of its spark-pipeline.yml.
    """

    storage: Path
    kind: PipelineKind = "declarative"

    def read_progress(self, flows: FlowNames, starts: StartTimes) -> FlowCheckpoints:
        """Read the newest checkpoint of each flow; a full refresh starts a new one.

        The path is ``_checkpoints/<catalog>/<schema>/<table>/<flow>/<number>``.

        Raises:
            StateError: A checkpoint can't be read.
        """
        progress = {}
        for owner, flow in flows:
            folders = (self.storage / "_checkpoints").glob(f"*/*/*/{flow_name(flow, owner)}/*")
            numbered = [folder for folder in folders if folder.name.isdigit()]
            newest = max(numbered, key=lambda folder: int(folder.name), default=None)
            progress[owner.key, flow] = Checkpoint() if newest is None else checkpoints.read(newest)
        return progress
