"""Data checked against a model: each error of pydantic becomes a problem with its place in the file."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, RootModel, ValidationError

from tableferry.amounts import counted, joined
from tableferry.errors import Finding, Problem
from tableferry.pipelines.specs.read import kind
from tableferry.pipelines.specs.source_location import SourceLocation
from tableferry.pipelines.specs.written import CUSTOM, MISSING

Model = TypeVar("Model", bound=BaseModel)
_Steps = list[str | int]

# The keys that say which model a mapping must fit.
_DISCRIMINATORS = ("sourceType", "flowType")

# What the format's earlier versions called some keys.
_FORMER = {"cdcApplyChanges": "cdcSettings"}


def validated(
    model: type[Model],
    data: dict[str, Any],
    location: SourceLocation,
    problems: list[Problem],
    refused: Collection[SourceLocation] = (),
) -> Model | None:
    """Return the data as a model, or None if it doesn't fit.

    ``problems`` receives everything that pydantic finds in one pass, except below the ``refused`` locations,
    whose problems are reported already.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        found: dict[Problem, None] = {}
        for detail in error.errors(include_url=False):
            steps, _ = _walk(model, detail["loc"])
            there = location.at(*steps)
            if any(there.file == other.file and other.covers(there.path) for other in refused):
                continue
            close = None
            if detail["type"] == "extra_forbidden":
                close = _closest(str(steps[-1]), _keys(_walk(model, detail["loc"][:-1])[1]))
            found.update(dict.fromkeys(_problems(detail, location, steps, close)))
        problems.extend(found)
        return None


def _allowed(error: Any) -> list[str]:
    """List the values that an error names as allowed."""
    context = error["ctx"]
    written = context.get("expected_tags") or context["expected"].replace(" or ", ", ")
    return [value.strip("'") for value in written.split(", ")]


def _problems(error: Any, location: SourceLocation, steps: _Steps, close: str | None) -> Iterator[Problem]:
    given, context = kind(error["input"]), error.get("ctx", {})
    there = location.at(*steps)
    match error["type"]:
        case "missing":
            yield there.problem(MISSING)
        case "union_tag_not_found":
            yield there.at(_discriminator(context)).problem(MISSING)
        case "union_tag_invalid":
            key = _discriminator(context)
            yield there.at(key).problem(_not_allowed(error["input"].get(key), _allowed(error)))
        case "extra_forbidden" if close:
            yield there.problem(Finding("SPEC_KEY_MISSPELT", key=steps[-1], known=close))
        case "extra_forbidden":
            yield there.problem(Finding("SPEC_KEY_UNKNOWN", key=steps[-1]))
        case "literal_error":
            yield there.problem(_not_allowed(error["input"], _allowed(error)))
        case "string_type":
            yield there.problem(Finding("SPEC_VALUE_NOT_TEXT", found=given))
        case "bool_type":
            yield there.problem(Finding("SPEC_VALUE_NOT_BOOLEAN", found=given))
        case "list_type":
            yield there.problem(Finding("SPEC_VALUE_NOT_LIST", found=given))
        case "dict_type" | "model_type" | "model_attributes_type":
            yield there.problem(Finding("SPEC_VALUE_NOT_MAPPING", found=given))
        case "string_too_short":
            yield there.problem(Finding("SPEC_VALUE_EMPTY"))
        case "too_short":
            least = counted(context["min_length"], "entry", "entries")
            yield there.problem(Finding("SPEC_LIST_TOO_SHORT", least=least))
        case "misfits":  # written.CUSTOM
            for key, finding in context[CUSTOM]:
                yield SourceLocation(there.file, ".".join(filter(None, (there.path, key)))).problem(finding)
        case _:
            yield there.problem(Finding("SPEC_VALUE_INVALID", found=given))


def _not_allowed(given: object, allowed: list[str]) -> Finding:
    quoted = [f"'{value}'" for value in allowed]
    shown = f"'{given}'" if isinstance(given, str) and len(given) <= 40 else kind(given)
    return Finding("SPEC_VALUE_NOT_ALLOWED", allowed=joined(quoted, "or"), found=shown)


def _discriminator(context: Any) -> str:
    # Pydantic writes 'source_type' | 'sourceType', or 'source_type' alone.
    written = context["discriminator"].replace("_", "").lower()
    return next(key for key in _DISCRIMINATORS if key.lower() in written)


def _walk(model: Any, location: tuple[int | str, ...]) -> tuple[_Steps, Any]:
    """Follow pydantic's path through a model; return the path without union tags, and what is there."""
    steps: _Steps = []
    there = _plain(model)
    for step in location:
        if get_origin(there) in (Union, UnionType):
            there = _plain(_tagged(get_args(there), step))
            continue
        # A wrong key of a mapping is given as the key and this mark; the key alone says where.
        if step != "[key]":
            steps.append(step)
        there = _plain(_inner(there, step))
    return steps, there


def _plain(annotation: Any) -> Any:
    """Unwrap what stands around a model: a root model, metadata, None as the only other choice."""
    if get_origin(annotation) is Annotated:
        return _plain(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        members = [member for member in get_args(annotation) if member is not type(None)]
        return _plain(members[0]) if len(members) == 1 else annotation
    if isinstance(annotation, type) and issubclass(annotation, RootModel):
        return _plain(annotation.model_fields["root"].annotation)
    return annotation


def _inner(annotation: Any, step: int | str) -> Any:
    if get_origin(annotation) in (list, dict):
        return get_args(annotation)[-1]
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        for name, field in annotation.model_fields.items():
            if step == (field.alias or name):
                return field.annotation
    return None


def _tagged(members: tuple[Any, ...], tag: int | str) -> Any:
    for member in members:
        for field in member.model_fields.values():
            if get_origin(field.annotation) is Literal and get_args(field.annotation) == (tag,):
                return member
    return None


def _keys(model: Any) -> list[str]:
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        return []
    return [field.alias or name for name, field in model.model_fields.items()]


def _closest(key: str, known: list[str]) -> str | None:
    if _FORMER.get(key) in known:
        return _FORMER[key]
    plain = {name.lower().replace("_", ""): name for name in known}
    close = difflib.get_close_matches(key.lower().replace("_", ""), plain, n=1, cutoff=0.7)
    return plain[close[0]] if close else None
