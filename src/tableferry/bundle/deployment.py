"""What one target deploys."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tableferry.bundle.tree import Node


@dataclass(frozen=True)
class Deployment:
    """A target's configuration with its references resolved.

    Attributes:
        folder: The bundle's folder.
        target: The target's name.
        tree: The configuration.
        written: The same before references were resolved.
    """

    folder: Path
    target: str
    tree: Node
    written: Node

    @property
    def mode(self) -> str | None:
        """``development`` or ``production``, where the target says so."""
        return self.tree["bundle"]["mode"].text

    def resources(self, kind: str) -> Iterator[tuple[str, Node]]:
        """Yield the resources of a kind."""
        yield from self.tree["resources"][kind].items
