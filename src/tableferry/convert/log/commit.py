"""Writes a table's first commit, if there is none, and removes it while it's the only one."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tableferry import files
from tableferry.errors import Busy, Refused, StateError, TableError

FIRST = "00000000000000000000.json"

OPERATION = "CONVERT"
"""What a conversion calls itself in its commit."""

# A name that nobody lists, for a log that is being removed.
_ASIDE = "_tableferry_undo"
_COMMIT = re.compile(r"(\d{20})\.json")


def log(root: Path) -> Path:
    """Return the folder of a table's log."""
    return root / "_delta_log"


def put(root: Path, lines: Iterable[str]) -> None:
    """Write the first commit, whole or not at all.

    Raises:
        Busy: Another converter's came first; this one wrote nothing.
        StateError: The log can't be written; nothing is there that wasn't before.
    """
    try:
        created = files.create_text(log(root) / FIRST, lines)
    except BaseException:
        # Only if it's empty; another process may have begun to fill it.
        with suppress(OSError):
            log(root).rmdir()
        raise
    if not created:
        raise _converted_meanwhile(root)


def undo(root: Path, table_id: str | None = None) -> None:
    """Undo a conversion: the folder is as it was, and no data file was touched.

    Raises:
        TableError: The folder is no Delta table.
        Refused: Its first commit is no conversion, or something was written after it.
        Busy: A table id was given, and the commit made another table.
    """
    set_aside(root, table_id)
    forget(root)


def set_aside(root: Path, table_id: str | None = None) -> None:
    """Take the log of a conversion out of readers' and writers' sight; done already is fine.

    Raises:
        TableError: The folder is no Delta table.
        Refused: Its first commit is no conversion, or something was written after it.
        Busy: A table id was given, and the commit made another table.
    """
    folder, aside = log(root), root / _ASIDE
    if aside.exists() and folder.exists():
        if not (folder / FIRST).exists():
            raise Refused(
                f"{folder} was written while its conversion was being undone: move what is in it "
                f"into {aside}, and that back to {folder}, to keep what was written"
            )
        # Converted again after an undo that died at its last step.
        forget(root)
    if not aside.exists():
        demand_only_a_conversion(root)
        # One rename: readers see the whole log or none.
        try:
            folder.rename(aside)
        except OSError as error:
            raise StateError(
                f"{folder} can't be moved ({error.strerror}): give this user the right to, and undo it "
                "once at a time"
            ) from error
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


def info(root: Path) -> dict[str, Any]:
    """Return what the first commit says of itself, from the log or from the one that was set aside."""
    for folder in (log(root), root / _ASIDE):
        if first := files.read_text(folder / FIRST):
            return _commit_info(first)
    return {}


def is_only_commit(root: Path) -> bool:
    """Say whether a log has its first commit and no other."""
    versions = {name[:20] for name in files.names(log(root)) if name[:20].isdigit()}
    return versions == {FIRST[:20]} and files.exists(log(root) / FIRST)


def demand_table(root: Path, table_id: str) -> None:
    """Make sure that the first commit is the one that was written, and no other's.

    Raises:
        Busy: It made another table.
    """
    if _table_id(log(root)) != table_id:
        raise _converted_meanwhile(root)


def now() -> int:
    """Return the time as milliseconds since 1970, UTC."""
    return time.time_ns() // 1_000_000


def demand_only_a_conversion(root: Path) -> None:
    """Refuse a table that undoing would harm.

    Raises:
        TableError: The folder is no Delta table.
        Refused: Its first commit is no conversion, or something was written after it.
    """
    first = files.read_text(log(root) / FIRST)
    versions = _versions(log(root))
    if not versions:
        raise TableError(f"{root} isn't a Delta table: nothing to undo")
    if first is None or versions != [0]:
        raise _written_after(root)
    operation = _commit_info(first).get("operation", "something nameless")
    if operation != OPERATION:
        raise Refused(
            f"{root} began as {operation} and not as a conversion: it was "
            "never Parquet alone, so there is nothing to undo"
        )


def _commit_info(text: str) -> dict[str, Any]:
    return _action(text, "commitInfo")


def _table_id(folder: Path) -> str:
    return str(_action(files.read_text(folder / FIRST) or "", "metaData").get("id", ""))


def _action(text: str, name: str) -> dict[str, Any]:
    # Other characters that end a line for Python may be in a table's comment.
    for line in text.split("\n"):
        if line.startswith(f'{{"{name}"'):
            action = json.loads(line)[name]
            return action if isinstance(action, dict) else {}
    return {}


def _versions(folder: Path) -> list[int]:
    return sorted(int(match[1]) for name in files.names(folder) if (match := _COMMIT.fullmatch(name)))


def _converted_meanwhile(root: Path) -> Busy:
    return Busy(
        f"{root} was converted by another process meanwhile, and this one's commit isn't there: look at its "
        "history"
    )


def _written_after(root: Path) -> Refused:
    return Refused(
        f"{root} was written after its conversion: undoing it would lose that; copy what is new, or "
        "restore it with RESTORE TABLE … TO VERSION AS OF 0, and keep it as Delta"
    )
