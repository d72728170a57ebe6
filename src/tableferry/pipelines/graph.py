"""A plan as a declarative pipeline has it: its tables, views and flows under the pipeline's own names.

In a pipeline a name is everyone's. A view keeps its spec's name unless another spec of the project has one
like it; a flow's name always carries its target's, for the pipeline keeps the flow's checkpoint under it and
a name that hung on the other specs would lose it. What a function of a pipeline returns is only built, never
run, and it may neither name a temporary view nor change a setting.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tableferry.errors import TableError
from tableferry.pipelines import sql, views
from tableferry.pipelines.decide import NO_CDC, NO_ONCE
from tableferry.pipelines.flows import (
    CdcSettings,
    DeltaSource,
    Expectation,
    Flow,
    HistorySource,
    Project,
    PythonSource,
    Source,
    SqlSource,
    Target,
    View,
)
from tableferry.pipelines.plans import HISTORY_VIEW
from tableferry.pipelines.python_code import NOWHERE
from tableferry.pipelines.reads import looked_up
from tableferry.pipelines.steps import (
    DefineAppend,
    DefineAutoCdc,
    DefineTable,
    DefineView,
    FlowDefinition,
    Start,
)
from tableferry.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class PipelineTable:
    """A streaming table of the pipeline.

    Attributes:
        name: Its name in the pipeline.
        arguments: What ``create_streaming_table`` is given besides; None isn't given.
        place: Where the spec defines it, for messages.
    """

    name: str
    arguments: Mapping[str, Any]
    place: str


@dataclass(frozen=True)
class PipelineView:
    """An input of the pipeline's flows.

    Attributes:
        name: Its name in the pipeline.
        source: What it reads; its reader options are the user's own.
        place: Where the spec defines it, for messages.
        streamed: It's followed commit by commit; else what is there now is read.
        starts: Where its streams start, by `TableName.key`; a table that isn't named is read from its start,
            and None goes on from the flow's checkpoint, whatever start the user's own options name.
        inside: It reads what the pipeline makes, so that only a function of the pipeline can build it.
        folders: Folders of Delta tables by `TableName.key`: what is read with options is read from there.
    """

    name: str
    source: Source
    place: str
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
        place: Where the spec defines it, for messages.
        streamed: It reads the view as a stream.
        once: The pipeline runs it a single time, and again with a full refresh.
        history: It brings the copied history.
        cdc: How events become rows; None where rows are appended.
        expectations: Rules for what it brings; none for the history, which has passed its own gates.
        written: The flow as the spec has it.
        spark_conf: Settings of the flow's own, where the pipeline doesn't take them from its table.
    """

    name: str
    target: str
    view: str
    place: str
    streamed: bool
    once: bool
    history: bool
    cdc: CdcSettings | None
    expectations: tuple[Expectation, ...]
    written: Flow
    spark_conf: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class PipelinePlan:
    """What a pipeline has to define now: tables, the views that flows read, and the flows."""

    tables: tuple[PipelineTable, ...]
    views: tuple[PipelineView, ...]
    flows: tuple[PipelineFlow, ...]


def flow_name(flow: str, owner: TableName) -> str:
    """Return a flow's name in the pipeline: its own and its target's."""
    return f"{flow}__{_word(owner)}"


def call(function: Callable[..., Any], place: str, **arguments: Any) -> Any:
    """Call a function of the pipeline's API with what it knows; an argument of None isn't given.

    Args:
        function: The function, or a decorator.
        place: Where the spec asks for it, for messages.
        arguments: Its arguments.

    Raises:
        TableError: The runtime's function lacks one of the arguments.
    """
    given = {name: value for name, value in arguments.items() if value is not None}
    lacking = [name for name in given if not takes(function, name)]
    if lacking:
        raise TableError(
            f"{place} needs {' and '.join(lacking)}, which {function.__name__} of this runtime doesn't have: "
            "take it out of the spec, or run it on a newer runtime or with the streaming engine"
        )
    return function(**given)


def takes(function: Callable[..., Any], name: str) -> bool:
    """Say whether a function has an argument of that name."""
    parameters = inspect.signature(function).parameters
    return name in parameters or any(
        parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()
    )


def read(spark: SparkSession, view: PipelineView) -> DataFrame:
    """Return the rows of a view's tables, files or Python function, with the reader options that it has now.

    The readers in a Python function get their starts while the function runs.

    Raises:
        TableferryError: They can't be read; the message names the view's place in the spec.
    """
    inner = View(view.name, "stream", view.source, view.place)
    starts = {view.name: view.starts} if isinstance(view.source, PythonSource) else {}
    return views.read(
        spark,
        {view.name: inner},
        view.name,
        starts,
        once=not view.streamed,
        folders=view.folders,
        asked=not view.inside,
    )


class Layout:
    """An engine that runs nothing: what is defined on it gets the names that it has in a pipeline.

    Args:
        spark: Where schema files are read.
        project: What is defined.
        databricks: The pipeline is one on Databricks, not one of Spark's own.
        folders: Folders of Delta tables that are read by path, by `TableName.key`.
    """

    def __init__(
        self, spark: SparkSession, project: Project, *, databricks: bool, folders: Mapping[str, str] = NOWHERE
    ) -> None:
        self._spark, self._databricks, self._folders = spark, databricks, folders
        self._conf = dict(project.spark_config)
        names = [name for dataflow in project.dataflows for name in dataflow.views]
        self._shared = {HISTORY_VIEW, *(name for name in names if names.count(name) > 1)}
        # The tables that only the pipeline's functions can read.
        self._made = {table.name.key for dataflow in project.dataflows for table in dataflow.tables}
        self._targets: dict[str, Target] = {}
        self._definitions: dict[tuple[str, str], DefineView] = {}
        self._tables: list[PipelineTable] = []
        self._views: dict[str, PipelineView] = {}
        self._flows: list[PipelineFlow] = []

    @property
    def plan(self) -> PipelinePlan:
        """All that was defined."""
        return PipelinePlan(tuple(self._tables), tuple(self._views.values()), tuple(self._flows))

    def table(self, definition: DefineTable) -> None:
        """Take up a streaming table.

        In a pipeline of Spark's own its format is that of ``spark.sql.sources.default``: naming the format
        makes every second update fail with DELTA_CANNOT_CHANGE_PROVIDER.
        """
        target = definition.target
        self._targets[target.name.key] = target
        file = target.schema_file
        arguments: dict[str, Any] = {
            "comment": target.comment,
            "table_properties": dict(target.properties) or None,
            "path": target.path,
            "partition_cols": list(target.partition_columns) or None,
            "cluster_by": list(target.cluster_columns) or None,
            "schema": views.schema_of(self._spark, file) if file else None,
            "row_filter": target.row_filter,
        }
        if self._databricks:
            arguments |= {
                "spark_conf": {**self._conf, **target.spark_conf} or None,
                "cluster_by_auto": target.cluster_auto or None,
            }
        place = f"{target.place}: {target.name}"
        self._tables.append(PipelineTable(str(target.name), arguments, place))

    def view(self, definition: DefineView) -> None:
        """Remember an input until a flow reads it."""
        self._definitions[definition.owner.key, definition.view.name] = definition

    def append(self, definition: DefineAppend) -> None:
        """Take up a flow that appends."""
        self._flows.append(self._flow(definition, None))

    def cdc(self, definition: DefineAutoCdc) -> None:
        """Take up an AUTO CDC flow.

        Raises:
            TableError: A pipeline of Spark's own can't have it, which `decide` has found before.
        """
        if not self._databricks:
            raise TableError(f"{definition.flow.place}: {definition.flow.target} {NO_CDC}")
        self._flows.append(self._flow(definition, definition.settings))

    def _flow(self, definition: FlowDefinition, cdc: CdcSettings | None) -> PipelineFlow:
        flow, owner = definition.flow, definition.owner
        target = self._targets[flow.target.key]
        view = self._definitions[owner.key, flow.view].view
        name, place = flow_name(flow.name, owner), f"{flow.place}: {flow.name}"
        history = isinstance(view.source, HistorySource)
        if isinstance(view.source, HistorySource):
            streamed = view.source.clone is not None
            reads = f"rows_of_{name}"
            self._views[reads] = PipelineView(reads, view.source, view.place, streamed)
        else:
            if definition.once and not self._databricks:
                raise TableError(f"{place} {NO_ONCE}")
            streamed = not definition.once and view.mode == "stream"
            reads = self._named(owner, flow.view, whole=not streamed)
            if flow.column_prefix and not self._databricks and self._views[reads].inside:
                raise TableError(
                    f"{place} has a column_prefix, and what {flow.view} has for columns only shows once the "
                    "pipeline runs: give the columns their names in the view itself"
                )
        return PipelineFlow(
            name,
            str(flow.target),
            reads,
            place,
            streamed,
            # In a pipeline of Spark's own the checkpoint of a stream that ends makes it once.
            once=definition.once and self._databricks,
            history=history,
            cdc=cdc,
            expectations=() if history else target.expectations,
            written=flow,
            spark_conf={} if self._databricks else {**self._conf, **target.spark_conf},
        )

    def _named(self, owner: TableName, name: str, *, whole: bool) -> str:
        """Take up a view, and those behind it; return its name in the pipeline.

        Args:
            owner: Whose view it is.
            name: Its name in the spec.
            whole: What is there now is wanted, also of a stream.
        """
        definition = self._definitions[owner.key, name]
        view, source = definition.view, definition.view.source
        qualified = f"{name}__{_word(owner)}" if name in self._shared else name
        if whole and view.mode == "stream":
            qualified += "__whole"
        if qualified not in self._views:
            # Before what it names, for views may name each other in a circle.
            self._views[qualified] = laid = PipelineView(
                qualified,
                source,
                view.place,
                streamed=view.mode == "stream" and not whole,
                starts={} if whole else definition.starts,
                inside=bool(looked_up({name: view}, name) & self._made),
                folders=self._folders,
            )
            if isinstance(source, SqlSource):
                statement = self._statement(definition, source.statement, qualified, whole=whole)
                # It names other views of the pipeline, which only its functions know.
                self._views[qualified] = replace(laid, source=SqlSource(statement), inside=True)
        return qualified

    def _statement(self, definition: DefineView, statement: str, qualified: str, *, whole: bool) -> str:
        """Put the pipeline's names into a statement in place of the spec's views and of what it streams."""
        names: dict[sql.Reference, str] = {}
        for reference in sql.references(statement):
            inner = self._definitions.get((definition.owner.key, reference.parts[-1]))
            if len(reference.parts) == 1 and inner and inner is not definition:
                followed = reference.streamed and not whole and inner.view.mode == "stream"
                names[reference] = self._named(definition.owner, inner.view.name, whole=not followed)
            elif reference.streamed:
                followed = not whole
                names[reference] = self._followed(definition, TableName(reference.parts), qualified, whole)
            else:
                continue
            if followed:
                names[reference] = f"STREAM({names[reference]})"
        return sql.renamed(statement, names)

    def _followed(self, definition: DefineView, table: TableName, qualified: str, whole: bool) -> str:
        """Name a table that SQL streams; where it must start somewhere, that takes a view of its own."""
        if whole or definition.starts.get(table.key) is None:
            return table.sql
        name = f"{qualified}__{_word(table)}"
        self._views[name] = PipelineView(
            name,
            DeltaSource(table),
            definition.view.place,
            starts={table.key: definition.starts[table.key]},
            inside=table.key in self._made,
            folders=self._folders,
        )
        return name


def _word(name: TableName) -> str:
    return re.sub(r"\W", "_", name.key)
