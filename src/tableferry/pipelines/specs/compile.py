"""Checked specs made into the one shape that all else works with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from tableferry.errors import Finding, Problem
from tableferry.pipelines.model import flows, sql
from tableferry.pipelines.specs import migration, models
from tableferry.pipelines.specs.compile_sources import Sources
from tableferry.pipelines.specs.compile_targets import Targets
from tableferry.pipelines.specs.documents import Document
from tableferry.pipelines.specs.names import Names
from tableferry.pipelines.specs.source_location import SourceLocation
from tableferry.pipelines.specs.sources import View
from tableferry.spark.tables import TableName


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
    """Makes the data flow of one document."""

    document: Document
    targets: Targets
    _views: dict[str, flows.View] = field(default_factory=dict)
    _broken: set[str] = field(default_factory=set)
    # What the flows into tables of snapshots read, by the table.
    _snapshots: dict[TableName, str] = field(default_factory=dict)

    @property
    def names(self) -> Names:
        """The tables that the spec fills."""
        return self.targets.names

    @property
    def problems(self) -> list[Problem]:
        """Gets what is wrong."""
        return self.targets.problems

    def dataflow(self) -> flows.DataFlow:
        """Make the data flow; where something is wrong, it's reported and left out."""
        spec = self.document.spec
        target, quarantine = self.targets.judged(self._target(), self.document)
        staging = list(self._staging())
        written = list(self._written_views())
        names = {view.name for view in written}
        for view in written:
            self._add_view(view, names)
        tables = {table.name: table for table in (target, *staging)}
        compiled_flows: list[flows.Flow]
        if isinstance(spec, models.StandardSpec):
            compiled_flows = self._standard_flow(spec, target)
        else:
            compiled_flows = [
                flow for entry in self._written_flows() if (flow := self._flow(entry, tables, names))
            ]
        if quarantine is not None:
            compiled_flows += _quarantine_flows(compiled_flows, target, quarantine)
        self._check_names(compiled_flows)
        target, *staging = (self._with_snapshots(table) for table in (target, *staging))
        return flows.DataFlow(
            spec.data_flow_id,
            spec.data_flow_group,
            self.document.location.file,
            target,
            tuple(staging),
            self._views,
            tuple(compiled_flows),
            migration.migration(self.document, self._views, target, self.targets.settings, self.problems),
            {"operationalMetadataEnabled": spec.features.operational_metadata_enabled},
            spec.tags,
            frozenset(
                name
                for group in self.document.groups
                for name, flow in group.written.flows.items()
                if not flow.enabled
            ),
            quarantine,
        )

    def _check_names(self, compiled_flows: list[flows.Flow]) -> None:
        """Refuse two flows of one name into one table, which would share their checkpoint."""
        seen: set[tuple[str, str]] = set()
        for flow in compiled_flows:
            if (flow.name, flow.target.key) in seen:
                file, _, path = flow.location.partition(": ")
                taken = Finding("SPEC_FLOW_NAME_TAKEN", flow=flow.name, table=flow.target)
                self.problems.append(Problem.of(taken, file, path.removesuffix(".flowDetails")))
            seen.add((flow.name, flow.target.key))

    def _with_snapshots(self, table: flows.Target) -> flows.Target:
        """Give a table of periodic snapshots the view that is one."""
        snapshots = table.snapshots
        if snapshots is None or snapshots.source != "":
            return table
        view = self._snapshots.get(table.name)
        if view is None:
            file, _, path = snapshots.location.partition(": ")
            missing = Finding("SPEC_SNAPSHOTS_WITHOUT_FLOW", table=table.name)
            if not self._broken:
                self.problems.append(Problem.of(missing, file, path))
            return table
        if self._views[view].mode == "stream":
            file, _, path = self._views[view].location.partition(": ")
            path = path.removesuffix(".sourceDetails").removesuffix("sourceDetails")
            streamed = Finding("SPEC_SNAPSHOT_READ_AS_STREAM")
            self.problems.append(Problem.of(streamed, file, f"{path}.mode" if path else "mode"))
        return replace(table, snapshots=replace(snapshots, source=view))

    def _sources(self, path: Path, views: set[str]) -> Sources:
        return self.targets.sources(path, views)

    def _target(self) -> flows.Target:
        spec = self.document.spec
        location = self.document.location
        details = spec.target_details
        laid_out = self.targets.laid_out(
            self.names.target,
            details,
            self.document.path,
            location.at("targetDetails"),
            # Of snapshots these columns would say that every row is new.
            metadata=spec.features.operational_metadata_enabled and spec.cdc_snapshot_settings is None,
        )
        filled = self.targets.filled_by(
            laid_out, spec.cdc_settings, spec.cdc_snapshot_settings, self.document.path, location
        )
        return replace(
            filled,
            path=details.path or details.table_path,
            comment=details.comment,
            spark_conf=details.spark_conf,
            row_filter=details.row_filter,
        )

    def _staging(self) -> Iterator[flows.Target]:
        metadata = self.document.spec.features.operational_metadata_enabled
        metadata = metadata and self.document.spec.cdc_snapshot_settings is None
        for group in self.document.groups:
            for name, written in group.written.staging_tables.items():
                location = group.location.at("stagingTables", name)
                table = self.names.staging.get(location)
                if table is not None:
                    laid_out = self.targets.laid_out(table, written, group.path, location, metadata=metadata)
                    yield self.targets.filled_by(
                        laid_out, written.cdc_settings, written.cdc_snapshot_settings, group.path, location
                    )

    def _written_flows(self) -> Iterator[_WrittenFlow]:
        for group in self.document.groups:
            for name, flow in group.written.flows.items():
                if flow.enabled:
                    yield _WrittenFlow(name, group.path, group.location.at("flows", name), flow)

    def _written_views(self) -> Iterator[_WrittenView]:
        document = self.document
        name = document.spec.source_view_name if isinstance(document.spec, models.StandardSpec) else None
        if name is not None and document.view is not None:
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
            taken = Finding("SPEC_VIEW_NAME_TAKEN", view=made.name, other=other.location)
            self.problems.append(written.location.problem(taken))

    def _standard_flow(self, spec: models.StandardSpec, target: flows.Target) -> list[flows.Flow]:
        name = spec.source_view_name
        if name is None:
            return []
        if target.snapshots is not None:
            if name in self._views:
                self._snapshots[target.name] = name
            return []
        kind: Literal["append", "cdc"] = "cdc" if target.cdc is not None else "append"
        return [flows.Flow(f"f_{name}", kind, target.name, name, location=str(self.document.location))]

    def _flow(
        self, written: _WrittenFlow, tables: dict[TableName, flows.Target], names: set[str]
    ) -> flows.Flow | None:
        flow = written.flow
        location = written.location.at("flowDetails")
        target_table = flow.flow_details.target_table
        table = self.names.own(target_table)
        if table is None or table not in tables:
            known = ", ".join(str(name) for name in tables)
            unknown = Finding("SPEC_FLOW_TARGET_UNKNOWN", table=target_table, known=known)
            self.problems.append(location.at("targetTable").problem(unknown))
            return None
        if isinstance(flow, models.AppendSqlFlow):
            view = self._sql_view(written, flow.flow_details, names)
        else:
            view = self._source_view(flow.flow_details.source_view, location.at("sourceView"))
        snapshots = tables[table].snapshots
        merges = tables[table].cdc is not None or snapshots is not None
        kind = "cdcSettings" if snapshots is None else "cdcSnapshotSettings"
        if merges != isinstance(flow, models.MergeFlow):
            finding = (
                Finding("SPEC_FLOW_MUST_MERGE", table=table, setting=kind)
                if merges
                else Finding("SPEC_MERGE_WITHOUT_CDC", table=table)
            )
            self.problems.append(written.location.at("flowType").problem(finding))
            return None
        if view is None:
            return None
        if snapshots is not None:
            self._bring_snapshots(written, tables[table], view)
            return None
        if isinstance(flow, models.MergeFlow):
            return flows.Flow(written.name, "cdc", table, view, location=str(location))
        made = flows.Flow(written.name, "append", table, view, flow.flow_details.once, location=str(location))
        if isinstance(flow, models.AppendViewFlow):
            prefix = flow.flow_details.column_prefix
            return replace(
                made,
                column_prefix=f"{prefix.lower()}_" if prefix else None,
                column_prefix_exceptions=tuple(flow.flow_details.column_prefix_exceptions),
            )
        return made

    def _bring_snapshots(self, written: _WrittenFlow, table: flows.Target, view: str) -> None:
        """Let a flow's view be the snapshots of a table."""
        if table.snapshots is not None and table.snapshots.source != "":
            finding = Finding("SPEC_SNAPSHOTS_FROM_SOURCE", table=table.name)
            self.problems.append(written.location.problem(finding))
        elif self._snapshots.setdefault(table.name, view) != view:
            finding = Finding("SPEC_SNAPSHOTS_OF_SEVERAL_FLOWS", table=table.name)
            self.problems.append(written.location.problem(finding))

    def _sql_view(
        self, written: _WrittenFlow, details: models.AppendSqlDetails, names: set[str]
    ) -> str | None:
        """Make the view of an append_sql flow; return its name."""
        location = written.location.at("flowDetails")
        source = self._sources(written.path, names).sql(details.sql_statement, details.sql_path, location)
        if source is None:
            return None
        streamed = any(reference.streamed for reference in sql.references(source.statement))
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
        self.problems.append(location.problem(Finding("SPEC_VIEW_UNKNOWN", view=name, known=known)))
        return None

    def _own_view(self, view: flows.View) -> str:
        while (other := self._views.get(view.name)) is not None and other.source != view.source:
            view = replace(view, name=view.name + "_")
        self._views.setdefault(view.name, view)
        return view.name


def _quarantine_flows(
    compiled: list[flows.Flow], target: flows.Target, quarantine: flows.Target
) -> list[flows.Flow]:
    """Return, for each flow into a target, the one that brings the rows that break a rule.

    It goes by the view, and by the flow where another one into the target has the same view.
    """
    made: dict[str, flows.Flow] = {}
    for flow in compiled:
        if flow.target == target.name:
            name = f"f_quarantine_{flow.view}_quarantine"
            name = f"f_quarantine_{flow.name}_quarantine" if name in made else name
            made[name] = replace(flow, name=name, kind="append", target=quarantine.name)
    return list(made.values())
