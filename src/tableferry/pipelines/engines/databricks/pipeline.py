"""A pipeline on Databricks: its configuration, and its flows' progress from its event log."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from tableferry import workspace
from tableferry.pipelines.engines.databricks import event_log
from tableferry.pipelines.engines.declarative.configuration import Configuration, read_configuration
from tableferry.pipelines.engines.declarative.plan_builder import flow_name
from tableferry.pipelines.model.facts import Checkpoint
from tableferry.pipelines.planning.pipeline_port import (
    FlowCheckpoints,
    FlowNames,
    PipelineKind,
    StartTimes,
)
from tableferry.spark.tables import TableName

# The start and the events were recorded by different clocks.
_CLOCKS_DIFFER = timedelta(minutes=5)


@dataclass(frozen=True)
class DatabricksPipeline:
    """A pipeline on Databricks, whose event log reports which of its flows have run.

    Attributes:
        pipeline_id: Its id in the workspace.
    """

    pipeline_id: str
    kind: PipelineKind = "databricks"

    def read_configuration(self) -> Configuration:
        """Read from the workspace which project the pipeline defines.

        Raises:
            SessionError: No login is configured, or the workspace doesn't answer.
            TableferryError: The pipeline is missing, or its configuration names no project.
        """
        with workspace.request(f"pipeline {self.pipeline_id} can't be read") as client:
            specification = client.pipelines.get(self.pipeline_id).spec
        settings = (specification.configuration if specification else None) or {}
        return read_configuration(settings.get)

    def drop_table(self, table: TableName) -> None:
        """Drop a table of Unity Catalog if it exists; the pipeline's catalog and schema complete its name.

        Raises:
            SessionError: No login is configured, or the workspace doesn't answer.
            TableferryError: The table may not be dropped.
        """
        problem = f"{table}, which only a copy has read, can't be dropped"
        with workspace.request(problem, passing="missing") as client:
            specification = client.pipelines.get(self.pipeline_id).spec
            names = (
                (specification.catalog, specification.schema or specification.target) if specification else ()
            )
            client.tables.delete(".".join([*filter(None, names[: 3 - len(table.parts)]), *table.parts]))

    def read_progress(self, flows: FlowNames, starts: StartTimes) -> FlowCheckpoints:
        """Find each flow's newest event that proves a committed batch.

        A flow that has completed is done; one that wrote rows in a continuous update has started.

        Raises:
            SessionError: No login is configured, or the workspace doesn't answer.
            TableferryError: The pipeline is missing, or its events may not be read.
        """
        names = {flow_name(flow, owner): (owner.key, flow) for owner, flow in flows}
        since = {name: starts[key] - _CLOCKS_DIFFER for name, (key, _) in names.items() if key in starts}
        events = event_log.find_newest_events(
            self.pipeline_id, names, is_relevant=lambda event: event.committed, since=since
        )
        progress = dict.fromkeys(names.values(), Checkpoint())
        for name, event in events.items():
            done = event.status == event_log.COMPLETED
            progress[names[name]] = Checkpoint(done=done, has_untracked_sources=True, offered=0, committed=0)
        return progress
