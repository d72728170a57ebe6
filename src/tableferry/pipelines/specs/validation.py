"""Field types and base classes of all models, and validation that turns pydantic's errors into problems."""

from __future__ import annotations

import difflib
import json
import re
from abc import abstractmethod
from collections.abc import Collection, Iterator
from types import UnionType
from typing import Annotated, Any, Literal, Self, TypeVar, Union, get_args, get_origin

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    RootModel,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic.config import JsonDict
from pydantic_core import PydanticCustomError

from tableferry.amounts import counted, joined
from tableferry.errors import Finding, TableError
from tableferry.pipelines.specs.project_files import SourceLocation, describe_value
from tableferry.spark.tables import TableName

MISSING = Finding("SPEC_KEY_MISSING")

Model = TypeVar("Model", bound=BaseModel)
_Steps = list[str | int]

# The key path of each wrong value below a mapping, and the finding.
Conflicts = Iterator[tuple[str, Finding]]

_CONFLICTS = "conflicts"

# The keys that select the model of a mapping.
_DISCRIMINATORS = ("sourceType", "flowType")

# Earlier names of keys that aren't similar to the current names.
_EARLIER_NAMES = {"cdcApplyChanges": "cdcSettings"}


def _to_text(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


def _to_tag(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, dict | list) else _to_text(value)


Name = Annotated[str, Field(min_length=1)]
Names = Annotated[
    list[Name],
    BeforeValidator(lambda value: [value] if isinstance(value, str) else value),
    WithJsonSchema(
        {"type": ["string", "array"], "minLength": 1, "items": {"type": "string", "minLength": 1}}
    ),
]
"""One name, or a list of names."""

Text = Annotated[str, BeforeValidator(_to_text), WithJsonSchema({"type": ["string", "number", "boolean"]})]
Tag = Annotated[str, BeforeValidator(_to_tag), WithJsonSchema({})]


class SnakeModel(BaseModel):
    """A mapping whose keys equal the names of the fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)


class CamelModel(SnakeModel):
    """A mapping whose keys are the names of the fields in camelCase."""

    model_config = ConfigDict(alias_generator=to_camel)


class CheckedModel(SnakeModel):
    """A mapping whose keys restrict each other."""

    @abstractmethod
    def _find_conflicts(self) -> Conflicts:
        """Yield the findings on keys that contradict each other."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if conflicts := list(self._find_conflicts()):
            raise PydanticCustomError(_CONFLICTS, "the keys contradict each other", {_CONFLICTS: conflicts})
        return self


def excluded_by(other: str) -> Finding:
    """Return the finding that a key can't be combined with another key."""
    return Finding("SPEC_KEYS_EXCLUDE_EACH_OTHER", other=other)


def find_key_conflict(**values: object) -> Conflicts:
    """Find whether none or several of these keys have a value."""
    if sum(value is not None for value in values.values()) != 1:
        yield "", Finding("SPEC_NOT_EXACTLY_ONE_KEY", keys=joined([*values]))


def find_non_folders(key: str, *paths: str) -> Conflicts:
    """Find paths, as `to_path` returns them, that are URLs of other storage."""
    for path in paths:
        # A single character before the colon is a drive.
        if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", path):
            yield key, Finding("SPEC_PATH_NOT_A_FOLDER", path=path)


def to_path(url: str) -> str:
    """Return the path of a URL of a volume or of a local folder; return another URL unchanged."""
    return re.sub(r"^(dbfs:(?=/Volumes/)|file:(//)?(?=/))", "", url)


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


def validate(
    model: type[Model],
    data: dict[str, Any],
    location: SourceLocation,
    refused: Collection[SourceLocation] = (),
) -> Model | None:
    """Return the data as a model, or report every error and return None.

    Errors below the ``refused`` locations aren't reported, because the refusals are.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            steps, _ = _walk(model, detail["loc"])
            there = location.at(*steps)
            if any(other.covers(there.path) for other in refused):
                continue
            similar = None
            if detail["type"] == "extra_forbidden":
                similar = _find_similar(str(steps[-1]), _list_keys(_walk(model, detail["loc"][:-1])[1]))
            _report_error(detail, there, steps, similar)
        return None


def _report_error(error: Any, location: SourceLocation, steps: _Steps, similar: str | None) -> None:
    found, context = describe_value(error["input"]), error.get("ctx", {})
    match error["type"]:
        case "missing":
            location.report(MISSING)
        case "union_tag_not_found":
            location.at(_find_discriminator(context)).report(MISSING)
        case "union_tag_invalid":
            key = _find_discriminator(context)
            location.at(key).report(_not_allowed(error["input"].get(key), _list_allowed(context)))
        case "extra_forbidden" if similar:
            location.report(Finding("SPEC_KEY_MISSPELT", key=steps[-1], known=similar))
        case "extra_forbidden":
            location.report(Finding("SPEC_KEY_UNKNOWN", key=steps[-1]))
        case "literal_error":
            location.report(_not_allowed(error["input"], _list_allowed(context)))
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


def _list_allowed(context: Any) -> list[str]:
    written = context.get("expected_tags") or context["expected"].replace(" or ", ", ")
    return [value.strip("'") for value in written.split(", ")]


def _not_allowed(value: object, allowed: list[str]) -> Finding:
    quoted = [f"'{choice}'" for choice in allowed]
    found = f"'{value}'" if isinstance(value, str) and len(value) <= 40 else describe_value(value)
    return Finding("SPEC_VALUE_NOT_ALLOWED", allowed=joined(quoted, "or"), found=found)


def _find_discriminator(context: Any) -> str:
    # Pydantic writes 'source_type' | 'sourceType', or 'source_type' alone.
    written = context["discriminator"].replace("_", "").lower()
    return next(key for key in _DISCRIMINATORS if key.lower() in written)


def _walk(model: Any, location: tuple[int | str, ...]) -> tuple[_Steps, Any]:
    """Follow pydantic's location through a model; return the steps without union tags, and the type there."""
    steps: _Steps = []
    there = _unwrap(model)
    for step in location:
        if get_origin(there) in (Union, UnionType):
            there = _unwrap(_find_tagged(get_args(there), step))
            continue
        # Pydantic adds this mark to the location of an invalid key of a mapping.
        if step != "[key]":
            steps.append(step)
        there = _unwrap(_find_inner(there, step))
    return steps, there


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
        for name, field in annotation.model_fields.items():
            if step == (field.alias or name):
                return field.annotation
    return None


def _find_tagged(members: tuple[Any, ...], tag: int | str) -> Any:
    for member in members:
        for field in member.model_fields.values():
            if get_origin(field.annotation) is Literal and get_args(field.annotation) == (tag,):
                return member
    return None


def _list_keys(model: Any) -> list[str]:
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        return []
    return [field.alias or name for name, field in model.model_fields.items()]


def _find_similar(key: str, known: list[str]) -> str | None:
    if _EARLIER_NAMES.get(key) in known:
        return _EARLIER_NAMES[key]
    plain = {name.lower().replace("_", ""): name for name in known}
    close = difflib.get_close_matches(key.lower().replace("_", ""), plain, n=1, cutoff=0.7)
    return plain[close[0]] if close else None
