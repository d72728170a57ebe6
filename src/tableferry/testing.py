"""Test doubles for projects that use Tableferry: an engine that only remembers, a clock turned by hand."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from tableferry.pipelines.steps import (
    DefineAppend,
    DefineAutoCdc,
    DefineSnapshots,
    DefineTable,
    DefineView,
    Definition,
)


@dataclass
class RecordingEngine:
    """An engine that runs nothing; ``defined`` holds the definitions in order."""

    defined: list[Definition] = field(default_factory=list)

    def view(self, definition: DefineView) -> None:
        """Remember an input."""
        self.defined.append(definition)

    def table(self, definition: DefineTable) -> None:
        """Remember a streaming table."""
        self.defined.append(definition)

    def append(self, definition: DefineAppend) -> None:
        """Remember an append flow."""
        self.defined.append(definition)

    def cdc(self, definition: DefineAutoCdc) -> None:
        """Remember an AUTO CDC flow."""
        self.defined.append(definition)

    def snapshots(self, definition: DefineSnapshots) -> None:
        """Remember the snapshots of a table."""
        self.defined.append(definition)


@dataclass
class FixedClock:
    """A clock that stands still until it is turned.

    Attributes:
        now: The time, in UTC.
    """

    now: datetime

    def __call__(self) -> datetime:
        """Give the time."""
        return self.now

    def turn(self, *, days: int = 0, minutes: int = 0) -> None:
        """Let time pass."""
        self.now += timedelta(days=days, minutes=minutes)
