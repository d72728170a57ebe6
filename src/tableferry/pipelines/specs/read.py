"""JSON and YAML files as mappings, with the location of whatever is wrong in them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tableferry.errors import Finding, Problem
from tableferry.pipelines.specs.source_location import SourceLocation
from tableferry.yamlfiles import DEEPEST, SafeLoader, explain, is_too_deep

SUFFIXES = (".json", ".yaml", ".yml")

_Repeated = dict[int, list[str]]

_TOO_DEEP = Finding("SPEC_NESTED_TOO_DEEPLY", levels=DEEPEST)


class _Loader(SafeLoader):  # type: ignore[misc]
    """YAML's safe loader, which remembers repeated keys and leaves dates as they are written."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self.repeated: _Repeated = {}

    def mapping(self, node: yaml.MappingNode) -> Iterator[dict[Any, Any]]:
        """Construct a mapping in two steps, as YAML's anchors need it."""
        data: dict[Any, Any] = {}
        yield data
        names = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if twice := _twice(names):
            self.repeated[id(data)] = twice
        data.update(self.construct_mapping(node))


_Loader.add_constructor("tag:yaml.org,2002:map", _Loader.mapping)
_Loader.add_constructor("tag:yaml.org,2002:timestamp", lambda loader, node: loader.construct_scalar(node))


def text(file: Path, location: SourceLocation, problems: list[Problem]) -> str | None:
    """Read a file's text, or say why it can't be had."""
    try:
        content = file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        problems.append(location.problem(Finding("SPEC_FILE_NOT_UTF8", byte=error.start)))
    except OSError as error:
        reason = (error.strerror or "unknown reason").lower()
        problems.append(location.problem(Finding("SPEC_FILE_NOT_READABLE", reason=reason)))
    else:
        if content.strip():
            return content
        problems.append(location.problem(Finding("SPEC_FILE_EMPTY")))
    return None


def entries(folder: Path, location: SourceLocation, problems: list[Problem]) -> list[Path] | None:
    """List what a folder holds, in order, or say why that can't be had."""
    try:
        return sorted(folder / entry for entry in os.listdir(folder))
    except OSError as error:
        problems.append(location.problem(unlisted(error)))
        return None


def unlisted(error: OSError) -> Finding:
    """Return why a folder can't be listed."""
    return Finding("SPEC_FOLDER_NOT_LISTED", reason=(error.strerror or "unknown reason").lower())


def mapping(file: Path, location: SourceLocation, problems: list[Problem]) -> dict[str, Any] | None:
    """Read a JSON or YAML file whose root is a mapping, or say what is wrong with it."""
    content = text(file, location, problems)
    if content is None:
        return None
    repeated: _Repeated = {}
    try:
        data = _json(content, repeated) if file.suffix == ".json" else _yaml(content, repeated)
    except json.JSONDecodeError as error:
        invalid = Finding("SPEC_JSON_INVALID", reason=error.msg, line=error.lineno, column=error.colno)
        problems.append(location.problem(invalid))
        return None
    except yaml.YAMLError as error:
        problems.append(location.problem(Finding("SPEC_YAML_INVALID", reason=explain(error))))
        return None
    except RecursionError:
        problems.append(location.problem(_TOO_DEEP))
        return None
    except ValueError as error:
        problems.append(location.problem(Finding("SPEC_VALUE_NOT_READABLE", reason=error)))
        return None
    if data is None:
        problems.append(location.problem(Finding("SPEC_FILE_EMPTY")))
        return None
    if not isinstance(data, dict):
        problems.append(location.problem(Finding("SPEC_FILE_NOT_MAPPING", found=kind(data))))
        return None
    oddities = list(_oddities(data, location, repeated, {}))
    problems.extend(oddities)
    return None if oddities else data


def name(file: Path, root: Path) -> str:
    """Name a file as messages do: relative to the project where it lies inside."""
    try:
        return file.relative_to(root).as_posix()
    except ValueError:
        return os.fspath(file)


def kind(value: object) -> str:
    """Say in a user's words what a value is."""
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


def _json(content: str, repeated: _Repeated) -> Any:
    def build(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        data = dict(pairs)
        if len(data) < len(pairs):
            repeated[id(data)] = _twice([key for key, _ in pairs])
        return data

    return json.loads(content, object_pairs_hook=build)


def _yaml(content: str, repeated: _Repeated) -> Any:
    # The events alone take little time and no depth, and most specs have too few of them to be asked.
    if sum(content.count(mark) for mark in "[{-?") > 10 * DEEPEST and is_too_deep(content):
        raise RecursionError
    loader = _Loader(content)
    try:
        data = loader.get_single_data()
        repeated.update(loader.repeated)
        return data
    finally:
        loader.dispose()


def _twice(names: list[str]) -> list[str]:
    return sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []


def _oddities(
    value: Any, location: SourceLocation, repeated: _Repeated, above: dict[int, SourceLocation]
) -> Iterator[Problem]:
    """Find what JSON and YAML allow and a spec doesn't: repeated keys, other keys than text, loops, depth."""
    if isinstance(value, str) and not _is_unicode(value):
        yield location.problem(Finding("SPEC_HALF_CHARACTER"))
    if not isinstance(value, dict | list):
        return
    if id(value) in above:
        yield location.problem(Finding("SPEC_CONTAINS_ITSELF"))
        return
    if len(above) == DEEPEST:
        # The whole path is of no use: it's all levels.
        yield list(above.values())[1].problem(_TOO_DEEP)
        return
    above = {**above, id(value): location}
    if isinstance(value, list):
        for position, item in enumerate(value):
            yield from _oddities(item, location.at(position), repeated, above)
        return
    for key in repeated.get(id(value), ()):
        yield location.at(key).problem(Finding("SPEC_KEY_REPEATED", key=key))
    for key, item in value.items():
        if not isinstance(key, str):
            yield location.at(str(key)).problem(Finding("SPEC_KEY_NOT_TEXT", key=kind(key)))
        elif not _is_unicode(key):
            shown = key.encode("ascii", "backslashreplace").decode("ascii")
            yield location.at(shown).problem(Finding("SPEC_HALF_CHARACTER"))
        else:
            yield from _oddities(item, location.at(key), repeated, above)


def _is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
