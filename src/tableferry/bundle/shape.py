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
from typing import Any, Literal, Union, get_args, get_origin

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
        hints = typing.get_type_hints(kind)
        return Fields(hints, kind.__required_keys__)
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
        choices = [one for one in get_args(kind) if one is not type(None) and not _is_variable(one)]
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


def has(kind: Any, steps: tuple[str, ...]) -> bool:
    """Say whether a key path leads to something in a type."""
    for step in steps:
        kind = bare(kind)
        fields = fields_of(kind)
        if kind in (Any, object):
            return True
        if fields is not None:
            if step not in fields.types:
                return False
            kind = fields.types[step]
        elif get_origin(kind) is dict or (get_origin(kind) is list and step.isdigit()):
            kind = get_args(kind)[-1]
        else:
            return False
    return True


def _fields(node: Node, fields: Fields) -> Iterator[Problem]:
    for key, item in node.items:
        if key in fields.types:
            # An absent key and one without a value are the same to the CLI, but for a warning.
            if item.given or key not in fields.required:
                yield from check(item, fields.types[key])
        else:
            yield item.problem(f"unknown field '{key}'", nearest(key, fields.types, "remove it"))
    for key in sorted(fields.required):
        if not node[key].given:
            yield node.problem(f"lacks '{key}'", "write it")


def _scalar(node: Node, kind: Any, origin: Any) -> Iterator[Problem]:
    value = node.value
    if isinstance(value, dict | tuple):
        yield _wrong(node, _NAMES.get(kind, "text"))
    elif origin is Literal or (isinstance(kind, type) and issubclass(kind, Enum)):
        allowed = list(get_args(kind)) if origin is Literal else [str(one.value) for one in kind]
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


def _wrong(node: Node, wanted: str) -> Problem:
    return node.problem(f"must be {wanted}, not {node.kind}", "correct it")


def _empty(node: Node) -> Problem:
    return node.problem("has no value", "write one, or remove the key")


def _is_variable(kind: Any) -> bool:
    found = get_origin(kind) or kind
    return isinstance(found, type) and found.__module__.startswith("databricks.bundles.core")
