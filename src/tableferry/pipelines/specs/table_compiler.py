"""Resolve the names of the tables that specs fill, and compile these tables into `flows.Target`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Literal

from pydantic import Field

from tableferry.errors import Finding, TableError
from tableferry.pipelines.model import flows
from tableferry.pipelines.specs import table_models
from tableferry.pipelines.specs.project_files import ProjectFolder, find_referenced_file, find_schema_file
from tableferry.pipelines.specs.spec_models import ParsedSpec
from tableferry.pipelines.specs.substitutions import Substitutions
from tableferry.pipelines.specs.validation import (
    Name,
    SnakeModel,
    SourceLocation,
    Tag,
    parse_table_name,
    validate,
)
from tableferry.spark.tables import TableName

Unread = Literal["none", "reported", "unreported"]

_QUARANTINE_SUFFIX = "_quarantine"

# `live.x` is a table or view of the pipeline.
_LIVE = re.compile(r"\blive\s*\.\s*(?:`([^`]+)`|(\w+))", re.IGNORECASE)


class ExpectationEntry(SnakeModel):
    """One expectation."""

    name: Name
    constraint: Name
    enabled: bool = True
    tag: Tag | None = None


class ExpectationsFile(SnakeModel):
    """Expectations by the action on a row that violates them."""

    expect: list[ExpectationEntry] = Field([])
    expect_or_drop: list[ExpectationEntry] = Field([])
    expect_or_fail: list[ExpectationEntry] = Field([])


_ACTIONS: Mapping[str, Literal["warn", "drop", "fail"]] = {
    "expect": "warn",
    "expect_or_drop": "drop",
    "expect_or_fail": "fail",
}


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

    def resolve_sql(self, statement: str, views: Collection[str]) -> str:
        """Replace ``live.x`` in SQL by the full names of tables and by the names of views."""

        def resolve(match: re.Match[str]) -> str:
            name = match[1] or match[2]
            if name in views:
                return f"`{name}`"
            table = self.find_in_pipeline(name)
            return table.sql if table is not None else match[0]

        return _LIVE.sub(resolve, statement)


def resolve_tables(
    specs: Sequence[ParsedSpec],
    other_specs: Sequence[ParsedSpec],
    skipped_tables: Iterable[TableName],
    unread: Unread,
) -> list[tuple[ParsedSpec, SpecTables]]:
    """Return the specs whose target has a valid name, each with its tables.

    A table that is filled twice is reported at its location. ``other_specs`` and ``skipped_tables`` only make
    the names of their tables known.
    """
    resolved = [(spec, tables) for spec in specs if (tables := _resolve_names(spec)) is not None]
    others = [tables for spec in other_specs if (tables := _resolve_names(spec)) is not None]
    if len(resolved) < len(specs):
        unread = "reported"
    owners: dict[str, SourceLocation] = {}
    for spec, tables in resolved:
        places = (spec.table_location, *tables.staging, spec.location.at("quarantineTargetDetails"))
        for location, table in zip(places, tables.filled, strict=False):
            owner = owners.setdefault(table.key, location)
            if owner != location:
                location.report(Finding("SPEC_TABLE_FILLED_TWICE", table=table, other=owner))
    by_name: dict[str, TableName | None] = {}
    filled = [tables.filled for tables in (*(tables for _, tables in resolved), *others)]
    for table in chain(*filled, skipped_tables):
        name = table.table.lower()
        by_name[name] = table if by_name.get(name, table) == table else None
    siblings = {name: table for name, table in by_name.items() if table is not None}
    return [(spec, replace(tables, siblings=siblings, unread=unread)) for spec, tables in resolved]


def _resolve_names(spec: ParsedSpec) -> SpecTables | None:
    database = spec.details.database
    target = parse_table_name(database, spec.table, spec.table_location)
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


def _resolve_quarantine(spec: ParsedSpec, target: TableName) -> TableName | None:
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
        mandatory: Table properties that all tables of the project get.
        metadata: The operational metadata columns of the project's layer, unless the spec disables them.
    """

    tables: SpecTables
    folder: ProjectFolder
    mandatory: Mapping[str, str]
    substitutions: Substitutions
    metadata: tuple[flows.MetadataColumn, ...]

    def compile_target(self, spec: ParsedSpec) -> tuple[flows.Target, flows.Target | None]:
        """Return the target of a spec, and its quarantine table if it has one."""
        target = self.compile(self.tables.target, spec.details, spec.details_location)
        if isinstance(spec.model, table_models.CdcTable):
            target = self.add_cdc(target, spec.model, spec.location)
        expectations = self._read_expectations(spec)
        # A row fulfils this condition if it violates no expectation.
        rule = " AND ".join(f"({expectation.constraint})" for expectation in expectations)
        mode = spec.model.quarantine_mode if expectations else "off"
        if mode == "flag":
            warnings = (replace(expectation, action="warn") for expectation in expectations)
            expectations = (*warnings, flows.Expectation(flows.QUARANTINED_COLUMN, rule, "flag"))
        target = replace(target, expectations=expectations)
        if mode != "table" or self.tables.quarantine is None:
            return target, None
        details = spec.model.quarantine_target_details or table_models.QuarantineTarget.model_validate({})
        location = spec.location.at("quarantineTargetDetails")
        quarantine = replace(
            self._compile_layout(self.tables.quarantine, details, location),
            spark_conf=target.spark_conf,
            expectations=(flows.Expectation("quarantine", rule, "quarantine"),),
            metadata=target.metadata,
        )
        return target, quarantine

    def compile(
        self, name: TableName, layout: table_models.TableLayout, location: SourceLocation
    ) -> flows.Target:
        """Compile a table without its settings for change events and its expectations."""
        has_metadata = "disableOperationalMetadata" not in layout.config_flags
        # Staging tables have no settings that are only for readers.
        for_readers = layout.model_dump(include={"comment", "spark_conf", "row_filter"})
        return replace(
            self._compile_layout(name, layout, location),
            schema_file=find_schema_file(layout.schema_path, location.at("schemaPath")),
            metadata=self.metadata if has_metadata else (),
            **for_readers,
        )

    def _compile_layout(
        self, name: TableName, layout: table_models.StorageLayout, location: SourceLocation
    ) -> flows.Target:
        return flows.Target(
            name,
            partition_columns=layout.partition_columns,
            cluster_columns=layout.cluster_columns,
            cluster_auto=layout.cluster_auto,
            properties={**layout.properties, **self.mandatory},
            path=layout.folder,
            location=str(location),
        )

    def add_cdc(
        self, target: flows.Target, model: table_models.CdcTable, location: SourceLocation
    ) -> flows.Target:
        """Return a table with its settings for change events or snapshots."""
        cdc, snapshots = model.cdc_settings, model.cdc_snapshot_settings
        if snapshots is None:
            return replace(target, cdc=flows.CdcSettings(**cdc.model_dump()) if cdc is not None else None)
        if target.metadata:
            location.at("configFlags").report(Finding("SPEC_SNAPSHOTS_WITH_METADATA"))
        return replace(target, snapshots=_compile_snapshots(snapshots, location.at("cdcSnapshotSettings")))

    def _read_expectations(self, spec: ParsedSpec) -> tuple[flows.Expectation, ...]:
        """Read the expectations of a spec from its file, or from all files in its folder."""
        path = spec.model.data_quality_expectations_path
        if not spec.model.data_quality_expectations_enabled or path is None:
            return ()
        place = spec.location.at("dataQualityExpectationsPath")
        found = find_referenced_file(path, "expectations", place, allow_folder=True)
        if found is None:
            return ()
        expectations: dict[str, flows.Expectation] = {}
        for file in self.folder.list_files(found) if found.is_dir() else [found]:
            location = self.folder.location(file)
            for key, entries in self.substitutions.read_model(ExpectationsFile, location) or ():
                for position, entry in enumerate(entries):
                    if not entry.enabled:
                        continue
                    if entry.name in expectations:
                        taken = Finding("SPEC_EXPECTATION_NAME_TAKEN", name=entry.name)
                        location.at(key, position, "name").report(taken)
                    expectations[entry.name] = flows.Expectation(entry.name, entry.constraint, _ACTIONS[key])
        return tuple(expectations.values())


def _compile_snapshots(
    settings: table_models.CdcSnapshotSettings, location: SourceLocation
) -> flows.SnapshotCdc | None:
    """Compile settings for snapshots; the spec compiler adds the view of periodic snapshots."""
    source: str | flows.SnapshotFiles | flows.SnapshotTable | None = ""
    if settings.snapshot_type == "historical":
        source = _compile_snapshot_source(settings, location.at("source"))
    if source is None:
        return None
    shared = settings.model_dump(include=set(table_models.ScdSettings.model_fields))
    return flows.SnapshotCdc(source=source, location=str(location), **shared)


def _compile_snapshot_source(
    settings: table_models.CdcSnapshotSettings, location: SourceLocation
) -> flows.SnapshotFiles | flows.SnapshotTable | None:
    data = settings.source or {}
    if settings.source_type == "table":
        table = validate(table_models.SnapshotTableEntry, data, location)
        name = parse_table_name(None, table.table, location.at("table")) if table else None
        return flows.SnapshotTable(**{**table.model_dump(), "table": name}) if table and name else None
    files = validate(table_models.SnapshotFilesEntry, data, location)
    if files is None:
        return None
    schema_file = find_schema_file(files.schema_path, location.at("schemaPath"))
    shared = files.model_dump(exclude={"schema_path", "micro_second_mask_length"})
    return flows.SnapshotFiles(schema_file=schema_file, **shared)
