"""The tables, views and flows of a plan under their names in a declarative pipeline.

All specs of a project share one pipeline, so names must be unique, and special characters need backticks. A
view keeps its name in the spec unless two specs use that name. A flow's name always contains its target's
name: the pipeline finds the flow's checkpoint by the name, so other specs must not influence it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tableferry.errors import TableError
from tableferry.pipelines.engines.declarative.plan import (
    PipelineMaterializedView,
    PipelinePlan,
    PipelineTable,
    PipelineView,
)
from tableferry.pipelines.model import sql
from tableferry.pipelines.model.flows import (
    HISTORY_VIEW,
    DeltaSource,
    HistorySource,
    MaterializedView,
    Project,
    SqlSource,
    Target,
)
from tableferry.pipelines.model.reads import list_input_table_keys
from tableferry.pipelines.model.steps import (
    DefineSnapshots,
    DefineTable,
    DefineView,
    PlannedFlow,
)
from tableferry.pipelines.sources import views
from tableferry.pipelines.sources.metadata_columns import add_target_columns
from tableferry.pipelines.sources.python_code import NO_ENTRIES
from tableferry.spark.quoting import identifier
from tableferry.spark.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


def flow_name(flow: str, owner: TableName) -> str:
    """Return a flow's name in the pipeline, which contains its target's name."""
    return f"{flow}__{_as_identifier_part(owner)}"


class PipelinePlanBuilder:
    """An engine that runs nothing and builds a `PipelinePlan` of the definitions.

    ``databricks`` distinguishes a pipeline on Databricks from an open-source one. ``folders`` are the folders
    of Delta tables that are read by path, by `TableName.key`.
    """

    def __init__(
        self,
        spark: SparkSession,
        project: Project,
        *,
        databricks: bool,
        folders: Mapping[str, str] = NO_ENTRIES,
    ) -> None:
        self._spark, self._databricks, self._folders = spark, databricks, folders
        self._conf = dict(project.spark_config)
        uses = Counter(name for dataflow in project.dataflows for name in dataflow.views)
        uses.update(name for view in project.materialized for name in view.views)
        self._ambiguous_names = {HISTORY_VIEW, *(name for name, count in uses.items() if count > 1)}
        # Tables that the pipeline creates, so that only its functions can read them.
        self._own_tables = {table.name.key for dataflow in project.dataflows for table in dataflow.tables}
        self._own_tables |= {view.target.name.key for view in project.materialized}
        self._definitions: dict[tuple[str, str], DefineView] = {}
        self._tables: list[PipelineTable] = []
        self._views: dict[str, PipelineView] = {}
        self._flows: list[PlannedFlow] = []
        self._snapshots: list[Target] = []
        self._materialized: list[PipelineMaterializedView] = []
        for view in project.materialized:
            self._add_materialized_view(view)

    @property
    def plan(self) -> PipelinePlan:
        """Everything that was defined."""
        return PipelinePlan(
            tuple(self._tables),
            tuple(self._views.values()),
            tuple(self._flows),
            tuple(self._snapshots),
            tuple(self._materialized),
        )

    def define_table(self, definition: DefineTable) -> None:
        """Add a streaming table.

        An open-source pipeline uses the format in ``spark.sql.sources.default``. With an explicit format,
        each second update fails with DELTA_CANNOT_CHANGE_PROVIDER.
        """
        self._tables.append(self._build_table(definition.target))

    def _build_table(self, target: Target) -> PipelineTable:
        arguments: dict[str, Any] = {
            "comment": target.comment,
            "table_properties": dict(target.properties) or None,
            "path": target.path,
            "partition_cols": list(target.partition_columns) or None,
            "cluster_by": list(target.cluster_columns) or None,
            "schema": self._read_schema(target),
            "row_filter": target.row_filter,
        }
        if self._databricks:
            arguments |= {
                "spark_conf": {**self._conf, **target.spark_conf} or None,
                "cluster_by_auto": target.cluster_auto or None,
            }
        return PipelineTable(identifier(*target.name.parts), arguments, f"{target.location}: {target.name}")

    def _read_schema(self, target: Target) -> StructType | None:
        """Read a table's schema file, and append the columns that Tableferry or AUTO CDC adds."""
        if target.schema_file is None:
            return None
        return add_target_columns(
            views.read_schema_file(self._spark, target.schema_file), target, has_intervals=True
        )

    def _add_materialized_view(self, view: MaterializedView) -> None:
        """Add a materialized view, and its quarantine: a view of the rows that break a rule."""
        owner = view.target.name
        for name, inner in view.views.items():
            self._definitions[owner.key, name] = DefineView(inner, owner)
        input_view = self._add_view(owner, view.view, as_batch=True)
        arguments: dict[str, Any] = {"refresh_policy": view.refresh_policy, "private": view.private or None}
        if not self._databricks:
            # The settings of a streaming table are passed to its flows instead.
            arguments["spark_conf"] = {**self._conf, **view.target.spark_conf} or None
        table = self._build_table(view.target)
        tables = [(replace(table, arguments={**table.arguments, **arguments}), view.target)]
        if view.quarantine:
            tables.append((self._build_table(view.quarantine), view.quarantine))
        self._materialized += [
            PipelineMaterializedView(table, input_view, target) for table, target in tables
        ]

    def define_snapshots(self, definition: DefineSnapshots) -> None:
        """Add a table that AUTO CDC fills from snapshots. Only Databricks runs such specs."""
        target, settings = definition.target, definition.target.snapshots
        assert settings is not None
        if isinstance(settings.source, str):
            view = self._add_view(definition.owner, settings.source, as_batch=True)
            target = replace(target, snapshots=replace(settings, source=view))
        self._snapshots.append(target)

    def define_view(self, definition: DefineView) -> None:
        """Store a view until a flow reads it."""
        self._definitions[definition.owner.key, definition.view.name] = definition

    def define_flow(self, flow: PlannedFlow) -> None:
        """Add a flow under its name in the pipeline, and the views that it reads.

        Raises:
            TableError: The columns that get a prefix are only known when the pipeline runs.
        """
        name, location = flow_name(flow.name, flow.owner), f"{flow.location}: {flow.name}"
        definition = self._definitions[flow.owner.key, flow.flow.view]
        if isinstance(definition.view.source, HistorySource):
            reads = identifier(f"rows_of_{name}")
            view = PipelineView(reads, definition.view.source, definition.view.location, flow.streamed)
            self._views[reads] = view
        else:
            reads = self._add_view(flow.owner, flow.flow.view, as_batch=not flow.streamed)
            if flow.flow.column_prefix and not self._databricks and self._views[reads].inside:
                raise TableError("PREFIX_OF_UNKNOWN_COLUMNS", location=location, view=flow.flow.view)
        # In an open-source pipeline, the history is a stream whose checkpoint prevents a second copy.
        once = flow.once and self._databricks
        named = replace(flow.flow, name=identifier(name), view=reads, once=once, location=location)
        # On Databricks, the table has the settings of its flows.
        settings = {} if self._databricks else {**self._conf, **flow.table.spark_conf}
        table = replace(flow.table, spark_conf=settings)
        self._flows.append(replace(flow, flow=named, table=table))

    def _add_view(self, owner: TableName, name: str, *, as_batch: bool) -> str:
        """Add a view and the views that it reads; return its name in the pipeline.

        With ``as_batch``, a streaming view is added a second time, as a batch over the rows that exist now.
        """
        definition = self._definitions[owner.key, name]
        view, source = definition.view, definition.view.source
        plain = f"{name}__{_as_identifier_part(owner)}" if name in self._ambiguous_names else name
        if as_batch and view.mode == "stream":
            plain += "__whole"
        qualified = identifier(plain)
        if qualified not in self._views:
            # The view is added before the views that it reads, because these may refer to it.
            self._views[qualified] = added = PipelineView(
                qualified,
                source,
                view.location,
                streamed=view.mode == "stream" and not as_batch,
                starts={} if as_batch else definition.starts,
                inside=bool(list_input_table_keys({name: view}, name) & self._own_tables),
                folders=self._folders,
            )
            if isinstance(source, SqlSource):
                statement = self._rewrite_statement(definition, source.statement, plain, as_batch=as_batch)
                # Only functions of the pipeline can read the views that the statement names.
                self._views[qualified] = replace(added, source=SqlSource(statement), inside=True)
        return qualified

    def _rewrite_statement(self, definition: DefineView, statement: str, view: str, *, as_batch: bool) -> str:
        """Replace the spec's views and the streamed tables in a statement by their names in the pipeline."""
        names: dict[sql.Reference, str] = {}
        for reference in sql.find_references(statement):
            inner = self._definitions.get((definition.owner.key, reference.parts[-1]))
            if len(reference.parts) == 1 and inner and inner is not definition:
                streamed = reference.streamed and not as_batch and inner.view.mode == "stream"
                names[reference] = self._add_view(definition.owner, inner.view.name, as_batch=not streamed)
            elif reference.streamed:
                streamed = not as_batch
                names[reference] = self._add_streamed_table(
                    definition, TableName(reference.parts), view, as_batch
                )
            else:
                continue
            if streamed:
                names[reference] = f"STREAM({names[reference]})"
        return sql.replace_references(statement, names)

    def _add_streamed_table(self, definition: DefineView, table: TableName, view: str, as_batch: bool) -> str:
        """Return the name of a table that SQL streams; add a view if the stream has a starting version."""
        if as_batch or definition.starts.get(table.key) is None:
            return table.sql
        name = identifier(f"{view}__{_as_identifier_part(table)}")
        self._views[name] = PipelineView(
            name,
            DeltaSource(table),
            definition.view.location,
            starts={table.key: definition.starts[table.key]},
            inside=table.key in self._own_tables,
            folders=self._folders,
        )
        return name


def _as_identifier_part(name: TableName) -> str:
    return re.sub(r"\W", "_", name.key)
