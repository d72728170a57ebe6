"""YAML as the Databricks CLI reads it: YAML 1.2's words for true and false, and no key twice."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from tableferry.bundle.problems import Problem
from tableferry.bundle.tree import Node, SourceLocation, Value
from tableferry.yamlfiles import DEEPEST, SafeLoader, explain, is_too_deep

LARGEST = 50_000

_TAG = "tag:yaml.org,2002:"
_KEY_TYPES = ("str", "null", "merge")


class _Loader(SafeLoader):  # type: ignore[misc]
    """Composes nodes, with the types of YAML 1.2."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012


for _name, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", list("-+.0123456789")),
    ("merge", r"<<", ["<"]),
):
    _Loader.add_implicit_resolver(_TAG + _name, re.compile(f"(?:{_pattern})$"), _first)


class _Unfit(Exception):
    """The document can't be taken; carries the problem."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


def read(file: Path, name: str, problems: list[Problem]) -> Node:
    """Read a YAML or JSON file.

    Args:
        file: The file.
        name: How messages name it.
        problems: Gets what is wrong; the returned node is then empty or incomplete.
    """
    location = SourceLocation(name)
    nothing = Node({}, location)
    try:
        content = file.read_bytes().decode("utf-8-sig")
        if is_too_deep(content):
            raise RecursionError
        loader = _Loader(content)
        try:
            root = loader.get_single_node()
        finally:
            loader.dispose()
        node = _Converter(problems, root).convert(root, location, ()) if root else Node(None, location)
    except UnicodeDecodeError as error:
        problems.append(nothing.problem(f"isn't UTF-8 text (byte {error.start})", "save it as UTF-8"))
    except OSError as error:
        reason = (error.strerror or "unknown reason").lower()
        problems.append(nothing.problem(f"can't be read ({reason})", "check the file and its permissions"))
    except yaml.YAMLError as error:
        problems.append(nothing.problem(f"isn't valid YAML ({explain(error)})", "fix it there"))
    except RecursionError:
        problems.append(nothing.problem("is nested too deeply", f"flatten it to at most {DEEPEST} levels"))
    except _Unfit as error:
        problems.append(error.problem)
    else:
        if isinstance(node.value, dict):
            return node
        if not node.given:
            problems.append(nothing.problem("is empty", "fill it or remove it"))
        else:
            problems.append(
                nothing.problem(f"must hold a mapping, not {node.kind}", "write keys such as 'resources:'")
            )
    return nothing


class _Converter:
    """Turns composed YAML into nodes with places."""

    def __init__(self, problems: list[Problem], root: yaml.Node) -> None:
        self.problems = problems
        self.seen = 0
        self.shared = _shared(root)

    def convert(self, yaml_node: yaml.Node, location: SourceLocation, above: tuple[int, ...]) -> Node:
        self.seen += 1
        if self.seen > LARGEST:
            whole = Node(None, SourceLocation(location.file))
            raise _Unfit(whole.problem("holds too much", "write out fewer YAML aliases"))
        if id(yaml_node) in above:
            node = Node(None, location)
            raise _Unfit(node.problem("contains itself through a YAML anchor", "write it out"))
        above = (*above, id(yaml_node))
        match yaml_node:
            case yaml.SequenceNode():
                items = enumerate(yaml_node.value)
                value: Value = tuple(self.convert(item, location.at(i), above) for i, item in items)
            case yaml.MappingNode():
                value = self._mapping(yaml_node, location, above)
            case _:
                value = _scalar(yaml_node.tag, yaml_node.value)
        return Node(value, location, id(yaml_node) in self.shared)

    def _mapping(
        self, mapping: yaml.MappingNode, location: SourceLocation, above: tuple[int, ...]
    ) -> dict[str, Node]:
        own: dict[str, Node] = {}
        merged: dict[str, Node] = {}
        for key, value in mapping.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag.removeprefix(_TAG) not in _KEY_TYPES:
                shown = key.value if isinstance(key, yaml.ScalarNode) else "of more than one value"
                self._say(location, f"key {shown} isn't text", "put it in quotes")
            elif key.tag == _TAG + "merge":
                several = isinstance(value, yaml.SequenceNode)
                for anchored in value.value if several else [value]:
                    node = self.convert(anchored, location, above)
                    if not isinstance(node.value, dict):
                        self._say(
                            location, "merges with '<<' what isn't a mapping", "name an anchor of a mapping"
                        )
                    merged.update(node.items)
            elif key.value in own:
                self._say(location.at(key.value), f"key '{key.value}' is written more than once", "keep one")
            else:
                own[key.value] = self.convert(value, location.at(key.value), above)
        return merged | own

    def _say(self, location: SourceLocation, what: str, remedy: str) -> None:
        self.problems.append(Node(None, location).problem(what, remedy))


def _shared(root: yaml.Node) -> set[int]:
    """Return the ids of the composed nodes that more than one place holds."""
    once: set[int] = set()
    more: set[int] = set()
    left = [root]
    while left:
        node = left.pop()
        if id(node) in once:
            more.add(id(node))
            continue
        once.add(id(node))
        if isinstance(node, yaml.MappingNode):
            left.extend(value for _, value in node.value)
        elif isinstance(node, yaml.SequenceNode):
            left.extend(node.value)
    return more


def _scalar(tag: str, text: str) -> str | int | float | bool | None:
    match tag.removeprefix(_TAG):
        case "null":
            return None
        case "bool":
            return text.lower() == "true"
        case "int":
            try:
                return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
            except ValueError:  # more digits than Python turns into a number
                return text
        case "float":
            return float(text)
        case _:
            return text
