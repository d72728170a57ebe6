"""The tables, views and flows that a bundle's `src/migration` defines in its pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tableferry.pipelines.model.flows import (
    PythonSource,
    ReaderSource,
    Source,
    Start,
    Target,
    View,
)
from tableferry.pipelines.model.steps import PlannedFlow
from tableferry.pipelines.sources import views

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class PipelineTable:
    """A streaming table of the pipeline.

    Attributes:
        name: Its name in the pipeline.
        arguments: Further arguments of ``create_streaming_table``; None omits an argument.
        location: Its place in the spec, for messages.
    """

    name: str
    arguments: Mapping[str, Any]
    location: str


@dataclass(frozen=True)
class PipelineView:
    """A view that the pipeline's flows read.

    Attributes:
        name: Its name in the pipeline.
        source: Its source, with the reader options in the spec.
        location: Its place in the spec, for messages.
        streamed: Whether flows read it as a stream; otherwise as a batch of the rows that exist now.
        starts: The start of its streams, by `TableName.key`. With None, the flow's checkpoint decides, even
            if the reader options contain a start. A missing table is read from its first version.
        inside: Whether it reads tables or views of the pipeline, so that only the pipeline can build it.
        folders: The folders of Delta tables that are read with options, by `TableName.key`.
    """

    name: str
    source: Source
    location: str
    streamed: bool = True
    starts: Mapping[str, Start | None] = field(default_factory=dict)
    inside: bool = False
    folders: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class PipelineMaterializedView:
    """A materialized view of the pipeline.

    Attributes:
        table: Its name in the pipeline and its arguments.
        view: The name of the view whose rows it stores.
        target: Its data quality rules and operational metadata columns.
    """

    table: PipelineTable
    view: str
    target: Target


@dataclass(frozen=True)
class PipelinePlan:
    """Everything that a pipeline defines in its next update.

    Attributes:
        flows: The flows that run, with the names of flows and views in the pipeline. A flow's name identifies
            its checkpoint.
        snapshots: The tables that AUTO CDC fills from snapshots: those of a view under its name in the
            pipeline, or historical ones.
    """

    tables: tuple[PipelineTable, ...]
    views: tuple[PipelineView, ...]
    flows: tuple[PlannedFlow, ...]
    snapshots: tuple[Target, ...] = ()
    materialized: tuple[PipelineMaterializedView, ...] = ()

    @property
    def has_update_id_column(self) -> bool:
        """Whether an operational metadata column contains the id of the update that wrote a row."""
        columns = [column for flow in self.flows for column in flow.metadata]
        columns += [column for view in self.materialized for column in view.target.metadata]
        return any(inner.detail == "update_id" for column in columns for inner in (column, *column.fields))


def read(spark: SparkSession, view: PipelineView) -> DataFrame:
    """Return the rows of a view, with its reader options, as a stream if `PipelineView.streamed`.

    A start in `PipelineView.starts` replaces the start of Kafka, and sets that of a reader without a start in
    a Python function. For Delta sources the bundle puts it into the reader options.

    Raises:
        TableferryError: The source can't be read; the message names the view's place in the spec.
    """
    inner = View(view.name, "stream", view.source, view.location)
    starts = {view.name: view.starts} if isinstance(view.source, PythonSource | ReaderSource) else {}
    reader = views.ViewReader(
        spark,
        {view.name: inner},
        starts,
        as_batch=not view.streamed,
        folders=view.folders,
        analyze=not view.inside,
    )
    return reader.read(view.name)
