"""Writes a view's text with the new names of its tables, and leaves every other character as it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sqlglot import exp

from tableferry.fleet.view_moves.references import NotRewritable, ViewText, parsed, reads_files
from tableferry.spark.tables import TableName

Parts = tuple[str, ...]


def rewritten(view: ViewText, new_name: Callable[[TableName], TableName]) -> str:
    """Return a view's text with the names that its tables have now, all of them in full.

    Raises:
        NotRewritable: It would read something else than these tables, as far as can be seen.
    """
    changes: dict[tuple[int, int], str] = {}
    renamed: dict[int, tuple[Parts, int]] = {}
    for reference in view.references:
        if reads_files(reference.name):
            continue
        new = new_name(reference.name)
        if reference.by_version and new.key != reference.name.key:
            raise NotRewritable("VIEW_READS_OLD_VERSION", table=reference.name, new_table=new)
        changes[reference.span.start, reference.span.end] = new.sql
        renamed[id(reference.node)] = new.parts, len(reference.node.parts)
    for qualifier in view.qualifiers:
        old = qualifier.reference.name
        new = new_name(old)
        if new.key == old.key:
            # Then it means the same as before.
            continue
        changes[qualifier.span.start, qualifier.span.end] = new.sql
        renamed[id(qualifier.node)] = new.parts, qualifier.length
    for hinted in view.hinted:
        new_names = {reference.name.key: new_name(reference.name) for reference in hinted.references}
        if any(new.key != old for old, new in new_names.items()):
            changes[hinted.span.start, hinted.span.end] = ", ".join(new.sql for new in new_names.values())
    text = view.text
    for (start, end), name in sorted(changes.items(), reverse=True):
        text = text[:start] + name + text[end:]
    _, tree = parsed(text)
    try:
        same = _shape(tree, {}) == _shape(view.tree, renamed)
    except RecursionError as error:
        raise NotRewritable("VIEW_NESTED_TOO_DEEPLY") from error
    if not same:
        raise NotRewritable("VIEW_MEANING_CHANGES")
    return text


def _shape(value: Any, renamed: Mapping[int, tuple[Parts, int]]) -> Any:
    """Return what of a tree counts: all but how names are quoted and what hints say, with these names."""
    match value:
        case exp.Identifier():
            return value.name
        case exp.Column() | exp.Dot():
            base, parts = _chain(value, renamed)
            join = value.args.get("join_mark")
            return "name", _shape(base, renamed), parts, join
        case exp.Table() if all(isinstance(part, exp.Identifier) for part in value.parts):
            rest = {key: arg for key, arg in value.args.items() if key not in ("this", "db", "catalog")}
            names = tuple(part.name for part in value.parts)
            return "table", _renamed(value, names, renamed), _arguments(rest, renamed)
        case exp.Expression():
            return type(value).__name__, _arguments(value.args, renamed)
        case list():
            return [_shape(element, renamed) for element in value]
        case _:
            return value


def _arguments(arguments: Mapping[str, Any], renamed: Mapping[int, tuple[Parts, int]]) -> list[Any]:
    return [
        (key, _shape(value, renamed))
        for key, value in sorted(arguments.items())
        if key != "hint" and value not in (None, False, [])
    ]


def _chain(node: exp.Expr, renamed: Mapping[int, tuple[Parts, int]]) -> tuple[exp.Expr | None, list[Any]]:
    """Return a name with dots as its parts, however these are nested, and what it begins with otherwise."""
    match node:
        case exp.Column():
            parts = tuple(part.name if isinstance(part, exp.Identifier) else part for part in node.parts)
            return None, [_shape(part, renamed) for part in _renamed(node, parts, renamed)]
        case exp.Dot():
            base, before = _chain(node.this, renamed)
            return base, [*before, _shape(node.expression, renamed)]
        case _:
            return node, []


def _renamed(
    node: exp.Expr, parts: tuple[Any, ...], renamed: Mapping[int, tuple[Parts, int]]
) -> tuple[Any, ...]:
    new, length = renamed.get(id(node), ((), 0))
    return (*new, *parts[length:])
