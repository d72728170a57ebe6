"""Compile valid specs into `flows.DataFlow` and `flows.MaterializedView`: their views and flows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from tableferry.errors import Finding
from tableferry.pipelines.model import flows, sql
from tableferry.pipelines.specs import spec_models, view_models
from tableferry.pipelines.specs.project_files import (
    find_referenced_file,
    find_schema_file,
    list_module_folders,
    read_text,
)
from tableferry.pipelines.specs.spec_models import ParsedSpec
from tableferry.pipelines.specs.table_compiler import TableCompiler
from tableferry.pipelines.specs.table_migration import compile_migration
from tableferry.pipelines.specs.validation import SourceLocation, parse_table_name
from tableferry.spark.tables import TableName


@dataclass
class SpecCompiler:
    """Compiles one spec, and reports its errors."""

    spec: ParsedSpec
    table_compiler: TableCompiler
    _views: dict[str, flows.View] = field(default_factory=dict)
    _broken_views: set[str] = field(default_factory=set)

    def compile_dataflow(self, model: spec_models.StandardSpec | spec_models.FlowSpec) -> flows.DataFlow:
        """Compile the data flow without its invalid parts."""
        target, quarantine = self.table_compiler.compile_target(self.spec)
        staging = list(self._compile_staging())
        self._add_views()
        if isinstance(model, spec_models.FlowSpec):
            tables = {table.name: table for table in (target, *staging)}
            compiled = [
                compiled_flow
                for name, flow, location in self._list_flows()
                if (compiled_flow := self._compile_flow(name, flow, location, tables)) is not None
            ]
        else:
            compiled = self._compile_standard_flow(model.source_view_name, target)
        target, *staging = (self._add_snapshots(table, compiled) for table in (target, *staging))
        if quarantine is not None:
            compiled += _create_quarantine_flows(compiled, target, quarantine)
        self._report_repeated_flow_names(compiled)
        all_flows = (flow for group in self.spec.groups for flow in group.model.flows.items())
        return flows.DataFlow(
            model.data_flow_id,
            self.spec.location.file,
            target,
            tuple(staging),
            self._views,
            tuple(compiled),
            compile_migration(self.spec.location, model.table_migration_details, self._views, target),
            frozenset(name for name, flow in all_flows if not flow.enabled),
            quarantine,
        )

    def compile_materialized_view(
        self, model: spec_models.MaterializedViewEntry
    ) -> flows.MaterializedView | None:
        """Compile a materialized view, or report its errors."""
        target, quarantine = self.table_compiler.compile_target(self.spec)
        if model.source_view is None:
            statement = self._compile_sql(model, self.spec.location)
            if statement is not None:
                name = f"v_{target.name.table}"
                self._views[name] = flows.View(name, "batch", statement, str(self.spec.location))
        self._add_views()
        if not self._views:
            return None
        (view,) = self._views.values()
        if isinstance(view.source, flows.DeltaSource):
            # A materialized view contains the current rows; settings for streams don't apply.
            view = replace(view, source=replace(view.source, change_feed=False, from_setup=False))
        return flows.MaterializedView(
            self.spec.header.data_flow_id,
            self.spec.location.file,
            target,
            {view.name: view},
            view.name,
            model.refresh_policy,
            model.table_details.private,
            quarantine,
        )

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

    def _list_views(self) -> Iterator[tuple[str, view_models.ViewEntry, SourceLocation]]:
        model, view, location = self.spec.model, self.spec.view, self.spec.location
        if view is not None and isinstance(model, spec_models.StandardSpec):
            yield model.source_view_name or "", view, location
        elif view is not None and isinstance(model, spec_models.MaterializedViewEntry) and model.source_view:
            yield model.source_view.source_view_name, view, location.at("sourceView")
        for _, flow, location in self._list_flows():
            for name, view in flow.views.items():
                yield name, view, location.at("views", name)

    @cached_property
    def _view_names(self) -> frozenset[str]:
        return frozenset(name for name, _, _ in self._list_views())

    def _add_views(self) -> None:
        for name, view, location in self._list_views():
            details = location.at("sourceDetails")
            source = self._compile_source(view, details)
            if source is None:
                self._broken_views.add(name)
                continue
            compiled = flows.View(name, view.mode, source, str(details))
            other = self._views.setdefault(name, compiled)
            if replace(other, location=compiled.location) != compiled:
                location.report(Finding("SPEC_VIEW_NAME_TAKEN", view=name, other=other.location))

    def _compile_standard_flow(self, view: str | None, target: flows.Target) -> list[flows.Flow]:
        if view is None or self.spec.view is None:
            return []
        kind: Literal["append", "cdc"] = "append" if target.cdc is None else "cdc"
        return [flows.Flow(f"f_{view}", kind, target.name, view, location=str(self.spec.location))]

    def _compile_flow(
        self,
        name: str,
        flow: spec_models.FlowEntry,
        location: SourceLocation,
        tables: dict[TableName, flows.Target],
    ) -> flows.Flow | None:
        details, there = flow.flow_details, location.at("flowDetails")
        table_name = self.table_compiler.tables.find(details.target_table)
        table = tables.get(table_name) if table_name is not None else None
        if table is None:
            known = ", ".join(map(str, tables))
            unknown = Finding("SPEC_FLOW_TARGET_UNKNOWN", table=details.target_table, known=known)
            there.at("targetTable").report(unknown)
            return None
        if isinstance(details, spec_models.AppendSqlDetails):
            view = self._add_sql_view(name, details, there)
        else:
            view = self._find_view(details.source_view, there.at("sourceView"))
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
        settings = details.model_dump(include={"once", "column_prefix", "column_prefix_exceptions"})
        kind: Literal["append", "cdc"] = "cdc" if merges else "append"
        return flows.Flow(name, kind, table.name, view, location=str(there), **settings)

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
        source = self._compile_sql(details, location)
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

    def _add_snapshots(self, table: flows.Target, compiled: list[flows.Flow]) -> flows.Target:
        """Return a table whose periodic snapshots are the view of its merge flow; remove this flow."""
        snapshots = table.snapshots
        if snapshots is None:
            return table
        own = [flow for flow in compiled if flow.target == table.name]
        compiled[:] = [flow for flow in compiled if flow.target != table.name]
        if snapshots.source == "" and not own:
            if not self._broken_views:
                missing = Finding("SPEC_SNAPSHOTS_WITHOUT_FLOW", table=table.name)
                self.spec.location.parse(snapshots.location).report(missing)
            return table
        for flow in own:
            if snapshots.source != "":
                self._locate(flow).report(Finding("SPEC_SNAPSHOTS_FROM_SOURCE", table=table.name))
            elif flow.view != own[0].view:
                self._locate(flow).report(Finding("SPEC_SNAPSHOTS_OF_SEVERAL_FLOWS", table=table.name))
        view = self._views.get(own[0].view) if snapshots.source == "" else None
        if view is None:
            return table
        if view.mode == "stream":
            location = view.location.removesuffix("sourceDetails")
            mode = "mode" if location.endswith((".", ": ")) else ".mode"
            self.spec.location.parse(location + mode).report(Finding("SPEC_SNAPSHOT_READ_AS_STREAM"))
        return replace(table, snapshots=replace(snapshots, source=view.name))

    def _locate(self, flow: flows.Flow) -> SourceLocation:
        return self.spec.location.parse(flow.location.removesuffix(".flowDetails"))

    def _report_repeated_flow_names(self, compiled: list[flows.Flow]) -> None:
        """Report flows with the same name and target, because they would share a checkpoint."""
        seen: set[tuple[str, str]] = set()
        for flow in compiled:
            if (flow.name, flow.target.key) in seen:
                taken = Finding("SPEC_FLOW_NAME_TAKEN", flow=flow.name, table=flow.target)
                self._locate(flow).report(taken)
            seen.add((flow.name, flow.target.key))

    def _compile_sql(
        self, written: view_models.SqlDetails | spec_models.MaterializedViewEntry, location: SourceLocation
    ) -> flows.SqlSource | None:
        """Compile a SELECT statement, or the file that contains it."""
        statement, place = written.sql_statement or "", location.at("sqlStatement")
        if written.sql_path is not None:
            file = find_referenced_file(written.sql_path, "dml", location.at("sqlPath"))
            if file is None:
                return None
            place = self.table_compiler.folder.location(file)
            content = read_text(place)
            if content is None:
                return None
            statement = self.table_compiler.substitutions.apply_to_sql(content)
        resolved = self.table_compiler.tables.resolve_sql(statement.strip().rstrip(";"), self._view_names)
        try:
            sql.find_references(resolved)
        except sql.SqlglotError as error:
            cause = error.__cause__ if isinstance(error.__cause__, sql.SqlglotError) else error
            place.report(Finding("SPEC_SQL_INVALID", reason=" ".join(str(cause).split())))
            return None
        return flows.SqlSource(resolved)

    def _compile_source(self, view: view_models.ViewEntry, location: SourceLocation) -> flows.Source | None:
        if isinstance(view, view_models.DeltaJoinView):
            return self._compile_join(view, location)
        match view.source_details:
            case view_models.DeltaDetails() as details:
                return self._compile_delta(details, location)
            case view_models.SqlDetails() as details:
                return self._compile_sql(details, location)
            case view_models.PythonDetails() as details:
                return flows.PythonSource(self._compile_function(details, location))
            case view_models.FilesDetails() as details:
                kind = (
                    details.format if isinstance(details, view_models.BatchFilesDetails) else view.source_type
                )
                schema_file = find_schema_file(details.schema_path, location.at("schemaPath"))
                where, select = details.where, details.select
                return flows.ReaderSource(kind, details.options, details.path, where, select, schema_file)
            case view_models.KafkaDetails() as details:
                return flows.ReaderSource("kafka", details.options, None, details.where, details.select)

    def _compile_delta(
        self, details: view_models.DeltaDetails, location: SourceLocation
    ) -> flows.DeltaSource | None:
        table = self._resolve_table(details, location)
        if table is None:
            return None
        function = details.python_transform
        return flows.DeltaSource(
            table,
            schema_file=find_schema_file(details.schema_path, location.at("schemaPath")),
            transform=self._compile_function(function, location.at("pythonTransform")) if function else None,
            # The user's explicit start overrides the setup.
            from_setup=details.from_setup and flows.explicit_start(details.options) is None,
            **details.model_dump(include={"change_feed", "change_types", "options", "where", "select"}),
        )

    def _resolve_table(self, details: view_models.DeltaDetails, location: SourceLocation) -> TableName | None:
        if details.table_path is not None:
            return TableName.at(details.table_path)
        table, place = details.table or "", location.at("table")
        if (details.database or "").lower() != "live":
            return parse_table_name(details.database, table, place)
        tables = self.table_compiler.tables
        resolved = tables.find_in_pipeline(table)
        if resolved is None and tables.unread != "reported":
            is_unread = tables.unread == "unreported"
            place.report(
                Finding("SPEC_LIVE_TABLE_UNREADABLE" if is_unread else "SPEC_LIVE_TABLE_UNKNOWN", table=table)
            )
        return resolved

    def _compile_join(
        self, view: view_models.DeltaJoinView, location: SourceLocation
    ) -> flows.JoinSource | None:
        details = view.source_details
        sides = []
        for position, (side, mode) in enumerate(zip(details.sources, view.join_modes, strict=True)):
            source = self._compile_delta(side, location.at("sources", position))
            if source is not None:
                sides.append(flows.JoinSide(side.alias, mode, source))
        if len(sides) < len(details.sources):
            return None
        joins = tuple(flows.Join(join.join_type, join.condition) for join in details.joins)
        return flows.JoinSource(tuple(sides), joins, details.where, details.select)

    def _compile_function(
        self, function: view_models.PythonTransform, location: SourceLocation
    ) -> flows.PythonCode:
        path, place = function.function_path, location.at("functionPath")
        file = None
        if path is not None and not path.endswith(".py"):
            place.report(Finding("SPEC_PYTHON_FILE_SUFFIX", file=path))
        elif path is not None:
            file = find_referenced_file(path, "python_functions", place)
        folders = list_module_folders(location) if function.module is not None else []
        return flows.PythonCode(
            None if file is None else str(file),
            function.module,
            function.tokens,
            tuple(str(folder) for folder in folders if folder.is_dir()),
        )


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
