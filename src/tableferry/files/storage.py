"""What each kind of storage can do; which paths a kind takes is its own."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any, Protocol


class Storage(Protocol):
    """Files, whole ones, by their paths; whatever can't be done is a StateError."""

    def read_text(self, path: Any) -> str | None:
        """Return the file's text, or None if there is no such file."""

    def write_text(self, path: Any, text: str) -> None:
        """Replace the file by ``text`` at once."""

    def create_text(self, path: Any, text: str | Iterable[str]) -> bool:
        """Create the file unless it exists; of two callers at once at most one gets True."""

    def exists(self, path: Any) -> bool:
        """Return whether there is such a file."""

    def modified(self, path: Any) -> int:
        """Return when a file was written, as milliseconds since 1970, UTC, by the storage's clock."""

    def names(self, path: Any) -> tuple[str, ...]:
        """List a folder's visible names in order; an absent folder is empty."""

    def make_folder(self, path: Any) -> None:
        """Make a folder and those above it."""

    def remove(self, path: Any) -> None:
        """Remove a file or a whole folder; absent is fine."""

    def move(self, old: Any, new: Any) -> None:
        """Rename a file or a folder; done already is fine."""

    def locked(self, paths: Any, what: str) -> AbstractContextManager[None]:
        """Hold lock files, where the storage knows locks."""
