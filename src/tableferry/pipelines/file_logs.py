"""Reads and writes the logs in which file streams keep which files they have read (`seen_files`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from tableferry import storage
from tableferry.errors import StateError
from tableferry.pipelines import seen_files
from tableferry.pipelines.seen_files import SeenFile


def folder(checkpoint: Path, source: int) -> Path:
    """Say where the log of a checkpoint's source is."""
    return checkpoint / "sources" / str(source)


def read(log: Path, until: int) -> tuple[SeenFile, ...]:
    """Return the files that were read up to a batch of a log.

    Raises:
        StateError: The log lacks a part of them.
    """
    try:
        names = seen_files.needed(storage.names(log), until)
        seen = [file for name in names for file in _read(log / name)]
        return seen_files.up_to(seen, until)
    except ValueError as error:
        raise StateError("FILE_LOG_INCOMPLETE", log=log, reason=error) from error


def move_on(log: Path, until: int, others: Iterable[Sequence[SeenFile]]) -> int:
    """Let a log hold what others have read that began where it was at a batch; return its newest batch.

    What it has read behind that batch doesn't count any more. It can be repeated after a crash. All is in one
    compact file, without older ones: from the number of a single one Spark takes it that it compacts there.

    Raises:
        StateError: The log lacks a part of what was read up to the batch.
    """
    own = read(log, until)
    names = storage.names(log)
    newest = seen_files.newest(names)
    assert newest is not None
    paths = {file.path for file in own}
    began_there = (seen for seen in others if paths <= {file.path for file in seen})
    more = seen_files.beyond((file for seen in began_there for file in seen), own)
    wanted = paths | {file.path for file in more}
    known = {file.path for name in seen_files.needed(names, newest) for file in _read(log / name)}
    if known == wanted and newest == until:
        return until
    number = newest if known == wanted else newest + 1
    compact = f"{number}{seen_files.COMPACT}"
    if known != wanted:
        # Each batch names a file.
        last = more or tuple(file for file in own if file.batch == until)
        moved = (replace(file, batch=number) for file in last)
        storage.create_text(log / compact, seen_files.written(chain(own, moved)))
    if known != wanted or compact in names:
        for name in names:
            if name.endswith(seen_files.COMPACT) and name != compact:
                storage.remove(log / f".{name}.crc")
                storage.remove(log / name)
    return number


def _read(path: Path) -> tuple[SeenFile, ...]:
    try:
        seen = seen_files.parse(storage.read_text(path) or "")
        # What Spark writes last is this very batch, so a file that was cut short lacks it.
        seen_files.up_to(seen, int(path.name.removesuffix(seen_files.COMPACT)))
        return seen
    except ValueError as error:
        raise StateError("FILE_LOG_INCOMPLETE", log=path, reason=error) from error


def seed(checkpoint: Path, seen: Iterable[SeenFile]) -> None:
    """Let the only source of a checkpoint take files for read; can be repeated after a crash."""
    path = folder(checkpoint, 0) / f"{seen_files.SEEDED_BATCH}{seen_files.COMPACT}"
    storage.create_text(path, seen_files.written(seen, seen_files.SEEDED_BATCH))
