"""The only module that touches files: whole-file reads, writes that happen entirely or not at all, and locks.

It has three kinds of storage: what the operating system shows (`Local`), Unity Catalog volumes mounted under
``/Volumes`` included; volumes that are reached through the workspace's Files API (`Volume`); and object
stores (`ObjectStore`). Which of them a path is in, `storage` says; every function here takes paths of all,
and raises a StateError where what it's asked for can't be done.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import AbstractContextManager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from tableferry import workspace
from tableferry.errors import SessionError, StateError
from tableferry.files.local import Local, on_network
from tableferry.files.objects import NotExclusive as NotExclusive
from tableferry.files.objects import Object as Object
from tableferry.files.objects import ObjectPath as ObjectPath
from tableferry.files.objects import ObjectStore as ObjectStore
from tableferry.files.objects import delta_options as delta_options
from tableferry.files.paths import no_volume, volume_of
from tableferry.files.storage import Storage
from tableferry.files.volume import Volume

if TYPE_CHECKING:
    from databricks.sdk import WorkspaceClient

AnyPath: TypeAlias = Path | ObjectPath
"""The path of a file that the operating system shows, or that is in a volume, or of an object in a store."""


def path_of(location: str) -> AnyPath:
    """Read a local path or the URI of an object store."""
    return ObjectPath.parse(location) or Path(location)


def storage(path: AnyPath) -> Storage:
    """Say where a path is: in a store, in a volume of the configured workspace that isn't mounted, or here.

    Inside a workspace volumes are always mounted. Elsewhere, a path of a volume that is neither mounted nor
    in a configured workspace is refused, for nobody can say what is in it.

    Raises:
        StateError: There is no such volume, or no login to its workspace.
    """
    if isinstance(path, ObjectPath):
        return ObjectStore(path.store)
    volume = volume_of(path)
    if volume is None or os.environ.get(workspace.RUNTIME_VARIABLE) or volume.is_dir():
        return Local()
    try:
        if not workspace.configured(os.environ):
            raise no_volume(path)
        return _checked(volume, workspace.client())
    except SessionError as error:
        raise StateError("VOLUME_UNREACHABLE", path=path, reason=error) from error


def is_mounted(path: Path) -> bool:
    """Return whether processes of this machine see the path, so that what runs here may write and lock it."""
    return isinstance(storage(path), Local)


def is_shared(path: Path) -> bool:
    """Return whether several machines may see the path, so that a lock on one may not hold on another.

    They may where it's a volume or below ``/dbfs``, or where a network's file system is mounted.
    """
    return volume_of(path) is not None or path.is_relative_to("/dbfs") or on_network(path)


def read_text(path: AnyPath) -> str | None:
    """Return the file's text, or None if there is no such file."""
    return storage(path).read_text(path)


def write_text(path: AnyPath, text: str) -> None:
    """Replace the file by ``text`` at once: a reader sees the old file or the new one; folders are made."""
    storage(path).write_text(path, text)


def create_text(path: AnyPath, text: str | Iterable[str]) -> bool:
    """Create the file with ``text`` unless it exists; of two callers at once at most one gets True.

    A long text may come in pieces, so that it's never whole in memory where the file is this machine's.
    """
    return storage(path).create_text(path, text)


def exists(path: AnyPath) -> bool:
    """Return whether there is such a file."""
    return storage(path).exists(path)


def modified(path: AnyPath) -> int:
    """Return when a file was written, as milliseconds since 1970, UTC, by its storage's clock."""
    return storage(path).modified(path)


def names(path: AnyPath) -> tuple[str, ...]:
    """List a folder's visible names in order; an absent folder is empty."""
    return storage(path).names(path)


def all_names(path: ObjectPath) -> tuple[str, ...]:
    """List all names right below a path of an object store in order, hidden ones too."""
    return ObjectStore(path.store).all_names(path)


def make_folder(path: AnyPath) -> None:
    """Make a folder and those above it."""
    storage(path).make_folder(path)


def remove(path: AnyPath) -> None:
    """Remove a file or a whole folder; absent is fine."""
    storage(path).remove(path)


def move(old: AnyPath, new: AnyPath) -> None:
    """Give a file or a folder another name in the same volume; done already is fine."""
    storage(new).move(old, new)


def locked(paths: list[Path], what: str) -> AbstractContextManager[None]:
    """Hold these lock files for the length of a ``with``, where the first one's storage knows locks.

    Raises:
        Busy: Another process (or another thread) holds one of them.
    """
    return (storage(paths[0]) if paths else Local()).locked(paths, what)


@lru_cache(maxsize=8)
def _checked(root: Path, client: WorkspaceClient) -> Volume:
    """Give a volume that is known to be there; asked once for each client."""
    volume = Volume(root, client)
    volume.check()
    return volume
