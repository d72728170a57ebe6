"""Spec files as checked models: each main file with the flow groups that belong to it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tableferry.errors import Finding, Problem, TableError
from tableferry.pipelines.model.flows import Skipped
from tableferry.pipelines.specs import refuse
from tableferry.pipelines.specs.folder import Folder
from tableferry.pipelines.specs.former import brought_up
from tableferry.pipelines.specs.materialized import MaterializedView, MaterializedViewsSpec
from tableferry.pipelines.specs.models import FlowGroup, FlowGroupFile, FlowGroupsFile, FlowSpec, StandardSpec
from tableferry.pipelines.specs.read import kind, mapping
from tableferry.pipelines.specs.settings import GlobalSettings
from tableferry.pipelines.specs.source_location import SourceLocation
from tableferry.pipelines.specs.sources import LoneView, View
from tableferry.pipelines.specs.substitute import Substitutions
from tableferry.pipelines.specs.templates import Templates
from tableferry.pipelines.specs.validate import validated
from tableferry.pipelines.specs.written import MISSING
from tableferry.spark.tables import TableName

_TYPES = "'standard', 'flow' or 'materialized_view'"


@dataclass(frozen=True)
class Group:
    """A flow group and where it stands."""

    path: Path
    location: SourceLocation
    written: FlowGroup


@dataclass(frozen=True)
class Document:
    """A spec that fits its model.

    Attributes:
        location: The main file, as messages name it.
        view: A standard spec's one view.
        groups: A flow spec's groups, those of other files included.
    """

    path: Path
    location: SourceLocation
    spec: StandardSpec | FlowSpec
    view: View | None
    groups: tuple[Group, ...]

    @property
    def names(self) -> tuple[str | None, str]:
        """The database and the name of the table that it fills."""
        details = self.spec.target_details
        return details.database, details.table

    @property
    def table_location(self) -> SourceLocation:
        """Where that name stands."""
        return self.location.at("targetDetails", "table")


@dataclass(frozen=True)
class MaterializedDocument:
    """One materialized view of a spec that fits its model.

    Attributes:
        location: Where the view is defined.
        name: Its name there.
        spec: The view.
        owner: The whole spec.
        view: The source of which it has the rows, or None where it's SQL.
    """

    path: Path
    location: SourceLocation
    name: str
    spec: MaterializedView
    owner: MaterializedViewsSpec
    view: View | None
    groups: tuple[Group, ...] = ()

    @property
    def names(self) -> tuple[str | None, str]:
        """The database and the name of the table that it is."""
        return self.spec.table_details.database, self.name

    @property
    def table_location(self) -> SourceLocation:
        """Where that name stands."""
        return self.location


@dataclass(frozen=True)
class _File:
    """A main file or one of flow groups as it stands: what it says, and what was wrong when it was read."""

    path: Path
    location: SourceLocation
    data: dict[str, Any] | None
    problems: list[Problem]

    @property
    def id(self) -> Any:
        """Its dataFlowId as it's written; None where it has none."""
        return self.data.get("dataFlowId") if self.data is not None else None


class Reader:
    """Reads spec files, with substitutions, and collects what is wrong in them."""

    def __init__(
        self, folder: Folder, settings: GlobalSettings, values: Substitutions, problems: list[Problem]
    ) -> None:
        """Take what specs are read with; ``problems`` gets what is wrong."""
        self._folder = folder
        self._format = settings.pipeline_bundle_spec_format
        self._version = settings.dataflow_spec_version
        self._templates = Templates(folder)
        self._values = values
        self._problems = problems
        # False once a document couldn't be had whole.
        self.complete = True
        # Ids of specs with a broken part; None for a part whose id couldn't be read.
        self._broken: set[str | None] = set()
        self.skipped: tuple[Skipped, ...] = ()
        # Filled with the other documents.
        self.materialized: list[MaterializedDocument] = []

    def documents(self) -> list[Document]:
        """Read all specs of the project."""
        mains = [main for path in self._folder.mains for main in self._expanded(self._read(path))]
        self._problems.extend(problem for main in mains for problem in main.problems)
        mains, parts = self._brought_up(mains, [self._read(path) for path in self._folder.parts])
        mains, parts = self._skip(mains, parts)
        groups: dict[str, list[Group]] = {}
        for part in parts:
            self._part(part, mains, groups)
        seen: dict[tuple[str, str], SourceLocation] = {}
        documents = []
        read = 0
        for main in mains:
            if main.data is None:
                continue
            key = str(main.id)
            # Pipelines select by the group, and files of flow groups go by the id alone.
            group = "" if key in groups else str(main.data.get("dataFlowGroup"))
            if (key, group) in seen and isinstance(main.id, str):
                other = seen[key, group].file
                taken = Finding("SPEC_ID_TAKEN", id=key, other=other)
                self._problems.append(main.location.at("dataFlowId").problem(taken))
            seen.setdefault((key, group), main.location)
            if main.data.get("dataFlowType") == "materialized_view":
                read += self._materialized(main, main.data, groups.get(key, []))
                continue
            document = self._document(main, main.data, groups.get(key, []))
            # With a broken part, what the other parts say about its views and tables would look wrong.
            if document is not None and key not in self._broken:
                documents.append(document)
                read += 1
        self.complete = read == len(mains) and not self._broken
        return documents

    def _materialized(self, main: _File, data: dict[str, Any], parts: list[Group]) -> bool:
        """Read a spec of materialized views; say whether all of them could be read."""
        before = len(self._problems)
        spec = validated(
            MaterializedViewsSpec, self._substitute(data, main.location, []), main.location, self._problems
        )
        for part in parts:
            no_groups = Finding("SPEC_MATERIALIZED_WITH_FLOW_GROUPS", id=main.id)
            self._problems.append(part.location.problem(no_groups))
        for name, written in spec.materialized_views.items() if spec else ():
            location = main.location.at("materializedViews", name)
            view: View | None = None
            if (source := written.source_view) is not None:
                given = {
                    "mode": "batch",
                    "sourceType": source.source_type,
                    "sourceDetails": source.source_details,
                }
                root = validated(LoneView, given, location.at("sourceView"), self._problems)
                if root is None:
                    continue
                view = root.root
            assert spec is not None
            self.materialized.append(MaterializedDocument(main.path, location, name, written, spec, view))
        return spec is not None and len(self._problems) == before

    def _read(self, path: Path) -> _File:
        location = self._folder.location(path)
        problems: list[Problem] = []
        actual = "json" if path.suffix == ".json" else "yaml"
        if self._format and self._format.format != actual and not self._format.allow_override:
            required = self._format.format
            differs = Finding("SPEC_FORMAT_DIFFERS", actual=actual.upper(), required=required)
            problems.append(location.problem(differs))
        return _File(path, location, mapping(path, location, problems), problems)

    def _expanded(self, main: _File) -> list[_File]:
        """Return the specs that a main file makes of a template, or the file itself where it is a spec."""
        if main.data is None or "template" not in main.data:
            return [main]
        problems: list[Problem] = []
        specs = self._templates.specs(main.data, main.location, problems)
        made = [_File(main.path, location, data, []) for location, data in specs]
        # What is wrong in one of the sets stands for it, so that its name isn't taken for free.
        return [*made, *([replace(main, data=None, problems=problems)] if problems else [])]

    def _brought_up(self, mains: list[_File], parts: list[_File]) -> tuple[list[_File], list[_File]]:
        """Write files of earlier versions of the format as the newest has them."""
        versions = {
            main.id: main.data.get("dataFlowVersion") or self._version
            for main in mains
            if main.data is not None and isinstance(main.id, str)
        }

        def newest(file: _File) -> _File:
            if file.data is None or not isinstance(file.id, str):
                return file
            return replace(file, data=brought_up(file.data, versions.get(file.id)))

        return [newest(main) for main in mains], [newest(part) for part in parts]

    def _skip(self, mains: list[_File], parts: list[_File]) -> tuple[list[_File], list[_File]]:
        """Leave out specs that use what isn't handled, with their parts, unless there is nothing else.

        One that has a migration, or is the only one asked for, isn't left out but reported.
        """
        skipped: dict[str, Skipped] = {}
        for main in mains:
            data, location, key = main.data, main.location, main.id
            if data is None or not isinstance(key, str) or self._folder.alone or refuse.migrates(data):
                continue
            refusals = list(refuse.unsupported(data, location))
            for part in parts:
                if part.data is not None and part.id == key:
                    refusals += _refusals(part.data, part.location)
            if problems := tuple(problem for _, problem in refusals if problem is not None):
                skipped[key] = Skipped(location.file, self._target(data, location), problems)
        if len(skipped) == len(mains):
            return mains, parts
        self.skipped = tuple(skipped.values())
        ids = tuple(skipped)  # What is written as an id may have no hash.
        kept_mains, kept_parts = ([file for file in files if file.id not in ids] for files in (mains, parts))
        return kept_mains, kept_parts

    def _target(self, data: dict[str, Any], location: SourceLocation) -> TableName | None:
        """Return what a spec that nobody checks any further fills."""
        target = self._values.apply(data, location, []).get("targetDetails")
        if not isinstance(target, dict) or not isinstance(table := target.get("table"), str):
            return None
        database = target.get("database")
        try:
            return TableName.parse(f"{database}.{table}" if isinstance(database, str) else table)
        except TableError:
            return None

    def _part(self, part: _File, mains: list[_File], groups: dict[str, list[Group]]) -> None:
        """Read a file of flow groups into its spec's groups."""
        data, location, key = part.data, part.location, part.id
        if data is None:
            self._problems.extend(part.problems)
            self._broken.add(None)
            return
        owners = [main.data for main in mains if main.data is not None and main.id == key]
        if isinstance(key, str) and not owners:
            # An unreadable main file might be its owner.
            if not self._folder.alone and all(main.data is not None for main in mains):
                self._problems.extend(part.problems)
                missing = Finding("SPEC_GROUP_WITHOUT_SPEC", id=key)
                self._problems.append(location.at("dataFlowId").problem(missing))
                self._broken.add(key)
            return
        self._problems.extend(part.problems)
        if any(main.get("dataFlowType") == "standard" for main in owners):
            no_groups = Finding("SPEC_STANDARD_WITH_FLOW_GROUPS", id=key)
            self._problems.append(location.at("dataFlowId").problem(no_groups))
            return
        several = "flowGroups" in data
        refused = self._refuse(_refusals(data, location))
        data = self._substitute(data, location, refused)
        model: type[FlowGroupsFile | FlowGroupFile] = FlowGroupsFile if several else FlowGroupFile
        written = validated(model, data, location, self._problems, refused)
        if written is None or refused:
            self._broken.add(key if isinstance(key, str) else None)
            return
        groups.setdefault(str(key), []).extend(
            _groups(part, written)
            if isinstance(written, FlowGroupsFile)
            else [Group(part.path, location, written)]
        )

    def _document(self, main: _File, data: dict[str, Any], parts: list[Group]) -> Document | None:
        location = main.location
        refused = self._refuse(refuse.unsupported(data, location))
        data = self._substitute(data, location, refused)
        flow_type = data.get("dataFlowType")
        if flow_type not in ("standard", "flow"):
            finding = MISSING
            if "dataFlowType" in data:
                finding = Finding("SPEC_VALUE_NOT_ALLOWED", allowed=_TYPES, found=kind(flow_type))
            self._problems.append(location.at("dataFlowType").problem(finding))
            # A document of unknown type is compared with the model that it is likely meant for.
            flow_type = "flow" if "flowGroups" in data or parts else "standard"
            data = {**data, "dataFlowType": flow_type}
        spec: StandardSpec | FlowSpec | None
        view: View | None = None
        if flow_type == "standard":
            spec = validated(StandardSpec, data, location, self._problems, refused)
            keys = ("mode", "sourceType", "sourceDetails")
            given = {key: data[key] for key in keys if key in data}
            if (spec is None or spec.has_view) and (given or not refused):
                root = validated(LoneView, given, location, self._problems, refused)
                view = root.root if root is not None else None
        else:
            spec = validated(FlowSpec, data, location, self._problems, refused)
        if spec is None or refused:
            return None
        groups: list[Group] = []
        if isinstance(spec, FlowSpec):
            groups = [*_groups(main, spec), *parts]
            self._check_groups(groups, location, sure=not self._broken & {spec.data_flow_id, None})
        return Document(main.path, location, spec, view, tuple(groups))

    def _check_groups(self, groups: list[Group], location: SourceLocation, *, sure: bool) -> None:
        """Refuse groups that share an id, and no groups at all where it's sure that there are none."""
        if not groups and sure:
            self._problems.append(location.at("flowGroups").problem(Finding("SPEC_WITHOUT_FLOWS")))
        seen: dict[str, Group] = {}
        for group in groups:
            other = seen.setdefault(group.written.flow_group_id, group)
            if other is not group:
                taken = Finding("SPEC_GROUP_ID_TAKEN", id=group.written.flow_group_id, other=other.location)
                self._problems.append(group.location.at("flowGroupId").problem(taken))

    def _substitute(
        self, data: dict[str, Any], location: SourceLocation, refused: list[SourceLocation]
    ) -> dict[str, Any]:
        """Put the tokens in; what is refused may have tokens of its own kind."""
        unresolved: list[Problem] = []
        substituted: dict[str, Any] = self._values.apply(data, location, unresolved)
        for problem in unresolved:
            if not any(key.covers(problem.path) for key in refused):
                self._problems.append(problem)
        return substituted

    def _refuse(self, refusals: Iterable[refuse.Refusal]) -> list[SourceLocation]:
        locations = []
        for location, problem in refusals:
            locations.append(location)
            if problem is not None:
                self._problems.append(problem)
        return locations


def _groups(file: _File, written: FlowSpec | FlowGroupsFile) -> list[Group]:
    return [
        Group(file.path, file.location.at("flowGroups", position), group)
        for position, group in enumerate(written.flow_groups)
    ]


def _refusals(part: dict[str, Any], location: SourceLocation) -> list[refuse.Refusal]:
    """Find what a file of flow groups, or of one, asks for and can't have."""
    find = refuse.unsupported_groups if "flowGroups" in part else refuse.unsupported_group
    return list(find(part, location))
