"""The port between a plan and whatever runs it.

A plan is defined on an engine: tables, views and flows are named first, as a declarative pipeline wants it;
the engine runs them when its own time comes. `testing.RecordingEngine` only remembers what was defined.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, assert_never

from tableferry.pipelines.model.steps import (
    DefineAppend,
    DefineAutoCdc,
    DefineSnapshots,
    DefineTable,
    DefineView,
    Definition,
)


class Engine(Protocol):
    """What an engine must know; each view and flow says whether it runs once (``once``)."""

    def view(self, definition: DefineView) -> None:
        """Name an input."""

    def table(self, definition: DefineTable) -> None:
        """Name a streaming table."""

    def append(self, definition: DefineAppend) -> None:
        """Append a view's rows to a table, once or for as long as commits arrive."""

    def cdc(self, definition: DefineAutoCdc) -> None:
        """Apply a view's events to a table as AUTO CDC does, once or for as long as commits arrive."""

    def snapshots(self, definition: DefineSnapshots) -> None:
        """Take snapshots into a table as AUTO CDC FROM SNAPSHOT does."""


def define(definitions: Iterable[Definition], engine: Engine) -> None:
    """Define tables, views and flows on an engine, in order."""
    for definition in definitions:
        match definition:
            case DefineTable():
                engine.table(definition)
            case DefineView():
                engine.view(definition)
            case DefineAppend():
                engine.append(definition)
            case DefineAutoCdc():
                engine.cdc(definition)
            case DefineSnapshots():
                engine.snapshots(definition)
            case _:
                assert_never(definition)
