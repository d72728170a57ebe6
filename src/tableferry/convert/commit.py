"""Puts a table's first commit, if there is none, and takes it back while it's the only one."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from tableferry import files
from tableferry.errors import Busy, Refused, StateError, TableError

FIRST = "00000000000000000000.json"

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
        put_it = files.create_text(log(root) / FIRST, lines)
    except BaseException:
        # Only if it's empty; another process may have begun to fill it.
        with suppress(OSError):
            log(root).rmdir()
        raise
    if not put_it:
        raise Busy(
            f"{root} was converted by another process meanwhile; this one wrote nothing: look at its history"
        )


def take_back(root: Path) -> None:
    """Take a conversion back: the folder is as it was, and no data file was touched.

    Raises:
        TableError: The folder is no Delta table.
        Refused: Its first commit is no conversion, or something was written after it.
    """
    folder, aside = log(root), root / _ASIDE
    if not aside.exists():
        _demand_only_a_conversion(root)
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
    shutil.rmtree(aside)


def now() -> int:
    """Return the time as milliseconds since 1970, UTC."""
    return time.time_ns() // 1_000_000


def _demand_only_a_conversion(root: Path) -> None:
    first = files.read_text(log(root) / FIRST)
    versions = _versions(log(root))
    if not versions:
        raise TableError(f"{root} isn't a Delta table: nothing to undo")
    if first is None or versions != [0]:
        raise _written_after(root)
    info = _commit_info(first)
    if info.get("operation") != "CONVERT":
        raise Refused(
            f"{root}: its first commit is {info.get('operation', 'nameless')} and no conversion: only "
            " a conversion can be undone"
        )


def _commit_info(text: str) -> dict[str, object]:
    for line in text.splitlines():
        if line.startswith('{"commitInfo"'):
            info = json.loads(line)["commitInfo"]
            return info if isinstance(info, dict) else {}
    return {}


def _versions(folder: Path) -> list[int]:
    return sorted(int(match[1]) for name in files.names(folder) if (match := _COMMIT.fullmatch(name)))


def _written_after(root: Path) -> Refused:
    return Refused(
        f"{root} was written after its conversion: undoing it would lose that; copy what is new, or "
        "restore it with RESTORE TABLE … TO VERSION AS OF 0, and keep it as Delta"
    )
