"""The interface of all kinds of storage; each kind has its own path type."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any, Protocol


class Storage(Protocol):
    """Operations on complete files; each raises a StateError if it fails."""

    def read_text(self, path: Any) -> str | None:
        """Return the file's text, or None if the file doesn't exist."""

    def write_text(self, path: Any, text: str) -> None:
        """Replace the file by ``text`` atomically."""

    def create_text(self, path: Any, text: str | Iterable[str]) -> bool:
        """Create the file unless it exists; at most one of several concurrent callers gets True."""

    def exists(self, path: Any) -> bool:
        """Return whether the file exists."""

    def modified(self, path: Any) -> int:
        """Return the modification time in milliseconds since 1970, UTC, by the clock of the storage."""

    def names(self, path: Any) -> tuple[str, ...]:
        """Return a folder's visible names in order; empty if the folder doesn't exist."""

    def make_folder(self, path: Any) -> None:
        """Create a folder and its parents."""

    def remove(self, path: Any) -> None:
        """Remove a file or a folder with its contents; do nothing if it doesn't exist."""

    def move(self, old: Any, new: Any) -> None:
        """Rename a file or a folder; do nothing if the old name doesn't exist."""

    def locked(self, paths: Any, what: str) -> AbstractContextManager[None]:
        """Lock files inside the ``with``, if the storage supports locks."""
