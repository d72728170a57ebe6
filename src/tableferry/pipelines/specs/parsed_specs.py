"""Read spec files into validated models: each main file with the flow groups that belong to it.

Before validation, files in earlier versions of the format are upgraded, and unsupported features reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tableferry.errors import Finding, Problem
from tableferry.pipelines.model.flows import Skipped
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
    MaterializedView,
    MaterializedViewsSpec,
    StandardSpec,
)
from tableferry.pipelines.specs.substitutions import Substitutions
from tableferry.pipelines.specs.templates import TemplateReader
from tableferry.pipelines.specs.validation import MISSING, parse_table_name, validate
from tableferry.pipelines.specs.view_models import View, ViewRoot
from tableferry.spark.tables import TableName

_TYPES = "'standard', 'flow' or 'materialized_view'"

_SINKS = ("delta_sink", "kafka_sink", "foreach_batch_sink", "custom_python_sink")

# Keys at any depth that a version of the format names differently.
RENAMED_KEYS: Mapping[str, Mapping[str, str]] = {
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
    view: View | None
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
    model: MaterializedView
    spec: MaterializedViewsSpec
    view: View | None
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
    """The content of a main file or of a file with flow groups.

    Attributes:
        data: None if the file can't be read.
        problems: The problems found while reading the file.
    """

    location: SourceLocation
    data: dict[str, Any] | None
    problems: list[Problem]

    @property
    def id(self) -> Any:
        """The value of dataFlowId, which may have any type; None if it's missing."""
        return self.data.get("dataFlowId") if self.data is not None else None


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
        # Ids of specs with a broken file of flow groups; None for a file whose id can't be read.
        self._broken_ids: set[str | None] = set()
        self.is_complete = True
        self.skipped: tuple[Skipped, ...] = ()

    def read(self) -> list[AnySpec]:
        """Read all specs of the project."""
        main_files = [
            main for path in self._folder.main_files for main in self._expand_template(self._read_file(path))
        ]
        for main in main_files:
            self._problems += main.problems
        group_files = [self._read_file(path) for path in self._folder.group_files]
        main_files, group_files = self._upgrade(main_files, group_files)
        main_files, group_files = self._skip_unsupported(main_files, group_files)
        groups: dict[str, list[ParsedFlowGroup]] = {}
        for file in group_files:
            self._read_groups(file, main_files, groups)
        specs: list[AnySpec] = []
        views: list[AnySpec] = []
        seen: dict[tuple[str, str], SourceLocation] = {}
        for main in main_files:
            if main.data is None:
                self.is_complete = False
                continue
            key = str(main.id)
            # Pipelines select specs by their group, but files with flow groups name only the id.
            group = "" if key in groups else str(main.data.get("dataFlowGroup"))
            owner = seen.setdefault((key, group), main.location)
            if owner is not main.location and isinstance(main.id, str):
                taken = Finding("SPEC_ID_TAKEN", id=key, other=owner.file)
                main.location.at("dataFlowId").report(taken)
            if main.data.get("dataFlowType") == "materialized_view":
                views += self._parse_materialized_views(main, main.data, groups.get(key, []))
                continue
            spec = self._parse_spec(main, main.data, groups.get(key, []))
            # Without its broken flow groups, references to their views and tables would be reported.
            if spec is not None and key not in self._broken_ids:
                specs.append(spec)
            else:
                self.is_complete = False
        if self._broken_ids:
            self.is_complete = False
        return [*specs, *views]

    def _read_file(self, path: Path) -> _SpecFile:
        location = self._folder.location(path)
        there = location.with_problems([])
        required = self._settings.pipeline_bundle_spec_format
        actual = "json" if path.suffix == ".json" else "yaml"
        if required and required.format != actual and not required.allow_override:
            there.report(Finding("SPEC_FORMAT_DIFFERS", actual=actual.upper(), required=required.format))
        return _SpecFile(location, read_mapping(there), there.problems)

    def _expand_template(self, main: _SpecFile) -> list[_SpecFile]:
        """Return the specs of a main file that names a template, or the file itself."""
        if main.data is None or "template" not in main.data:
            return [main]
        there = main.location.with_problems([])
        files = [
            _SpecFile(replace(main.location, file=f"{main.location.file}#{key}"), data, [])
            for key, data in self._templates.expand(main.data, there)
        ]
        if there.problems:
            # An invalid set counts as a spec that can't be read, because it may fill any table.
            files.append(replace(main, data=None, problems=there.problems))
        return files

    def _upgrade(
        self, main_files: list[_SpecFile], group_files: list[_SpecFile]
    ) -> tuple[list[_SpecFile], list[_SpecFile]]:
        """Convert files in earlier versions of the format."""
        versions = {
            main.id: main.data.get("dataFlowVersion") or self._settings.dataflow_spec_version
            for main in main_files
            if main.data is not None and isinstance(main.id, str)
        }

        def upgrade(file: _SpecFile) -> _SpecFile:
            if file.data is None or not isinstance(file.id, str):
                return file
            return replace(file, data=_upgrade_format(file.data, versions.get(file.id)))

        return [upgrade(main) for main in main_files], [upgrade(file) for file in group_files]

    def _skip_unsupported(
        self, main_files: list[_SpecFile], group_files: list[_SpecFile]
    ) -> tuple[list[_SpecFile], list[_SpecFile]]:
        """Leave out specs with unsupported features, unless every spec has some.

        A spec with a migration and a single spec are reported instead.
        """
        skipped: dict[str, Skipped] = {}
        for main in main_files:
            key = main.id
            if main.data is None or not isinstance(key, str):
                continue
            if self._folder.is_single_spec or _has_migration(main.data):
                continue
            location = main.location.with_problems([])
            _report_unsupported(main.data, location)
            for file in group_files:
                if file.data is not None and file.id == key:
                    _report_unsupported_groups(file.data, file.location.with_problems(location.problems))
            if location.problems:
                target = self._find_target(main.data, main.location)
                skipped[key] = Skipped(location.file, target, tuple(location.problems))
        if len(skipped) == len(main_files):
            return main_files, group_files
        self.skipped = tuple(skipped.values())
        ids = tuple(skipped)  # An id in a file may be unhashable.
        return [main for main in main_files if main.id not in ids], [
            file for file in group_files if file.id not in ids
        ]

    def _find_target(self, data: dict[str, Any], location: SourceLocation) -> TableName | None:
        """Return the target of a spec that isn't validated."""
        quiet = location.with_problems([])
        target = self._substitutions.apply(data, quiet).get("targetDetails")
        if not isinstance(target, dict) or not isinstance(table := target.get("table"), str):
            return None
        database = target.get("database")
        return parse_table_name(database if isinstance(database, str) else None, table, quiet)

    def _read_groups(
        self, file: _SpecFile, main_files: list[_SpecFile], groups: dict[str, list[ParsedFlowGroup]]
    ) -> None:
        """Add the flow groups of a file to the groups of its spec."""
        data, location, key = file.data, file.location, file.id
        if data is None:
            self._problems += file.problems
            self._broken_ids.add(None)
            return
        owners = [main.data for main in main_files if main.data is not None and main.id == key]
        if isinstance(key, str) and not owners:
            # The groups may belong to a main file that can't be read.
            if not self._folder.is_single_spec and all(main.data is not None for main in main_files):
                self._problems += file.problems
                location.at("dataFlowId").report(Finding("SPEC_GROUP_WITHOUT_SPEC", id=key))
                self._broken_ids.add(key)
            return
        self._problems += file.problems
        if any(main.get("dataFlowType") == "standard" for main in owners):
            location.at("dataFlowId").report(Finding("SPEC_STANDARD_WITH_FLOW_GROUPS", id=key))
            return
        refused = _report_unsupported_groups(data, location)
        data = self._substitute(data, location, refused)
        model: type[FlowGroupsFile | FlowGroupFile] = (
            FlowGroupsFile if "flowGroups" in data else FlowGroupFile
        )
        parsed = validate(model, data, location, refused)
        if parsed is None or refused:
            self._broken_ids.add(key if isinstance(key, str) else None)
            return
        groups.setdefault(str(key), []).extend(
            _locate_groups(file, parsed.flow_groups)
            if isinstance(parsed, FlowGroupsFile)
            else [ParsedFlowGroup(location, parsed)]
        )

    def _parse_materialized_views(
        self, main: _SpecFile, data: dict[str, Any], groups: list[ParsedFlowGroup]
    ) -> Iterator[ParsedMaterializedView]:
        before = len(self._problems)
        spec = validate(MaterializedViewsSpec, self._substitute(data, main.location, []), main.location)
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

    def _parse_spec(
        self, main: _SpecFile, data: dict[str, Any], group_files: list[ParsedFlowGroup]
    ) -> ParsedSpec | None:
        location = main.location
        refused = _report_unsupported(data, location)
        data = self._substitute(data, location, refused)
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
            groups = [*_locate_groups(main, spec.flow_groups), *group_files]
            if not groups and not self._broken_ids & {spec.data_flow_id, None}:
                location.at("flowGroups").report(Finding("SPEC_WITHOUT_FLOWS"))
            _check_group_ids(groups)
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


def _locate_groups(file: _SpecFile, groups: list[FlowGroup]) -> list[ParsedFlowGroup]:
    return [
        ParsedFlowGroup(file.location.at("flowGroups", position), group)
        for position, group in enumerate(groups)
    ]


def _check_group_ids(groups: list[ParsedFlowGroup]) -> None:
    seen: dict[str, ParsedFlowGroup] = {}
    for group in groups:
        key = group.model.flow_group_id
        if (other := seen.setdefault(key, group)) is not group:
            taken = Finding("SPEC_GROUP_ID_TAKEN", id=key, other=other.location)
            group.location.at("flowGroupId").report(taken)


def _upgrade_format(data: dict[str, Any], version: object) -> dict[str, Any]:
    """Return a document in the newest version of the format; leave unknown versions unchanged."""
    renamed = RENAMED_KEYS.get(version) if isinstance(version, str) else None
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
