"""Places in files, field types and base classes of models, and validation that reports problems."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Self, TypeVar, Union, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetPydanticSchema,
    RootModel,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic.config import JsonDict
from pydantic_core import PydanticCustomError, core_schema

from tableferry.amounts import counted, joined
from tableferry.errors import Finding, Problem, TableError
from tableferry.spark.tables import TableName

MISSING = Finding("SPEC_KEY_MISSING")

Model = TypeVar("Model", bound=BaseModel)

# The key path of each wrong value below a mapping, and the finding.
Conflicts = Iterator[tuple[str, Finding]]

_CONFLICTS = "conflicts"

# Earlier names of keys that aren't similar to the current names.
_EARLIER_NAMES = {"cdcApplyChanges": "cdcSettings"}


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


def _to_text(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


def converted_from(written: Any, convert: Callable[[Any], object]) -> GetPydanticSchema:
    """Return the annotation of a type whose values are validated as another type and then converted."""
    unchanged = core_schema.plain_serializer_function_ser_schema(lambda value: value)
    return GetPydanticSchema(
        lambda _, handler: core_schema.no_info_after_validator_function(
            convert, handler(written), serialization=unchanged
        )
    )


Name = Annotated[str, Field(min_length=1)]
Text = Annotated[str, BeforeValidator(_to_text), WithJsonSchema({"type": ["string", "number", "boolean"]})]
Tag = Annotated[
    str,
    BeforeValidator(lambda value: json.dumps(value) if isinstance(value, dict | list) else _to_text(value)),
    WithJsonSchema({}),
]
Names = Annotated[tuple[Name, ...], converted_from(list[Name], tuple)]
# A blank condition means none.
Condition = Annotated[str | None, AfterValidator(lambda value: value if value and value.strip() else None)]


def _to_folders(paths: tuple[str, ...]) -> tuple[str, ...]:
    """Return the paths of URLs of volumes and local folders; refuse URLs of other storage."""
    folders = tuple(re.sub(r"^(dbfs:(?=/Volumes/)|file:(//)?(?=/))", "", path) for path in paths)
    # A single character before the colon is a drive.
    others = [path for path in folders if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", path)]
    reject_value(*(("", Finding("SPEC_PATH_NOT_A_FOLDER", path=path)) for path in others))
    return folders


def reject_value(*conflicts: tuple[str, Finding]) -> None:
    """Raise an error of a validator that `validate` reports: findings on keys below the value, or itself."""
    if conflicts:
        raise PydanticCustomError(_CONFLICTS, "the values are refused", {_CONFLICTS: conflicts})


Folder = Annotated[Name, AfterValidator(lambda path: _to_folders((path,))[0])]
Folders = Annotated[
    Names,
    BeforeValidator(lambda value: [value] if isinstance(value, str) else value),
    AfterValidator(_to_folders),
    WithJsonSchema(
        {"type": ["string", "array"], "minLength": 1, "items": {"type": "string", "minLength": 1}}
    ),
]
"""One folder, or a list of folders."""


def _keys_by_field(model: type[BaseModel]) -> dict[str, str]:
    return {name: info.alias or name for name, info in model.model_fields.items()}


class SnakeModel(BaseModel):
    """A mapping whose keys equal the names of the fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)

    def _find_conflicts(self) -> Conflicts:
        """Yield the findings on keys that contradict each other; subclasses add theirs."""
        yield from ()

    def _find_exclusion(self, first: str, second: str) -> Conflicts:
        """Find whether both of these fields are set, which exclude each other."""
        if getattr(self, first) and getattr(self, second):
            keys = _keys_by_field(type(self))
            yield keys[second], Finding("SPEC_KEYS_EXCLUDE_EACH_OTHER", other=keys[first])

    def _find_choice(self, *names: str) -> Conflicts:
        """Find whether none or several of these fields are set, of which exactly one is required."""
        if sum(getattr(self, name) is not None for name in names) != 1:
            keys = _keys_by_field(type(self))
            yield "", Finding("SPEC_NOT_EXACTLY_ONE_KEY", keys=joined([keys[name] for name in names]))

    @model_validator(mode="after")
    def _check(self) -> Self:
        reject_value(*self._find_conflicts())
        return self


class CamelModel(SnakeModel):
    """A mapping whose keys are the names of the fields in camelCase."""

    model_config = ConfigDict(alias_generator=to_camel)


def schema_with_keys(*keys: str) -> JsonDict:
    """Return a JSON Schema of mappings that have text for all of these keys."""
    return {"required": [*keys], "properties": {key: {"type": "string"} for key in keys}}


def schema_with_one_of(*keys: str) -> JsonDict:
    """Return a JSON Schema of mappings that have text for exactly one of these keys."""
    return {"oneOf": [schema_with_keys(key) for key in keys]}


def parse_table_name(database: str | None, table: str, location: SourceLocation) -> TableName | None:
    """Parse the name of a table, or report why it's invalid."""
    try:
        return TableName.parse(f"{database}.{table}" if database else table)
    except TableError as error:
        location.report(error.finding)
        return None


def validate(model: type[Model], data: dict[str, Any], location: SourceLocation) -> Model | None:
    """Return the data as a model, or report every error and return None."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            steps, parent = _walk(model, detail["loc"])
            _report_error(detail, location.at(*steps), parent)
        return None


def _report_error(error: Any, location: SourceLocation, parent: Any) -> None:
    found, context = describe_value(error["input"]), error.get("ctx", {})
    match error["type"]:
        case "missing":
            location.report(MISSING)
        case "union_tag_not_found":
            location.at(_find_discriminator(context)).report(MISSING)
        case "union_tag_invalid":
            key = _find_discriminator(context)
            location.at(key).report(_not_allowed(error["input"].get(key), context["expected_tags"]))
        case "extra_forbidden":
            key, known = str(location.steps[-1]), list(_keys_by_field(parent).values())
            similar = _find_similar(key, known)
            location.report(
                Finding("SPEC_KEY_MISSPELT", key=key, known=similar)
                if similar
                else Finding("SPEC_KEY_UNKNOWN", key=key)
            )
        case "literal_error":
            location.report(_not_allowed(error["input"], context["expected"].replace(" or ", ", ")))
        case "string_type":
            location.report(Finding("SPEC_VALUE_NOT_TEXT", found=found))
        case "bool_type":
            location.report(Finding("SPEC_VALUE_NOT_BOOLEAN", found=found))
        case "list_type":
            location.report(Finding("SPEC_VALUE_NOT_LIST", found=found))
        case "dict_type" | "model_type" | "model_attributes_type":
            location.report(Finding("SPEC_VALUE_NOT_MAPPING", found=found))
        case "string_too_short":
            location.report(Finding("SPEC_VALUE_EMPTY"))
        case "too_short":
            least = counted(context["min_length"], "entry", "entries")
            location.report(Finding("SPEC_LIST_TOO_SHORT", least=least))
        case "conflicts":  # _CONFLICTS
            for key, finding in context[_CONFLICTS]:
                (location.at(key) if key else location).report(finding)
        case _:
            location.report(Finding("SPEC_VALUE_INVALID", found=found))


def _not_allowed(value: object, allowed: str) -> Finding:
    """Return the finding for a value that isn't in pydantic's list of allowed values."""
    quoted = [choice if choice.startswith("'") else f"'{choice}'" for choice in allowed.split(", ")]
    found = f"'{value}'" if isinstance(value, str) and len(value) <= 40 else describe_value(value)
    return Finding("SPEC_VALUE_NOT_ALLOWED", allowed=joined(quoted, "or"), found=found)


def _find_discriminator(context: Any) -> str:
    """Return the key that selects a model; pydantic writes ``'source_type' | 'sourceType'``, or only one."""
    return to_camel(context["discriminator"].split("'")[1])


def _walk(model: Any, location: tuple[int | str, ...]) -> tuple[list[str | int], Any]:
    """Follow pydantic's location; return its steps without union tags, and the type that has the last one."""
    steps: list[str | int] = []
    parent, there = None, _unwrap(model)
    for step in location:
        if get_origin(there) in (Union, UnionType):
            there = _unwrap(_find_tagged(get_args(there), step))
            continue
        # Pydantic adds this mark to the location of an invalid key of a mapping.
        if step != "[key]":
            steps.append(step)
        parent, there = there, _unwrap(_find_inner(there, step))
    return steps, parent


def _unwrap(annotation: Any) -> Any:
    """Remove root models, metadata and None as an alternative from a type."""
    if get_origin(annotation) is Annotated:
        return _unwrap(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        members = [member for member in get_args(annotation) if member is not type(None)]
        return _unwrap(members[0]) if len(members) == 1 else annotation
    if isinstance(annotation, type) and issubclass(annotation, RootModel):
        return _unwrap(annotation.model_fields["root"].annotation)
    return annotation


def _find_inner(annotation: Any, step: int | str) -> Any:
    if get_origin(annotation) in (list, dict):
        return get_args(annotation)[-1]
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        fields = annotation.model_fields
        return next(
            (fields[name].annotation for name, key in _keys_by_field(annotation).items() if key == step), None
        )
    return None


def _find_tagged(members: tuple[Any, ...], tag: int | str) -> Any:
    for member in members:
        for info in member.model_fields.values():
            if get_origin(info.annotation) is Literal and get_args(info.annotation) == (tag,):
                return member
    return None


def _find_similar(key: str, known: list[str]) -> str | None:
    if _EARLIER_NAMES.get(key) in known:
        return _EARLIER_NAMES[key]
    plain = {name.lower().replace("_", ""): name for name in known}
    close = difflib.get_close_matches(key.lower().replace("_", ""), plain, n=1, cutoff=0.7)
    return plain[close[0]] if close else None
