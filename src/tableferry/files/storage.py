"""What can be done with files, wherever they are."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from tableferry.errors import StateError


class Storage(Protocol):
    """A place with files; where a thing can't be done, each method raises StateError with the path."""

    def read_text(self, path: Path) -> str | None:
        """Return the file's text, or None if there is no such file."""

    def write_text(self, path: Path, text: str) -> None:
        """Replace the file, so that a reader sees the old one or the new one; folders above it are made."""

    def create_text(self, path: Path, text: str | Iterable[str]) -> bool:
        """Create the file unless it exists; of any number of callers at once at most one gets True.

        The exception is storage that can't create anything exclusively: see `tableferry.files.local`.
        """

    def exists(self, path: Path) -> bool:
        """Return whether there is such a file."""

    def names(self, path: Path) -> tuple[str, ...]:
        """List a folder's visible names in order; an absent folder is empty."""

    def make_folder(self, path: Path) -> None:
        """Make a folder and those above it, up to the volume's own."""

    def remove(self, path: Path) -> None:
        """Remove a file or a whole folder; absent is fine."""

    def move(self, old: Path, new: Path) -> None:
        """Give a file or a folder another name; done already is fine."""

    def locked(self, paths: list[Path], what: str) -> AbstractContextManager[None]:
        """Hold these lock files for the length of a ``with``; Busy if another process holds one."""


def hidden(name: str) -> bool:
    """Return whether a name is one that Spark, too, leaves out of a folder."""
    return name.startswith((".", "_"))


def volume_of(path: Path) -> Path | None:
    """Return the root of the Unity Catalog volume that a path names, as far as it names one; else None."""
    return Path(*path.parts[:5]) if path.parts[:2] == ("/", "Volumes") else None


def no_volume(path: Path) -> StateError:
    """Say that a path's volume isn't there."""
    return StateError(
        f"{path}: no such Unity Catalog volume here: create the volume, or on a laptop log in to its "
        "workspace (`databricks auth login`), or let table_migration_state_volume_path in global.json name a "
        "local folder"
    )
