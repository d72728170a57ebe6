"""Writes a table's first commit, if there is none, and removes it while it's the only one."""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tableferry import files
from tableferry.errors import Busy, Refused, StateError, TableError
from tableferry.files import AnyPath

FIRST = "00000000000000000000.json"

LOG = "_delta_log"

OPERATION = "CONVERT"
"""What a conversion calls itself in its commit."""

_NEXT = "00000000000000000001.json"
_UNDO = "UNDO CONVERT"
# A version of the protocol that no reader and no writer has.
_NOBODYS = 999
# Seconds after which an undo that hasn't ended is taken for one that died.
_PATIENCE = 300

# A name that nobody lists, for a log that is being removed.
_ASIDE = "_tableferry_undo"
_COMMIT = re.compile(r"(\d{20})\.json")


def log(root: AnyPath) -> AnyPath:
    """Return the folder of a table's log."""
    return root / LOG


def put(root: AnyPath, table_id: str, lines: Iterable[str], *, unsafe: bool = False) -> None:
    """Write the first commit, whole or not at all.

    Args:
        root: The table's folder.
        table_id: The id of the table that the commit makes.
        lines: What it says.
        unsafe: Write it also where storage can't create a file only if there is none.

    Raises:
        Busy: Another converter's came first; this one wrote nothing.
        StateError: The log can't be written; nothing is there that wasn't before.
    """
    folder = log(root)
    try:
        created = create(folder / FIRST, lines, unsafe=unsafe)
    except BaseException:
        # Only if it's empty; another process may have begun to fill it.
        if isinstance(folder, Path):
            with suppress(OSError):
                folder.rmdir()
        raise
    if not created:
        # Storage may have created it, and have lost its answer.
        demand_table(root, table_id)


def create(name: AnyPath, lines: Iterable[str], *, unsafe: bool) -> bool:
    """Write a file of the log unless it's there, and say whether this did.

    Args:
        name: The file.
        lines: What it says.
        unsafe: Write it also where storage can't create a file only if there is none.
    """
    if not unsafe:
        return files.create_text(name, lines)
    if files.exists(name):
        return False
    files.write_text(name, "".join(lines))
    return True


def undo(root: AnyPath, table_id: str | None = None) -> None:
    """Undo a conversion: the folder is as it was, and no data file was touched.

    Raises:
        TableError: The folder is no Delta table.
        Refused: Its first commit is no conversion, or something was written after it.
        Busy: A table id was given, and the commit made another table; or another process is undoing it.
    """
    if isinstance(root, files.ObjectPath):
        _undo_in_store(root, table_id)
    else:
        set_aside(root, table_id)
        forget(root)


def _undo_in_store(root: files.ObjectPath, table_id: str | None) -> None:
    """Undo a conversion where nothing can be renamed, by taking the next version first.

    Of whoever writes version 1, one wins. If that is this commit, it asks for a protocol that nobody has: no
    writer commits after it, and no reader sees half a log while its objects are removed, the claim last.
    """
    folder, mine = root / LOG, str(uuid.uuid4())
    claim = folder / _NEXT
    if not _is_claimed(root):
        demand_only_a_conversion(root)
        if table_id is not None:
            demand_table(root, table_id)
    if not files.create_text(claim, "".join(closing(mine))):
        if not _is_claimed(root):
            raise _written_after(root)
        if (age := now() - files.modified(claim)) < _PATIENCE * 1000:
            raise Busy("UNDO_RUNNING_OR_DIED", table=root, seconds=_PATIENCE - age // 1000)
        files.write_text(claim, "".join(closing(mine)))
    for name in (FIRST, *(name for name in files.all_names(folder) if name not in (FIRST, _NEXT)), _NEXT):
        if _action(files.read_text(claim) or "", "commitInfo").get("txnId") != mine:
            raise Busy("UNDO_RUNNING", table=root)
        files.remove(folder / name)


def demand_no_undo(root: AnyPath) -> None:
    """Refuse a table whose undoing began and didn't end.

    Raises:
        Refused: It did.
    """
    if isinstance(root, files.ObjectPath) and _is_claimed(root):
        raise Refused("UNDO_INTERRUPTED", table=root)


def _is_claimed(root: files.ObjectPath) -> bool:
    return is_closing(files.read_text(root / LOG / _NEXT) or "")


def closing(identity: str) -> tuple[str, ...]:
    """Write the lines of a commit after which nobody commits: it asks for a protocol that nobody has."""
    actions = (
        {"commitInfo": {"timestamp": now(), "operation": _UNDO, "txnId": identity}},
        {"protocol": {"minReaderVersion": _NOBODYS, "minWriterVersion": _NOBODYS}},
    )
    return tuple(json.dumps(action, separators=(",", ":")) + "\n" for action in actions)


def is_closing(text: str) -> bool:
    """Say whether a commit's text is that of `closing`."""
    return bool(_action(text, "commitInfo").get("operation") == _UNDO)


def set_aside(root: Path, table_id: str | None = None) -> None:
    """Take the log of a conversion out of readers' and writers' sight; done already is fine.

    Raises:
        TableError: The folder is no Delta table.
        Refused: Its first commit is no conversion, or something was written after it.
        Busy: A table id was given, and the commit made another table.
    """
    folder, aside = root / LOG, root / _ASIDE
    if aside.exists() and folder.exists():
        if not (folder / FIRST).exists():
            raise Refused("WRITTEN_DURING_UNDO", log=folder, aside=aside)
        # Converted again after an undo that died at its last step.
        forget(root)
    if not aside.exists():
        demand_only_a_conversion(root)
        # One rename: readers see the whole log or none.
        try:
            folder.rename(aside)
        except OSError as error:
            raise StateError("LOG_NOT_MOVABLE", log=folder, reason=error.strerror) from error
    # A writer may have come between the look and the rename; and a run before this one may have died here.
    if _versions(aside) not in ([0], []):
        aside.rename(folder)
        raise _written_after(root)
    if table_id is not None and _table_id(aside) != table_id:
        aside.rename(folder)
        raise _converted_meanwhile(root)


def is_aside(root: Path) -> bool:
    """Say whether a log that was set aside is still there."""
    return (root / _ASIDE).exists()


def forget(root: Path) -> None:
    """Remove the log that was set aside; done already is fine.

    Raises:
        StateError: It can't be removed.
    """
    files.remove(root / _ASIDE)


def info(root: AnyPath) -> dict[str, Any]:
    """Return what the first commit says of itself, from the log or from the one that was set aside."""
    aside = (root / _ASIDE,) if isinstance(root, Path) else ()
    for folder in (log(root), *aside):
        if first := files.read_text(folder / FIRST):
            return info_in(first)
    return {}


def info_in(text: str) -> dict[str, Any]:
    """Return what a commit says of itself, by its text."""
    return _action(text, "commitInfo")


def is_only_commit(root: AnyPath) -> bool:
    """Say whether a log has its first commit and no other."""
    return has_only_first(files.names(log(root)))


def has_only_first(names: Iterable[str]) -> bool:
    """Say the same of a log by the names in its folder."""
    there = set(names)
    return FIRST in there and {name[:20] for name in there if name[:20].isdigit()} == {FIRST[:20]}


def demand_table(root: AnyPath, table_id: str) -> None:
    """Make sure that the first commit is the one that was written, and no other's.

    Raises:
        Busy: It made another table.
    """
    if _table_id(log(root)) != table_id:
        raise _converted_meanwhile(root)


def now() -> int:
    """Return the time as milliseconds since 1970, UTC."""
    return time.time_ns() // 1_000_000


def demand_only_a_conversion(root: AnyPath) -> None:
    """Refuse a table that undoing would harm.

    Raises:
        TableError: The folder is no Delta table.
        Refused: Its first commit is no conversion, or something was written after it.
    """
    first = files.read_text(log(root) / FIRST)
    found = _versions(log(root))
    if not found:
        raise TableError("NOT_A_DELTA_TABLE", table=root)
    if first is None or found != [0]:
        raise _written_after(root)
    operation = info_in(first).get("operation", "something nameless")
    if operation != OPERATION:
        raise Refused("NOT_A_CONVERSION", table=root, operation=operation)


def _table_id(folder: AnyPath) -> str:
    return str(_action(files.read_text(folder / FIRST) or "", "metaData").get("id", ""))


def _action(text: str, name: str) -> dict[str, Any]:
    # Other characters that end a line for Python may be in a table's comment.
    for line in text.split("\n"):
        if line.startswith(f'{{"{name}"'):
            action = json.loads(line)[name]
            return action if isinstance(action, dict) else {}
    return {}


def versions(names: Iterable[str]) -> list[int]:
    """Return the versions whose commits are among some files of a log, in order."""
    return sorted(int(match[1]) for name in names if (match := _COMMIT.fullmatch(name)))


def _versions(folder: AnyPath) -> list[int]:
    return versions(files.names(folder))


def _converted_meanwhile(root: AnyPath) -> Busy:
    return Busy("CONVERTED_BY_ANOTHER_PROCESS", table=root)


def _written_after(root: AnyPath) -> Refused:
    return Refused("WRITTEN_AFTER_CONVERSION", table=root)
