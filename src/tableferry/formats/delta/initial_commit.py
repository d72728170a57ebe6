"""Write the first commit of a table's log, and undo it as long as it's the only commit."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tableferry import storage
from tableferry.errors import Busy, Refused, StateError, TableError
from tableferry.formats.delta import log_removal
from tableferry.formats.delta.log_removal import FIRST as FIRST
from tableferry.storage import AnyPath

LOG = "_delta_log"

OPERATION = "CONVERT"
"""The operation of a conversion's commit in the table's history."""

# Seconds after which another process may take over an unfinished undo.
_PATIENCE = 300

# The name of a log that is being removed; listings of data files skip names with a leading underscore.
_ASIDE = "_tableferry_undo"
_COMMIT = re.compile(r"(\d{20})\.json")


def log(root: AnyPath) -> AnyPath:
    """Return the folder of a table's log."""
    return root / LOG


def put(root: AnyPath, table_id: str, lines: Iterable[str], *, unsafe: bool = False) -> None:
    """Write the first commit completely, or nothing.

    Args:
        root: The table's folder.
        table_id: The id of the table that the commit creates.
        lines: The lines of the commit.
        unsafe: Write it even if the storage can't refuse to overwrite an existing file.

    Raises:
        Busy: Another process converted the table first; this process wrote nothing.
        StateError: The log can't be written; the folder is unchanged.
    """
    folder = log(root)
    try:
        created = create(folder / FIRST, lines, unsafe=unsafe)
    except BaseException:
        # `rmdir` removes only an empty folder; another process may have begun to write to it.
        if isinstance(folder, Path):
            with suppress(OSError):
                folder.rmdir()
        raise
    if not created:
        # The storage may have created the file and lost the response, so that a retry found the file.
        require_table(root, table_id)


def create(name: AnyPath, lines: Iterable[str], *, unsafe: bool) -> bool:
    """Write a file of the log unless it exists, and return whether this call wrote it.

    Args:
        name: The path of the file.
        lines: The lines of the file.
        unsafe: Write it even if the storage can't refuse to overwrite an existing file.
    """
    if not unsafe:
        return storage.create_text(name, lines)
    if storage.exists(name):
        return False
    storage.write_text(name, "".join(lines))
    return True


def undo(root: AnyPath, table_id: str | None = None) -> None:
    """Undo a conversion: remove the log, and leave the data files unchanged.

    Raises:
        TableError: The folder isn't a Delta table.
        Refused: The first commit isn't a conversion, or another commit follows it.
        Busy: ``table_id`` isn't the id of the commit's table, or another process is undoing the conversion.
    """
    if isinstance(root, storage.ObjectPath):
        _undo_in_store(root, table_id)
    else:
        set_aside(root, table_id)
        forget(root)


def _undo_in_store(root: storage.ObjectPath, table_id: str | None) -> None:
    """Undo a conversion in storage without renames: claim version 1, then remove the log's objects."""
    stored, claim = _stored_log(root), log_removal.new_claim()
    if not stored.claim_of(1):
        require_only_a_conversion(root)
        if table_id is not None:
            require_table(root, table_id)
    found = stored.create_claim(1, claim)
    if not found:
        raise _written_after(root)
    if found != claim:
        if (age := now() - storage.modified(stored.commit(1))) < _PATIENCE * 1000:
            raise Busy("UNDO_RUNNING_OR_DIED", table=root, seconds=_PATIENCE - age // 1000)
        storage.write_text(stored.commit(1), claim)
    if not stored.remove(1, claim):
        raise Busy("UNDO_RUNNING", table=root)


def require_no_undo(root: AnyPath) -> None:
    """Refuse a table with an unfinished undo.

    Raises:
        Refused: An undo of the table began and didn't finish.
    """
    if isinstance(root, storage.ObjectPath) and _stored_log(root).claim_of(1):
        raise Refused("UNDO_INTERRUPTED", table=root)


def _stored_log(root: storage.ObjectPath) -> log_removal.Log[storage.ObjectPath]:
    return log_removal.Log(storage.ObjectStore(root.store), root / LOG)


def set_aside(root: Path, table_id: str | None = None) -> None:
    """Rename the log of a conversion so that readers and writers don't find it, unless that is done already.

    Raises:
        TableError: The folder isn't a Delta table.
        Refused: The first commit isn't a conversion, or another commit follows it.
        Busy: ``table_id`` isn't the id of the commit's table.
        StateError: The log can't be renamed.
    """
    folder, aside = root / LOG, root / _ASIDE
    if aside.exists() and folder.exists():
        if not (folder / FIRST).exists():
            raise Refused("WRITTEN_DURING_UNDO", log=folder, aside=aside)
        # An earlier undo died at its last step, and the table was converted again.
        forget(root)
    if not aside.exists():
        require_only_a_conversion(root)
        # A rename is atomic: readers see the whole log or no log.
        try:
            folder.rename(aside)
        except OSError as error:
            raise StateError("LOG_NOT_MOVABLE", log=folder, reason=error.strerror) from error
    # A writer may have committed between the check and the rename, or an earlier run may have died here.
    if _versions(aside) not in ([0], []):
        aside.rename(folder)
        raise _written_after(root)
    if table_id is not None and _table_id(aside) != table_id:
        aside.rename(folder)
        raise _converted_concurrently(root)


def is_aside(root: Path) -> bool:
    """Return whether a renamed log still exists."""
    return (root / _ASIDE).exists()


def forget(root: Path) -> None:
    """Remove the renamed log, if it still exists.

    Raises:
        StateError: The renamed log can't be removed.
    """
    storage.remove(root / _ASIDE)


def info(root: AnyPath) -> dict[str, Any]:
    """Return the `commitInfo` of the first commit, from the log or from the renamed log."""
    aside = (root / _ASIDE,) if isinstance(root, Path) else ()
    for folder in (log(root), *aside):
        if first := storage.read_text(folder / FIRST):
            return info_in(first)
    return {}


def info_in(text: str) -> dict[str, Any]:
    """Return the `commitInfo` in a commit's text."""
    return log_removal.action(text, "commitInfo")


def is_only_commit(root: AnyPath) -> bool:
    """Return whether a log has its first commit and no other commit."""
    return has_only_first(storage.names(log(root)))


def has_only_first(names: Iterable[str]) -> bool:
    """Return the same as `is_only_commit`, from the names of the log's files."""
    there = set(names)
    return FIRST in there and {name[:20] for name in there if name[:20].isdigit()} == {FIRST[:20]}


def require_table(root: AnyPath, table_id: str) -> None:
    """Check that the first commit created the table with this id.

    Raises:
        Busy: The commit created another table.
    """
    if _table_id(log(root)) != table_id:
        raise _converted_concurrently(root)


def now() -> int:
    """Return the time as milliseconds since 1970, UTC."""
    return time.time_ns() // 1_000_000


def require_only_a_conversion(root: AnyPath) -> None:
    """Check that a conversion is the only commit of a table.

    Raises:
        TableError: The folder isn't a Delta table.
        Refused: The first commit isn't a conversion, or another commit follows it.
    """
    first = storage.read_text(log(root) / FIRST)
    found = _versions(log(root))
    if not found:
        raise TableError("NOT_A_DELTA_TABLE", table=root)
    if first is None or found != [0]:
        raise _written_after(root)
    operation = info_in(first).get("operation", "something nameless")
    if operation != OPERATION:
        raise Refused("NOT_A_CONVERSION", table=root, operation=operation)


def _table_id(folder: AnyPath) -> str:
    return str(log_removal.action(storage.read_text(folder / FIRST) or "", "metaData").get("id", ""))


def versions(names: Iterable[str]) -> list[int]:
    """Return the versions whose commits are among these file names of a log, in ascending order."""
    return sorted(int(match[1]) for name in names if (match := _COMMIT.fullmatch(name)))


def _versions(folder: AnyPath) -> list[int]:
    return versions(storage.names(folder))


def _converted_concurrently(root: AnyPath) -> Busy:
    return Busy("CONVERTED_BY_ANOTHER_PROCESS", table=root)


def _written_after(root: AnyPath) -> Refused:
    return Refused("WRITTEN_AFTER_CONVERSION", table=root)
