"""Compile parsed specs into `flows.DataFlow` and `flows.MaterializedView`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from tableferry.errors import Finding
from tableferry.pipelines.model import flows, sql
from tableferry.pipelines.specs import spec_models
from tableferry.pipelines.specs.parsed_specs import ParsedMaterializedView, ParsedSpec
from tableferry.pipelines.specs.project_files import SourceLocation
from tableferry.pipelines.specs.table_compiler import TableCompiler
from tableferry.pipelines.specs.table_migration import compile_migration
from tableferry.pipelines.specs.view_compiler import ViewCompiler
from tableferry.pipelines.specs.view_models import ViewEntry
from tableferry.spark.tables import TableName


@dataclass
class FlowCompiler:
    """Compiles the data flow of one spec, and reports its errors."""

    spec: ParsedSpec
    table_compiler: TableCompiler
    _views: dict[str, flows.View] = field(default_factory=dict)
    _broken_views: set[str] = field(default_factory=set)
    # The view with the periodic snapshots of each table.
    _snapshot_views: dict[TableName, str] = field(default_factory=dict)

    def compile(self) -> flows.DataFlow:
        """Compile the data flow without its invalid parts."""
        model = self.spec.model
        target, quarantine = self.table_compiler.add_expectations(self._compile_target(), self.spec)
        staging = list(self._compile_staging())
        for name, view, location in self._list_views():
            self._add_view(name, view, location)
        if isinstance(model, spec_models.StandardSpec):
            compiled = self._compile_standard_flow(model.source_view_name, target)
        else:
            tables = {table.name: table for table in (target, *staging)}
            compiled = [
                compiled_flow
                for name, flow, location in self._list_flows()
                if (compiled_flow := self._compile_flow(name, flow, location, tables)) is not None
            ]
        if quarantine is not None:
            compiled += _create_quarantine_flows(compiled, target, quarantine)
        self._report_repeated_flow_names(compiled)
        target, *staging = (self._add_snapshots(table) for table in (target, *staging))
        return flows.DataFlow(
            model.data_flow_id,
            model.data_flow_group,
            self.spec.location.file,
            target,
            tuple(staging),
            self._views,
            tuple(compiled),
            compile_migration(self.spec, self._views, target, self.table_compiler.settings),
            frozenset(
                name
                for group in self.spec.groups
                for name, flow in group.model.flows.items()
                if not flow.enabled
            ),
            quarantine,
        )

    def _compile_target(self) -> flows.Target:
        model, location, compiler = self.spec.model, self.spec.location, self.table_compiler
        details = location.at("targetDetails")
        target = compiler.compile(compiler.tables.target, model.target_details, details)
        return compiler.add_cdc(target, model, location)

    def _compile_staging(self) -> Iterator[flows.Target]:
        compiler = self.table_compiler
        for group in self.spec.groups:
            for name, model in group.model.staging_tables.items():
                location = group.location.at("stagingTables", name)
                table = compiler.tables.staging.get(location)
                if table is not None:
                    yield compiler.add_cdc(compiler.compile(table, model, location), model, location)

    def _list_flows(self) -> Iterator[tuple[str, spec_models.FlowEntry, SourceLocation]]:
        for group in self.spec.groups:
            for name, flow in group.model.flows.items():
                if flow.enabled:
                    yield name, flow, group.location.at("flows", name)

    def _list_views(self) -> Iterator[tuple[str, ViewEntry, SourceLocation]]:
        spec = self.spec
        if spec.view is not None and isinstance(spec.model, spec_models.StandardSpec):
            yield spec.model.source_view_name or "", spec.view, spec.location
        for _, flow, location in self._list_flows():
            for name, view in flow.views.items():
                yield name, view, location.at("views", name)

    @cached_property
    def _view_compiler(self) -> ViewCompiler:
        return ViewCompiler(self.table_compiler, {name for name, _, _ in self._list_views()})

    def _add_view(self, name: str, view: ViewEntry, location: SourceLocation) -> None:
        compiled = self._view_compiler.compile(name, view, location)
        if compiled is None:
            self._broken_views.add(name)
            return
        other = self._views.setdefault(name, compiled)
        if replace(other, location=compiled.location) != compiled:
            location.report(Finding("SPEC_VIEW_NAME_TAKEN", view=name, other=other.location))

    def _compile_standard_flow(self, view: str | None, target: flows.Target) -> list[flows.Flow]:
        if view is None:
            return []
        if target.snapshots is not None:
            if view in self._views:
                self._snapshot_views[target.name] = view
            return []
        kind: Literal["append", "cdc"] = "cdc" if target.cdc is not None else "append"
        return [flows.Flow(f"f_{view}", kind, target.name, view, location=str(self.spec.location))]

    def _compile_flow(
        self,
        name: str,
        flow: spec_models.FlowEntry,
        location: SourceLocation,
        tables: dict[TableName, flows.Target],
    ) -> flows.Flow | None:
        details, details_location = flow.flow_details, location.at("flowDetails")
        table_name = self.table_compiler.tables.find(details.target_table)
        table = tables.get(table_name) if table_name is not None else None
        if table is None:
            known = ", ".join(map(str, tables))
            unknown = Finding("SPEC_FLOW_TARGET_UNKNOWN", table=details.target_table, known=known)
            details_location.at("targetTable").report(unknown)
            return None
        if isinstance(details, spec_models.AppendSqlDetails):
            view = self._add_sql_view(name, details, details_location)
        else:
            view = self._find_view(details.source_view, details_location.at("sourceView"))
        merges = table.cdc is not None or table.snapshots is not None
        if merges != isinstance(flow, spec_models.MergeFlow):
            setting = "cdcSettings" if table.snapshots is None else "cdcSnapshotSettings"
            location.at("flowType").report(
                Finding("SPEC_FLOW_MUST_MERGE", table=table.name, setting=setting)
                if merges
                else Finding("SPEC_MERGE_WITHOUT_CDC", table=table.name)
            )
            return None
        if view is None:
            return None
        if table.snapshots is not None:
            self._set_snapshot_view(table.name, table.snapshots, view, location)
            return None
        kind: Literal["append", "cdc"] = "cdc" if merges else "append"
        compiled = flows.Flow(name, kind, table.name, view, location=str(details_location))
        if isinstance(details, spec_models.MergeDetails):
            return compiled
        compiled = replace(compiled, once=details.once)
        if isinstance(details, spec_models.AppendViewDetails):
            prefix = details.column_prefix
            compiled = replace(
                compiled,
                column_prefix=f"{prefix.lower()}_" if prefix else None,
                column_prefix_exceptions=tuple(details.column_prefix_exceptions),
            )
        return compiled

    def _find_view(self, name: str, location: SourceLocation) -> str | None:
        """Return the view that a flow reads; for a staging table, add a view of it."""
        if name in self._views:
            return name
        if name in self._broken_views:
            return None
        tables = self.table_compiler.tables
        table = tables.find(name)
        if table is not None and table in tables.staging.values():
            source = flows.DeltaSource(table)
            return self._add_generated_view(flows.View(f"v_{table.table}", "stream", source, str(location)))
        known = ", ".join(sorted(self._views)) or "none"
        location.report(Finding("SPEC_VIEW_UNKNOWN", view=name, known=known))
        return None

    def _add_sql_view(
        self, flow_name: str, details: spec_models.AppendSqlDetails, location: SourceLocation
    ) -> str | None:
        """Add the view of an append_sql flow; return its name."""
        source = self._view_compiler.compile_sql(details.sql_statement, details.sql_path, location)
        if source is None:
            return None
        is_streamed = any(reference.streamed for reference in sql.find_references(source.statement))
        mode: flows.Mode = "stream" if is_streamed else "batch"
        return self._add_generated_view(flows.View(f"v_{flow_name}", mode, source, str(location)))

    def _add_generated_view(self, view: flows.View) -> str:
        while (other := self._views.get(view.name)) is not None and other.source != view.source:
            view = replace(view, name=view.name + "_")
        self._views.setdefault(view.name, view)
        return view.name

    def _set_snapshot_view(
        self, table: TableName, snapshots: flows.SnapshotCdc, view: str, location: SourceLocation
    ) -> None:
        """Record the view of a merge flow as the snapshots of its target."""
        if snapshots.source != "":
            location.report(Finding("SPEC_SNAPSHOTS_FROM_SOURCE", table=table))
        elif self._snapshot_views.setdefault(table, view) != view:
            location.report(Finding("SPEC_SNAPSHOTS_OF_SEVERAL_FLOWS", table=table))

    def _add_snapshots(self, table: flows.Target) -> flows.Target:
        """Return a table of periodic snapshots with the view of its snapshots."""
        snapshots = table.snapshots
        if snapshots is None or snapshots.source != "":
            return table
        name = self._snapshot_views.get(table.name)
        if name is None:
            if not self._broken_views:
                missing = Finding("SPEC_SNAPSHOTS_WITHOUT_FLOW", table=table.name)
                self.spec.location.parse(snapshots.location).report(missing)
            return table
        view = self._views[name]
        if view.mode == "stream":
            location = view.location.removesuffix("sourceDetails")
            mode = "mode" if location.endswith((".", ": ")) else ".mode"
            self.spec.location.parse(location + mode).report(Finding("SPEC_SNAPSHOT_READ_AS_STREAM"))
        return replace(table, snapshots=replace(snapshots, source=name))

    def _report_repeated_flow_names(self, compiled: list[flows.Flow]) -> None:
        """Report flows with the same name and target, because they would share a checkpoint."""
        seen: set[tuple[str, str]] = set()
        for flow in compiled:
            if (flow.name, flow.target.key) in seen:
                taken = Finding("SPEC_FLOW_NAME_TAKEN", flow=flow.name, table=flow.target)
                self.spec.location.parse(flow.location.removesuffix(".flowDetails")).report(taken)
            seen.add((flow.name, flow.target.key))


def _create_quarantine_flows(
    compiled: list[flows.Flow], target: flows.Target, quarantine: flows.Target
) -> list[flows.Flow]:
    """Return, for each flow into a target, a flow that appends the rows that violate an expectation.

    The name contains the view, or the flow if an earlier flow into the target reads the same view.
    """
    created: dict[str, flows.Flow] = {}
    for flow in compiled:
        if flow.target == target.name:
            name = f"f_quarantine_{flow.view}_quarantine"
            name = f"f_quarantine_{flow.name}_quarantine" if name in created else name
            created[name] = replace(flow, name=name, kind="append", target=quarantine.name)
    return list(created.values())


def compile_materialized_view(
    spec: ParsedMaterializedView, table_compiler: TableCompiler
) -> flows.MaterializedView | None:
    """Compile a materialized view, or report its errors."""
    details, name = spec.model.table_details, table_compiler.tables.target
    target = table_compiler.compile(name, details, spec.location.at("tableDetails"))
    target, quarantine = table_compiler.add_expectations(target, spec)
    view = _compile_view_source(spec, table_compiler)
    if view is None:
        return None
    return flows.MaterializedView(
        spec.spec.data_flow_id,
        spec.spec.data_flow_group,
        spec.location.file,
        target,
        {view.name: view},
        view.name,
        spec.model.refresh_policy,
        details.private,
        quarantine,
    )


def _compile_view_source(spec: ParsedMaterializedView, table_compiler: TableCompiler) -> flows.View | None:
    model, location = spec.model, spec.location
    if model.source_view is None or spec.view is None:
        sources = ViewCompiler(table_compiler, set())
        source = sources.compile_sql(model.sql_statement, model.sql_path, location)
        name = f"v_{table_compiler.tables.target.table}"
        return None if source is None else flows.View(name, "batch", source, str(location))
    name = model.source_view.source_view_name
    view = ViewCompiler(table_compiler, {name}).compile(name, spec.view, location.at("sourceView"))
    if view is not None and isinstance(view.source, flows.DeltaSource):
        # A materialized view contains the current rows; settings for streams don't apply.
        view = replace(view, source=replace(view.source, change_feed=False, from_setup=False))
    return view
