"""The tables below a folder, found by listing directories."""

from __future__ import annotations

import os
from pathlib import Path

from tableferry.convert.folder import formats
from tableferry.convert.folder.discover import demand_directory, loops
from tableferry.errors import TableError


def find_roots(parent: Path) -> list[Path]:
    """Find the roots of the tables in a folder and below it, sorted.

    A root is the highest directory that holds Parquet files itself, or in partition directories (``x=…``), or
    that is a Delta, Iceberg or Hudi table or a streaming sink's. One that may not be read counts as a root
    too, so that it's named when its turn comes. A root that links reach by several paths counts once.

    Raises:
        TableError: There is no such folder.
    """
    demand_directory(parent)
    roots: dict[str, Path] = {}
    pending = [parent]
    while pending:
        folder = pending.pop()
        below = _plain_below(parent, folder)
        if below is None:
            real = os.path.realpath(folder)
            roots[real] = min(folder, roots.get(real, folder))
        else:
            pending += below
    return sorted(roots.values())


def _plain_below(top: Path, folder: Path) -> list[Path] | None:
    """Return the directories in which to look for tables; None where the folder is a table's root itself."""
    try:
        if formats.already_delta(folder) or formats.foreign_format(folder):
            return None
        files, folders = _visible(top, folder)
    except (OSError, TableError):
        return None
    if (folder / formats.SINK_LOG).is_dir() or formats.look_like_parquet(folder, files):
        return None
    if any("=" in below.name and _holds_parquet(top, below) for below in folders):
        return None
    return folders


def _holds_parquet(top: Path, folder: Path) -> bool:
    pending = [folder]
    while pending:
        folder = pending.pop()
        if formats.already_delta(folder) or formats.foreign_format(folder):
            continue
        files, folders = _visible(top, folder)
        if formats.look_like_parquet(folder, files):
            return True
        pending += folders
    return False


def _visible(top: Path, folder: Path) -> tuple[list[str], list[Path]]:
    files, folders = [], []
    with os.scandir(folder) as entries:
        for entry in entries:
            hidden = formats.is_hidden(entry.name)
            if not _leads_to_directory(entry):
                if not hidden:
                    files.append(entry.name)
            # What a loop leads to is found without it.
            elif (not hidden or "=" in entry.name) and not loops(top, folder, entry):
                folders.append(folder / entry.name)
    return files, folders


def _leads_to_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # A link to itself.
        return False
