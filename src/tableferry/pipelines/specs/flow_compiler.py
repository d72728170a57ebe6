"""Compile parsed specs into `flows.DataFlow` and `flows.MaterializedView`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from tableferry.errors import Finding
from tableferry.pipelines.model import flows, sql
from tableferry.pipelines.specs import spec_models
from tableferry.pipelines.specs.parsed_specs import ParsedMaterializedView, ParsedSpec
from tableferry.pipelines.specs.project_files import SourceLocation, parse_location
from tableferry.pipelines.specs.table_compiler import TableCompiler
from tableferry.pipelines.specs.table_migration import compile_migration
from tableferry.pipelines.specs.view_compiler import ViewCompiler
from tableferry.pipelines.specs.view_models import View
from tableferry.spark.tables import TableName


@dataclass(frozen=True)
class _FlowDefinition:
    """A flow, with the file and location of its definition."""

    name: str
    file: Path
    location: SourceLocation
    flow: spec_models.FlowEntry


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
        definitions = list(self._list_views())
        view_names = {name for name, _, _, _ in definitions}
        for name, view, file, location in definitions:
            self._add_view(name, view, location, self._create_view_compiler(file, view_names))
        if isinstance(model, spec_models.StandardSpec):
            compiled = self._compile_standard_flow(model.source_view_name, target)
        else:
            tables = {table.name: table for table in (target, *staging)}
            compiled = [
                flow
                for entry in self._list_flows()
                if (flow := self._compile_flow(entry, tables, view_names)) is not None
            ]
        if quarantine is not None:
            compiled += _create_quarantine_flows(compiled, target, quarantine)
        self._check_flow_names(compiled)
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
            {"operationalMetadataEnabled": model.features.operational_metadata_enabled},
            model.tags,
            frozenset(
                name
                for group in self.spec.groups
                for name, flow in group.model.flows.items()
                if not flow.enabled
            ),
            quarantine,
        )

    def _compile_target(self) -> flows.Target:
        model, file, location = self.spec.model, self.spec.file, self.spec.location
        target = self.table_compiler.compile(
            self.table_compiler.tables.target,
            model.target_details,
            file,
            location.at("targetDetails"),
            has_metadata=self._has_metadata,
        )
        return self.table_compiler.add_cdc(
            target, model.cdc_settings, model.cdc_snapshot_settings, file, location
        )

    @property
    def _has_metadata(self) -> bool:
        # In the rows of a snapshot, operational metadata would mark every row as changed.
        model = self.spec.model
        return model.features.operational_metadata_enabled and model.cdc_snapshot_settings is None

    def _compile_staging(self) -> Iterator[flows.Target]:
        for group in self.spec.groups:
            for name, table in group.model.staging_tables.items():
                location = group.location.at("stagingTables", name)
                table_name = self.table_compiler.tables.staging.get(location)
                if table_name is not None:
                    target = self.table_compiler.compile(
                        table_name, table, group.file, location, has_metadata=self._has_metadata
                    )
                    yield self.table_compiler.add_cdc(
                        target, table.cdc_settings, table.cdc_snapshot_settings, group.file, location
                    )

    def _list_flows(self) -> Iterator[_FlowDefinition]:
        for group in self.spec.groups:
            for name, flow in group.model.flows.items():
                if flow.enabled:
                    yield _FlowDefinition(name, group.file, group.location.at("flows", name), flow)

    def _list_views(self) -> Iterator[tuple[str, View, Path, SourceLocation]]:
        spec = self.spec
        if spec.view is not None and isinstance(spec.model, spec_models.StandardSpec):
            yield spec.model.source_view_name or "", spec.view, spec.file, spec.location
        for definition in self._list_flows():
            for name, view in definition.flow.views.items():
                yield name, view, definition.file, definition.location.at("views", name)

    def _create_view_compiler(self, file: Path, view_names: set[str]) -> ViewCompiler:
        tables = self.table_compiler
        return ViewCompiler(file, tables.folder, tables.substitutions, tables.tables, view_names)

    def _add_view(self, name: str, view: View, location: SourceLocation, compiler: ViewCompiler) -> None:
        compiled = compiler.compile(name, view, location)
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
        self, definition: _FlowDefinition, tables: dict[TableName, flows.Target], view_names: set[str]
    ) -> flows.Flow | None:
        flow, location = definition.flow, definition.location.at("flowDetails")
        table_name = self.table_compiler.tables.find(flow.flow_details.target_table)
        table = tables.get(table_name) if table_name is not None else None
        if table is None:
            known = ", ".join(str(name) for name in tables)
            unknown = Finding("SPEC_FLOW_TARGET_UNKNOWN", table=flow.flow_details.target_table, known=known)
            location.at("targetTable").report(unknown)
            return None
        if isinstance(flow, spec_models.AppendSqlFlow):
            compiler = self._create_view_compiler(definition.file, view_names)
            view = self._add_sql_view(definition.name, flow.flow_details, location, compiler)
        else:
            view = self._find_view(flow.flow_details.source_view, location.at("sourceView"))
        merges = table.cdc is not None or table.snapshots is not None
        if merges != isinstance(flow, spec_models.MergeFlow):
            setting = "cdcSettings" if table.snapshots is None else "cdcSnapshotSettings"
            definition.location.at("flowType").report(
                Finding("SPEC_FLOW_MUST_MERGE", table=table.name, setting=setting)
                if merges
                else Finding("SPEC_MERGE_WITHOUT_CDC", table=table.name)
            )
            return None
        if view is None:
            return None
        if table.snapshots is not None:
            self._set_snapshot_view(table.name, table.snapshots, view, definition.location)
            return None
        compiled = flows.Flow(
            definition.name, "cdc" if merges else "append", table.name, view, location=str(location)
        )
        if isinstance(flow, spec_models.MergeFlow):
            return compiled
        compiled = replace(compiled, once=flow.flow_details.once)
        if isinstance(flow, spec_models.AppendViewFlow):
            prefix = flow.flow_details.column_prefix
            return replace(
                compiled,
                column_prefix=f"{prefix.lower()}_" if prefix else None,
                column_prefix_exceptions=tuple(flow.flow_details.column_prefix_exceptions),
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
        self,
        flow_name: str,
        details: spec_models.AppendSqlDetails,
        location: SourceLocation,
        compiler: ViewCompiler,
    ) -> str | None:
        """Add the view of an append_sql flow; return its name."""
        source = compiler.compile_sql(details.sql_statement, details.sql_path, location)
        if source is None:
            return None
        is_streamed = any(reference.streamed for reference in sql.references(source.statement))
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
                self._locate(snapshots.location).report(missing)
            return table
        view = self._views[name]
        if view.mode == "stream":
            location = view.location.removesuffix("sourceDetails")
            mode = "mode" if location.endswith((".", ": ")) else ".mode"
            self._locate(location + mode).report(Finding("SPEC_SNAPSHOT_READ_AS_STREAM"))
        return replace(table, snapshots=replace(snapshots, source=name))

    def _check_flow_names(self, compiled: list[flows.Flow]) -> None:
        """Report flows with the same name and target, because they would share a checkpoint."""
        seen: set[tuple[str, str]] = set()
        for flow in compiled:
            if (flow.name, flow.target.key) in seen:
                taken = Finding("SPEC_FLOW_NAME_TAKEN", flow=flow.name, table=flow.target)
                self._locate(flow.location.removesuffix(".flowDetails")).report(taken)
            seen.add((flow.name, flow.target.key))

    def _locate(self, text: str) -> SourceLocation:
        return parse_location(text, self.spec.location.problems)


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
    details = spec.model.table_details
    target = table_compiler.compile(
        table_compiler.tables.target,
        details,
        spec.file,
        spec.location.at("tableDetails"),
        has_metadata=spec.spec.features.operational_metadata_enabled,
    )
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
    model, location, tables = spec.model, spec.location, table_compiler.tables
    name = model.source_view.source_view_name if model.source_view is not None else None
    compiler = ViewCompiler(
        spec.file, table_compiler.folder, table_compiler.substitutions, tables, {name} if name else set()
    )
    if name is None or spec.view is None:
        source = compiler.compile_sql(model.sql_statement, model.sql_path, location)
        name = f"v_{tables.target.table}"
        return None if source is None else flows.View(name, "batch", source, str(location))
    view = compiler.compile(name, spec.view, location.at("sourceView"))
    if view is not None and isinstance(view.source, flows.DeltaSource):
        # A materialized view contains the current rows; settings for streams don't apply.
        view = replace(view, source=replace(view.source, change_feed=False, from_setup=False))
    return view
