"""Find the tables below a folder by listing directories, or the names in an object store."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple, TypeVar

from tableferry import storage
from tableferry.convert.discovery import table_formats
from tableferry.convert.discovery.listing import loops, require_directory
from tableferry.errors import StateError, TableError

_P = TypeVar("_P", Path, storage.ObjectPath)


class _Listed(NamedTuple):
    """The names in a folder.

    Attributes:
        files: Visible files.
        folders: Folders that are visible or contain ``=`` in their names.
        hidden: All other folders.
    """

    files: list[str]
    folders: list[str]
    hidden: list[str]


def find_roots(parent: _P) -> list[_P]:
    """Return the roots of the tables in a folder and below it, sorted.

    A root is the highest directory of one of these kinds:

    - It is a Delta, Iceberg or Hudi table, or the output of a streaming sink.
    - It contains Parquet files, directly or in partition directories (``x=…``).
    - It can't be read. The conversion of this root reports the error.

    A root that several links lead to is returned once.

    Raises:
        TableError: The folder is missing.
        StateError: The store can't be reached.
    """
    if isinstance(parent, Path):
        require_directory(parent)
    elif not storage.all_names(parent):
        raise TableError("FOLDER_MISSING", folder=parent)
    roots: dict[str, _P] = {}
    pending = [parent]
    while pending:
        folder = pending.pop()
        below = _folders_to_search(parent, folder)
        if below is None:
            real = os.path.realpath(folder) if isinstance(folder, Path) else str(folder)
            roots[real] = min(folder, roots.get(real, folder))
        else:
            pending += below
    return sorted(roots.values())


def _folders_to_search(top: _P, folder: _P) -> list[_P] | None:
    """Return the subdirectories to search, or None if the folder is a table's root or can't be read."""
    try:
        listed = _list(top, folder)
        if _has_table_metadata(folder, listed) or table_formats.SINK_LOG in listed.hidden:
            return None
    except (OSError, StateError, TableError):
        return None
    if table_formats.look_like_parquet(folder, listed.files):
        return None
    below = [folder / name for name in listed.folders]
    if any("=" in name and _contains_parquet(top, folder / name) for name in listed.folders):
        return None
    return below


def _contains_parquet(top: _P, folder: _P) -> bool:
    pending = [folder]
    while pending:
        folder = pending.pop()
        listed = _list(top, folder)
        if _has_table_metadata(folder, listed):
            continue
        if table_formats.look_like_parquet(folder, listed.files):
            return True
        pending += (folder / name for name in listed.folders)
    return False


def _has_table_metadata(folder: storage.AnyPath, listed: _Listed) -> bool:
    """Return whether a folder's metadata makes it a table. Only metadata folders in ``listed`` are read."""
    if table_formats.DELTA_LOG in listed.hidden and table_formats.already_delta(folder):
        return True
    names = (*listed.hidden, *listed.folders)
    return not {table_formats.HUDI, table_formats.ICEBERG_METADATA}.isdisjoint(names) and bool(
        table_formats.foreign_format(folder)
    )


def _list(top: storage.AnyPath, folder: storage.AnyPath) -> _Listed:
    if isinstance(folder, storage.ObjectPath):
        objects, folders = storage.ObjectStore(folder.store).entries(folder)
        visible = [name for name in objects if not table_formats.is_hidden(name)]
        shown = [name for name in folders if not table_formats.is_hidden(name) or "=" in name]
        return _Listed(visible, shown, [name for name in folders if name not in shown])
    assert isinstance(top, Path)
    listed = _Listed([], [], [])
    with os.scandir(folder) as entries:
        for entry in entries:
            hidden = table_formats.is_hidden(entry.name)
            if not _leads_to_directory(entry):
                if not hidden:
                    listed.files.append(entry.name)
            elif hidden and "=" not in entry.name:
                listed.hidden.append(entry.name)
            # Skip a link cycle: the search reaches its target without the link.
            elif not loops(top, folder, entry):
                listed.folders.append(entry.name)
    return listed


def _leads_to_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # The entry is a link to itself.
        return False
