"""The variables of a bundle, and the values that they have in a target."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from tableferry.bundle.problems import Problem, nearest
from tableferry.bundle.reading import read
from tableferry.bundle.references import references
from tableferry.bundle.tree import Node, SourceLocation

_DEFINITION = {"type", "default", "lookup", "description"}


def values(
    tree: Node, target: str, folder: Path, environment: Mapping[str, str], problems: list[Problem]
) -> dict[str, Node | None]:
    """Return what each variable is in a target; None where only the workspace knows.

    The order of precedence is the CLI's: ``BUNDLE_VAR_<name>``, a lookup, ``variable-overrides.json``, the
    target's value, the default.
    """
    given = _overrides(folder, target, problems)
    mine = tree["targets"][target]["variables"]
    # Where a name is wrong, its value is likely meant for the one that lacks it.
    sure = {name for name, _ in mine.items} <= {name for name, _ in tree["variables"].items}
    by_name: dict[str, Node | None] = {}
    for name, variable in tree["variables"].items:
        written, lookup = _in_target(variable, mine[name])
        if (set_outside := environment.get(f"BUNDLE_VAR_{name}")) is not None:
            by_name[name] = Node(set_outside, variable.place)
        elif lookup.given:
            by_name[name] = None
        elif (value := given[name] if given[name].given else written).given:
            by_name[name] = value
        else:
            by_name[name] = None
            remedy = f"set it in targets.{target}.variables, or give it a default"
            if sure:
                problems.append(variable.problem(f"has no value in target '{target}'", remedy))
    return by_name


def defined_in_python(tree: Node) -> bool:
    """Return whether Python code defines a part of the bundle, so that nobody knows all of it."""
    return tree["python"].given or tree["experimental"]["python"].given


def undefined(tree: Node) -> Iterator[Problem]:
    """Find values for variables that aren't defined."""
    names = [name for name, _ in tree["variables"].items]
    for target, settings in tree["targets"].items:
        for name, value in settings["variables"].items:
            if name not in names:
                yield value.problem(
                    f"target '{target}' sets variable '{name}', which isn't defined",
                    nearest(name, names, "define it under 'variables'"),
                )


def unused(tree: Node) -> Iterator[Problem]:
    """Find variables that nothing refers to, unless Python code defines resources too and may use them."""
    if defined_in_python(tree):
        return
    used = {
        reference.steps[1]
        for node in tree.within()
        for reference in references(node.text or "")
        if reference.head in ("var", "variables") and len(reference.steps) > 1
    }
    for name, variable in tree["variables"].items:
        if name not in used:
            yield variable.problem(f"variable '{name}' isn't used", "use it or remove it")


def _in_target(variable: Node, mine: Node) -> tuple[Node, Node]:
    """Return the value and the lookup of a variable in a target; one that it sets takes the other's place."""
    if not mine.given:
        return variable["default"], variable["lookup"]
    nothing = Node(None, mine.place)
    full = isinstance(mine.value, dict) and set(mine.value) <= _DEFINITION
    if full and mine["lookup"].given:
        return nothing, mine["lookup"]
    if full and mine["default"].given:
        return mine["default"], nothing
    return mine, nothing


def _overrides(folder: Path, target: str, problems: list[Problem]) -> Node:
    name = f".databricks/bundle/{target}/variable-overrides.json"
    try:
        there = (folder / name).is_file()
    except (OSError, ValueError):  # a target's name that no file can have
        there = False
    return read(folder / name, name, problems) if there else Node(None, SourceLocation(name))
