"""Resolves the references of a target's configuration as far as that goes without a workspace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tableferry.bundle import sections
from tableferry.bundle.kinds import KINDS, KNOWN_LATER, type_of
from tableferry.bundle.problems import Problem, nearest, one_of
from tableferry.bundle.references import Reference, pure, references, unreadable
from tableferry.bundle.shape import lost
from tableferry.bundle.tree import Node
from tableferry.bundle.variables import defined_in_python

# Far beyond any bundle, and far below what recursion can bear.
DEEPEST = 50

_SECTIONS: dict[str, Any] = {"bundle": sections.FoundBundle, "workspace": sections.FoundWorkspace}


@dataclass
class Resolver:
    """Replaces references by what they refer to, and collects those that refer to nothing.

    Attributes:
        tree: The target's configuration.
        variables: What each variable is; None for one that only the workspace knows.
        problems: What was found wrong.
    """

    tree: Node
    variables: Mapping[str, Node | None]
    problems: list[Problem] = field(default_factory=list)

    def resolve(self, node: Node, above: tuple[str, ...] = ()) -> Node:
        """Return a value with its references replaced; what can't be known yet stays as it's written."""
        match node.value:
            case dict() as items:
                return node.with_value({key: self.resolve(item, above) for key, item in items.items()})
            case tuple() as elements:
                return node.with_value(tuple(self.resolve(element, above) for element in elements))
            case str() as text if "${" in text:
                self.problems.extend(unreadable(node))
                if whole := pure(text):
                    replacement = self._value(whole, node, above)
                    return node if replacement is None else node.with_value(replacement.value)
                return self._within(node, text, above)
            case _:
                return node

    def _within(self, node: Node, text: str, above: tuple[str, ...]) -> Node:
        for reference in references(text):
            replacement = self._value(reference, node, above)
            if replacement is None:
                continue
            if isinstance(replacement.value, dict | tuple):
                what = f"'{reference.text}' is {replacement.kind}, which can't stand inside text"
                self.problems.append(node.problem(what, "refer to a single value in it"))
            else:
                shown = (
                    str(replacement.value).lower()
                    if isinstance(replacement.value, bool)
                    else str(replacement.value)
                )
                text = text.replace(reference.text, shown)
        return node.with_value(text)

    def _value(self, reference: Reference, node: Node, above: tuple[str, ...]) -> Node | None:
        """Return what a reference refers to; None if that can't be known here, or there is no such thing."""
        if reference.text in above:
            ring = " → ".join((*above[above.index(reference.text) :], reference.text))
            self.problems.append(
                node.problem(f"refers to itself: {ring}", "write a value at one of these places")
            )
            return None
        if len(above) == DEEPEST:
            what = f"'{reference.text}' is reached through {DEEPEST} other references"
            self.problems.append(node.problem(what, "refer to it more directly"))
            return None
        above = (*above, reference.text)
        match reference.steps:
            case ("var", name, *rest) | ("variables", name, "value", *rest):
                return self._variable(name, tuple(rest), reference, node, above)
            case ("bundle" | "workspace", *_):
                return self._section(reference, node, above)
            case ("resources", *_):
                self.problems.extend(self._resource(reference, node))
            case ("artifacts", name, *_):
                names = [key for key, _ in self.tree["artifacts"].items]
                if name not in names:
                    otherwise = one_of(names) if names else "define it under 'artifacts'"
                    self._unknown(
                        node, reference, f"there is no artifact '{name}'", nearest(name, names, otherwise)
                    )
            case _:
                self._unknown(
                    node, reference, "it refers to nothing", "write all of its name, as in ${var.catalog}"
                )
        return None

    def _variable(
        self, name: str, rest: tuple[str, ...], reference: Reference, node: Node, above: tuple[str, ...]
    ) -> Node | None:
        if name not in self.variables:
            remedy = nearest(name, self.variables, "define it under 'variables'")
            self._unknown(node, reference, f"there is no variable '{name}'", remedy)
            return None
        value = self.variables[name]
        if value is None:
            return None
        part = value
        for step in rest:
            part = _below(self.resolve(part, above) if part.text is not None else part, step)
        part = self.resolve(part, above)
        if not part.given:
            self._unknown(node, reference, f"variable '{name}' has no such value", "correct the path")
        return part if part.given else None

    def _section(self, reference: Reference, node: Node, above: tuple[str, ...]) -> Node | None:
        section = self.tree
        for step in reference.steps:
            section = section[step]
        if section.given:
            return self.resolve(section, above)
        if missing := lost(_SECTIONS[reference.head], reference.steps[1:]):
            step, names = missing
            why = f"'{reference.head}' has no '{step}'"
            self._unknown(node, reference, why, nearest(step, names, "correct the path"))
        return None

    def _resource(self, reference: Reference, node: Node) -> Iterator[Problem]:
        kind, name, *rest = (*reference.steps[1:], "", "")[: max(2, len(reference.steps) - 1)]
        resources = self.tree["resources"]
        names = [key for key, _ in resources[kind].items]
        if kind not in KINDS:
            remedy = nearest(kind, KINDS, "write a kind such as 'jobs'")
            yield _refused(node, reference, f"there is no kind of resource '{kind}'", remedy)
        elif name not in names and defined_in_python(self.tree):
            return
        elif name not in names:
            others = [f"{group}.{key}" for group, members in resources.items for key, _ in members.items]
            otherwise = one_of(names) if names else _elsewhere(name, others)
            yield _refused(
                node, reference, f"there is no '{name}' in resources.{kind}", nearest(name, names, otherwise)
            )
        elif not rest:
            yield _refused(node, reference, "it names no field", f"write ${{resources.{kind}.{name}.id}}")
        elif kind in KNOWN_LATER and rest[0] not in KNOWN_LATER[kind]:
            missing = lost(type_of(kind) or Any, tuple(rest))
            if missing is not None:
                step, names = missing
                known = [*names, *KNOWN_LATER[kind]] if step == rest[0] else names
                remedy = nearest(step, known, "write a field of it, such as 'id'")
                field = reference.text[2:-1].split(".", 3)[3]
                yield _refused(node, reference, f"resources.{kind} have no '{field}'", remedy)

    def _unknown(self, node: Node, reference: Reference, why: str, remedy: str) -> None:
        self.problems.append(_refused(node, reference, why, remedy))


def dependencies(tree: Node) -> dict[str, set[str]]:
    """Return which resources each resource refers to, such as ``jobs.nightly``."""
    graph = {}
    for kind, resources in tree["resources"].items:
        for name, resource in resources.items:
            graph[f"{kind}.{name}"] = {
                f"{reference.steps[1]}.{reference.steps[2]}"
                for node in resource.within()
                for reference in references(node.text or "")
                if reference.head == "resources" and len(reference.steps) > 2
            }
    return graph


def _refused(node: Node, reference: Reference, why: str, remedy: str) -> Problem:
    return node.problem(f"'{reference.text}' can't be resolved, as {why}", remedy)


def _elsewhere(name: str, others: list[str]) -> str:
    same = [other for other in others if other.split(".", 1)[1] == name]
    return f"did you mean '{same[0]}'?" if same else "define it, or correct the name"


def _below(node: Node, step: str) -> Node:
    if step.isdigit() and int(step) < len(node.elements):
        return node.elements[int(step)]
    return node[step]
