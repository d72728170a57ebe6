"""Test doubles for projects that use Tableferry: an engine that only remembers, a clock turned by hand."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from tableferry.pipelines.steps import Definition, DrawAppend, DrawCdc, DrawTable, DrawView


@dataclass
class RecordingEngine:
    """An engine that runs nothing; ``drawn`` holds the definitions in order."""

    drawn: list[Definition] = field(default_factory=list)

    def view(self, definition: DrawView) -> None:
        """Remember an input."""
        self.drawn.append(definition)

    def table(self, definition: DrawTable) -> None:
        """Remember a streaming table."""
        self.drawn.append(definition)

    def append(self, definition: DrawAppend) -> None:
        """Remember an append flow."""
        self.drawn.append(definition)

    def cdc(self, definition: DrawCdc) -> None:
        """Remember an AUTO CDC flow."""
        self.drawn.append(definition)


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
