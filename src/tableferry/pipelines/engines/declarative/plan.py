"""What a pipeline has to define, as the bundle's src/migration gets it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tableferry.pipelines.model.flows import (
    CdcSettings,
    Expectation,
    Flow,
    MetadataColumn,
    OtherSource,
    PythonSource,
    SnapshotCdc,
    Source,
    View,
)
from tableferry.pipelines.model.steps import Start
from tableferry.pipelines.sources import views

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class PipelineTable:
    """A streaming table of the pipeline.

    Attributes:
        name: Its name in the pipeline.
        arguments: What ``create_streaming_table`` is given besides; None isn't given.
        location: Where the spec defines it, for messages.
    """

    name: str
    arguments: Mapping[str, Any]
    location: str


@dataclass(frozen=True)
class PipelineView:
    """An input of the pipeline's flows.

    Attributes:
        name: Its name in the pipeline.
        source: What it reads; its reader options are the user's own.
        location: Where the spec defines it, for messages.
        streamed: It's followed commit by commit; else what is there now is read.
        starts: Where its streams start, by `TableName.key`; a table that isn't named is read from its start,
            and None goes on from the flow's checkpoint, whatever start the user's own options name.
        inside: It reads what the pipeline makes, so that only a function of the pipeline can build it.
        folders: Folders of Delta tables by `TableName.key`: what is read with options is read from there.
    """

    name: str
    source: Source
    location: str
    streamed: bool = True
    starts: Mapping[str, Start | None] = field(default_factory=dict)
    inside: bool = False
    folders: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class PipelineFlow:
    """A flow of the pipeline: a view's rows or events into a table.

    Attributes:
        name: Its name in the pipeline, which keeps the flow's checkpoint under it.
        target: The table's name in the pipeline.
        view: The name of the view that it reads.
        rows: The name for a view of exactly what it brings, where `view` holds something else.
        location: Where the spec defines it, for messages.
        streamed: It reads the view as a stream.
        once: The pipeline runs it a single time, and again with a full refresh.
        history: It brings the copied history.
        cdc: How events become rows; None where rows are appended.
        expectations: Rules for what it brings; none for the history, which has passed its own gates.
        written: The flow as the spec has it.
        spark_conf: Settings of the flow's own, where the pipeline doesn't take them from its table.
        metadata: Operational metadata columns that its rows get; none for the history, which has its own.
    """

    name: str
    target: str
    view: str
    rows: str
    location: str
    streamed: bool
    once: bool
    history: bool
    cdc: CdcSettings | None
    expectations: tuple[Expectation, ...]
    written: Flow
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    metadata: tuple[MetadataColumn, ...] = ()


@dataclass(frozen=True)
class PipelineSnapshots:
    """A table of the pipeline that AUTO CDC fills from snapshots.

    Attributes:
        target: The table's name in the pipeline.
        settings: How snapshots become rows.
        view: The name of the view that is the newest snapshot; None where there are historical ones.
        location: Where the spec asks for it, for messages.
    """

    target: str
    settings: SnapshotCdc
    view: str | None
    location: str


@dataclass(frozen=True)
class PipelineMaterializedView:
    """A materialized view of the pipeline.

    Attributes:
        table: Its name in the pipeline, and what it's defined with.
        view: The name of the view that it holds.
        expectations: Rules for what it holds.
        metadata: Operational metadata columns that its rows get.
    """

    table: PipelineTable
    view: str
    expectations: tuple[Expectation, ...]
    metadata: tuple[MetadataColumn, ...]


@dataclass(frozen=True)
class PipelinePlan:
    """What a pipeline has to define now: tables, the views that flows read, and what fills the tables."""

    tables: tuple[PipelineTable, ...]
    views: tuple[PipelineView, ...]
    flows: tuple[PipelineFlow, ...]
    snapshots: tuple[PipelineSnapshots, ...] = ()
    materialized: tuple[PipelineMaterializedView, ...] = ()

    @property
    def wants_update_id(self) -> bool:
        """Whether a column says which update a row came with."""
        columns = [column for flow in self.flows for column in flow.metadata]
        columns += [column for view in self.materialized for column in view.metadata]
        return any(inner.detail == "update_id" for column in columns for inner in (column, *column.fields))


def read(spark: SparkSession, view: PipelineView) -> DataFrame:
    """Return the rows of a view's tables, files or Python function, with the reader options that it has now.

    Kafka is read from where its flow goes on, whatever these options say, and the readers in a Python
    function get their starts while the function runs.

    Raises:
        TableferryError: They can't be read; the message names the view's place in the spec.
    """
    inner = View(view.name, "stream", view.source, view.location)
    starts = {view.name: view.starts} if isinstance(view.source, PythonSource | OtherSource) else {}
    return views.read_view(
        spark,
        {view.name: inner},
        view.name,
        starts,
        as_batch=not view.streamed,
        folders=view.folders,
        analyze=not view.inside,
    )
