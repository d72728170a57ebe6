"""A bundle's configuration as it's written: values that know the file and the key path they stand in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any, TypeAlias

from tableferry.bundle.problems import Problem


@dataclass(frozen=True)
class SourceLocation:
    """A file and the keys and list positions that lead to a value in it."""

    file: str
    steps: tuple[str | int, ...] = ()

    def at(self, *steps: str | int) -> SourceLocation:
        """Go down by keys and list positions."""
        return SourceLocation(self.file, self.steps + steps)

    @property
    def above(self) -> SourceLocation:
        """The mapping or list that holds this."""
        return SourceLocation(self.file, self.steps[:-1])

    @property
    def folder(self) -> PurePosixPath:
        """The folder that relative paths are relative to, itself relative to the bundle's."""
        return PurePosixPath(self.file).parent

    @property
    def full(self) -> str:
        """The file and the key path."""
        return f"{self.file}: {self}" if self.steps else self.file

    def __str__(self) -> str:
        text = ""
        for step in self.steps:
            text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step or "''"
        return text


Value: TypeAlias = "str | int | float | bool | dict[str, Node] | tuple[Node, ...] | None"


@dataclass(frozen=True)
class Node:
    """A value and its place; what isn't there is a node without a value, so that one can always go on down.

    Attributes:
        value: Text, number, truth value, mapping or list of nodes; None for what is empty or absent.
        place: Where it's written.
        shared: Whether a YAML alias repeats it elsewhere in its file.
    """

    value: Value
    place: SourceLocation
    shared: bool = False

    def __getitem__(self, key: str) -> Node:
        child = self.value.get(key) if isinstance(self.value, dict) else None
        return child if child is not None else Node(None, self.place.at(key))

    def at(self, *keys: str) -> Node:
        """Go down by keys."""
        node = self
        for key in keys:
            node = node[key]
        return node

    @property
    def given(self) -> bool:
        """Whether there is a value."""
        return self.value is not None

    @property
    def text(self) -> str | None:
        """The value if it's text."""
        return self.value if isinstance(self.value, str) else None

    @property
    def known(self) -> str | None:
        """The value if it's text, and no reference in it is left to the deployment."""
        return self.value if isinstance(self.value, str) and "${" not in self.value else None

    @property
    def items(self) -> tuple[tuple[str, Node], ...]:
        """Keys and values of a mapping; nothing for any other value."""
        return tuple(self.value.items()) if isinstance(self.value, dict) else ()

    @property
    def elements(self) -> tuple[Node, ...]:
        """Elements of a list; nothing for any other value."""
        return self.value if isinstance(self.value, tuple) else ()

    @property
    def kind(self) -> str:
        """What the value is, in a user's words."""
        match self.value:
            case None:
                return "nothing"
            case dict():
                return "a mapping"
            case tuple():
                return "a list"
            case str() as text:
                line = " ".join(text.split())
                return f"'{line}'" if len(line) <= 40 else f"'{line[:36]} …'"
            case value:
                return json.dumps(value)

    def within(self) -> Iterator[Node]:
        """Yield this node and all below it."""
        yield self
        for _, item in self.items:
            yield from item.within()
        for item in self.elements:
            yield from item.within()

    def with_value(self, value: Value) -> Node:
        """Return another value at the same place."""
        return replace(self, value=value)

    def plain(self) -> Any:
        """Return the value without places."""
        match self.value:
            case dict():
                return {key: item.plain() for key, item in self.value.items()}
            case tuple():
                return [item.plain() for item in self.value]
            case value:
                return value

    def problem(self, what: str, remedy: str) -> Problem:
        """Say that something is wrong here."""
        return Problem(self.place.file, str(self.place), what, remedy)
