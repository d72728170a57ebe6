"""Declarative pipelines as what runs a plan's flows: how far those are is asked of the pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from tableferry import workspace
from tableferry.pipelines.engines.databricks import event_log
from tableferry.pipelines.engines.declarative.configuration import Configuration, read
from tableferry.pipelines.engines.declarative.graph import flow_name
from tableferry.pipelines.model.facts import Checkpoint
from tableferry.pipelines.planning.pipeline_port import NO_STARTS, Flows, Kind, Progress, Starts
from tableferry.spark.tables import TableName

# The start was noted by another clock than the events.
_CLOCKS_DIFFER = timedelta(minutes=5)


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
        ran = event_log.flow_events(
            self.pipeline_id, names, counts=lambda event: event.committed, since=since
        )
        progress = dict.fromkeys(names.values(), Checkpoint())
        for name, event in ran.items():
            done = event.status == event_log.COMPLETED
            progress[names[name]] = Checkpoint(done=done, others=True, offered=0, committed=0)
        return progress
