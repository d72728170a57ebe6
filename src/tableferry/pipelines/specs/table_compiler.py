"""Compile tables into `flows.Target`, and resolve the names of the tables that specs fill."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Literal

from tableferry.errors import Finding, TableError
from tableferry.pipelines.model import flows
from tableferry.pipelines.specs import table_models
from tableferry.pipelines.specs.expectations import flag_violations, join_constraints, read_expectations
from tableferry.pipelines.specs.parsed_specs import AnySpec
from tableferry.pipelines.specs.project_files import (
    ProjectFolder,
    SourceLocation,
    find_schema_file,
)
from tableferry.pipelines.specs.spec_models import GlobalSettings
from tableferry.pipelines.specs.substitutions import Substitutions
from tableferry.pipelines.specs.validation import parse_table_name, to_path, validate
from tableferry.spark.tables import TableName

Unread = Literal["none", "reported", "unreported"]

_QUARANTINE_SUFFIX = "_quarantine"

# `live.x` is a table or view of the pipeline.
_LIVE = re.compile(r"\blive\s*\.\s*(?:`([^`]+)`|(\w+))", re.IGNORECASE)


@dataclass(frozen=True)
class SpecTables:
    """The tables that one spec fills, and those of the project's other specs.

    Attributes:
        staging: The staging tables by the location of their definition.
        siblings: Tables of the project's other specs by their names without schema, if these are unique.
        unread: Whether other specs couldn't be read, and whether their problems are reported.
        quarantine: The table of the rows that violate an expectation of the target, or None.
    """

    target: TableName
    staging: Mapping[SourceLocation, TableName]
    siblings: Mapping[str, TableName] = field(default_factory=dict)
    unread: Unread = "none"
    quarantine: TableName | None = None

    @property
    def filled(self) -> tuple[TableName, ...]:
        """All tables of the spec."""
        quarantine = () if self.quarantine is None else (self.quarantine,)
        return (self.target, *self.staging.values(), *quarantine)

    def find(self, name: str) -> TableName | None:
        """Return the target or staging table with this name, which may lack the catalog and the schema."""
        try:
            parts = [part.lower() for part in TableName.parse(name).parts]
        except TableError:
            return None
        if len(parts) == 2 and parts[0] == "live":
            parts = parts[1:]
        for table in (self.target, *self.staging.values()):
            if parts == [part.lower() for part in table.parts][-len(parts) :]:
                return table
        return None

    def find_in_pipeline(self, name: str) -> TableName | None:
        """Return the table of this or of another spec with this name."""
        return self.find(name) or self.siblings.get(name.lower())

    def resolve_sql(self, statement: str, views: set[str]) -> str:
        """Replace ``live.x`` in SQL by the full names of tables and by the names of views."""

        def resolve(match: re.Match[str]) -> str:
            name = match[1] or match[2]
            if name in views:
                return f"`{name}`"
            table = self.find_in_pipeline(name)
            return table.sql if table is not None else match[0]

        return _LIVE.sub(resolve, statement)


def resolve_tables(
    specs: Sequence[AnySpec],
    other_specs: Sequence[AnySpec],
    skipped_tables: Iterable[TableName],
    unread: Unread,
) -> list[tuple[AnySpec, SpecTables]]:
    """Return each spec with its tables; report tables that two specs fill.

    Of ``other_specs``, which aren't loaded, and of skipped specs only the names of the tables matter.
    """
    resolved: list[tuple[AnySpec, SpecTables]] = []
    owners: dict[str, SourceLocation] = {}
    for spec in specs:
        tables = _resolve_names(spec)
        if tables is None:
            unread = "reported"
            continue
        resolved.append((spec, tables))
        filled = [(spec.target_location, tables.target), *tables.staging.items()]
        if tables.quarantine is not None:
            filled.append((spec.location.at("quarantineTargetDetails"), tables.quarantine))
        for location, table in filled:
            owner = owners.setdefault(table.key, location)
            if owner != location:
                location.report(Finding("SPEC_TABLE_FILLED_TWICE", table=table, other=owner))
    others = [tables for spec in other_specs if (tables := _resolve_names(spec)) is not None]
    by_name: dict[str, TableName | None] = {}
    filled_tables = [tables.filled for tables in (*(tables for _, tables in resolved), *others)]
    for table in chain(*filled_tables, skipped_tables):
        name = table.table.lower()
        by_name[name] = table if by_name.get(name, table) == table else None
    siblings = {name: table for name, table in by_name.items() if table is not None}
    return [(spec, replace(tables, siblings=siblings, unread=unread)) for spec, tables in resolved]


def _resolve_names(spec: AnySpec) -> SpecTables | None:
    database, name = spec.target_name
    target = parse_table_name(database, name, spec.target_location)
    if target is None:
        return None
    staging = {}
    for group in spec.groups:
        for name, written in group.model.staging_tables.items():
            location = group.location.at("stagingTables", name)
            table = parse_table_name(written.database or database, name, location)
            if table is not None:
                staging[location] = table
    return SpecTables(target, staging, quarantine=_resolve_quarantine(spec, target))


def _resolve_quarantine(spec: AnySpec, target: TableName) -> TableName | None:
    if spec.model.quarantine_mode != "table":
        return None
    details = spec.model.quarantine_target_details
    if details is not None and (details.table or details.database):
        name = details.table or target.table + _QUARANTINE_SUFFIX
        return parse_table_name(details.database, name, spec.location.at("quarantineTargetDetails", "table"))
    return TableName((*target.parts[:-1], target.table + _QUARANTINE_SUFFIX))


@dataclass(frozen=True)
class TableCompiler:
    """Compiles the tables of one spec.

    Attributes:
        metadata: The operational metadata columns of the project's layer, unless the spec disables them.
    """

    tables: SpecTables
    folder: ProjectFolder
    settings: GlobalSettings
    substitutions: Substitutions
    metadata: tuple[flows.MetadataColumn, ...]

    def compile(
        self,
        table: TableName,
        layout: table_models.TableLayout,
        location: SourceLocation,
    ) -> flows.Target:
        """Compile a table without its settings for change events and its expectations."""
        has_metadata = "disableOperationalMetadata" not in layout.config_flags
        output = layout if isinstance(layout, table_models.OutputTable) else None
        table_path = layout.table_path if isinstance(layout, table_models.TargetDetails) else None
        return flows.Target(
            table,
            None,
            find_schema_file(layout.schema_path, location.at("schemaPath")),
            tuple(layout.partition_columns),
            tuple(layout.cluster_by_columns),
            layout.cluster_by_auto,
            self._add_mandatory(layout.table_properties),
            layout.path or table_path,
            location=str(location),
            metadata=self.metadata if has_metadata else (),
            comment=output.comment if output else None,
            spark_conf=output.spark_conf if output else {},
            row_filter=output.row_filter if output else None,
        )

    def add_cdc(
        self,
        target: flows.Target,
        model: table_models.CdcTable,
        location: SourceLocation,
    ) -> flows.Target:
        """Return a table with its settings for change events or snapshots."""
        cdc, snapshots = model.cdc_settings, model.cdc_snapshot_settings
        if snapshots is None:
            return replace(target, cdc=_compile_cdc(cdc) if cdc is not None else None)
        if target.metadata:
            location.at("configFlags").report(Finding("SPEC_SNAPSHOTS_WITH_METADATA"))
        return replace(target, snapshots=_compile_snapshots(snapshots, location.at("cdcSnapshotSettings")))

    def add_expectations(
        self, target: flows.Target, spec: AnySpec
    ) -> tuple[flows.Target, flows.Target | None]:
        """Return a target with its expectations, and its quarantine table if it has one."""
        expectations = read_expectations(spec, self.folder, self.substitutions)
        mode = spec.model.quarantine_mode if expectations else "off"
        flagged = flag_violations(expectations) if mode == "flag" else expectations
        target = replace(target, expectations=flagged)
        if mode != "table" or self.tables.quarantine is None:
            return target, None
        details = spec.model.quarantine_target_details or table_models.QuarantineTarget.model_validate({})
        quarantine = flows.Target(
            self.tables.quarantine,
            partition_columns=tuple(details.partition_columns),
            cluster_columns=tuple(details.cluster_by_columns),
            cluster_auto=details.cluster_by_auto,
            properties=self._add_mandatory(details.table_properties),
            path=details.path,
            spark_conf=target.spark_conf,
            expectations=(flows.Expectation("quarantine", join_constraints(expectations), "quarantine"),),
            location=str(spec.location.at("quarantineTargetDetails")),
            metadata=target.metadata,
        )
        return target, quarantine

    def _add_mandatory(self, properties: Mapping[str, str]) -> dict[str, str]:
        return {**properties, **self.settings.mandatory_table_properties}


def _compile_cdc(settings: table_models.CdcSettingsEntry) -> flows.CdcSettings:
    return flows.CdcSettings(
        tuple(settings.keys),
        settings.sequence_by,
        1 if settings.scd_type == "1" else 2,
        _drop_blank(settings.where),
        _drop_blank(settings.apply_as_deletes),
        _drop_blank(settings.apply_as_truncates),
        settings.ignore_null_updates,
        tuple(settings.column_list),
        tuple(settings.except_column_list),
        tuple(settings.track_history_column_list),
        tuple(settings.track_history_except_column_list),
    )


def _drop_blank(condition: str | None) -> str | None:
    return condition if condition is not None and condition.strip() else None


def _compile_snapshots(
    settings: table_models.CdcSnapshotSettings, location: SourceLocation
) -> flows.SnapshotCdc | None:
    """Compile settings for snapshots; the flow compiler adds the view of periodic snapshots."""
    source: str | flows.SnapshotFiles | flows.SnapshotTable | None = ""
    if settings.snapshot_type == "historical":
        source = _compile_snapshot_source(settings, location.at("source"))
    if source is None:
        return None
    return flows.SnapshotCdc(
        tuple(settings.keys),
        1 if settings.scd_type == "1" else 2,
        source,
        tuple(settings.track_history_column_list),
        tuple(settings.track_history_except_column_list),
        str(location),
    )


def _compile_snapshot_source(
    settings: table_models.CdcSnapshotSettings, location: SourceLocation
) -> flows.SnapshotFiles | flows.SnapshotTable | None:
    data = settings.source or {}
    if settings.source_type == "table":
        table = validate(table_models.SnapshotTableEntry, data, location)
        name = parse_table_name(None, table.table, location.at("table")) if table else None
        if table is None or name is None:
            return None
        return flows.SnapshotTable(
            name,
            table.version_column,
            table.version_type,
            table.starting_version,
            tuple(table.select_exp),
            table.deduplicate_mode,
        )
    files = validate(table_models.SnapshotFilesEntry, data, location)
    if files is None:
        return None
    return flows.SnapshotFiles(
        files.format,
        to_path(files.path),
        files.version_type,
        files.reader_options,
        files.starting_version,
        files.datetime_format,
        _drop_blank(files.filter),
        tuple(files.select_exp),
        find_schema_file(files.schema_path, location.at("schemaPath")),
        files.recursive_file_lookup,
        files.deduplicate_mode,
    )
