"""An open-source declarative pipeline as what runs a plan's flows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tableferry.pipelines.engines.declarative.graph import flow_name
from tableferry.pipelines.model.facts import Checkpoint
from tableferry.pipelines.planning.pipeline_port import NO_STARTS, Flows, Kind, Progress, Starts
from tableferry.pipelines.state import checkpoints


@dataclass(frozen=True)
class SparkPipeline:
    """An open-source pipeline, whose checkpoints lie in its storage.

    Attributes:
        storage: The folder that ``storage`` in its spark-pipeline.yml names.
    """

    storage: Path
    kind: Kind = "declarative"

    def progress(self, flows: Flows, starts: Starts = NO_STARTS) -> Progress:
        """Read the flows' newest checkpoints; a full refresh starts new ones.

        They lie in ``_checkpoints/<catalog>/<schema>/<table>/<flow>/<number>``.

        Raises:
            StateError: One can't be read.
        """
        progress = {}
        for owner, flow in flows:
            folders = (self.storage / "_checkpoints").glob(f"*/*/*/{flow_name(flow, owner)}/*")
            numbered = [folder for folder in folders if folder.name.isdigit()]
            newest = max(numbered, key=lambda folder: int(folder.name), default=None)
            progress[owner.key, flow] = Checkpoint() if newest is None else checkpoints.read(newest)
        return progress
