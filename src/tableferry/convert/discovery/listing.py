"""List the data files of a table in its directory, or below its root in an object store."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from tableferry import storage as storage
from tableferry.backoff import pause
from tableferry.convert.discovery import sink_log, table_formats
from tableferry.errors import Busy, Refused, TableError
from tableferry.formats.parquet.files import DataFile

_NAMED = 5
# Attempts to list a folder that other processes change.
_LOOKS = 300
# Longer than one tick of any file system's clock.
_TICK_NANOSECONDS = 20_000_000


def list_files(root: storage.AnyPath) -> tuple[DataFile, ...]:
    """Return the data files below a table's root, sorted by path.

    Every visible file is a data file, regardless of its suffix. Links are followed. Two kinds are left out:

    - Names that begin with ``_`` or ``.``, except directories whose names contain ``=``.
    - Files that a streaming sink wrote and never committed.

    Raises:
        TableError: The directory is missing, or a directory can't be read.
        Refused: No data file exists, Hadoop can't read a file's name, or an entry can't be part of a table of
            Parquet files.
    """
    return _checked(root, visible_files(root))


def list_at_rest(root: storage.AnyPath) -> tuple[DataFile, ...]:
    """Return a table's files as they were at one moment, even if other processes add and remove files.

    On a file system, a directory's modification time shows whether files were added or removed. In an object
    store, two consecutive listings must be equal.

    Raises:
        TableError, Refused: As in `list_files`.
        Busy: The files changed during every attempt.
    """
    if isinstance(root, Path):
        require_directory(root)
        return _checked(root, _visible(root, sorted(_walk_at_rest(root))))
    before = list_files(root)
    for attempt in range(_LOOKS):
        now = list_files(root)
        if now == before:
            return now
        before = now
        pause(attempt, longest=0.1)
    raise _never_at_rest(root)


def _checked(root: storage.AnyPath, files: tuple[DataFile, ...]) -> tuple[DataFile, ...]:
    if not files:
        raise Refused("NO_PARQUET_FILES", folder=root)
    _require_utf8(root, files)
    require_readable_names(str(root), files)
    return files


def visible_files(root: storage.AnyPath) -> tuple[DataFile, ...]:
    """Return a table's files as `list_files` does, but accept an empty result and any file name.

    Raises:
        TableError: The directory is missing, or a directory can't be read.
        Refused: An entry can't be part of a table of Parquet files.
    """
    if isinstance(root, Path):
        require_directory(root)
        return _visible(root, sorted(_walk(root)))
    files, sink = _object_files(root)
    return _committed(root, files) if sink else tuple(files)


def _visible(root: Path, files: list[DataFile]) -> tuple[DataFile, ...]:
    return _committed(root, files) if (root / table_formats.SINK_LOG).is_dir() else tuple(files)


def _committed(root: storage.AnyPath, files: Iterable[DataFile]) -> tuple[DataFile, ...]:
    """Return only the files that the streaming sink committed."""
    by_path = {file.path: file for file in files}
    return tuple(sorted(by_path[path] for path in sink_log.committed(root / table_formats.SINK_LOG, by_path)))


def _object_files(root: storage.ObjectPath) -> tuple[list[DataFile], bool]:
    """Return the data files below a root, sorted by path, and whether a streaming sink wrote there.

    The same names are left out and refused as in `visible_files`.

    Raises:
        TableError: The root has no objects.
        Refused: An object can't be part of a table of Parquet files.
        StateError: The store can't be listed.
    """
    found: list[DataFile] = []
    sink = anything = False
    for item in storage.ObjectStore(root.store).below(root):
        anything = True
        sink = sink or item.path.startswith(f"{table_formats.SINK_LOG}/")
        if _is_data_object(root, item.path):
            found.append(DataFile(*item))
    if not anything:
        raise TableError("FOLDER_MISSING", folder=root)
    return sorted(found), sink


def _is_data_object(root: storage.ObjectPath, path: str) -> bool:
    *folders, name = path.split("/")
    for depth, folder in enumerate(folders):
        if table_formats.is_hidden(folder) and "=" not in folder:
            if depth:
                _require_no_nested_table(
                    f"{root}/{'/'.join(folders[:depth])}", folder, folders[depth + 1 :], name
                )
            return False
        if table_formats.is_acid(folder):
            raise table_formats.transactional(f"{root}/{'/'.join(folders[: depth + 1])}")
    if name == table_formats.HUDI_PARTITION:
        raise table_formats.hudi_partition("/".join([str(root), *folders]))
    return not table_formats.is_hidden(name)


def _require_no_nested_table(folder: str, hidden: str, below: list[str], name: str) -> None:
    if hidden in (table_formats.SINK_LOG, table_formats.HUDI) or (
        hidden == table_formats.DELTA_LOG and not below and table_formats.is_commit(name)
    ):
        raise table_formats.nested_table_error(folder, hidden)


def require_readable_names(root: str, files: Sequence[DataFile]) -> None:
    """Refuse file names that contain a colon: Hadoop reads the part before it as the scheme of a URI."""
    for file in files:
        if ":" in file.path.rpartition("/")[2]:
            raise Refused("FILE_NAME_WITH_COLON", folder=root, file=file.path)


def require_no_subfolders(root: str, files: Sequence[DataFile]) -> None:
    """Refuse a root with files both directly in it and in plain subfolders.

    Plain subfolders have no ``=`` in their names. Spark doesn't read them in such a root.
    """
    own = next((file.path for file in files if "/" not in file.path), None)
    folders = (file.path.rpartition("/")[0] for file in files)
    below = next((folder for folder in folders if folder and "=" not in folder.rpartition("/")[2]), None)
    if own is not None and below is not None:
        raise Refused("SUBFOLDERS_LEFT_OUT", folder=root, file=own, subfolder=below)


def changes(before: Sequence[DataFile], after: Sequence[DataFile]) -> list[str]:
    """Describe the changes between two listings: one sentence for each of the first five, then a count."""
    if before == after:
        return []
    old, new = ({file.path: file for file in files} for files in (before, after))
    sentences = []
    for path in sorted(old.keys() | new.keys()):
        if path not in old:
            sentences.append(f"{path} appeared")
        elif path not in new:
            sentences.append(f"{path} vanished")
        elif old[path].size != new[path].size:
            sentences.append(f"{path} changed from {old[path].size} to {new[path].size} bytes")
        elif old[path] != new[path]:
            sentences.append(f"{path} was written again")
    more = len(sentences) - _NAMED
    return [*sentences[:_NAMED], f"{more} more files changed"] if more > 0 else sentences


def _walk(root: Path) -> list[DataFile]:
    files: list[DataFile] = []
    pending = [""]
    while pending:
        found, folders = _list_folder(root, pending.pop())
        files += found
        pending += folders
    return files


def _walk_at_rest(root: Path) -> list[DataFile]:
    """Return the files as they were when a pass began that found every directory unchanged.

    Each pass lists again only the directories whose modification times changed.
    """
    listed: dict[str, tuple[int, list[DataFile], list[str]]] = {}
    # When this process first read each modification time, which may be ahead of this machine's clock.
    first_seen: dict[tuple[str, int], int] = {}
    for attempt in range(_LOOKS):
        files: list[DataFile] = []
        pending, at_rest = [""], True
        while pending:
            folder = pending.pop()
            try:
                modified = os.stat(root / folder).st_mtime_ns
            except FileNotFoundError:
                at_rest = False
                continue
            known = listed.get(folder)
            if known is None or known[0] != modified:
                at_rest = False
                # A second change in the same clock tick keeps the time: list the folder again.
                seen_for = time.monotonic_ns() - first_seen.setdefault(
                    (folder, modified), time.monotonic_ns()
                )
                if max(time.time_ns() - modified, seen_for) < _TICK_NANOSECONDS:
                    modified = -1
                known = listed[folder] = (modified, *_list_folder(root, folder))
            files += known[1]
            pending += known[2]
        if at_rest:
            return files
        pause(min(attempt, 3))
    raise _never_at_rest(root)


def _never_at_rest(root: storage.AnyPath) -> Busy:
    return Busy("FOLDER_CHANGES_TOO_FAST", folder=root, attempts=_LOOKS)


def _list_folder(root: Path, folder: str) -> tuple[list[DataFile], list[str]]:
    """Return a directory's data files, and the subdirectories to list next, which end in ``/``."""
    files: list[DataFile] = []
    folders: list[str] = []
    try:
        with os.scandir(root / folder) as entries:
            for entry in entries:
                name = entry.name
                if entry.is_dir():
                    if table_formats.is_hidden(name) and "=" not in name:
                        if folder:
                            _require_no_table(root / folder, name)
                        continue
                    _require_sound(root, root / folder, entry)
                    folders.append(f"{folder}{name}/")
                elif name == table_formats.HUDI_PARTITION:
                    raise table_formats.hudi_partition(str(root / folder))
                elif not table_formats.is_hidden(name) and (file := _data_file(folder, entry)):
                    files.append(file)
    except OSError as error:
        path = error.filename or root / folder
        if folder and isinstance(error, FileNotFoundError) and Path(path) == root / folder:
            # Another process removed the directory after its parent was listed.
            return [], []
        raise TableError("PATH_NOT_READABLE", path=path, reason=error.strerror) from error
    return files, folders


def _data_file(folder: str, entry: os.DirEntry[str]) -> DataFile | None:
    """Return an entry's file; None if another process removed it after its directory was listed."""
    try:
        status = entry.stat()
    except FileNotFoundError:
        if entry.is_symlink():
            raise Refused("LINK_TARGET_MISSING", link=entry.path) from None
        return None
    if not stat.S_ISREG(status.st_mode):
        raise Refused("NOT_A_FILE", file=entry.path)
    return DataFile(folder + entry.name, status.st_size, status.st_mtime_ns // 1_000_000)


def require_directory(folder: Path) -> None:
    """Check that a directory exists.

    Raises:
        TableError: It is missing, or it is a file.
    """
    if folder.is_dir():
        return
    if folder.is_file():
        raise TableError("FOLDER_IS_FILE", folder=folder)
    raise TableError("FOLDER_MISSING", folder=folder)


def loops(top: Path, folder: Path, entry: os.DirEntry[str]) -> bool:
    """Return whether an entry links to its own folder or to a parent of that folder, up to ``top``."""
    if not entry.is_symlink():
        return False
    target = entry.stat()
    for above in (folder, *folder.parents):
        if os.path.samestat(target, above.stat()):
            return True
        if above == top:
            break
    return False


def _require_sound(root: Path, folder: Path, entry: os.DirEntry[str]) -> None:
    if loops(root, folder, entry):
        raise Refused("LINK_CYCLE", link=entry.path)
    if table_formats.is_acid(entry.name):
        raise table_formats.transactional(entry.path)


def _require_no_table(folder: Path, name: str) -> None:
    is_table = name in (table_formats.SINK_LOG, table_formats.HUDI) or (
        name == table_formats.DELTA_LOG and table_formats.already_delta(folder)
    )
    if is_table:
        raise table_formats.nested_table_error(str(folder), name)


def _require_utf8(root: storage.AnyPath, files: Sequence[DataFile]) -> None:
    for file in files:
        if not file.path.isascii():
            try:
                file.path.encode()
            except UnicodeEncodeError:
                name = os.fsencode(file.path)
                raise Refused("FILE_NAME_NOT_UTF8", name=repr(name), folder=root) from None
