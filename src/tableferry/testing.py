"""Test doubles for projects that use Tableferry: an engine that only remembers what was drawn on it."""

from __future__ import annotations

from dataclasses import dataclass, field

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
