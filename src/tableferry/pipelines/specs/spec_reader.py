"""Read spec files into valid specs: each main file with the flow groups that belong to it.

Before validation, files in earlier versions of the format are upgraded, and unsupported features reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tableferry.errors import Finding, Problem
from tableferry.pipelines.model.flows import SkippedSpec
from tableferry.pipelines.specs.project_files import ProjectFolder, read_mapping
from tableferry.pipelines.specs.spec_models import (
    VIEW_KEYS,
    FlowGroup,
    FlowGroupFile,
    FlowGroupsFile,
    FlowSpec,
    GlobalFile,
    MaterializedViewsSpec,
    ParsedFlowGroup,
    ParsedSpec,
    StandardSpec,
)
from tableferry.pipelines.specs.substitutions import Substitutions
from tableferry.pipelines.specs.templates import TemplateReader
from tableferry.pipelines.specs.validation import (
    MISSING,
    SourceLocation,
    describe_value,
    parse_table_name,
    validate,
)
from tableferry.pipelines.specs.view_models import validate_view
from tableferry.spark.tables import TableName

_TYPES = "'standard', 'flow' or 'materialized_view'"

_SINKS = ("delta_sink", "kafka_sink", "foreach_batch_sink", "custom_python_sink")

# Keys at any depth that a version of the format names differently.
_RENAMED_KEYS: Mapping[object, Mapping[str, str]] = {
    "0.1.0": {"cdcApplyChanges": "cdcSettings", "cdcApplyChangesFromSnapshot": "cdcSnapshotSettings"},
    "0.2.0": {
        "cdcApplyChanges": "cdcSettings",
        "cdcApplyChangesFromSnapshot": "cdcSnapshotSettings",
        "spark_conf": "sparkConf",
        "pythonFunctionPath": "functionPath",
    },
}


@dataclass(frozen=True)
class _SpecFile:
    """The content of a main file or of a file with flow groups."""

    location: SourceLocation
    data: dict[str, Any]

    @property
    def id(self) -> str | None:
        """The value of dataFlowId; None if it's missing or no text."""
        value = self.data.get("dataFlowId")
        return value if isinstance(value, str) else None


class SpecReader:
    """Reads the specs of a project, and reports every problem in them.

    Attributes:
        skipped: Specs that are left out because of unsupported features.
    """

    def __init__(self, folder: ProjectFolder, settings: GlobalFile, substitutions: Substitutions) -> None:
        """Read the folder's files with these settings."""
        self._folder = folder
        self._problems = folder.problems
        self._settings = settings
        self._substitutions = substitutions
        self._templates = TemplateReader(folder)
        # The flow groups in separate files, by the ids of their specs.
        self._groups: dict[str | None, list[ParsedFlowGroup]] = {}
        # Ids of specs with a broken file of flow groups; None for a file whose id can't be read.
        self._broken_ids: set[str | None] = set()
        self.skipped: tuple[SkippedSpec, ...] = ()

    def read(self) -> list[ParsedSpec]:
        """Read all specs of the project."""
        mains = [main for path in self._folder.main_files for main in self._read_main_file(path)]
        group_files = [file for path in self._folder.group_files for file in self._read_group_file(path)]
        all_read = not self._problems
        default = self._settings.dataflow_spec_version
        versions = {main.id: main.data.get("dataFlowVersion") or default for main in mains}
        mains, group_files = (
            [replace(file, data=_upgrade_format(file.data, versions.get(file.id))) for file in files]
            for files in (mains, group_files)
        )
        self._skip_unsupported(mains, group_files, all_read=all_read)
        for file in group_files:
            owners = [main for main in mains if main.id == file.id]
            # The groups may belong to a spec that isn't loaded or can't be read.
            if file.id is None or owners or (all_read and not self._folder.is_single_spec):
                self._parse_groups(file, owners)
        self._report_repeated_ids(mains)
        return [spec for main in mains for spec in self._parse(main)]

    def _read_main_file(self, path: Path) -> Iterator[_SpecFile]:
        """Yield the content of a main file, or the specs of the template that it names."""
        location = self._folder.location(path)
        data = self._read_file(location)
        if data is not None and "template" not in data:
            yield _SpecFile(location, data)
        elif data is not None:
            for key, spec in self._templates.expand(data, location):
                yield _SpecFile(replace(location, file=f"{location.file}#{key}"), spec)

    def _read_group_file(self, path: Path) -> Iterator[_SpecFile]:
        """Yield the content of a file with flow groups; report its problems after its spec is known."""
        location = self._folder.location(path).with_problems([])
        data = self._read_file(location)
        if data is not None:
            yield _SpecFile(location, data)
        else:
            self._problems += location.problems
            self._broken_ids.add(None)

    def _read_file(self, location: SourceLocation) -> dict[str, Any] | None:
        required = self._settings.pipeline_bundle_spec_format
        actual = "json" if location.disk_path.suffix == ".json" else "yaml"
        if required and required.format != actual and not required.allow_override:
            location.report(Finding("SPEC_FORMAT_DIFFERS", actual=actual.upper(), required=required.format))
        return read_mapping(location)

    def _skip_unsupported(
        self, mains: list[_SpecFile], group_files: list[_SpecFile], *, all_read: bool
    ) -> None:
        """Remove specs with unsupported features, unless every spec of the project has some.

        A spec with a migration and a single spec are reported instead.
        """
        skipped: dict[str, SkippedSpec] = {}
        for main in [] if self._folder.is_single_spec else mains:
            if main.id is None or _has_migration(main.data):
                continue
            location = main.location.with_problems([])
            _report_unsupported(main.data, location)
            for file in group_files:
                if file.id == main.id:
                    _report_unsupported_parts(file.data, file.location.with_problems(location.problems))
            if location.problems:
                target = self._find_target(main.data, main.location)
                skipped[main.id] = SkippedSpec(location.file, target, tuple(location.problems))
        if len(skipped) < len(mains) or not all_read:
            self.skipped = tuple(skipped.values())
            for files in (mains, group_files):
                files[:] = [file for file in files if file.id not in skipped]

    def _find_target(self, data: dict[str, Any], location: SourceLocation) -> TableName | None:
        """Return the target of a spec that isn't validated."""
        quiet = location.with_problems([])
        target = self._substitutions.apply(data, quiet).get("targetDetails")
        if not isinstance(target, dict) or not isinstance(table := target.get("table"), str):
            return None
        database = target.get("database")
        return parse_table_name(database if isinstance(database, str) else None, table, quiet)

    def _report_repeated_ids(self, mains: list[_SpecFile]) -> None:
        seen: dict[tuple[str, str], SourceLocation] = {}
        for main in mains:
            if main.id is None:
                continue
            # Pipelines select specs by their group, but files with flow groups name only the id.
            group = "" if main.id in self._groups else str(main.data.get("dataFlowGroup"))
            owner = seen.setdefault((main.id, group), main.location)
            if owner is not main.location:
                main.location.at("dataFlowId").report(Finding("SPEC_ID_TAKEN", id=main.id, other=owner.file))

    def _parse_groups(self, file: _SpecFile, owners: list[_SpecFile]) -> None:
        """Add the flow groups of a file to the groups of its spec."""
        self._problems += file.location.problems
        location = file.location.with_problems(self._problems)
        if file.id is not None and not owners:
            location.at("dataFlowId").report(Finding("SPEC_GROUP_WITHOUT_SPEC", id=file.id))
            return
        if file.id is not None and any(main.data.get("dataFlowType") == "standard" for main in owners):
            location.at("dataFlowId").report(Finding("SPEC_STANDARD_WITH_FLOW_GROUPS", id=file.id))
            return
        refused, checked = _report_unsupported_parts(file.data, location), location.with_problems([])
        data = self._substitutions.apply(file.data, checked)
        model: type[FlowGroupsFile | FlowGroupFile] = (
            FlowGroupsFile if "flowGroups" in data else FlowGroupFile
        )
        parsed = validate(model, data, checked)
        self._report_rest(checked.problems, refused)
        if parsed is None or refused:
            self._broken_ids.add(file.id)
        elif isinstance(parsed, FlowGroupsFile):
            self._groups.setdefault(file.id, []).extend(_locate_groups(location, parsed.flow_groups))
        else:
            self._groups.setdefault(file.id, []).append(ParsedFlowGroup(location, parsed))

    def _report_rest(self, problems: list[Problem], refused: list[SourceLocation]) -> None:
        """Report problems except those below locations that were refused."""
        self._problems += [
            problem for problem in problems if not any(place.covers(problem.path) for place in refused)
        ]

    def _parse(self, main: _SpecFile) -> Iterator[ParsedSpec]:
        groups = self._groups.get(main.id, [])
        if main.data.get("dataFlowType") == "materialized_view":
            yield from self._parse_materialized_views(main, groups)
            return
        spec = self._parse_spec(main, groups)
        # Without its broken flow groups, references to their views and tables would be reported.
        if spec is not None and main.id not in self._broken_ids:
            yield spec

    def _parse_materialized_views(
        self, main: _SpecFile, groups: list[ParsedFlowGroup]
    ) -> Iterator[ParsedSpec]:
        data = self._substitutions.apply(main.data, main.location)
        spec = validate(MaterializedViewsSpec, data, main.location)
        for group in groups:
            group.location.report(Finding("SPEC_MATERIALIZED_WITH_FLOW_GROUPS", id=main.id))
        for name, model in spec.materialized_views.items() if spec else ():
            location = main.location.at("materializedViews", name)
            view = None
            if (source := model.source_view) is not None:
                values = ("batch", source.source_type, source.source_details)
                view = validate_view(dict(zip(VIEW_KEYS, values, strict=True)), location.at("sourceView"))
                if view is None:
                    continue
            assert spec is not None
            details, details_location = model.table_details, location.at("tableDetails")
            yield ParsedSpec(location, spec, model, name, location, details, details_location, view)

    def _parse_spec(self, main: _SpecFile, groups: list[ParsedFlowGroup]) -> ParsedSpec | None:
        location = main.location
        refused, checked = _report_unsupported(main.data, location), location.with_problems([])
        data = self._substitutions.apply(main.data, checked)
        kind = data.get("dataFlowType")
        if kind not in ("standard", "flow"):
            finding = MISSING
            if "dataFlowType" in data:
                finding = Finding("SPEC_VALUE_NOT_ALLOWED", allowed=_TYPES, found=describe_value(kind))
            location.at("dataFlowType").report(finding)
            # Validate the remaining keys against the more likely model.
            kind = "flow" if "flowGroups" in data or groups else "standard"
            data = {**data, "dataFlowType": kind}
        model: type[StandardSpec | FlowSpec] = StandardSpec if kind == "standard" else FlowSpec
        spec = validate(model, data, checked)
        view = None
        if kind == "standard" and (not isinstance(spec, StandardSpec) or spec.has_view):
            written = {key: data[key] for key in VIEW_KEYS if key in data}
            view = validate_view(written, checked) if written or not refused else None
        self._report_rest(checked.problems, refused)
        if spec is None or refused:
            return None
        if isinstance(spec, FlowSpec):
            groups = [*_locate_groups(location, spec.flow_groups), *groups]
            if not groups and not self._broken_ids & {main.id, None}:
                location.at("flowGroups").report(Finding("SPEC_WITHOUT_FLOWS"))
            _report_repeated_group_ids(groups)
        details, there = spec.target_details, location.at("targetDetails")
        table = details.table
        return ParsedSpec(location, spec, spec, table, there.at("table"), details, there, view, tuple(groups))


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
    upgraded: dict[str, Any] = _rename_keys(data, renamed) if renamed else data
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
    return refused + _report_unsupported_parts(spec, location)


def _report_unsupported_parts(value: Any, location: SourceLocation) -> list[SourceLocation]:
    """Report unsupported views and staging tables at any depth; return their locations."""
    refused = []
    if isinstance(value, list):
        for position, item in enumerate(value):
            refused += _report_unsupported_parts(item, location.at(position))
    if not isinstance(value, dict):
        return refused
    source, details, tables = (value.get(key) for key in ("sourceType", "sourceDetails", "stagingTables"))
    has_transform = isinstance(details, dict) and "pythonTransform" in details
    if has_transform and source in ("cloudFiles", "batchFiles", "kafka"):
        refused.append(location.at("sourceDetails", "pythonTransform"))
        refused[-1].report(Finding("SPEC_TRANSFORM_NOT_SUPPORTED", source=source))
    for name, table in tables.items() if isinstance(tables, dict) else ():
        if isinstance(table, dict) and table.get("type") == "MV":
            refused.append(location.at("stagingTables", name))
            refused[-1].at("type").report(Finding("SPEC_STAGING_VIEW_NOT_SUPPORTED"))
    for key, item in value.items():
        if isinstance(item, dict | list):
            refused += _report_unsupported_parts(item, location.at(key))
    return refused
