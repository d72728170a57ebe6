"""A plan as a declarative pipeline has it: its tables, views and flows under the pipeline's own names.

In a pipeline a name is everyone's, and an identifier as in SQL: what isn't plain stands in backticks. A view
keeps its spec's name unless another spec of the project has one like it; a flow's name always carries its
target's, for the pipeline keeps the flow's checkpoint under it and a name that hung on the other specs would
lose it. What a function of a pipeline returns is only built, never
run, and it may neither name a temporary view nor change a setting.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tableferry.errors import Refused, TableError
from tableferry.pipelines.engines.declarative.plan import (
    PipelineFlow,
    PipelineMaterializedView,
    PipelinePlan,
    PipelineSnapshots,
    PipelineTable,
    PipelineView,
)
from tableferry.pipelines.model import sql
from tableferry.pipelines.model.flows import (
    CdcSettings,
    DeltaSource,
    HistorySource,
    MaterializedView,
    Project,
    SqlSource,
    Target,
)
from tableferry.pipelines.model.plan import HISTORY_VIEW
from tableferry.pipelines.model.reads import looked_up
from tableferry.pipelines.model.steps import (
    DefineAppend,
    DefineAutoCdc,
    DefineSnapshots,
    DefineTable,
    DefineView,
    FlowDefinition,
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
    """Return a flow's name in the pipeline: its own and its target's."""
    return f"{flow}__{_word(owner)}"


class Layout:
    """An engine that runs nothing: what is defined on it gets the names that it has in a pipeline.

    ``databricks`` means that the pipeline is one on Databricks, not one of Spark's own; ``folders`` are those
    of the Delta tables that are read by path, by `TableName.key`.
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
        names = [name for dataflow in project.dataflows for name in dataflow.views]
        names += [name for view in project.materialized for name in view.views]
        self._shared = {HISTORY_VIEW, *(name for name in names if names.count(name) > 1)}
        # The tables that only the pipeline's functions can read.
        self._made = {table.name.key for dataflow in project.dataflows for table in dataflow.tables}
        self._made |= {view.target.name.key for view in project.materialized}
        self._targets: dict[str, Target] = {}
        self._definitions: dict[tuple[str, str], DefineView] = {}
        self._tables: list[PipelineTable] = []
        self._views: dict[str, PipelineView] = {}
        self._flows: list[PipelineFlow] = []
        self._snapshots: list[PipelineSnapshots] = []
        self._materialized: list[PipelineMaterializedView] = []
        for view in project.materialized:
            self._materialize(view)

    @property
    def plan(self) -> PipelinePlan:
        """All that was defined."""
        return PipelinePlan(
            tuple(self._tables),
            tuple(self._views.values()),
            tuple(self._flows),
            tuple(self._snapshots),
            tuple(self._materialized),
        )

    def table(self, definition: DefineTable) -> None:
        """Take up a streaming table.

        In a pipeline of Spark's own its format is that of ``spark.sql.sources.default``: naming the format
        makes every second update fail with DELTA_CANNOT_CHANGE_PROVIDER.
        """
        self._targets[definition.target.name.key] = definition.target
        self._tables.append(self._laid_out(definition.target))

    def _laid_out(self, target: Target) -> PipelineTable:
        arguments: dict[str, Any] = {
            "comment": target.comment,
            "table_properties": dict(target.properties) or None,
            "path": target.path,
            "partition_cols": list(target.partition_columns) or None,
            "cluster_by": list(target.cluster_columns) or None,
            "schema": self._schema(target),
            "row_filter": target.row_filter,
        }
        if self._databricks:
            arguments |= {
                "spark_conf": {**self._conf, **target.spark_conf} or None,
                "cluster_by_auto": target.cluster_auto or None,
            }
        return PipelineTable(identifier(*target.name.parts), arguments, f"{target.location}: {target.name}")

    def _schema(self, target: Target) -> StructType | None:
        """Read a table's schema file, and add the columns that the table has besides."""
        if target.schema_file is None:
            return None
        return add_target_columns(
            views.read_schema_file(self._spark, target.schema_file), target, has_intervals=True
        )

    def _materialize(self, view: MaterializedView) -> None:
        """Take up a materialized view, and the one of the rows of it that break a rule."""
        owner = view.target.name
        for name, inner in view.views.items():
            self._definitions[owner.key, name] = DefineView(inner, owner)
        reads = self._named(owner, view.view, whole=True)
        laid = self._laid_out(view.target)
        how: dict[str, Any] = {"refresh_policy": view.refresh_policy, "private": view.private or None}
        if not self._databricks:
            # Of a streaming table, its flows have them.
            how["spark_conf"] = {**self._conf, **view.target.spark_conf} or None
        laid = replace(laid, arguments={**laid.arguments, **how})
        for table, target in ((laid, view.target), *self._quarantined(view)):
            self._materialized.append(
                PipelineMaterializedView(table, reads, target.expectations, target.metadata)
            )

    def _quarantined(self, view: MaterializedView) -> list[tuple[PipelineTable, Target]]:
        return [(self._laid_out(view.quarantine), view.quarantine)] if view.quarantine else []

    def snapshots(self, definition: DefineSnapshots) -> None:
        """Take up a table that AUTO CDC fills from snapshots.

        Raises:
            Refused: A pipeline of Spark's own can't have it; `eligibility` skips its spec.
        """
        target, settings = definition.target, definition.target.snapshots
        assert settings is not None
        if not self._databricks:
            raise Refused("SNAPSHOT_CDC_ONLY_ON_DATABRICKS", table=target.name)
        source = settings.source
        view = self._named(definition.owner, source, whole=True) if isinstance(source, str) else None
        self._snapshots.append(
            PipelineSnapshots(identifier(*target.name.parts), settings, view, settings.location)
        )

    def view(self, definition: DefineView) -> None:
        """Remember an input until a flow reads it."""
        self._definitions[definition.owner.key, definition.view.name] = definition

    def append(self, definition: DefineAppend) -> None:
        """Take up a flow that appends."""
        self._flows.append(self._flow(definition, None))

    def cdc(self, definition: DefineAutoCdc) -> None:
        """Take up an AUTO CDC flow.

        Raises:
            Refused: A pipeline of Spark's own can't have it, which `decide` has found before.
        """
        if not self._databricks:
            raise Refused(
                "AUTO_CDC_NOT_IN_SPARKS_OWN", location=definition.flow.location, table=definition.flow.target
            )
        self._flows.append(self._flow(definition, definition.settings))

    def _flow(self, definition: FlowDefinition, cdc: CdcSettings | None) -> PipelineFlow:
        flow, owner = definition.flow, definition.owner
        target = self._targets[flow.target.key]
        view = self._definitions[owner.key, flow.view].view
        name, location = flow_name(flow.name, owner), f"{flow.location}: {flow.name}"
        rows = identifier(f"rows_of_{name}")
        history = isinstance(view.source, HistorySource)
        if isinstance(view.source, HistorySource):
            streamed = view.source.clone is not None
            reads = rows
            self._views[reads] = PipelineView(reads, view.source, view.location, streamed)
        else:
            if definition.once and not self._databricks:
                raise Refused("ONCE_NOT_IN_SPARKS_OWN", location=location)
            streamed = not definition.once and view.mode == "stream"
            reads = self._named(owner, flow.view, whole=not streamed)
            if flow.column_prefix and not self._databricks and self._views[reads].inside:
                raise TableError("PREFIX_OF_UNKNOWN_COLUMNS", location=location, view=flow.view)
        return PipelineFlow(
            identifier(name),
            identifier(*flow.target.parts),
            reads,
            rows,
            location,
            streamed,
            # In a pipeline of Spark's own the checkpoint of a stream that ends makes it once.
            once=definition.once and self._databricks,
            history=history,
            cdc=cdc,
            expectations=() if history else target.expectations,
            written=flow,
            spark_conf={} if self._databricks else {**self._conf, **target.spark_conf},
            metadata=() if history else target.metadata,
        )

    def _named(self, owner: TableName, name: str, *, whole: bool) -> str:
        """Take up a view, and those behind it; return its name in the pipeline.

        ``whole`` means that what is there now is wanted, also of a stream.
        """
        definition = self._definitions[owner.key, name]
        view, source = definition.view, definition.view.source
        plain = f"{name}__{_word(owner)}" if name in self._shared else name
        if whole and view.mode == "stream":
            plain += "__whole"
        qualified = identifier(plain)
        if qualified not in self._views:
            # Before what it names, for views may name each other in a circle.
            self._views[qualified] = laid = PipelineView(
                qualified,
                source,
                view.location,
                streamed=view.mode == "stream" and not whole,
                starts={} if whole else definition.starts,
                inside=bool(looked_up({name: view}, name) & self._made),
                folders=self._folders,
            )
            if isinstance(source, SqlSource):
                statement = self._statement(definition, source.statement, plain, whole=whole)
                # It names other views of the pipeline, which only its functions know.
                self._views[qualified] = replace(laid, source=SqlSource(statement), inside=True)
        return qualified

    def _statement(self, definition: DefineView, statement: str, view: str, *, whole: bool) -> str:
        """Put the pipeline's names into a statement in place of the spec's views and of what it streams."""
        names: dict[sql.Reference, str] = {}
        for reference in sql.references(statement):
            inner = self._definitions.get((definition.owner.key, reference.parts[-1]))
            if len(reference.parts) == 1 and inner and inner is not definition:
                followed = reference.streamed and not whole and inner.view.mode == "stream"
                names[reference] = self._named(definition.owner, inner.view.name, whole=not followed)
            elif reference.streamed:
                followed = not whole
                names[reference] = self._followed(definition, TableName(reference.parts), view, whole)
            else:
                continue
            if followed:
                names[reference] = f"STREAM({names[reference]})"
        return sql.renamed(statement, names)

    def _followed(self, definition: DefineView, table: TableName, view: str, whole: bool) -> str:
        """Name a table that SQL streams; where it must start somewhere, that takes a view of its own."""
        if whole or definition.starts.get(table.key) is None:
            return table.sql
        name = identifier(f"{view}__{_word(table)}")
        self._views[name] = PipelineView(
            name,
            DeltaSource(table),
            definition.view.location,
            starts={table.key: definition.starts[table.key]},
            inside=table.key in self._made,
            folders=self._folders,
        )
        return name


def _word(name: TableName) -> str:
    return re.sub(r"\W", "_", name.key)
