"""The files of a project: find them, and read their JSON or YAML."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml

from tableferry.errors import Finding, Problem, SpecError
from tableferry.pipelines.specs.validation import Model, SourceLocation, describe_value, validate
from tableferry.yamlfiles import DEEPEST, SafeLoader, explain, is_too_deep

SUFFIXES = (".json", ".yaml", ".yml")

_TOO_DEEP = Finding("SPEC_NESTED_TOO_DEEPLY", levels=DEEPEST)


@dataclass(frozen=True)
class ProjectFolder:
    """The files of a project.

    Attributes:
        root: The folder that messages and state paths are relative to.
        base: The folder that contains ``pipeline_configs/``, or None.
        main_files: The main files of the specs that are loaded.
        group_files: The files with flow groups.
        is_single_spec: Only one spec is loaded; the flow groups may belong to other specs.
        other_main_files: The main files beside a single spec.
        problems: Receives the problems of all files.
    """

    root: Path
    base: Path | None
    main_files: tuple[Path, ...]
    group_files: tuple[Path, ...]
    is_single_spec: bool = False
    other_main_files: tuple[Path, ...] = ()
    problems: list[Problem] = field(default_factory=list)

    @property
    def config_folder(self) -> Path | None:
        """The folder of the bundle's settings."""
        return self.base / "pipeline_configs" if self.base is not None else None

    @property
    def config_folders(self) -> list[Path]:
        """The folders of the framework's and the bundle's settings; later folders override earlier ones."""
        folders = [self.root / "config", self.root / "src" / "config"]
        return folders if self.config_folder is None else [*folders, self.config_folder]

    def location(self, file: Path) -> SourceLocation:
        """Return the location of a whole file."""
        return _locate(file, self.root, self.problems)

    def list_files(self, folder: Path, stem: str = "*") -> list[Path]:
        """List the JSON and YAML files of a folder whose names without suffix match a pattern.

        The folders of settings are optional, but a broken link of the bundle is reported.
        """
        is_missing = (
            not os.path.lexists(folder) if folder == self.config_folder else not os.path.isdir(folder)
        )
        entries = [] if is_missing else _list_folder(self.location(folder))
        return [file for file in entries if file.suffix in SUFFIXES and fnmatchcase(file.stem, stem)]


def find_project_files(project: Path) -> ProjectFolder:
    """Find the specs of a project and the folders of its settings.

    From a spec file, the project is the nearest parent with ``dataflows/`` or ``pipeline_configs/``.
    Unreadable folders are added to ``problems``.

    Raises:
        SpecError: The path doesn't exist, contains no specs, or isn't the main file of a spec.
    """
    project = Path(os.path.abspath(project))
    if os.path.isdir(project):
        return _find_in_folder(project)
    if os.path.isfile(project):
        return _find_around_file(project)
    finding = Finding("SPEC_PROJECT_MISSING")
    try:
        os.stat(project)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        pass
    except OSError as error:
        finding = _not_listed(error)
    raise _refuse_project(project, finding)


def _find_in_folder(root: Path) -> ProjectFolder:
    base = next((folder for folder in (root, root / "src") if os.path.isdir(folder / "dataflows")), None)
    problems: list[Problem] = []
    files = _walk(base / "dataflows", root, problems) if base else []
    main_files, group_files = _select_specs(files, "_main"), _select_specs(files, "_flow")
    if not main_files and not group_files:
        if problems:
            raise SpecError("INVALID_SPEC", problems=problems)
        raise _refuse_project(root, Finding("SPEC_PROJECT_EMPTY"))
    return ProjectFolder(root, base, main_files, group_files, problems=problems)


def _find_around_file(file: Path) -> ProjectFolder:
    if file.suffix not in SUFFIXES:
        raise _refuse_project(file, Finding("SPEC_FILE_SUFFIX"))
    if file.stem.endswith("_flow"):
        raise _refuse_project(file, Finding("SPEC_FILE_IS_FLOW_GROUP"))
    root, base = file.parent, None
    for parent in file.parents:
        if os.path.isdir(parent / "dataflows") or os.path.lexists(parent / "pipeline_configs"):
            # State paths are relative to the root, so it must be the one that loading the folder has.
            root, base = (parent.parent if parent.name == "src" else parent), parent
            break
    problems: list[Problem] = []
    if base is not None and file.is_relative_to(base / "dataflows"):
        files = _walk(base / "dataflows", root, problems)
    else:
        # Outside a project only the files in the same folder belong to the spec, not those in subfolders.
        files = _list_folder(_locate(file.parent, root, problems))
    others = tuple(main for main in _select_specs(files, "_main") if main != file)
    return ProjectFolder(root, base, (file,), _select_specs(files, "_flow"), True, others, problems)


def _refuse_project(path: Path, finding: Finding) -> SpecError:
    return SpecError("INVALID_SPEC", problems=[Problem.of(finding, str(path), "")])


def _select_specs(files: list[Path], ending: str) -> tuple[Path, ...]:
    return tuple(file for file in files if file.suffix in SUFFIXES and file.stem.endswith(ending))


def _walk(folder: Path, root: Path, problems: list[Problem]) -> list[Path]:
    """List the files below a folder in order, each once; follow links to folders."""

    def report(error: OSError) -> None:
        _locate(Path(error.filename), root, problems).report(_not_listed(error))

    files: list[Path] = []
    seen: set[str] = set()
    for parent, folders, names in os.walk(folder, onerror=report, followlinks=True):
        real = os.path.realpath(parent)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        folders.sort()
        files.extend(Path(parent, file) for file in names)
    return sorted(files)


def _locate(file: Path, root: Path, problems: list[Problem]) -> SourceLocation:
    name = file.relative_to(root).as_posix() if file.is_relative_to(root) else os.fspath(file)
    return SourceLocation(name, file, problems)


def _list_folder(location: SourceLocation) -> list[Path]:
    """List the entries of a folder in order, or report why the folder can't be listed."""
    try:
        return sorted(location.disk_path / entry for entry in os.listdir(location.disk_path))
    except OSError as error:
        location.report(_not_listed(error))
        return []


def _not_listed(error: OSError) -> Finding:
    return Finding("SPEC_FOLDER_NOT_LISTED", reason=_explain(error))


def _explain(error: OSError) -> str:
    return (error.strerror or "unknown reason").lower()


def find_referenced_file(
    path: str, kind: str, location: SourceLocation, *, allow_folder: bool = False
) -> Path | None:
    """Resolve a path at a location in a spec file; report a missing file.

    ``kind`` is the folder of such files, such as ``schemas``.
    """
    parent = location.disk_path.parent
    home = _find_folder_with("dataflowspec", location) or parent
    folders = [home / kind, home, parent]
    bundle = _find_folder_with("dataflows", location)
    if bundle is not None and kind == "python_functions":
        folders += [bundle / "templates" / kind, *list_module_folders(location)]
    for folder in folders:
        file = os.path.abspath(folder / path) if "\0" not in path else ""
        if os.path.isfile(file) or (allow_folder and os.path.isdir(file)):
            return Path(file)
    location.report(Finding("SPEC_REFERENCED_FILE_MISSING", file=path, folder=f"{home.name}/{kind}"))
    return None


def find_schema_file(path: str | None, location: SourceLocation) -> str | None:
    """Resolve a ``schemaPath``."""
    if path is None:
        return None
    if not path.endswith((".json", ".ddl")):
        location.report(Finding("SPEC_SCHEMA_FILE_SUFFIX", file=path))
        return None
    file = find_referenced_file(path, "schemas", location)
    return None if file is None else str(file)


def list_module_folders(location: SourceLocation) -> list[Path]:
    """List the folders where the bundle of a spec file stores its Python modules."""
    bundle = _find_folder_with("dataflows", location)
    return [bundle / folder for folder in ("python", "libraries", "extensions")] if bundle else []


def _find_folder_with(name: str, location: SourceLocation) -> Path | None:
    """Return the parent of the folder with this name that contains a file."""
    return next((folder.parent for folder in location.disk_path.parents if folder.name == name), None)


def read_text(location: SourceLocation) -> str | None:
    """Read a text file, or report why it can't be read."""
    try:
        content = location.disk_path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        location.report(Finding("SPEC_FILE_NOT_UTF8", byte=error.start))
    except OSError as error:
        location.report(Finding("SPEC_FILE_NOT_READABLE", reason=_explain(error)))
    else:
        if content.strip():
            return content
        location.report(Finding("SPEC_FILE_EMPTY"))
    return None


def read_model(model: type[Model], location: SourceLocation) -> Model | None:
    """Read a file and validate its content."""
    data = read_mapping(location)
    return None if data is None else validate(model, data, location)


def read_mapping(location: SourceLocation) -> dict[str, Any] | None:
    """Read a JSON or YAML file that contains a mapping, or report why it can't be read."""
    content = read_text(location)
    if content is None:
        return None
    try:
        data = (_parse_json if location.disk_path.suffix == ".json" else _parse_yaml)(content)
    except json.JSONDecodeError as error:
        location.report(Finding("SPEC_JSON_INVALID", reason=error.msg, line=error.lineno, column=error.colno))
    except yaml.YAMLError as error:
        location.report(Finding("SPEC_YAML_INVALID", reason=explain(error)))
    except RecursionError:
        location.report(_TOO_DEEP)
    except ValueError as error:
        location.report(Finding("SPEC_VALUE_NOT_READABLE", reason=error))
    else:
        if data is None:
            location.report(Finding("SPEC_FILE_EMPTY"))
        elif not isinstance(data, dict):
            location.report(Finding("SPEC_FILE_NOT_MAPPING", found=describe_value(data)))
        else:
            before = len(location.problems)
            _report_unsupported_content(data, location, {})
            return data if len(location.problems) == before else None
    return None


class _Mapping(dict[Any, Any]):
    """A mapping that is written with repeated keys; such files are refused."""

    def __init__(self, names: list[str]) -> None:
        self.repeated = sorted({name for name in names if names.count(name) > 1})


class _Loader(SafeLoader):  # type: ignore[misc]
    """YAML's safe loader, which finds repeated keys and reads dates as text."""

    def mapping(self, node: yaml.MappingNode) -> Iterator[dict[Any, Any]]:
        """Construct a mapping in two steps, which YAML's anchors need."""
        names = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        data = _Mapping(names) if len(set(names)) < len(names) else {}
        yield data
        data.update(self.construct_mapping(node))


_Loader.add_constructor("tag:yaml.org,2002:map", _Loader.mapping)
_Loader.add_constructor("tag:yaml.org,2002:timestamp", lambda loader, node: loader.construct_scalar(node))


def _parse_json(content: str) -> Any:
    def build(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        data = dict(pairs)
        if len(data) == len(pairs):
            return data
        repeating = _Mapping([key for key, _ in pairs])
        repeating.update(data)
        return repeating

    return json.loads(content, object_pairs_hook=build)


def _parse_yaml(content: str) -> Any:
    # Counting these characters is fast, and most files have too few of them to be nested too deeply.
    if sum(content.count(mark) for mark in "[{-?") > 10 * DEEPEST and is_too_deep(content):
        raise RecursionError
    return yaml.load(content, _Loader)


def _report_unsupported_content(
    value: Any, location: SourceLocation, above: dict[int, SourceLocation]
) -> None:
    """Report content that JSON and YAML allow and a spec doesn't, such as repeated keys and loops."""
    if isinstance(value, str) and not _is_unicode(value):
        location.report(Finding("SPEC_HALF_CHARACTER"))
    if not isinstance(value, dict | list):
        return
    if id(value) in above:
        location.report(Finding("SPEC_CONTAINS_ITSELF"))
        return
    if len(above) == DEEPEST:
        # The first key is enough; the whole path would fill the screen.
        list(above.values())[1].report(_TOO_DEEP)
        return
    above = {**above, id(value): location}
    if isinstance(value, list):
        for position, item in enumerate(value):
            _report_unsupported_content(item, location.at(position), above)
        return
    for key in value.repeated if isinstance(value, _Mapping) else ():
        location.at(key).report(Finding("SPEC_KEY_REPEATED", key=key))
    for key, item in value.items():
        if not isinstance(key, str):
            location.at(str(key)).report(Finding("SPEC_KEY_NOT_TEXT", key=describe_value(key)))
        elif not _is_unicode(key):
            shown = key.encode("ascii", "backslashreplace").decode("ascii")
            location.at(shown).report(Finding("SPEC_HALF_CHARACTER"))
        else:
            _report_unsupported_content(item, location.at(key), above)


def _is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
