"""Read spec files into validated models: each main file with the flow groups that belong to it.

Before validation, files in earlier versions of the format are upgraded, and unsupported features reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tableferry.errors import Finding
from tableferry.pipelines.model.flows import SkippedSpec
from tableferry.pipelines.specs.project_files import (
    ProjectFolder,
    SourceLocation,
    describe_value,
    read_mapping,
)
from tableferry.pipelines.specs.spec_models import (
    VIEW_KEYS,
    FlowGroup,
    FlowGroupFile,
    FlowGroupsFile,
    FlowSpec,
    GlobalSettings,
    MaterializedViewEntry,
    MaterializedViewsSpec,
    StandardSpec,
)
from tableferry.pipelines.specs.substitutions import Substitutions
from tableferry.pipelines.specs.templates import TemplateReader
from tableferry.pipelines.specs.validation import MISSING, parse_table_name, validate
from tableferry.pipelines.specs.view_models import ViewEntry, ViewRoot
from tableferry.spark.tables import TableName

_TYPES = "'standard', 'flow' or 'materialized_view'"

_SINKS = ("delta_sink", "kafka_sink", "foreach_batch_sink", "custom_python_sink")

# Keys at any depth that a version of the format names differently.
_RENAMED_KEYS: Mapping[str, Mapping[str, str]] = {
    "0.1.0": {"cdcApplyChanges": "cdcSettings", "cdcApplyChangesFromSnapshot": "cdcSnapshotSettings"},
    "0.2.0": {
        "cdcApplyChanges": "cdcSettings",
        "cdcApplyChangesFromSnapshot": "cdcSnapshotSettings",
        "spark_conf": "sparkConf",
        "pythonFunctionPath": "functionPath",
    },
}


@dataclass(frozen=True)
class ParsedFlowGroup:
    """A flow group."""

    location: SourceLocation
    model: FlowGroup


@dataclass(frozen=True)
class ParsedSpec:
    """A valid spec of a streaming table.

    Attributes:
        location: The main file, or one spec of its template.
        view: The view of a standard spec.
        groups: The groups of a flow spec, including those in separate files.
    """

    location: SourceLocation
    model: StandardSpec | FlowSpec
    view: ViewEntry | None
    groups: tuple[ParsedFlowGroup, ...]

    @property
    def target_name(self) -> tuple[str | None, str]:
        """The database and the name of the table that the spec fills."""
        return self.model.target_details.database, self.model.target_details.table

    @property
    def target_location(self) -> SourceLocation:
        """The location of that name."""
        return self.location.at("targetDetails", "table")

    @property
    def has_metadata(self) -> bool:
        """Whether the rows get operational metadata; it would mark every row of a snapshot as changed."""
        return self.model.features.operational_metadata_enabled and self.model.cdc_snapshot_settings is None


@dataclass(frozen=True)
class ParsedMaterializedView:
    """A valid materialized view of a spec.

    Attributes:
        location: The location of the view's definition.
        spec: The whole spec.
        view: The source of the rows; None for SQL.
    """

    location: SourceLocation
    name: str
    model: MaterializedViewEntry
    spec: MaterializedViewsSpec
    view: ViewEntry | None
    groups: tuple[ParsedFlowGroup, ...] = ()

    @property
    def target_name(self) -> tuple[str | None, str]:
        """The database and the name of the view's table."""
        return self.model.table_details.database, self.name

    @property
    def target_location(self) -> SourceLocation:
        """The location of that name."""
        return self.location

    @property
    def has_metadata(self) -> bool:
        """Whether the rows get operational metadata columns."""
        return self.spec.features.operational_metadata_enabled


AnySpec = ParsedSpec | ParsedMaterializedView


@dataclass(frozen=True)
class _SpecFile:
    """The content of a main file or of a file with flow groups."""

    location: SourceLocation
    data: dict[str, Any]

    @property
    def id(self) -> Any:
        """The value of dataFlowId, which may have any type; None if it's missing."""
        return self.data.get("dataFlowId")


class SpecReader:
    """Reads the specs of a project, and reports every problem in them.

    Attributes:
        is_complete: Every file could be read and is valid.
        skipped: Specs that are left out because of unsupported features.
    """

    def __init__(self, folder: ProjectFolder, settings: GlobalSettings, substitutions: Substitutions) -> None:
        """Read the folder's files with these settings."""
        self._folder = folder
        self._problems = folder.problems
        self._settings = settings
        self._substitutions = substitutions
        self._templates = TemplateReader(folder)
        self._main_files: list[_SpecFile] = []
        self._group_files: list[_SpecFile] = []
        self._groups: dict[str, list[ParsedFlowGroup]] = {}
        # Ids of specs with a broken file of flow groups; None for a file whose id can't be read.
        self._broken_ids: set[str | None] = set()
        self.is_complete = True
        self.skipped: tuple[SkippedSpec, ...] = ()

    def read(self) -> list[AnySpec]:
        """Read all specs of the project."""
        for path in self._folder.main_files:
            self._read_main_file(path)
        for path in self._folder.group_files:
            self._read_group_file(path)
        self._upgrade_files()
        self._skip_unsupported()
        for file in self._group_files:
            self._parse_groups(file)
        specs: list[AnySpec] = []
        views: list[AnySpec] = []
        seen: dict[tuple[str, str], SourceLocation] = {}
        for main in self._main_files:
            key = str(main.id)
            # Pipelines select specs by their group, but files with flow groups name only the id.
            group = "" if key in self._groups else str(main.data.get("dataFlowGroup"))
            owner = seen.setdefault((key, group), main.location)
            if owner is not main.location and isinstance(main.id, str):
                taken = Finding("SPEC_ID_TAKEN", id=key, other=owner.file)
                main.location.at("dataFlowId").report(taken)
            if main.data.get("dataFlowType") == "materialized_view":
                views += self._parse_materialized_views(main, self._groups.get(key, []))
                continue
            spec = self._parse_spec(main, self._groups.get(key, []))
            # Without its broken flow groups, references to their views and tables would be reported.
            if spec is not None and key not in self._broken_ids:
                specs.append(spec)
            else:
                self.is_complete = False
        if self._broken_ids:
            self.is_complete = False
        return [*specs, *views]

    def _read_main_file(self, path: Path) -> None:
        """Add a main file, or the specs of the template that it names."""
        location = self._folder.location(path)
        data = self._read_file(location)
        if data is not None and "template" not in data:
            self._main_files.append(_SpecFile(location, data))
            return
        before = len(self._problems)
        for key, spec in self._templates.expand(data, location) if data is not None else ():
            self._main_files.append(_SpecFile(replace(location, file=f"{location.file}#{key}"), spec))
        if data is None or len(self._problems) > before:
            self.is_complete = False

    def _read_group_file(self, path: Path) -> None:
        """Add a file with flow groups; report its problems after its spec is known."""
        location = self._folder.location(path).with_problems([])
        data = self._read_file(location)
        if data is not None:
            self._group_files.append(_SpecFile(location, data))
        else:
            self._problems += location.problems
            self._broken_ids.add(None)

    def _read_file(self, location: SourceLocation) -> dict[str, Any] | None:
        required = self._settings.pipeline_bundle_spec_format
        actual = "json" if location.disk_path.suffix == ".json" else "yaml"
        if required and required.format != actual and not required.allow_override:
            location.report(Finding("SPEC_FORMAT_DIFFERS", actual=actual.upper(), required=required.format))
        return read_mapping(location)

    def _upgrade_files(self) -> None:
        """Convert files in earlier versions of the format."""
        versions = {
            main.id: main.data.get("dataFlowVersion") or self._settings.dataflow_spec_version
            for main in self._main_files
            if isinstance(main.id, str)
        }
        self._main_files, self._group_files = (
            [
                replace(file, data=_upgrade_format(file.data, versions.get(file.id)))
                if isinstance(file.id, str)
                else file
                for file in files
            ]
            for files in (self._main_files, self._group_files)
        )

    def _skip_unsupported(self) -> None:
        """Leave out specs with unsupported features, unless every spec has some.

        A spec with a migration and a single spec are reported instead.
        """
        skipped: dict[str, SkippedSpec] = {}
        for main in [] if self._folder.is_single_spec else self._main_files:
            if not isinstance(main.id, str) or _has_migration(main.data):
                continue
            location = main.location.with_problems([])
            _report_unsupported(main.data, location)
            for file in self._group_files:
                if file.id == main.id:
                    _report_unsupported_groups(file.data, file.location.with_problems(location.problems))
            if location.problems:
                target = self._find_target(main.data, main.location)
                skipped[main.id] = SkippedSpec(location.file, target, tuple(location.problems))
        if len(skipped) == len(self._main_files) and self.is_complete:
            return
        self.skipped = tuple(skipped.values())
        ids = tuple(skipped)  # An id in a file may be unhashable.
        self._main_files = [main for main in self._main_files if main.id not in ids]
        self._group_files = [file for file in self._group_files if file.id not in ids]

    def _find_target(self, data: dict[str, Any], location: SourceLocation) -> TableName | None:
        """Return the target of a spec that isn't validated."""
        quiet = location.with_problems([])
        target = self._substitutions.apply(data, quiet).get("targetDetails")
        if not isinstance(target, dict) or not isinstance(table := target.get("table"), str):
            return None
        database = target.get("database")
        return parse_table_name(database if isinstance(database, str) else None, table, quiet)

    def _parse_groups(self, file: _SpecFile) -> None:
        """Add the flow groups of a file to the groups of its spec."""
        key = file.id
        owners = [main.data for main in self._main_files if main.id == key]
        # The groups may belong to a spec that isn't loaded or can't be read.
        if isinstance(key, str) and not owners and (self._folder.is_single_spec or not self.is_complete):
            return
        self._problems += file.location.problems
        location = file.location.with_problems(self._problems)
        if isinstance(key, str) and not owners:
            location.at("dataFlowId").report(Finding("SPEC_GROUP_WITHOUT_SPEC", id=key))
            self._broken_ids.add(key)
            return
        if any(main.get("dataFlowType") == "standard" for main in owners):
            location.at("dataFlowId").report(Finding("SPEC_STANDARD_WITH_FLOW_GROUPS", id=key))
            return
        refused = _report_unsupported_groups(file.data, location)
        data = self._substitute(file.data, location, refused)
        model: type[FlowGroupsFile | FlowGroupFile] = (
            FlowGroupsFile if "flowGroups" in data else FlowGroupFile
        )
        parsed = validate(model, data, location, refused)
        if parsed is None or refused:
            self._broken_ids.add(key if isinstance(key, str) else None)
            return
        self._groups.setdefault(str(key), []).extend(
            _locate_groups(location, parsed.flow_groups)
            if isinstance(parsed, FlowGroupsFile)
            else [ParsedFlowGroup(location, parsed)]
        )

    def _parse_materialized_views(
        self, main: _SpecFile, groups: list[ParsedFlowGroup]
    ) -> Iterator[ParsedMaterializedView]:
        before = len(self._problems)
        spec = validate(MaterializedViewsSpec, self._substitute(main.data, main.location, []), main.location)
        for group in groups:
            group.location.report(Finding("SPEC_MATERIALIZED_WITH_FLOW_GROUPS", id=main.id))
        for name, model in spec.materialized_views.items() if spec else ():
            location = main.location.at("materializedViews", name)
            root: ViewRoot | None = None
            if (source := model.source_view) is not None:
                values = ("batch", source.source_type, source.source_details)
                view = dict(zip(VIEW_KEYS, values, strict=True))
                root = validate(ViewRoot, view, location.at("sourceView"))
                if root is None:
                    continue
            assert spec is not None
            yield ParsedMaterializedView(location, name, model, spec, root.root if root else None)
        if len(self._problems) > before:
            self.is_complete = False

    def _parse_spec(self, main: _SpecFile, group_files: list[ParsedFlowGroup]) -> ParsedSpec | None:
        location = main.location
        refused = _report_unsupported(main.data, location)
        data = self._substitute(main.data, location, refused)
        spec_type = data.get("dataFlowType")
        if spec_type not in ("standard", "flow"):
            finding = MISSING
            if "dataFlowType" in data:
                finding = Finding("SPEC_VALUE_NOT_ALLOWED", allowed=_TYPES, found=describe_value(spec_type))
            location.at("dataFlowType").report(finding)
            # Validate the remaining keys against the more likely model.
            spec_type = "flow" if "flowGroups" in data or group_files else "standard"
            data = {**data, "dataFlowType": spec_type}
        spec: StandardSpec | FlowSpec | None
        root: ViewRoot | None = None
        groups: list[ParsedFlowGroup] = []
        if spec_type == "standard":
            spec = validate(StandardSpec, data, location, refused)
            view = {key: data[key] for key in VIEW_KEYS if key in data}
            if (spec is None or spec.has_view) and (view or not refused):
                root = validate(ViewRoot, view, location, refused)
        else:
            spec = validate(FlowSpec, data, location, refused)
        if spec is None or refused:
            return None
        if isinstance(spec, FlowSpec):
            groups = [*_locate_groups(location, spec.flow_groups), *group_files]
            if not groups and not self._broken_ids & {spec.data_flow_id, None}:
                location.at("flowGroups").report(Finding("SPEC_WITHOUT_FLOWS"))
            _report_repeated_group_ids(groups)
        return ParsedSpec(location, spec, root.root if root else None, tuple(groups))

    def _substitute(
        self, data: dict[str, Any], location: SourceLocation, refused: Sequence[SourceLocation]
    ) -> dict[str, Any]:
        """Apply the substitutions; unknown tokens in refused values aren't reported."""
        there = location.with_problems([])
        substituted: dict[str, Any] = self._substitutions.apply(data, there)
        for problem in there.problems:
            if not any(key.covers(problem.path) for key in refused):
                self._problems.append(problem)
        return substituted


def _locate_groups(location: SourceLocation, groups: list[FlowGroup]) -> list[ParsedFlowGroup]:
    return [
        ParsedFlowGroup(location.at("flowGroups", position), group) for position, group in enumerate(groups)
    ]


def _report_repeated_group_ids(groups: list[ParsedFlowGroup]) -> None:
    seen: dict[str, ParsedFlowGroup] = {}
    for group in groups:
        key = group.model.flow_group_id
        if (other := seen.setdefault(key, group)) is not group:
            taken = Finding("SPEC_GROUP_ID_TAKEN", id=key, other=other.location)
            group.location.at("flowGroupId").report(taken)


def _upgrade_format(data: dict[str, Any], version: object) -> dict[str, Any]:
    """Return a document in the newest version of the format; leave unknown versions unchanged."""
    renamed = _RENAMED_KEYS.get(version) if isinstance(version, str) else None
    if not renamed:
        return data
    upgraded: dict[str, Any] = _rename_keys(data, renamed)
    return upgraded


def _rename_keys(value: Any, renamed: Mapping[str, str]) -> Any:
    if isinstance(value, list):
        return [_rename_keys(item, renamed) for item in value]
    if not isinstance(value, dict):
        return value
    if "pythonFunctionPath" in renamed:
        value = _move_python_transform(value)
    # If a mapping has both names of a key, the earlier one stays and validation reports it.
    return {
        (key if renamed.get(key, key) in value else renamed.get(key, key)): _rename_keys(item, renamed)
        for key, item in value.items()
    }


def _move_python_transform(view: dict[str, Any]) -> dict[str, Any]:
    """Move the function of a view from the keys of its source to ``pythonTransform``."""
    details = view.get("sourceDetails")
    if not isinstance(details, dict) or view.get("sourceType") == "python":
        return view
    if "pythonFunctionPath" not in details or "pythonTransform" in details:
        return view
    kept = {key: value for key, value in details.items() if key != "pythonFunctionPath"}
    kept["pythonTransform"] = {"functionPath": details["pythonFunctionPath"]}
    return {**view, "sourceDetails": kept}


def _has_migration(spec: dict[str, Any]) -> bool:
    migration = spec.get("tableMigrationDetails")
    return isinstance(migration, dict) and migration.get("enabled") is True


def _report_unsupported(spec: dict[str, Any], location: SourceLocation) -> list[SourceLocation]:
    """Report the unsupported features of a main file; return the locations that need no validation."""
    refused = []
    target = spec.get("targetFormat")
    if isinstance(target, str) and target in _SINKS:
        refused += [location.at("targetFormat"), location.at("targetDetails")]
        refused[0].report(Finding("SPEC_SINK_NOT_SUPPORTED", format=target))
        if _has_migration(spec):
            refused.append(location.at("tableMigrationDetails"))
            refused[-1].report(Finding("SPEC_MIGRATION_INTO_SINK", format=target))
    if spec.get("cdcSnapshotSettings") is not None and _has_migration(spec):
        refused.append(location.at("cdcSnapshotSettings"))
        refused[-1].report(Finding("SPEC_MIGRATION_WITH_SNAPSHOTS"))
        if "sourceType" not in spec:
            # Historical snapshots have no view.
            refused += [location.at(key) for key in ("sourceSystem", "sourceViewName", *VIEW_KEYS)]
    refused += _report_unsupported_source(spec, location)
    return refused + (_report_unsupported_groups(spec, location) if "flowGroups" in spec else [])


def _report_unsupported_groups(data: dict[str, Any], location: SourceLocation) -> list[SourceLocation]:
    """Report the unsupported features of flow groups; the data is one group or has ``flowGroups``."""
    groups = [(data, location)]
    if "flowGroups" in data:
        listed = data["flowGroups"] if isinstance(data["flowGroups"], list) else []
        groups = [(group, location.at("flowGroups", index)) for index, group in enumerate(listed)]
    refused = []
    for group, there in groups:
        for table, place in _list_mappings(group, there, "stagingTables"):
            if table.get("type") == "MV":
                place.at("type").report(Finding("SPEC_STAGING_VIEW_NOT_SUPPORTED"))
                refused.append(place)
        for flow, flow_place in _list_mappings(group, there, "flows"):
            for view, place in _list_mappings(flow, flow_place, "views"):
                refused += _report_unsupported_source(view, place)
    return refused


def _report_unsupported_source(view: dict[str, Any], location: SourceLocation) -> list[SourceLocation]:
    source, details = view.get("sourceType"), view.get("sourceDetails")
    if not isinstance(details, dict) or "pythonTransform" not in details:
        return []
    if source not in ("cloudFiles", "batchFiles", "kafka"):
        return []
    refused = location.at("sourceDetails", "pythonTransform")
    refused.report(Finding("SPEC_TRANSFORM_NOT_SUPPORTED", source=source))
    return [refused]


def _list_mappings(
    data: Any, location: SourceLocation, key: str
) -> Iterator[tuple[dict[str, Any], SourceLocation]]:
    """List the mappings in the mapping of a key, with their locations."""
    entries = data.get(key) if isinstance(data, dict) else None
    for name, entry in entries.items() if isinstance(entries, dict) else ():
        if isinstance(entry, dict):
            yield entry, location.at(key, name)
