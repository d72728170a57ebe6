"""Files that the operating system shows: on this machine's disks, and in volumes mounted here."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import uuid
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from tableferry.errors import Busy, StateError
from tableferry.files.paths import hidden, no_volume, volume_of

_NETWORK = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "ceph", "glusterfs", "lustre", "beegfs", "gpfs", "afs"}
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EACCES}


@dataclass(frozen=True)
class Local:
    """The file system of this machine."""

    def read_text(self, path: Path) -> str | None:
        """Return the file's text, or None if there is no such file."""
        try:
            return path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except UnicodeDecodeError as error:
            raise StateError("FILE_NOT_TEXT", file=path) from error
        except OSError as error:
            raise StateError("PATH_NOT_ACCESSIBLE", file=path, reason=_reason(error)) from error

    def write_text(self, path: Path, text: str) -> None:
        """Replace the file by ``text`` in one rename."""
        with self._written_beside(path, text) as temporary:
            os.replace(temporary, path)

    def create_text(self, path: Path, text: str | Iterable[str]) -> bool:
        """Create the file with ``text`` unless it exists; of two callers at once exactly one gets True.

        Where hard links aren't known, that rests on making a folder, which a mount of an object store may let
        two callers do at once. The file is whole there too, and the last of them has replaced the other's.
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
        """Return whether there is such a file."""
        try:
            return path.exists()
        except OSError as error:
            raise StateError("PATH_NOT_ACCESSIBLE", file=path, reason=_reason(error)) from error

    def modified(self, path: Path) -> int:
        """Return when a file was written, as milliseconds since 1970, UTC."""
        try:
            return path.stat().st_mtime_ns // 1_000_000
        except OSError as error:
            raise StateError("PATH_NOT_ACCESSIBLE", file=path, reason=_reason(error)) from error

    def names(self, path: Path) -> tuple[str, ...]:
        """List a folder's visible names in order; an absent folder is empty."""
        try:
            return tuple(sorted(name for name in os.listdir(path) if not hidden(name)))
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise StateError("PATH_NOT_ACCESSIBLE", file=path, reason=_reason(error)) from error

    def make_folder(self, path: Path) -> None:
        """Make a folder and those above it; a Unity Catalog volume is nobody's to make as a folder."""
        volume = volume_of(path)
        if volume is not None and not volume.is_dir():
            raise no_volume(path)
        with _explained(path):
            path.mkdir(parents=True, exist_ok=True)

    def remove(self, path: Path) -> None:
        """Remove a file or a whole folder; absent is fine."""
        with _explained(path):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)

    def move(self, old: Path, new: Path) -> None:
        """Rename a file or a folder; done already is fine."""
        with _explained(new), suppress(FileNotFoundError):
            old.rename(new)

    @contextmanager
    def locked(self, paths: list[Path], what: str) -> Iterator[None]:
        """Hold these lock files; the system lets go when the process dies.

        Raises:
            Busy: Another process (or another thread) holds one of them.
        """
        with ExitStack() as held:
            for path in sorted(paths):
                self.make_folder(path.parent)
                with _explained(path):
                    # A mounted volume refuses to append, and a lock file holds nothing to keep.
                    handle = held.enter_context(path.open("w"))
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError as error:
                    raise Busy("LOCK_HELD", task=what, file=path) from error
                except OSError as error:
                    # A mounted volume may know no locks; putting the first state file is exclusive there too,
                    # and leases hold off whoever runs on another machine.
                    if error.errno not in _NO_LINKS and volume_of(path) is None:
                        raise
            yield

    @contextmanager
    def _written_beside(self, path: Path, text: str | Iterable[str]) -> Iterator[Path]:
        self.make_folder(path.parent)
        with _explained(path):
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


def on_network(path: Path, mounts: Path = Path("/proc/self/mounts")) -> bool:
    """Return whether a path is on a network's file system, by the system's list of mounts, if it has one."""
    try:
        lines = mounts.read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return False
    kinds = {}
    for line in lines:
        _, folder, kind, *_ = line.split(" ")
        # Blanks and the like are written as octal numbers.
        kinds[re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), folder)] = kind
    resolved = path.resolve()
    kind = next((kinds[str(folder)] for folder in (resolved, *resolved.parents) if str(folder) in kinds), "")
    return kind in _NETWORK or kind.startswith("fuse.")


def _temporary(path: Path) -> TextIO:
    """Create a file beside another one, under a lock that says that somebody writes it."""
    while True:
        handle = path.with_name(f".{path.name}.{uuid.uuid4().hex}").open("x", encoding="utf-8", newline="")
        if volume_of(path) is not None:
            return handle
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        # Whoever sweeps may have come before the lock.
        if os.fstat(handle.fileno()).st_nlink:
            return handle
        handle.close()


def _sweep(path: Path) -> None:
    """Remove the temporary files that killed writers of a file have left: those that nobody holds.

    In a volume a lock says nothing of other machines, so that nobody knows which are left.
    """
    if volume_of(path) is not None:
        return
    left = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{32}}")
    for name in filter(left.fullmatch, os.listdir(path.parent)):
        with suppress(OSError), (path.parent / name).open("a") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(handle.name)


def _claim_and_move(temporary: Path, path: Path) -> bool:
    """Put the file where hard links aren't known: whoever makes the claim's folder may move it into place.

    A claim that was left is removed where the file is there: its owner has moved it, or was too late.
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
    # Another process may have written it, and have removed its claim.
    created = not path.exists()
    if created:
        os.replace(temporary, path)
    with suppress(OSError):
        claim.rmdir()
    return created


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise StateError(
            "STORAGE_FULL" if full else "FILE_NOT_WRITABLE", file=path, reason=_reason(error)
        ) from error


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
