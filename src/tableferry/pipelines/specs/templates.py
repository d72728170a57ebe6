"""Specs made of a template: one for each set of parameters, before anything else is looked at."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from tableferry.errors import Finding, Problem
from tableferry.pipelines.specs.folder import Folder
from tableferry.pipelines.specs.read import SUFFIXES, kind, mapping
from tableferry.pipelines.specs.source_location import SourceLocation
from tableferry.pipelines.specs.validate import validated
from tableferry.pipelines.specs.written import CamelModel, Name

_PLACEHOLDER = re.compile(r"\$\{param\.([^}]+)\}")
_ID = "dataFlowId"
_TYPES: Mapping[str, type] = {"string": str, "integer": int, "boolean": bool, "list": list, "object": dict}


class Parameter(CamelModel):
    """What a template wants to be told."""

    type: Literal["string", "integer", "boolean", "list", "object"]
    required: bool = True
    default: Any = None


class TemplateFile(CamelModel):
    """A file of ``templates/``."""

    name: Name
    parameters: dict[Name, Parameter] = Field(min_length=1)
    template: dict[Name, Any] = Field(min_length=1)


class TemplateSpec(CamelModel):
    """A main file that names a template, and the parameters of each spec that it makes."""

    template: Name = Field(description="Name of a file in templates/, without its ending.")
    parameter_sets: Annotated[list[dict[Name, Any]], Field(min_length=1)] = Field(
        description="The parameters of each spec; dataFlowId is one of them."
    )


class Templates:
    """The templates of a project."""

    def __init__(self, folder: Folder) -> None:
        """Take where they are looked for: in ``templates/`` beside ``dataflows/``."""
        self._folder = folder
        self._home = (folder.base or folder.root) / "templates"
        self._read: dict[Path, TemplateFile | None] = {}

    def specs(
        self, data: dict[str, Any], location: SourceLocation, problems: list[Problem]
    ) -> list[tuple[SourceLocation, dict[str, Any]]]:
        """Make the specs of a main file; each is located by the file and its own id, as ``file.json#id``."""
        written = validated(TemplateSpec, data, location, problems)
        if written is None:
            return []
        template = self._template(written.template, location.at("template"), problems)
        if template is None:
            return []
        specs = []
        for position, given in enumerate(written.parameter_sets):
            here = location.at("parameterSets", position)
            before = len(problems)
            values = _values(template, given, here, problems)
            spec = _filled(template.template, values, here, problems)
            if len(problems) == before:
                specs.append((SourceLocation(f"{location.file}#{given[_ID]}"), spec))
        return specs

    def _template(self, name: str, location: SourceLocation, problems: list[Problem]) -> TemplateFile | None:
        files = [self._home / f"{name}{suffix}" for suffix in SUFFIXES]
        there = [file for file in files if file.is_file()]
        if not there:
            home = self._folder.location(self._home).file
            problems.append(location.problem(Finding("SPEC_TEMPLATE_MISSING", template=name, folder=home)))
            return None
        if len(there) > 1:
            files_named = " and ".join(file.name for file in there)
            ambiguous = Finding("SPEC_TEMPLATE_AMBIGUOUS", template=name, files=files_named)
            problems.append(location.problem(ambiguous))
            return None
        file = there[0]
        if file not in self._read:
            self._read[file] = self._file(file, problems)
        return self._read[file]

    def _file(self, file: Path, problems: list[Problem]) -> TemplateFile | None:
        location = self._folder.location(file)
        data = mapping(file, location, problems)
        if data is None:
            return None
        template = validated(TemplateFile, data, location, problems)
        if template is None:
            return None
        before = len(problems)
        if _ID not in template.parameters:
            problems.append(location.at("parameters", _ID).problem(Finding("SPEC_TEMPLATE_WITHOUT_ID")))
        for there, name in _placeholders(template.template, location.at("template")):
            if name not in template.parameters:
                written = f"${{param.{name}}}"
                undeclared = Finding("SPEC_TEMPLATE_PARAMETER_UNDECLARED", parameter=written)
                problems.append(there.problem(undeclared))
        return template if len(problems) == before else None


def _placeholders(value: Any, location: SourceLocation) -> Iterator[tuple[SourceLocation, str]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from ((location, name) for name in _PLACEHOLDER.findall(key))
            yield from _placeholders(item, location.at(key))
    elif isinstance(value, list):
        for position, item in enumerate(value):
            yield from _placeholders(item, location.at(position))
    elif isinstance(value, str):
        yield from ((location, name) for name in _PLACEHOLDER.findall(value))


def _values(
    template: TemplateFile, given: Mapping[str, Any], location: SourceLocation, problems: list[Problem]
) -> dict[str, Any]:
    """Return the parameters' values, defaults included, and say which are missing, wrong or unknown."""
    values = {}
    for name, parameter in template.parameters.items():
        if name not in given:
            if parameter.default is not None and not parameter.required:
                values[name] = parameter.default
            elif parameter.required:
                problems.append(location.at(name).problem(Finding("SPEC_PARAMETER_MISSING")))
            continue
        value, wanted = given[name], _TYPES[parameter.type]
        if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
            wrong = Finding("SPEC_PARAMETER_TYPE", type=parameter.type, found=kind(value))
            problems.append(location.at(name).problem(wrong))
        values[name] = value
    for name in given.keys() - template.parameters.keys():
        known = ", ".join(template.parameters)
        unknown = Finding("SPEC_PARAMETER_UNKNOWN", name=name, known=known)
        problems.append(location.at(name).problem(unknown))
    return values


def _filled(value: Any, values: Mapping[str, Any], location: SourceLocation, problems: list[Problem]) -> Any:
    """Put parameters into a document: as they are where one stands alone, else as text."""

    def text(written: str) -> str:
        return _PLACEHOLDER.sub(lambda match: inner(match[1]), written)

    def inner(name: str) -> str:
        value = values.get(name)
        if isinstance(value, dict | list):
            not_text = Finding("SPEC_PARAMETER_NOT_TEXT", found=kind(value))
            problems.append(location.at(name).problem(not_text))
        elif name not in values:
            missing(name)
        return str(value)

    def missing(name: str) -> None:
        # What is required and not given is reported already.
        if not any(problem.path == location.at(name).path for problem in problems):
            problems.append(location.at(name).problem(Finding("SPEC_PARAMETER_WITHOUT_DEFAULT")))

    if isinstance(value, dict):
        return {text(key): _filled(item, values, location, problems) for key, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, values, location, problems) for item in value]
    if not isinstance(value, str):
        return value
    alone = _PLACEHOLDER.fullmatch(value)
    if alone is None:
        return text(value)
    if alone[1] not in values:
        missing(alone[1])
    return values.get(alone[1])
