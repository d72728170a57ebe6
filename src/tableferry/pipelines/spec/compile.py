"""Checked specs made into the one shape that all else works with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from tableferry.errors import Problem
from tableferry.pipelines import flows
from tableferry.pipelines.spec import expectations, migration, models, read
from tableferry.pipelines.spec.compile_sources import Sources
from tableferry.pipelines.spec.documents import Document
from tableferry.pipelines.spec.folder import Beside
from tableferry.pipelines.spec.names import Names
from tableferry.pipelines.spec.settings import GlobalSettings
from tableferry.pipelines.spec.source_location import SourceLocation
from tableferry.pipelines.spec.sources import View
from tableferry.pipelines.spec.substitute import Substitutions
from tableferry.pipelines.sql import references
from tableferry.tables import TableName


@dataclass(frozen=True)
class _Written:
    """A view or flow with the file and place that define it."""

    name: str
    path: Path
    place: SourceLocation


@dataclass(frozen=True)
class _WrittenView(_Written):
    view: View


@dataclass(frozen=True)
class _WrittenFlow(_Written):
    flow: models.FlowEntry


class Compiler:
    """Makes the data flow of one document."""

    def __init__(
        self,
        document: Document,
        names: Names,
        root: Path,
        settings: GlobalSettings,
        values: Substitutions,
        problems: list[Problem],
    ) -> None:
        """Take what a document is compiled with; ``problems`` gets what is wrong."""
        self._document = document
        self._names = names
        self._root = root
        self._settings = settings
        self._values = values
        self._problems = problems
        self._views: dict[str, flows.View] = {}
        self._broken: set[str] = set()

    def dataflow(self) -> flows.DataFlow:
        """Make the data flow; where something is wrong, it's told and left out."""
        spec = self._document.spec
        target = self._target()
        staging = tuple(self._staging())
        written = list(self._written_views())
        names = {each.name for each in written}
        for each in written:
            self._add_view(each, names)
        tables = {each.name: each for each in (target, *staging)}
        if isinstance(spec, models.StandardSpec):
            made = [self._standard_flow(spec, target)]
        else:
            made = [flow for each in self._written_flows() if (flow := self._flow(each, tables, names))]
        seen: set[tuple[str, str]] = set()
        for flow in made:
            if (flow.name, flow.target.key) in seen:
                file, _, path = flow.place.partition(": ")
                message = f"flow '{flow.name}' into {flow.target} exists already: give it another name"
                self._problems.append(Problem(file, path.removesuffix(".flowDetails"), message))
            seen.add((flow.name, flow.target.key))
        return flows.DataFlow(
            spec.data_flow_id,
            spec.data_flow_group,
            self._document.place.file,
            target,
            staging,
            self._views,
            tuple(made),
            migration.migration(self._document, self._views, target, self._settings, self._problems),
            {"operationalMetadataEnabled": spec.features.operational_metadata_enabled},
            spec.tags,
            frozenset(
                name
                for group in self._document.groups
                for name, flow in group.written.flows.items()
                if not flow.enabled
            ),
        )

    def _sources(self, path: Path, views: set[str]) -> Sources:
        return Sources(path, self._root, self._values, self._names, views, self._problems)

    def _target(self) -> flows.Target:
        spec = self._document.spec
        place = self._document.place
        details = spec.target_details
        laid_out = self._laid_out(
            self._names.target, details, spec.cdc_settings, self._document.path, place.at("targetDetails")
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
        for group in self._document.groups:
            for name, written in group.written.staging_tables.items():
                place = group.place.at("stagingTables", name)
                table = self._names.staging.get(place)
                if table is not None:
                    made = self._laid_out(table, written, written.cdc_settings, group.path, place)
                    yield replace(made, staging=True)

    def _laid_out(
        self,
        table: TableName,
        written: models.Layout,
        cdc: models.CdcSettings | None,
        path: Path,
        place: SourceLocation,
    ) -> flows.Target:
        return flows.Target(
            table,
            _cdc(cdc) if cdc is not None else None,
            self._sources(path, set()).schema(written.schema_path, place.at("schemaPath")),
            tuple(written.partition_columns),
            tuple(written.cluster_by_columns),
            written.cluster_by_auto,
            {**written.table_properties, **self._settings.mandatory_table_properties},
            written.path,
            place=str(place),
        )

    def _expectations(self) -> tuple[flows.Expectation, ...]:
        spec = self._document.spec
        written = spec.data_quality_expectations_path
        if not spec.data_quality_expectations_enabled or written is None:
            return ()
        place = self._document.place.at("dataQualityExpectationsPath")
        beside = Beside(self._document.path)
        path = beside.find(written, "expectations", place, self._problems, folder=True)
        if path is None:
            return ()
        return expectations.read(
            path, SourceLocation(read.name(path, self._root)), self._values, self._problems
        )

    def _written_flows(self) -> Iterator[_WrittenFlow]:
        for group in self._document.groups:
            for name, flow in group.written.flows.items():
                if flow.enabled:
                    yield _WrittenFlow(name, group.path, group.place.at("flows", name), flow)

    def _written_views(self) -> Iterator[_WrittenView]:
        document = self._document
        if isinstance(document.spec, models.StandardSpec) and document.view is not None:
            name = document.spec.source_view_name
            yield _WrittenView(name, document.path, document.place, document.view)
        for flow in self._written_flows():
            for name, view in flow.flow.views.items():
                yield _WrittenView(name, flow.path, flow.place.at("views", name), view)

    def _add_view(self, written: _WrittenView, names: set[str]) -> None:
        made = self._sources(written.path, names).view(written.name, written.view, written.place)
        if made is None:
            self._broken.add(written.name)
            return
        other = self._views.setdefault(made.name, made)
        if replace(other, place=made.place) != made:
            message = f"view '{made.name}' is another view at {other.place}: rename one of them"
            self._problems.append(written.place.problem(message))

    def _standard_flow(self, spec: models.StandardSpec, target: flows.Target) -> flows.Flow:
        name = spec.source_view_name
        kind: Literal["append", "cdc"] = "cdc" if target.cdc is not None else "append"
        return flows.Flow(f"f_{name}", kind, target.name, name, place=str(self._document.place))

    def _flow(
        self, written: _WrittenFlow, tables: dict[TableName, flows.Target], names: set[str]
    ) -> flows.Flow | None:
        flow = written.flow
        place = written.place.at("flowDetails")
        named = flow.flow_details.target_table
        table = self._names.own(named)
        if table is None or table not in tables:
            known = ", ".join(str(each) for each in tables)
            message = f"'{named}' is neither the spec's target nor its staging table: name one of {known}"
            self._problems.append(place.at("targetTable").problem(message))
            return None
        if isinstance(flow, models.AppendSqlFlow):
            view = self._sql_view(written, flow.flow_details, names)
        else:
            view = self._source_view(flow.flow_details.source_view, place.at("sourceView"))
        merges = tables[table].cdc is not None
        if merges != isinstance(flow, models.MergeFlow):
            message = (
                f"{table} has cdcSettings, so every flow into it must be of type merge"
                if merges
                else f"merge needs cdcSettings, and {table} has none: add them, or use append_view"
            )
            self._problems.append(written.place.at("flowType").problem(message))
            return None
        if view is None:
            return None
        if isinstance(flow, models.MergeFlow):
            return flows.Flow(written.name, "cdc", table, view, place=str(place))
        made = flows.Flow(written.name, "append", table, view, flow.flow_details.once, place=str(place))
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
        place = written.place.at("flowDetails")
        made = self._sources(written.path, names).sql(details.sql_statement, details.sql_path, place)
        if made is None:
            return None
        streamed = any(each.streamed for each in references(made.statement))
        mode: flows.Mode = "stream" if streamed else "batch"
        return self._own_view(flows.View(f"v_{written.name}", mode, made, str(place)))

    def _source_view(self, named: str, place: SourceLocation) -> str | None:
        """Return the view that a flow names; a staging table is followed through a view of its own."""
        if named in self._views:
            return named
        if named in self._broken:
            return None
        table = self._names.own(named)
        if table is not None and table in self._names.staging.values():
            return self._own_view(
                flows.View(f"v_{table.table}", "stream", flows.DeltaSource(table), str(place))
            )
        known = ", ".join(sorted(self._views)) or "none"
        message = f"'{named}' is no view of this spec's enabled flows (they have: {known}): define it"
        self._problems.append(place.problem(message))
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
