"""The only door to files: whole-file reads, writes that happen entirely or not at all, and locks.

Paths are local ones or Unity Catalog volumes, which Databricks mounts under ``/Volumes``.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from tableferry.errors import Busy, StateError

_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EACCES}


def read_text(path: Path) -> str | None:
    """Return the file's text, or None if there is no such file.

    Raises:
        StateError: It exists but can't be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise StateError(
            f"{path} can't be read ({_reason(error)}): restore it or make it readable"
        ) from error


def write_text(path: Path, text: str) -> None:
    """Replace the file by ``text`` in one rename, so that a reader sees the old file or the new one.

    Raises:
        StateError: The folder can't be written.
    """
    with _written_beside(path, text) as temporary:
        os.replace(temporary, path)


def create_text(path: Path, text: str) -> bool:
    """Create the file with ``text`` unless it exists; of two callers at once exactly one gets True.

    Raises:
        StateError: The folder can't be written.
    """
    with _written_beside(path, text) as temporary:
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            return _claim_and_move(temporary, path)
        return True


def names(path: Path) -> tuple[str, ...]:
    """List a folder's visible names in order; an absent folder is empty.

    Raises:
        StateError: It can't be listed.
    """
    try:
        return tuple(sorted(name for name in os.listdir(path) if not name.startswith((".", "_"))))
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise StateError(f"{path} can't be listed ({_reason(error)}): make it readable") from error


def make_folder(path: Path) -> None:
    """Make a folder and those above it.

    Raises:
        StateError: It can't be made, or its Unity Catalog volume isn't there.
    """
    parts = path.parts
    if parts[:2] == ("/", "Volumes") and not Path(*parts[:5]).is_dir():
        raise StateError(
            f"{path}: no such Unity Catalog volume here: create the volume, or on a laptop let "
            "table_migration_state_volume_path in global.json name a local folder"
        )
    with _explained(path):
        path.mkdir(parents=True, exist_ok=True)


def remove(path: Path) -> None:
    """Remove a file or a whole folder; absent is fine.

    Raises:
        StateError: It can't be removed.
    """
    with _explained(path):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def move(old: Path, new: Path) -> None:
    """Rename a file or a folder; done already is fine.

    Raises:
        StateError: It can't be renamed.
    """
    with _explained(new), suppress(FileNotFoundError):
        old.rename(new)


@contextmanager
def locked(paths: list[Path], what: str) -> Iterator[None]:
    """Hold these lock files for the length of a ``with``; the system lets go when the process dies.

    Raises:
        Busy: Another process (or another thread) holds one of them.
    """
    with ExitStack() as held:
        for path in sorted(paths):
            make_folder(path.parent)
            with _explained(path):
                handle = held.enter_context(path.open("a"))
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise Busy(
                    f"{what} is being run by another process ({path} is locked): wait for it"
                ) from error
            except OSError as error:
                # A mounted volume may know no locks; putting the first state file is exclusive there too.
                if error.errno not in _NO_LINKS:
                    raise
        yield


@contextmanager
def _written_beside(path: Path, text: str) -> Iterator[Path]:
    make_folder(path.parent)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    with _explained(path):
        try:
            with temporary.open("w", encoding="utf-8", newline="") as handle:
                handle.write(text)
                handle.flush()
                os.fsync(handle.fileno())
            yield temporary
        finally:
            with suppress(FileNotFoundError):
                temporary.unlink()


def _claim_and_move(temporary: Path, path: Path) -> bool:
    """Put the file where hard links aren't known: whoever makes the claim's folder may move it into place."""
    claim = path.with_name(f"_{path.name}.claim")
    try:
        claim.mkdir()
    except FileExistsError as error:
        if path.exists():
            return False
        raise StateError(
            f"{path} is being written by another process, or one died at it: run again, and if nobody else "
            f"runs, remove {claim} first"
        ) from error
    os.replace(temporary, path)
    return True


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StateError(
            f"{path} can't be written ({_reason(error)}): give this user the right to write there"
        ) from error


def _reason(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else "it isn't UTF-8 text"
