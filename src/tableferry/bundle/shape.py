"""Whether a value has the shape that a type asks for, down to the last field, and where it hasn't.

The types are dataclasses of ``databricks-bundles`` and typed dictionaries of our own. Its ``from_dict`` stops
at the first deviation, gives no place, and lets mappings pass for text, and fractions or truth values for
whole numbers.
"""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import cache
from typing import Any, Literal, Required, Union, get_args, get_origin

from tableferry.bundle.problems import Problem, listed, nearest
from tableferry.bundle.tree import Node

_NAMES = {bool: "true or false", int: "a whole number", float: "a number"}
_WORDS = {"true", "y", "yes", "on", "false", "n", "no", "off"}
_WHOLE = re.compile(r"[-+]?[0-9]+")
_NUMBER = re.compile(r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?")
_REFERENCE = re.compile(r"\$\{[^}]*\}")


@dataclasses.dataclass(frozen=True)
class Fields:
    """The fields of a mapping's type, and which of them must be there."""

    types: Mapping[str, Any]
    required: frozenset[str]


@cache
def fields_of(kind: Any) -> Fields | None:
    """Return the fields of a dataclass or typed dictionary; None for any other type."""
    if typing.is_typeddict(kind):
        # Annotations that are text when the class is made aren't in its __required_keys__.
        marked = typing.get_type_hints(kind, include_extras=True)
        required = [name for name, hint in marked.items() if get_origin(hint) is Required]
        return Fields(typing.get_type_hints(kind), frozenset(required))
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        missing = dataclasses.MISSING
        needed = [
            field.name
            for field in dataclasses.fields(kind)
            if field.default is missing and field.default_factory is missing
        ]
        return Fields(typing.get_type_hints(kind), frozenset(needed))
    return None


def bare(kind: Any) -> Any:
    """Take the choice of a variable or of nothing away from a type."""
    while get_origin(kind) in (Union, types.UnionType):
        choices = [part for part in get_args(kind) if part is not types.NoneType and not _is_variable(part)]
        if len(choices) != 1:
            return Any
        kind = choices[0]
    return kind


def check(node: Node, kind: Any) -> Iterator[Problem]:
    """Find what deviates from a type.

    Args:
        node: The value. A reference that only the deployment resolves fits everywhere.
        kind: The type.
    """
    kind = bare(kind)
    if kind in (Any, object) or (node.text is not None and _REFERENCE.fullmatch(node.text)):
        return
    origin = get_origin(kind)
    fields = fields_of(kind)
    if fields is not None:
        if node.given and not isinstance(node.value, dict):
            yield _wrong(node, "a mapping")
        elif node.given:
            yield from _fields(node, fields)
    elif origin is list:
        if node.given and not isinstance(node.value, tuple):
            yield _wrong(node, "a list")
        for element in node.elements:
            if element.given:
                yield from check(element, get_args(kind)[0])
            else:
                yield _empty(element)
    elif origin is dict:
        if node.given and not isinstance(node.value, dict):
            yield _wrong(node, "a mapping")
        for _, item in node.items:
            yield from check(item, get_args(kind)[1])
    elif not node.given:
        yield _empty(node)
    else:
        yield from _scalar(node, kind, origin)


def lost(kind: Any, steps: tuple[str, ...]) -> tuple[str, list[str]] | None:
    """Return the first step of a key path that leads nowhere in a type, and those that would lead on."""
    for step in steps:
        kind = bare(kind)
        fields = fields_of(kind)
        if kind in (Any, object):
            return None
        if fields is not None and step in fields.types:
            kind = fields.types[step]
        elif get_origin(kind) is dict or (get_origin(kind) is list and step.isdigit()):
            kind = get_args(kind)[-1]
        else:
            return step, list(fields.types) if fields is not None else []
    return None


def _fields(node: Node, fields: Fields) -> Iterator[Problem]:
    meant: set[str] = set()
    for key, item in node.items:
        if key in fields.types:
            # Without a value, a required field is reported below.
            if item.given or key not in fields.required:
                yield from check(item, fields.types[key])
        elif not _is_anchor(item):
            remedy = nearest(key, fields.types, "remove it")
            meant.add(remedy)
            yield item.problem(f"unknown field '{key}'", remedy)
    for key in sorted(fields.required):
        if not node[key].given and not any(f"'{key}'" in remedy for remedy in meant):
            yield node.problem(f"lacks '{key}'", "write it")


def _scalar(node: Node, kind: Any, origin: Any) -> Iterator[Problem]:
    value = node.value
    if isinstance(value, dict | tuple):
        yield _wrong(node, _NAMES.get(kind, "text"))
    elif origin is Literal or (isinstance(kind, type) and issubclass(kind, Enum)):
        allowed = list(get_args(kind)) if origin is Literal else [str(member.value) for member in kind]
        if value not in allowed:
            remedy = nearest(str(value), allowed, "write one of them")
            yield node.problem(f"{node.kind} isn't one of {listed(allowed)}", remedy)
    elif kind is bool:
        if not isinstance(value, bool) and str(value).lower() not in _WORDS:
            yield _wrong(node, _NAMES[bool])
    elif kind is int:
        whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        if isinstance(value, bool) or not (whole or _WHOLE.fullmatch(str(value))):
            yield _wrong(node, _NAMES[int])
    elif kind is float and (isinstance(value, bool) or not _NUMBER.fullmatch(str(value))):
        yield _wrong(node, _NAMES[float])


def _wrong(node: Node, expected: str) -> Problem:
    return node.problem(f"must be {expected}, not {node.kind}", "correct it")


def _empty(node: Node) -> Problem:
    return node.problem("has no value", "write one, or remove the key")


def _is_anchor(node: Node) -> bool:
    """Return whether a value is only there for YAML aliases to repeat it."""
    inside = [*(item for _, item in node.items), *node.elements]
    return node.shared or (bool(inside) and all(_is_anchor(child) for child in inside))


def _is_variable(kind: Any) -> bool:
    type_ = get_origin(kind) or kind
    return isinstance(type_, type) and type_.__module__.startswith("databricks.bundles.core")
