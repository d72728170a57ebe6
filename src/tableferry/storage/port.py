"""The interfaces of all kinds of storage; each kind has its own path type."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, Self, TypeVar


class JoinablePath(Protocol):
    """A path to which ``/`` appends a name."""

    def __truediv__(self, name: str, /) -> Self:
        """Return the path of a name below this one."""


P = TypeVar("P", contravariant=True)
"""The path type of a kind of storage."""


class Directories(Protocol[P]):
    """Operations on folders and their files; each raises a StateError if it fails."""

    def write_text(self, path: P, text: str, /) -> None:
        """Replace the file by ``text``, and create its folders if they are missing."""

    def exists(self, path: P, /) -> bool:
        """Return whether the file exists. Storage that has folders also finds those."""

    def all_names(self, path: P, /) -> tuple[str, ...]:
        """Return a folder's names in order, including hidden ones; empty if the folder doesn't exist."""

    def remove(self, path: P, /) -> None:
        """Remove a file or a folder with its contents; do nothing if it doesn't exist."""


class Storage(Directories[P], Protocol[P]):
    """Operations on complete files; each raises a StateError if it fails."""

    def read_text(self, path: P, /) -> str | None:
        """Return the file's text, or None if the file doesn't exist."""

    def create_text(self, path: P, text: str | Iterable[str], /) -> bool:
        """Create the file unless it exists; at most one of several concurrent callers gets True."""

    def modified(self, path: P, /) -> int:
        """Return the modification time in milliseconds since 1970, UTC, by the clock of the storage."""

    def names(self, path: P, /) -> tuple[str, ...]:
        """Return a folder's visible names in order; empty if the folder doesn't exist."""

    def make_folder(self, path: P, /) -> None:
        """Create a folder and its parents."""


class StateStorage(Storage[P], Protocol[P]):
    """Storage of a migration's state, which is also renamed and locked."""

    def move(self, old: P, new: P, /) -> None:
        """Rename a file or a folder, and create the new parent; do nothing if the old name doesn't exist."""

    def locked(self, paths: Sequence[P], what: str, /) -> AbstractContextManager[None]:
        """Lock files inside the ``with``, if the storage supports locks."""


class TableStorage(Directories[P], Protocol[P]):
    """Storage of a table's directories, which are listed at all depths."""

    def folders(self, path: P, /) -> tuple[str, ...]:
        """Return the relative paths of all folders in a folder, at any depth."""

    def remove_empty(self, path: P, /) -> None:
        """Remove a folder if it is empty."""
