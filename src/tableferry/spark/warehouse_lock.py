"""The lock of a local warehouse: one process at a time uses its folder, because Derby admits only one."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

from tableferry.errors import SessionError

# The time that the Java process of a killed run has to exit before its warehouse counts as in use.
_TIMEOUT_SECONDS = 20.0


def create_folder(warehouse: str | Path) -> Path:
    """Create the folder of a warehouse and return its absolute path.

    Raises:
        SessionError: The warehouse is a URI, its path has an unsupported character, or it can't be created.
    """
    if re.match(r"[a-zA-Z][a-zA-Z0-9+.-]+:", str(warehouse)):
        raise SessionError("WAREHOUSE_NOT_LOCAL", warehouse=warehouse)
    folder = Path(warehouse).expanduser().resolve()
    # A semicolon ends the database name in Derby's URL; a comma in spark.local.dir separates two folders.
    if bad := next((character for character in ";,\n" if character in str(folder)), None):
        raise SessionError("WAREHOUSE_PATH_UNSUPPORTED", warehouse=folder, character=repr(bad))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SessionError("WAREHOUSE_NOT_CREATED", warehouse=folder, reason=error.strerror) from error
    return folder


def acquire(folder: Path) -> int:
    """Lock the folder's metastore for this process and the Java process that it will start.

    Return the lock's file descriptor. Java inherits it, and so releases the lock only after it has closed the
    metastore.

    Raises:
        SessionError: Another process holds the lock, or the file can't be written or locked.
    """
    import fcntl  # Missing on Windows, where the other kinds of sessions work.

    file = folder / "metastore.lock"
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    try:
        lock = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise SessionError("WAREHOUSE_LOCK_NOT_WRITABLE", file=file, reason=error.strerror) from error
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            holder = os.pread(lock, 32, 0).decode(errors="replace").strip()
            # After the holder was killed, its Java process notices that and exits within two seconds.
            if _is_alive(holder) or time.monotonic() > deadline:
                os.close(lock)
                raise SessionError("WAREHOUSE_IN_USE", warehouse=folder, process=holder) from None
            time.sleep(0.1)
        except OSError as error:
            os.close(lock)
            raise SessionError("WAREHOUSE_NOT_LOCKABLE", file=file, reason=error.strerror) from error
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    return lock


def _is_alive(process: str) -> bool:
    try:
        os.kill(int(process), 0)
    except (ValueError, ProcessLookupError):
        return False
    except PermissionError:
        return True
    return True
