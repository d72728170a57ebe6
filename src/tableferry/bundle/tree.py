"""YAML as trees of mappings, lists and texts, where each text knows its file, and safe ways down such a tree.

Every scalar is text: the CLI's YAML and PyYAML take words such as ``on`` and ``12:30`` for different things.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

from tableferry import yamlfiles

REFERENCE = re.compile(r"(?<![$\\])\$\{([\w.\[\]-]+)\}")
_MOST = 200_000  # far beyond any bundle; aliases may make a file endless
_MOST_REFERENCES = 11  # the CLI goes no further either


class Text(str):
    """A scalar, the file that it's written in (empty where the CLI said it), and the line."""

    file: str
    line: int

    def __new__(cls, text: str, file: str = "", line: int = 0) -> Text:
        """Take over the text, with the place."""
        self = super().__new__(cls, text)
        self.file, self.line = file, line
        return self


def parse(content: str, file: str) -> Any:
    """Return what YAML holds; fails with a ValueError that says what is wrong with it."""
    try:
        if yamlfiles.is_too_deep(content):
            raise ValueError("it's nested too deep")
        loader = _Loader(content)
        loader.file = file
        tree = loader.get_data()
        if not isinstance(tree, dict | None):
            raise ValueError("it isn't a mapping")
        if any(count > _MOST for count, _ in enumerate(walk(tree))):
            raise ValueError("its aliases make it too large")
    except yaml.YAMLError as error:
        raise ValueError(yamlfiles.explain(error)) from None
    return tree


def get(tree: Any, *keys: str) -> Any:
    """Return what stands under some keys, or None."""
    for key in keys:
        tree = tree.get(key) if isinstance(tree, dict) else None
    return tree


def items(tree: Any) -> list[tuple[Text, Any]]:
    """Return the pairs of a mapping; of anything else none."""
    return [pair for pair in tree.items() if isinstance(pair[0], Text)] if isinstance(tree, dict) else []


def find(tree: Any, path: str) -> list[Any]:
    """Return all that stands at a path such as ``tasks.*.task_key``, None for an element without it."""
    found = [tree]
    for key in path.split("."):
        if key == "*":
            found = [item for value in found if isinstance(value, list) for item in value]
        else:
            found = [get(value, key) for value in found]
    return found


def known(value: Any) -> Text | None:
    """Return a text if all of it is known, without a reference that is left."""
    return value if isinstance(value, Text) and value and "${" not in value else None


def walk(tree: Any, key: Any = "") -> Iterator[tuple[str, Any]]:
    """Yield all that is in a tree, each with the nearest key above it."""
    yield key, tree
    for name, item in items(tree) or [(key, item) for item in find(tree, "*")]:
        yield from walk(item, name)


def merge(below: Any, above: Any) -> Any:
    """Lay one value over another, as the CLI does: mappings key by key, lists end to end, else replaced."""
    if isinstance(below, dict) and isinstance(above, dict):
        return below | {key: merge(below.get(key), item) for key, item in above.items()}
    if isinstance(below, list) and isinstance(above, list):
        return below + above
    return below if above in (None, below) or isinstance(below, dict) else above


def resolve(value: Any, values: dict[str, Any], above: tuple[str, ...] = ()) -> Any:
    """Replace references to what is known, by their first step; others stay as they are written."""
    if isinstance(value, dict):
        return {key: resolve(item, values, above) for key, item in value.items()}
    if isinstance(value, list):
        return [resolve(item, values, above) for item in value]
    if not isinstance(value, Text) or "${" not in value:
        return value
    found = {name: _find(name, values, above) for name in REFERENCE.findall(value)}
    whole = REFERENCE.fullmatch(value)
    # A list or mapping keeps the places of what is in it: paths are relative to those.
    if whole and isinstance(found[whole[1]], dict | list):
        return found[whole[1]]
    texts = {name: text for name, text in found.items() if isinstance(text, Text)}
    return Text(REFERENCE.sub(lambda match: texts.get(match[1], match[0]), value), value.file, value.line)


def _find(name: str, values: dict[str, Any], above: tuple[str, ...]) -> Any:
    """Return what a reference leads to, or None."""
    if name in above or len(above) == _MOST_REFERENCES:
        return None
    found: Any = values
    for step in name.split("."):
        found = get(found, step)
        if isinstance(found, Text):
            found = resolve(found, values, (*above, name))
    return resolve(found, values, (*above, name))


def _scalar(loader: Any, node: yaml.Node) -> Text:
    return Text(str(node.value), loader.file, node.start_mark.line + 1)


_Loader: Any = type("_Loader", (yamlfiles.SafeLoader,), {})
# The last stands for tags that nobody knows.
for _tag in ("bool", "int", "float", "str", "timestamp", "binary", "value"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_tag}", _scalar)
_Loader.add_constructor(None, _scalar)
