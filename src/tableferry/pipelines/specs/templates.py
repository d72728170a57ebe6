"""Templates: a main file that names a template becomes one spec for each set of parameters."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from tableferry.errors import Finding
from tableferry.pipelines.specs.project_files import SUFFIXES, ProjectFolder, read_model
from tableferry.pipelines.specs.validation import CamelModel, Name, SourceLocation, describe_value, validate

_PLACEHOLDER = re.compile(r"\$\{param\.([^}]+)\}")
_ID = "dataFlowId"
_TYPES: Mapping[str, type] = {"string": str, "integer": int, "boolean": bool, "list": list, "object": dict}


class TemplateSpec(CamelModel):
    """A main file that names a template, and the parameters of each spec."""

    template: Name = Field(description="Name of a file in templates/, without its suffix.")
    parameter_sets: Annotated[list[dict[Name, Any]], Field(min_length=1)] = Field(
        description="The parameters of each spec; dataFlowId is one of them."
    )


class Parameter(CamelModel):
    """A parameter that a template declares."""

    type: Literal["string", "integer", "boolean", "list", "object"]
    required: bool = True
    default: Any = None


class TemplateFile(CamelModel):
    """A file in ``templates/``."""

    name: Name
    parameters: dict[Name, Parameter] = Field(min_length=1)
    template: dict[Name, Any] = Field(min_length=1)


class TemplateReader:
    """Reads the templates of a project, each once."""

    def __init__(self, folder: ProjectFolder) -> None:
        """Use the folder ``templates/`` beside ``dataflows/``."""
        self._folder = folder
        self._home = (folder.base or folder.root) / "templates"
        self._templates: dict[Path, TemplateFile | None] = {}

    def expand(
        self, data: dict[str, Any], location: SourceLocation
    ) -> Iterator[tuple[object, dict[str, Any]]]:
        """Yield the id and the content of each spec; report invalid sets of parameters."""
        written = validate(TemplateSpec, data, location)
        template = self._find(written.template, location.at("template")) if written else None
        if written is None or template is None:
            return
        for position, given in enumerate(written.parameter_sets):
            there = location.at("parameterSets", position)
            before = len(there.problems)
            values = _resolve_parameters(template, given, there)
            spec = _fill(template.template, values, there)
            if len(there.problems) == before:
                yield values.get(_ID), spec

    def _find(self, name: str, location: SourceLocation) -> TemplateFile | None:
        files = [file for suffix in SUFFIXES if (file := self._home / f"{name}{suffix}").is_file()]
        if not files:
            home = self._folder.location(self._home).file
            location.report(Finding("SPEC_TEMPLATE_MISSING", template=name, folder=home))
            return None
        file, *others = files
        if others:
            names = " and ".join(file.name for file in files)
            location.report(Finding("SPEC_TEMPLATE_AMBIGUOUS", template=name, files=names))
            return None
        if file not in self._templates:
            # A broken template is a problem of the first main file that names it.
            location = self._folder.location(file).with_problems(location.problems)
            self._templates[file] = _read_template(location)
        return self._templates[file]


def _read_template(location: SourceLocation) -> TemplateFile | None:
    template = read_model(TemplateFile, location)
    if template is None:
        return None
    before = len(location.problems)
    if _ID not in template.parameters:
        location.at("parameters", _ID).report(Finding("SPEC_TEMPLATE_WITHOUT_ID"))
    for there, name in _find_placeholders(template.template, location.at("template")):
        if name not in template.parameters:
            there.report(Finding("SPEC_TEMPLATE_PARAMETER_UNDECLARED", parameter=f"${{param.{name}}}"))
    return template if len(location.problems) == before else None


def _find_placeholders(value: Any, location: SourceLocation) -> Iterator[tuple[SourceLocation, str]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _find_placeholders(key, location)
            yield from _find_placeholders(item, location.at(key))
    elif isinstance(value, list):
        for position, item in enumerate(value):
            yield from _find_placeholders(item, location.at(position))
    elif isinstance(value, str):
        yield from ((location, name) for name in _PLACEHOLDER.findall(value))


def _resolve_parameters(
    template: TemplateFile, given: Mapping[str, Any], location: SourceLocation
) -> dict[str, Any]:
    """Return the values of the parameters with defaults; report missing, unknown and wrong values."""
    values = {}
    for name, parameter in template.parameters.items():
        if name not in given:
            if parameter.required:
                location.at(name).report(Finding("SPEC_PARAMETER_MISSING"))
            elif parameter.default is not None:
                values[name] = parameter.default
            continue
        value, expected = given[name], _TYPES[parameter.type]
        if not isinstance(value, expected) or (expected is int and isinstance(value, bool)):
            wrong = Finding("SPEC_PARAMETER_TYPE", type=parameter.type, found=describe_value(value))
            location.at(name).report(wrong)
        values[name] = value
    for name in given.keys() - template.parameters.keys():
        known = ", ".join(template.parameters)
        location.at(name).report(Finding("SPEC_PARAMETER_UNKNOWN", name=name, known=known))
    return values


def _fill(value: Any, values: Mapping[str, Any], location: SourceLocation) -> Any:
    """Replace placeholders in a document: a lone placeholder by the value, others by the value's text."""

    def fill_text(text: str) -> str:
        return _PLACEHOLDER.sub(lambda match: to_text(match[1]), text)

    def to_text(name: str) -> str:
        value = get(name)
        if isinstance(value, dict | list):
            location.at(name).report(Finding("SPEC_PARAMETER_NOT_TEXT", found=describe_value(value)))
        return str(value)

    def get(name: str) -> Any:
        # A missing required parameter has been reported.
        there = location.at(name)
        if name not in values and not any(problem.path == there.path for problem in there.problems):
            there.report(Finding("SPEC_PARAMETER_WITHOUT_DEFAULT"))
        return values.get(name)

    if isinstance(value, dict):
        return {fill_text(key): _fill(item, values, location) for key, item in value.items()}
    if isinstance(value, list):
        return [_fill(item, values, location) for item in value]
    if not isinstance(value, str):
        return value
    alone = _PLACEHOLDER.fullmatch(value)
    return fill_text(value) if alone is None else get(alone[1])
