"""Declarative pipelines as what runs a plan's flows: how far those are is asked of the pipeline."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal, Protocol

from tableferry import workspace
from tableferry.pipelines import checkpoints, events
from tableferry.pipelines.configuration import Configuration, read
from tableferry.pipelines.graph import flow_name
from tableferry.pipelines.plans import Checkpoint
from tableferry.spark.tables import TableName

Kind = Literal["databricks", "declarative"]
Flows = Collection[tuple[TableName, str]]
"""Flows by the spec's own target and their name in the spec."""
Progress = Mapping[tuple[str, str], Checkpoint]
"""How far flows are, by the target's key and their name in the spec."""
Starts = Mapping[str, datetime]
"""When targets' migrations started, by the target's key; what their flows did before doesn't count."""

NO_STARTS: Starts = {}
# The start was noted by another clock than the events.
_CLOCKS_DIFFER = timedelta(minutes=5)


class Pipeline(Protocol):
    """A declarative pipeline."""

    @property
    def kind(self) -> Kind:
        """Which engine defines its flows."""

    def progress(self, flows: Flows, starts: Starts = NO_STARTS) -> Progress:
        """Say how far flows are; those that nobody can ask about now aren't named."""


@dataclass(frozen=True)
class Defining:
    """A pipeline whose source files are being loaded, and that can't be asked anything meanwhile."""

    kind: Kind

    def progress(self, flows: Flows, starts: Starts = NO_STARTS) -> Progress:
        """Know nothing."""
        return {}


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


@dataclass(frozen=True)
class DatabricksPipeline:
    """A pipeline on Databricks, whose event log says which of its flows have run.

    Attributes:
        pipeline_id: Its id in the workspace.
    """

    pipeline_id: str
    kind: Kind = "databricks"

    def configuration(self) -> Configuration:
        """Ask the workspace which project the pipeline defines.

        Raises:
            SessionError: There is no login, or the workspace doesn't answer.
            TableferryError: There is no such pipeline, or it names no project.
        """
        with workspace.request(f"pipeline {self.pipeline_id} can't be read") as client:
            specification = client.pipelines.get(self.pipeline_id).spec
        settings = (specification.configuration if specification else None) or {}
        return read(settings.get)

    def drop(self, table: TableName) -> None:
        """Drop a table of Unity Catalog if it's there; the pipeline's catalog and schema complete its name.

        Raises:
            SessionError: There is no login, or the workspace doesn't answer.
            TableferryError: It may not be dropped.
        """
        what = f"{table}, which only a copy has read, can't be dropped"
        with workspace.request(what, passing="missing") as client:
            home = client.pipelines.get(self.pipeline_id).spec
            names = (home.catalog, home.schema or home.target) if home else ()
            client.tables.delete(".".join([*filter(None, names[: 3 - len(table.parts)]), *table.parts]))

    def progress(self, flows: Flows, starts: Starts = NO_STARTS) -> Progress:
        """Look for each flow's newest event that says that it has committed a batch.

        A flow that has completed is done; one that has brought rows in a continuous update has started.

        Raises:
            SessionError: There is no login, or the workspace doesn't answer.
            TableferryError: There is no such pipeline, or its events may not be read.
        """
        names = {flow_name(flow, owner): (owner.key, flow) for owner, flow in flows}
        since = {name: starts[key] - _CLOCKS_DIFFER for name, (key, _) in names.items() if key in starts}
        ran = events.flow_events(self.pipeline_id, names, counts=lambda event: event.committed, since=since)
        progress = dict.fromkeys(names.values(), Checkpoint())
        for name, event in ran.items():
            done = event.status == events.COMPLETED
            progress[names[name]] = Checkpoint(done=done, others=True, offered=0, committed=0)
        return progress
