"""The ground that all models of written documents stand on: strict, frozen, and without unknown keys."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic.alias_generators import to_camel
from pydantic.config import JsonDict
from pydantic_core import PydanticCustomError

from tableferry.errors import Finding

CUSTOM = "misfits"
MISSING = Finding("SPEC_KEY_MISSING")


def _as_text(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


def _as_tag(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, dict | list) else _as_text(value)


Name = Annotated[str, Field(min_length=1)]
Names = Annotated[
    list[Name],
    BeforeValidator(lambda value: [value] if isinstance(value, str) else value),
    WithJsonSchema(
        {"type": ["string", "array"], "minLength": 1, "items": {"type": "string", "minLength": 1}}
    ),
]
"""One name, or a list of them."""

Text = Annotated[str, BeforeValidator(_as_text), WithJsonSchema({"type": ["string", "number", "boolean"]})]
Tag = Annotated[str, BeforeValidator(_as_tag), WithJsonSchema({})]


def path_of(written: str) -> str:
    """Return the path that an address of a volume or of a local folder means."""
    return re.sub(r"^(dbfs:(?=/Volumes/)|file:(//)?(?=/))", "", written)


def not_a_folder(path: str) -> Finding:
    """Return that a path of the spec isn't in a folder."""
    return Finding("SPEC_PATH_NOT_A_FOLDER", path=path)


def excluded_by(other: str) -> Finding:
    """Return that a key can't be combined with another one."""
    return Finding("SPEC_KEYS_EXCLUDE_EACH_OTHER", other=other)


def is_elsewhere(path: str) -> bool:
    """Say whether what `path_of` returned is an address of other storage, and no path."""
    # One letter is a drive.
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", path) is not None


class SnakeModel(BaseModel):
    """A mapping whose keys are written as its fields are named."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)


class CamelModel(SnakeModel):
    """A mapping whose keys are written in camelCase."""

    model_config = ConfigDict(alias_generator=to_camel)


def given(*keys: str) -> JsonDict:
    """Return a JSON Schema that all of these keys fulfil where they hold text."""
    return {"required": [*keys], "properties": {key: {"type": "string"} for key in keys}}


def one_of(*keys: str) -> JsonDict:
    """Return a JSON Schema that exactly one of these keys fulfils."""
    return {"oneOf": [given(key) for key in keys]}


def refuse_when(*checks: tuple[bool, str, Finding]) -> None:
    """Raise one error for all checks that are true, each with its key and finding."""
    misfits = [(key, finding) for wrong, key, finding in checks if wrong]
    if misfits:
        raise PydanticCustomError(CUSTOM, "the keys don't fit together", {"misfits": misfits})


def refuse_unless_one(**values: object) -> None:
    """Raise an error unless exactly one of two keys has a value."""
    neither_or_both = len({value is None for value in values.values()}) == 1
    refuse_when((neither_or_both, "", Finding("SPEC_NOT_EXACTLY_ONE_KEY", keys=" and ".join(values))))
