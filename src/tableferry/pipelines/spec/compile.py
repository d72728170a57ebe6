"""Checked specs made into the one shape that all else works with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from tableferry.errors import Problem
from tableferry.pipelines import flows
from tableferry.pipelines.spec import expectations, migration, models, read
from tableferry.pipelines.spec.compile_sources import Sources
from tableferry.pipelines.spec.documents import Document
from tableferry.pipelines.spec.folder import find
from tableferry.pipelines.spec.names import Names
from tableferry.pipelines.spec.settings import GlobalSettings
from tableferry.pipelines.spec.source_location import SourceLocation
from tableferry.pipelines.spec.sources import View
from tableferry.pipelines.spec.substitute import Substitutions
from tableferry.pipelines.sql import references
from tableferry.tables import TableName


@dataclass(frozen=True)
class _Written:
    """A view or flow with the file and location that define it."""

    name: str
    path: Path
    location: SourceLocation


@dataclass(frozen=True)
class _WrittenView(_Written):
    view: View


@dataclass(frozen=True)
class _WrittenFlow(_Written):
    flow: models.FlowEntry


@dataclass
class Compiler:
    """Makes the data flow of one document; ``problems`` gets what is wrong."""

    document: Document
    names: Names
    root: Path
    settings: GlobalSettings
    values: Substitutions
    problems: list[Problem]
    _views: dict[str, flows.View] = field(default_factory=dict)
    _broken: set[str] = field(default_factory=set)

    def dataflow(self) -> flows.DataFlow:
        """Make the data flow; where something is wrong, it's reported and left out."""
        spec = self.document.spec
        target = self._target()
        staging = tuple(self._staging())
        written = list(self._written_views())
        names = {view.name for view in written}
        for view in written:
            self._add_view(view, names)
        tables = {table.name: table for table in (target, *staging)}
        if isinstance(spec, models.StandardSpec):
            compiled_flows = [self._standard_flow(spec, target)]
        else:
            compiled_flows = [
                flow for entry in self._written_flows() if (flow := self._flow(entry, tables, names))
            ]
        seen: set[tuple[str, str]] = set()
        for flow in compiled_flows:
            if (flow.name, flow.target.key) in seen:
                file, _, path = flow.location.partition(": ")
                message = f"flow '{flow.name}' into {flow.target} exists already: give it another name"
                self.problems.append(Problem(file, path.removesuffix(".flowDetails"), message))
            seen.add((flow.name, flow.target.key))
        return flows.DataFlow(
            spec.data_flow_id,
            spec.data_flow_group,
            self.document.location.file,
            target,
            staging,
            self._views,
            tuple(compiled_flows),
            migration.migration(self.document, self._views, target, self.settings, self.problems),
            {"operationalMetadataEnabled": spec.features.operational_metadata_enabled},
            spec.tags,
            frozenset(
                name
                for group in self.document.groups
                for name, flow in group.written.flows.items()
                if not flow.enabled
            ),
        )

    def _sources(self, path: Path, views: set[str]) -> Sources:
        return Sources(path, self.root, self.values, self.names, views, self.problems)

    def _target(self) -> flows.Target:
        spec = self.document.spec
        location = self.document.location
        details = spec.target_details
        laid_out = self._laid_out(
            self.names.target, details, spec.cdc_settings, self.document.path, location.at("targetDetails")
        )
        return replace(
            laid_out,
            path=details.path or details.table_path,
            comment=details.comment,
            spark_conf=details.spark_conf,
            row_filter=details.row_filter,
            expectations=self._expectations(),
        )

    def _staging(self) -> Iterator[flows.Target]:
        for group in self.document.groups:
            for name, written in group.written.staging_tables.items():
                location = group.location.at("stagingTables", name)
                table = self.names.staging.get(location)
                if table is not None:
                    yield self._laid_out(table, written, written.cdc_settings, group.path, location)

    def _laid_out(
        self,
        table: TableName,
        written: models.Layout,
        cdc: models.CdcSettings | None,
        path: Path,
        location: SourceLocation,
    ) -> flows.Target:
        return flows.Target(
            table,
            _cdc(cdc) if cdc is not None else None,
            self._sources(path, set()).schema(written.schema_path, location.at("schemaPath")),
            tuple(written.partition_columns),
            tuple(written.cluster_by_columns),
            written.cluster_by_auto,
            {**written.table_properties, **self.settings.mandatory_table_properties},
            written.path,
            location=str(location),
        )

    def _expectations(self) -> tuple[flows.Expectation, ...]:
        spec = self.document.spec
        written = spec.data_quality_expectations_path
        if not spec.data_quality_expectations_enabled or written is None:
            return ()
        location = self.document.location.at("dataQualityExpectationsPath")
        path = find(self.document.path, written, "expectations", location, self.problems, folder=True)
        if path is None:
            return ()
        return expectations.read(path, SourceLocation(read.name(path, self.root)), self.values, self.problems)

    def _written_flows(self) -> Iterator[_WrittenFlow]:
        for group in self.document.groups:
            for name, flow in group.written.flows.items():
                if flow.enabled:
                    yield _WrittenFlow(name, group.path, group.location.at("flows", name), flow)

    def _written_views(self) -> Iterator[_WrittenView]:
        document = self.document
        if isinstance(document.spec, models.StandardSpec) and document.view is not None:
            name = document.spec.source_view_name
            yield _WrittenView(name, document.path, document.location, document.view)
        for flow in self._written_flows():
            for name, view in flow.flow.views.items():
                yield _WrittenView(name, flow.path, flow.location.at("views", name), view)

    def _add_view(self, written: _WrittenView, names: set[str]) -> None:
        made = self._sources(written.path, names).view(written.name, written.view, written.location)
        if made is None:
            self._broken.add(written.name)
            return
        other = self._views.setdefault(made.name, made)
        if replace(other, location=made.location) != made:
            message = f"view '{made.name}' is another view at {other.location}: rename one of them"
            self.problems.append(written.location.problem(message))

    def _standard_flow(self, spec: models.StandardSpec, target: flows.Target) -> flows.Flow:
        name = spec.source_view_name
        kind: Literal["append", "cdc"] = "cdc" if target.cdc is not None else "append"
        return flows.Flow(f"f_{name}", kind, target.name, name, location=str(self.document.location))

    def _flow(
        self, written: _WrittenFlow, tables: dict[TableName, flows.Target], names: set[str]
    ) -> flows.Flow | None:
        flow = written.flow
        location = written.location.at("flowDetails")
        target_table = flow.flow_details.target_table
        table = self.names.own(target_table)
        if table is None or table not in tables:
            known = ", ".join(str(name) for name in tables)
            message = (
                f"'{target_table}' is neither the spec's target nor its staging table: name one of {known}"
            )
            self.problems.append(location.at("targetTable").problem(message))
            return None
        if isinstance(flow, models.AppendSqlFlow):
            view = self._sql_view(written, flow.flow_details, names)
        else:
            view = self._source_view(flow.flow_details.source_view, location.at("sourceView"))
        merges = tables[table].cdc is not None
        if merges != isinstance(flow, models.MergeFlow):
            message = (
                f"{table} has cdcSettings, so every flow into it must be of type merge"
                if merges
                else f"merge needs cdcSettings, and {table} has none: add them, or use append_view"
            )
            self.problems.append(written.location.at("flowType").problem(message))
            return None
        if view is None:
            return None
        if isinstance(flow, models.MergeFlow):
            return flows.Flow(written.name, "cdc", table, view, location=str(location))
        made = flows.Flow(written.name, "append", table, view, flow.flow_details.once, location=str(location))
        if isinstance(flow, models.AppendViewFlow):
            return replace(
                made,
                column_prefix=flow.flow_details.column_prefix or None,
                column_prefix_exceptions=tuple(flow.flow_details.column_prefix_exceptions),
            )
        return made

    def _sql_view(
        self, written: _WrittenFlow, details: models.AppendSqlDetails, names: set[str]
    ) -> str | None:
        """Make the view of an append_sql flow; return its name."""
        location = written.location.at("flowDetails")
        source = self._sources(written.path, names).sql(details.sql_statement, details.sql_path, location)
        if source is None:
            return None
        streamed = any(reference.streamed for reference in references(source.statement))
        mode: flows.Mode = "stream" if streamed else "batch"
        return self._own_view(flows.View(f"v_{written.name}", mode, source, str(location)))

    def _source_view(self, name: str, location: SourceLocation) -> str | None:
        """Return the view that a flow names; a staging table is followed through a view of its own."""
        if name in self._views:
            return name
        if name in self._broken:
            return None
        table = self.names.own(name)
        if table is not None and table in self.names.staging.values():
            return self._own_view(
                flows.View(f"v_{table.table}", "stream", flows.DeltaSource(table), str(location))
            )
        known = ", ".join(sorted(self._views)) or "none"
        message = f"'{name}' is no view of this spec's enabled flows (they have: {known}): define it"
        self.problems.append(location.problem(message))
        return None

    def _own_view(self, view: flows.View) -> str:
        while (other := self._views.get(view.name)) is not None and other.source != view.source:
            view = replace(view, name=view.name + "_")
        self._views.setdefault(view.name, view)
        return view.name


def _cdc(written: models.CdcSettings) -> flows.CdcSettings:
    return flows.CdcSettings(
        tuple(written.keys),
        written.sequence_by,
        1 if written.scd_type == "1" else 2,
        _condition(written.where),
        _condition(written.apply_as_deletes),
        _condition(written.apply_as_truncates),
        written.ignore_null_updates,
        tuple(written.column_list),
        tuple(written.except_column_list),
        tuple(written.track_history_column_list),
        tuple(written.track_history_except_column_list),
    )


def _condition(written: str | None) -> str | None:
    """Read an empty condition as none."""
    return written if written is not None and written.strip() else None
