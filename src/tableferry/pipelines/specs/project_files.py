"""The files of a project: find them, read their JSON or YAML, and report problems with file and key path."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from tableferry.errors import Finding, Problem, SpecError
from tableferry.yamlfiles import DEEPEST, SafeLoader, explain, is_too_deep

SUFFIXES = (".json", ".yaml", ".yml")

_TOO_DEEP = Finding("SPEC_NESTED_TOO_DEEPLY", levels=DEEPEST)

# The repeated keys of a mapping, by the id of the mapping.
_RepeatedKeys = dict[int, list[str]]


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """A file and a key path in it.

    Attributes:
        file: The file, relative to the project where possible.
        disk_path: The absolute path of the file.
        problems: Receives the problems that are reported at this location.
        steps: The keys and list positions of the path; none for the whole file.
    """

    file: str
    disk_path: Path = field(compare=False)
    problems: list[Problem] = field(compare=False, repr=False)
    steps: tuple[str | int, ...] = ()

    @property
    def path(self) -> str:
        """The key path in the format of messages, such as ``flowGroups[0].flows.f_orders``."""
        # Most locations are never printed, so only this property builds text.
        path = ""
        for step in self.steps:
            if isinstance(step, int):
                path += f"[{step}]"
            else:
                key = step or "''"
                path = f"{path}.{key}" if path else key
        return path

    def at(self, *steps: str | int) -> SourceLocation:
        """Return the location below these keys and list positions."""
        return SourceLocation(self.file, self.disk_path, self.problems, self.steps + steps)

    def covers(self, path: str) -> bool:
        """Return whether a key path of the same file is this location or below it."""
        own = self.path
        return path == own or path.startswith((own + ".", own + "["))

    def with_problems(self, problems: list[Problem]) -> SourceLocation:
        """Return the same location with another list for its problems."""
        return replace(self, problems=problems)

    def parse(self, text: str) -> SourceLocation:
        """Return the location whose text is in a flow, view or table; its problems go to the same list."""
        file, _, path = text.partition(": ")
        return replace(self, file=file, steps=(path,) if path else ())

    def report(self, finding: Finding) -> None:
        """Add a finding to the problems."""
        self.problems.append(Problem.of(finding, self.file, self.path))

    def __str__(self) -> str:
        """Return the location in the format of messages."""
        return f"{self.file}: {self.path}" if self.steps else self.file


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


def find_project_files(project: Path) -> ProjectFolder:
    """Find the files of a project from its folder or from one spec file.

    Raises:
        SpecError: The path doesn't exist, or it contains no specs.
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


def find_referenced_file(
    path: str, kind: str, location: SourceLocation, *, allow_folder: bool = False
) -> Path | None:
    """Resolve a path at a location in a spec file; report a missing file.

    ``kind`` is the folder of such files, such as ``schemas``.
    """
    spec_file = location.disk_path
    home = next((parent.parent for parent in spec_file.parents if parent.name == "dataflowspec"), None)
    home = home or spec_file.parent
    shared = _list_function_folders(location) if kind == "python_functions" else []
    for folder in (home / kind, home, spec_file.parent, *shared):
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
    base = _find_bundle(location)
    return [base / folder for folder in ("python", "libraries", "extensions")] if base else []


def _list_function_folders(location: SourceLocation) -> list[Path]:
    base = _find_bundle(location)
    return [base / "templates" / "python_functions", *list_module_folders(location)] if base else []


def _find_bundle(location: SourceLocation) -> Path | None:
    parents = location.disk_path.parents
    return next((parent.parent for parent in parents if parent.name == "dataflows"), None)


def _find_in_folder(root: Path) -> ProjectFolder:
    base = next((folder for folder in (root, root / "src") if os.path.isdir(folder / "dataflows")), None)
    problems: list[Problem] = []
    files = _walk(base / "dataflows", root, problems) if base else []
    main_files = tuple(file for file in files if _is_spec(file, "_main"))
    group_files = tuple(file for file in files if _is_spec(file, "_flow"))
    if not main_files and not group_files:
        if problems:
            raise SpecError("INVALID_SPEC", problems=problems)
        raise _refuse_project(root, Finding("SPEC_PROJECT_EMPTY"))
    return ProjectFolder(root, base, main_files, group_files, problems=problems)


def _find_around_file(file: Path) -> ProjectFolder:
    if file.suffix not in SUFFIXES:
        raise _refuse_project(file, Finding("SPEC_FILE_SUFFIX"))
    if _is_spec(file, "_flow"):
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
        files = list_folder(_locate(file.parent, root, problems)) or []
    group_files = tuple(part for part in files if _is_spec(part, "_flow"))
    others = tuple(main for main in files if _is_spec(main, "_main") and main != file)
    return ProjectFolder(root, base, (file,), group_files, True, others, problems)


def _refuse_project(path: Path, finding: Finding) -> SpecError:
    return SpecError("INVALID_SPEC", problems=[Problem.of(finding, str(path), "")])


def _is_spec(file: Path, ending: str) -> bool:
    return file.suffix in SUFFIXES and file.stem.endswith(ending)


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
    try:
        name = file.relative_to(root).as_posix()
    except ValueError:
        name = os.fspath(file)
    return SourceLocation(name, file, problems)


def list_folder(location: SourceLocation) -> list[Path] | None:
    """List the entries of a folder in order, or report why the folder can't be listed."""
    try:
        return sorted(location.disk_path / entry for entry in os.listdir(location.disk_path))
    except OSError as error:
        location.report(_not_listed(error))
        return None


def _not_listed(error: OSError) -> Finding:
    return Finding("SPEC_FOLDER_NOT_LISTED", reason=(error.strerror or "unknown reason").lower())


def read_text(location: SourceLocation) -> str | None:
    """Read a text file, or report why it can't be read."""
    try:
        content = location.disk_path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        location.report(Finding("SPEC_FILE_NOT_UTF8", byte=error.start))
    except OSError as error:
        reason = (error.strerror or "unknown reason").lower()
        location.report(Finding("SPEC_FILE_NOT_READABLE", reason=reason))
    else:
        if content.strip():
            return content
        location.report(Finding("SPEC_FILE_EMPTY"))
    return None


def read_mapping(location: SourceLocation) -> dict[str, Any] | None:
    """Read a JSON or YAML file that contains a mapping, or report why it can't be read."""
    content = read_text(location)
    if content is None:
        return None
    repeated: _RepeatedKeys = {}
    try:
        data = (_parse_json if location.disk_path.suffix == ".json" else _parse_yaml)(content, repeated)
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
            _report_unsupported_content(data, location, repeated, {})
            return data if len(location.problems) == before else None
    return None


def describe_value(value: object) -> str:
    """Return a value in the words of messages."""
    match value:
        case None:
            return "nothing"
        case dict():
            return "a mapping"
        case list():
            return "a list"
        case bool() | int() | float() | str():
            shown = json.dumps(value, ensure_ascii=False)
            return shown if len(shown) <= 40 else shown[:36] + " …" + shown[-1]
        case _:
            return f"a {type(value).__name__}"


class _Loader(SafeLoader):  # type: ignore[misc]
    """YAML's safe loader, which records repeated keys and reads dates as text."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self.repeated: _RepeatedKeys = {}

    def mapping(self, node: yaml.MappingNode) -> Iterator[dict[Any, Any]]:
        """Construct a mapping in two steps, which YAML's anchors need."""
        data: dict[Any, Any] = {}
        yield data
        names = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if repeated := _list_repeated(names):
            self.repeated[id(data)] = repeated
        data.update(self.construct_mapping(node))


_Loader.add_constructor("tag:yaml.org,2002:map", _Loader.mapping)
_Loader.add_constructor("tag:yaml.org,2002:timestamp", lambda loader, node: loader.construct_scalar(node))


def _parse_json(content: str, repeated: _RepeatedKeys) -> Any:
    def build(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        data = dict(pairs)
        if len(data) < len(pairs):
            repeated[id(data)] = _list_repeated([key for key, _ in pairs])
        return data

    return json.loads(content, object_pairs_hook=build)


def _parse_yaml(content: str, repeated: _RepeatedKeys) -> Any:
    # Counting these characters is fast, and most files have too few of them to be nested too deeply.
    if sum(content.count(mark) for mark in "[{-?") > 10 * DEEPEST and is_too_deep(content):
        raise RecursionError
    loader = _Loader(content)
    try:
        data = loader.get_single_data()
        repeated.update(loader.repeated)
        return data
    finally:
        loader.dispose()


def _list_repeated(names: list[str]) -> list[str]:
    return sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []


def _report_unsupported_content(
    value: Any, location: SourceLocation, repeated: _RepeatedKeys, above: dict[int, SourceLocation]
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
            _report_unsupported_content(item, location.at(position), repeated, above)
        return
    for key in repeated.get(id(value), ()):
        location.at(key).report(Finding("SPEC_KEY_REPEATED", key=key))
    for key, item in value.items():
        if not isinstance(key, str):
            location.at(str(key)).report(Finding("SPEC_KEY_NOT_TEXT", key=describe_value(key)))
        elif not _is_unicode(key):
            shown = key.encode("ascii", "backslashreplace").decode("ascii")
            location.at(shown).report(Finding("SPEC_HALF_CHARACTER"))
        else:
            _report_unsupported_content(item, location.at(key), repeated, above)


def _is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
