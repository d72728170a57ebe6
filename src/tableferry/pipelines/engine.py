"""The port between a plan and whatever runs it.

A plan is drawn on an engine: tables, views and flows are named first, as a declarative pipeline wants it; the
engine runs them when its own time comes. `testing.RecordingEngine` only remembers what was drawn.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, assert_never

from tableferry.pipelines.steps import Definition, DrawAppend, DrawCdc, DrawTable, DrawView


class Engine(Protocol):
    """What an engine must know; each definition says whether it's for a run-once flow (``once``)."""

    def view(self, definition: DrawView) -> None:
        """Name an input."""

    def table(self, definition: DrawTable) -> None:
        """Name a streaming table."""

    def append(self, definition: DrawAppend) -> None:
        """Append a view's rows to a table, once or for as long as commits arrive."""

    def cdc(self, definition: DrawCdc) -> None:
        """Apply a view's events to a table as AUTO CDC does, once or for as long as commits arrive."""


def draw(definitions: Iterable[Definition], engine: Engine) -> None:
    """Draw definitions on an engine, in order."""
    for definition in definitions:
        match definition:
            case DrawTable():
                engine.table(definition)
            case DrawView():
                engine.view(definition)
            case DrawAppend():
                engine.append(definition)
            case DrawCdc():
                engine.cdc(definition)
            case _:
                assert_never(definition)
