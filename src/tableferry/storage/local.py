"""Access files through the operating system: on local disks, network file systems and mounted volumes."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from tableferry.errors import Busy, StateError
from tableferry.storage.paths import hidden, no_volume, volume_of

_NETWORK = {
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "ceph",
    "glusterfs",
    "lustre",
    "beegfs",
    "gpfs",
    "afs",
    "9p",
    "fuse",
}
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EACCES}


@dataclass(frozen=True)
class Local:
    """The file system of this machine."""

    def read_text(self, path: Path) -> str | None:
        """Return the file's text, or None if the file doesn't exist."""
        try:
            # Not `Path.read_text`, which replaces CRLF by LF.
            return path.read_bytes().decode()
        except FileNotFoundError:
            return None
        except UnicodeDecodeError as error:
            raise StateError("FILE_NOT_TEXT", file=path) from error
        except OSError as error:
            raise StateError("PATH_NOT_ACCESSIBLE", file=path, reason=_reason(error)) from error

    def write_text(self, path: Path, text: str) -> None:
        """Replace the file by ``text`` with one rename, which is atomic."""
        with self._written_beside(path, text) as temporary:
            os.replace(temporary, path)

    def create_text(self, path: Path, text: str | Iterable[str]) -> bool:
        """Create the file with ``text`` unless it exists; one of several concurrent callers gets True.

        Without hard links this relies on the creation of a folder. On a mounted object store two callers may
        both succeed in that: the file of the second one replaces the first, and both files are complete.
        """
        with self._written_beside(path, text) as temporary:
            try:
                os.link(temporary, path)
            except FileExistsError:
                return False
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                return _claim_and_move(temporary, path)
            return True

    def exists(self, path: Path) -> bool:
        """Return whether the file exists."""
        try:
            return path.exists()
        except OSError as error:
            raise StateError("PATH_NOT_ACCESSIBLE", file=path, reason=_reason(error)) from error

    def modified(self, path: Path) -> int:
        """Return the modification time in milliseconds since 1970, UTC."""
        try:
            return path.stat().st_mtime_ns // 1_000_000
        except OSError as error:
            raise StateError("PATH_NOT_ACCESSIBLE", file=path, reason=_reason(error)) from error

    def names(self, path: Path) -> tuple[str, ...]:
        """Return a folder's visible names in order; empty if the folder doesn't exist."""
        return tuple(name for name in self.all_names(path) if not hidden(name))

    def all_names(self, path: Path) -> tuple[str, ...]:
        """Return a folder's names in order, including hidden ones; empty if the folder doesn't exist."""
        try:
            return tuple(sorted(os.listdir(path)))
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise StateError("PATH_NOT_ACCESSIBLE", file=path, reason=_reason(error)) from error

    def folders(self, path: Path) -> tuple[str, ...]:
        """Return the relative paths of all folders in a folder, at any depth."""
        found = (os.path.relpath(folder, path) for folder, _, _ in os.walk(path))
        return tuple(folder for folder in found if folder != ".")

    def make_folder(self, path: Path) -> None:
        """Create a folder and its parents, but not a missing Unity Catalog volume, which isn't a folder."""
        volume = volume_of(path)
        if volume is not None and not volume.is_dir():
            raise no_volume(path)
        with _as_state_errors(path):
            path.mkdir(parents=True, exist_ok=True)

    def remove(self, path: Path) -> None:
        """Remove a file or a folder with its contents; do nothing if it doesn't exist."""
        with _as_state_errors(path):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)

    def remove_empty(self, path: Path) -> None:
        """Remove a folder if it is empty."""
        with suppress(OSError):
            path.rmdir()

    def move(self, old: Path, new: Path) -> None:
        """Rename a file or a folder, and create the new parent; do nothing if the old name doesn't exist."""
        if not self.exists(old):
            return
        self.make_folder(new.parent)
        # Now a missing name is the old one: another process moved it.
        with _as_state_errors(new), suppress(FileNotFoundError):
            old.rename(new)

    @contextmanager
    def locked(self, paths: Sequence[Path], what: str) -> Iterator[None]:
        """Lock these files inside the ``with``; the operating system unlocks them if the process dies.

        Storage that several machines access may not support locks. There, `create_text` of the first state
        file is exclusive too, and leases exclude workers on other machines.

        Raises:
            Busy: Another process or thread has locked one of them.
            StateError: A file on a disk of this machine can't be locked.
        """
        with ExitStack() as held:
            for path in sorted(paths):
                self.make_folder(path.parent)
                with _as_state_errors(path):
                    # Mode "w" because mounted volumes refuse to append, and a lock file has no content.
                    handle = held.enter_context(path.open("w"))
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError as error:
                    raise Busy("LOCK_HELD", task=what, file=path) from error
                except OSError as error:
                    if not is_shared(path):
                        raise StateError("LOCK_FAILED", file=path, reason=_reason(error)) from error
            yield

    @contextmanager
    def _written_beside(self, path: Path, text: str | Iterable[str]) -> Iterator[Path]:
        self.make_folder(path.parent)
        with _as_state_errors(path):
            _sweep(path)
            with _temporary(path) as handle:
                try:
                    handle.writelines((text,) if isinstance(text, str) else text)
                    handle.flush()
                    os.fsync(handle.fileno())
                    yield Path(handle.name)
                finally:
                    with suppress(FileNotFoundError):
                        os.unlink(handle.name)


def is_shared(path: Path) -> bool:
    """Return whether several machines may access the path, so that a local lock may not exclude the others.

    That is the case in volumes, below ``/dbfs`` and on network file systems.
    """
    return volume_of(path) is not None or path.is_relative_to("/dbfs") or on_network(path)


def on_network(path: Path, mounts: Path = Path("/proc/self/mounts")) -> bool:
    """Return whether a path is on a network file system; False if the system has no list of mounts."""
    try:
        lines = mounts.read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return False
    kinds = {}
    for line in lines:
        _, folder, kind, *_ = line.split(" ")
        # The list contains spaces and similar characters as octal escapes.
        kinds[re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), folder)] = kind
    resolved = path.resolve()
    kind = next((kinds[str(folder)] for folder in (resolved, *resolved.parents) if str(folder) in kinds), "")
    return kind in _NETWORK or kind.startswith("fuse.")


def _temporary(path: Path) -> TextIO:
    """Create a temporary file in the folder of ``path``, with a lock that protects it from `_sweep`."""
    while True:
        handle = path.with_name(f".{path.name}.{uuid.uuid4().hex}").open("x", encoding="utf-8", newline="")
        if volume_of(path) is not None:
            return handle
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        # Another process may have swept the file before it was locked.
        if os.fstat(handle.fileno()).st_nlink:
            return handle
        handle.close()


def _sweep(path: Path) -> None:
    """Remove the temporary files of killed writers, which are those without a lock.

    Do nothing in a volume, because locks there don't show the writers on other machines.
    """
    if volume_of(path) is not None:
        return
    left = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{32}}")
    for name in filter(left.fullmatch, os.listdir(path.parent)):
        with suppress(OSError), (path.parent / name).open("a") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(handle.name)


def _claim_and_move(temporary: Path, path: Path) -> bool:
    """Create the file without hard links: the process that creates the claim folder moves it into place.

    A leftover claim folder is removed if the file exists, because its owner has finished.

    Raises:
        StateError: Another process's claim folder exists, and the file doesn't.
    """
    claim = path.with_name(f"_{path.name}.claim")
    try:
        claim.mkdir()
    except FileExistsError as error:
        if path.exists():
            with suppress(OSError):
                claim.rmdir()
            return False
        raise StateError("CLAIM_HELD", file=path, claim=claim) from error
    # Another process may have created the file and removed its claim before this claim.
    created = not path.exists()
    if created:
        os.replace(temporary, path)
    with suppress(OSError):
        claim.rmdir()
    return created


@contextmanager
def _as_state_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise StateError(
            "STORAGE_FULL" if full else "FILE_NOT_WRITABLE", file=path, reason=_reason(error)
        ) from error


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
