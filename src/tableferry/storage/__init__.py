"""Read, atomically write and lock files on any kind of storage; other modules access files through this one.

The kinds are local file systems and mounted volumes (`Local`), Unity Catalog volumes through the Files API
(`Volume`), and object stores (`ObjectStore`). Functions take paths of these kinds; failures are StateErrors.
What only Spark's driver reaches is in `tableferry.storage.hadoop`, because it needs a session.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from tableferry import workspace
from tableferry.errors import SessionError, StateError
from tableferry.storage.local import Local
from tableferry.storage.local import is_shared as is_shared
from tableferry.storage.object_store import NotExclusive as NotExclusive
from tableferry.storage.object_store import Object as Object
from tableferry.storage.object_store import ObjectPath as ObjectPath
from tableferry.storage.object_store import ObjectStore as ObjectStore
from tableferry.storage.object_store import delta_options as delta_options
from tableferry.storage.paths import no_volume, volume_of
from tableferry.storage.port import StateStorage
from tableferry.storage.volume import Volume

if TYPE_CHECKING:
    from databricks.sdk import WorkspaceClient

_log = logging.getLogger(__name__)

AnyPath: TypeAlias = Path | ObjectPath
"""The path of a local file, of a file in a volume, or of an object in an object store."""


def path_of(location: str) -> AnyPath:
    """Return the path for a local path or the URI of an object store."""
    return ObjectPath.parse(location) or Path(location)


def adapter(path: AnyPath) -> StateStorage[Any]:
    """Return the storage of a path: an object store, a volume's workspace, or the local file system.

    Inside a workspace, volumes are mounted, but only the Files API creates a file exactly once. So state in a
    volume goes through the API there, unless the process has no login to the workspace. Elsewhere, a mounted
    volume is a local folder, and an unmounted one can be read only through a configured workspace.

    Raises:
        StateError: The volume doesn't exist, no workspace is configured, or the workspace can't be reached.
    """
    if isinstance(path, ObjectPath):
        return ObjectStore(path.store)
    volume = volume_of(path)
    if volume is None:
        return Local()
    if os.environ.get(workspace.RUNTIME_VARIABLE):
        return _inside_workspace(volume)
    if volume.is_dir():
        return Local()
    try:
        if not workspace.configured(os.environ):
            raise no_volume(path)
        return _checked(volume, workspace.client())
    except SessionError as error:
        raise StateError(
            "VOLUME_UNREACHABLE", path=path, reason=error.message, advice=error.remedy
        ) from error


def is_mounted(path: Path) -> bool:
    """Return whether Spark and this machine's processes can access the path directly."""
    inside = bool(os.environ.get(workspace.RUNTIME_VARIABLE))
    return inside or isinstance(adapter(path), Local)


def read_text(path: AnyPath) -> str | None:
    """Return the file's text, or None if the file doesn't exist."""
    return adapter(path).read_text(path)


def write_text(path: AnyPath, text: str) -> None:
    """Replace the file by ``text`` atomically, and create its folders if they are missing."""
    adapter(path).write_text(path, text)


def create_text(path: AnyPath, text: str | Iterable[str]) -> bool:
    """Create the file with ``text`` unless it exists; at most one of several concurrent callers gets True.

    A long text can be passed in pieces; local files are then written without the complete text in memory.
    """
    return adapter(path).create_text(path, text)


def exists(path: AnyPath) -> bool:
    """Return whether the file exists."""
    return adapter(path).exists(path)


def modified(path: AnyPath) -> int:
    """Return the modification time in milliseconds since 1970, UTC, by the clock of the storage."""
    return adapter(path).modified(path)


def names(path: AnyPath) -> tuple[str, ...]:
    """Return a folder's visible names in order; empty if the folder doesn't exist."""
    return adapter(path).names(path)


def all_names(path: AnyPath) -> tuple[str, ...]:
    """Return a folder's names in order, including hidden ones; empty if the folder doesn't exist."""
    return adapter(path).all_names(path)


def make_folder(path: AnyPath) -> None:
    """Create a folder and its parents."""
    adapter(path).make_folder(path)


def remove(path: AnyPath) -> None:
    """Remove a file or a folder with its contents; do nothing if it doesn't exist."""
    adapter(path).remove(path)


def move(old: AnyPath, new: AnyPath) -> None:
    """Rename a file or a folder within its volume, and create the new parent; skip a missing old name."""
    adapter(new).move(old, new)


def locked(paths: Sequence[Path], what: str) -> AbstractContextManager[None]:
    """Lock these files inside the ``with``, if the storage of the first one supports locks.

    Raises:
        Busy: Another process or thread has locked one of them.
    """
    return (adapter(paths[0]) if paths else Local()).locked(paths, what)


@lru_cache(maxsize=8)
def _checked(root: Path, client: WorkspaceClient) -> Volume:
    """Return a volume after a check that it exists; cached by client.

    Raises:
        StateError: The volume doesn't exist or can't be reached.
    """
    volume = Volume(root, client)
    volume.check()
    return volume


def _inside_workspace(volume: Path) -> StateStorage[Any]:
    """Return a volume's storage in a Databricks runtime: the Files API, or the mount without a login."""
    try:
        client = workspace.client()
    except SessionError as error:
        _log_mount(volume, error.message)
        return Local()
    return _checked(volume, client)


@lru_cache(maxsize=8)
def _log_mount(volume: Path, reason: str) -> None:
    """Log once for each volume that its files are accessed through the mount."""
    _log.warning(
        "%s: this process can't use the Files API (%s), so state files go through the mount. "
        "Two processes that create the same state file concurrently may both succeed there.",
        volume,
        reason.rstrip("."),
    )
