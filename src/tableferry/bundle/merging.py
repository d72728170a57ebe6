"""Configuration laid over configuration, in the way the Databricks CLI does it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tableferry.bundle.problems import Problem
from tableferry.bundle.tree import Node

# What a target may override. Variables, run_as, mode and git have rules of their own.
_MERGED = ("bundle", "workspace", "artifacts", "resources", "sync", "permissions", "presets")

# Lists whose elements are laid over each other by a key, and what an element without one is called.
_KEYED = (
    ("jobs", "tasks", "task_key", None),
    ("jobs", "job_clusters", "job_cluster_key", None),
    ("jobs", "parameters", "name", None),
    ("pipelines", "clusters", "label", "default"),
)


def merge(below: Node, above: Node, problems: list[Problem]) -> Node:
    """Lay one value over another: mappings key by key, lists end to end, anything else replaced."""
    match below.value, above.value:
        case (_, None):
            return below
        case (None, _):
            return above
        case (dict() as mine, dict() as other):
            merged = dict(mine)
            for key, item in other.items():
                merged[key] = merge(mine[key], item, problems) if key in mine else item
            return below.with_value(merged)
        case (tuple() as first, tuple() as second):
            return below.with_value(first + second)
        case (dict() | tuple(), _) | (_, dict() | tuple()):
            problems.append(
                above.problem(
                    f"is {above.kind}, where {below.place.full} has {below.kind}",
                    "write the same kind in both",
                )
            )
            return below
        case _:
            return above


def for_target(tree: Node, name: str, problems: list[Problem]) -> Node:
    """Return the configuration of one target: what is written for it laid over what is written for all."""
    target = tree["targets"][name]
    merged = dict(tree.items)
    for key in _MERGED:
        if target[key].given:
            merged[key] = merge(tree[key], target[key], problems)
    if target["run_as"].given:
        merged["run_as"] = target["run_as"]
    bundle = dict(merged["bundle"].items) if "bundle" in merged else {}
    if target["git"].given:
        bundle["git"] = merge(tree["bundle"]["git"], target["git"], problems)
    bundle["target"] = Node(name, target.place)
    if target["mode"].given:
        bundle["mode"] = target["mode"]
    merged["bundle"] = Node(bundle, tree["bundle"].place)
    return tree.with_value(merged)


def by_key(tree: Node, problems: list[Problem]) -> Node:
    """Lay the tasks, clusters and parameters of a target over those of the same key, after resolving."""
    for kind, field, key, unnamed in _KEYED:
        over = partial(_by_key, key=key, unnamed=unnamed, problems=problems)
        for name, _ in tree["resources"][kind].items:
            tree = _changed(tree, ("resources", kind, name, field), over)
    return tree


def _by_key(several: Node, key: str, unnamed: str | None, problems: list[Problem]) -> Node:
    def name_of(element: Node) -> str | None:
        return element[key].text or unnamed

    if not isinstance(several.value, tuple):
        return several
    merged: list[Node] = []
    for element in several.elements:
        name = name_of(element)
        same = [position for position, earlier in enumerate(merged) if name_of(earlier) == name]
        # Two of one list aren't an override: they stay two, and are reported as such.
        over = [position for position in same if merged[position].place.above != element.place.above]
        if name is not None and over:
            merged[over[0]] = merge(merged[over[0]], element, problems)
        else:
            merged.append(element)
    return several.with_value(tuple(merged))


def _changed(tree: Node, keys: tuple[str, ...], change: Callable[[Node], Node]) -> Node:
    """Return the tree with the value under some keys changed, if there is one."""
    first, *rest = keys
    if not isinstance(tree.value, dict) or not tree[first].given:
        return tree
    inner = _changed(tree[first], tuple(rest), change) if rest else change(tree[first])
    return tree.with_value({**tree.value, first: inner})
