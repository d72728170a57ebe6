"""Recognize tables (Delta, Iceberg, Hudi, Hive), streaming sinks and Parquet files by names in a folder."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from tableferry import storage
from tableferry.errors import Refused, TableError

DELTA_LOG = "_delta_log"
SINK_LOG = "_spark_metadata"
HUDI = ".hoodie"
HUDI_PARTITION = ".hoodie_partition_metadata"
ICEBERG_METADATA = "metadata"
_HUDI_COLUMNS = "_hoodie_"

_COMMIT = re.compile(r"\d{20}\.(json|checkpoint(\..+)?\.(parquet|json))|_last_checkpoint")
_ICEBERG = re.compile(r"[^._].*\.metadata\.json(\.gz)?")
# https://hive.apache.org/docs/latest/hive-transactions_40509723/#basic-design
_ACID = re.compile(r"base_\d{7,}(_v\d+)?|(delete_)?delta_\d{7,}_\d{7,}(_\d{4})?(_v\d+)?")
_PARQUET = (".parquet", ".parq", ".pq")
# Files with an encrypted footer begin with the second one.
_MAGIC = (b"PAR1", b"PARE")
_MAX_FILES_CHECKED = 3


def already_delta(root: storage.AnyPath) -> bool:
    """Return whether a directory's ``_delta_log`` contains a commit or a checkpoint.

    Raises:
        TableError: The ``_delta_log`` can't be listed.
    """
    return any(map(is_commit, names(root / DELTA_LOG)))


def empty_commit(root: storage.AnyPath) -> Path | None:
    """Return the only commit of a directory's ``_delta_log`` if it's an empty file, which no reader accepts.

    A writer that dies or fills the disk leaves such a file where storage shows incomplete files.
    """
    if not isinstance(root, Path):
        return None
    commits = [name for name in names(root / DELTA_LOG) if _COMMIT.fullmatch(name)]
    only = root / DELTA_LOG / commits[0] if len(commits) == 1 else None
    return only if only is not None and only.is_file() and only.stat().st_size == 0 else None


def foreign_format(root: storage.AnyPath) -> str | None:
    """Return ``Hudi`` or ``Iceberg`` if a directory is a table of that format, else None.

    Only the metadata of such a table records which of its Parquet files are current.

    Raises:
        TableError: The metadata's directory can't be listed.
    """
    if (root / HUDI).is_dir() if isinstance(root, Path) else names(root / HUDI):
        return "Hudi"
    if any(map(_ICEBERG.fullmatch, names(root / ICEBERG_METADATA))):
        return "Iceberg"
    return None


def table_format(root: storage.AnyPath) -> str | None:
    """Return the format (Delta, Iceberg or Hudi) of the table whose root is this folder, or None.

    In an object store, the first names of each metadata folder are enough, so only those are listed.

    Raises:
        TableError: The metadata's directory can't be listed.
        StateError: The store can't be reached.
    """
    if isinstance(root, Path):
        return "Delta" if already_delta(root) else foreign_format(root)
    store = storage.ObjectStore(root.store)
    return format_by(lambda folder: store.first_names(root / folder))


def format_by(listed: Callable[[str], Sequence[str]]) -> str | None:
    """Return the format as `table_format` does.

    Args:
        listed: Lists the names in a subfolder; returns no names for a missing subfolder.
    """
    if any(map(is_commit, listed(DELTA_LOG))):
        return "Delta"
    if listed(HUDI):
        return "Hudi"
    return "Iceberg" if any(map(_ICEBERG.fullmatch, listed(ICEBERG_METADATA))) else None


def names(folder: storage.AnyPath) -> Sequence[str]:
    """Return the names in a directory; a missing directory has none.

    Raises:
        TableError: The directory can't be listed.
    """
    if isinstance(folder, storage.ObjectPath):
        return storage.all_names(folder)
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise TableError("FOLDER_NOT_LISTABLE", folder=folder, reason=error.strerror) from error


def is_commit(name: str) -> bool:
    """Return whether a file of a ``_delta_log`` is a commit, a checkpoint or ``_last_checkpoint``."""
    return _COMMIT.fullmatch(name) is not None


def is_hidden(name: str) -> bool:
    """Return whether listings leave out this name. They still include directories that contain ``=``."""
    return name[0] in "_."


def is_acid(name: str) -> bool:
    """Return whether a directory's name is that of a base or delta of a transactional Hive table."""
    return _ACID.fullmatch(name) is not None


def look_like_parquet(folder: storage.AnyPath, named: Iterable[str]) -> bool:
    """Return whether a directory's visible files are Parquet.

    One suffix is enough. Without one, the first bytes of the first three files decide.
    """
    ordered = sorted(named)
    if any(name.lower().endswith(_PARQUET) for name in ordered):
        return True
    return any(_has_magic(folder / name) for name in ordered[:_MAX_FILES_CHECKED])


def _has_magic(path: storage.AnyPath) -> bool:
    if isinstance(path, storage.ObjectPath):
        return storage.ObjectStore(path.store).read_range(path, 0, 4) in _MAGIC
    # Opening a pipe would block until it has a writer.
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            return file.read(4) in _MAGIC
    except OSError:
        return False


def transactional(folder: str) -> Refused:
    """Return the refusal of a folder that is part of a transactional Hive table."""
    return Refused("TRANSACTIONAL_HIVE_TABLE", folder=folder)


def hudi_partition(folder: str) -> Refused:
    """Return the refusal of a partition of a Hudi table."""
    return Refused("HUDI_PARTITION", folder=folder, file=HUDI_PARTITION)


def require_no_hudi_columns(location: str, columns: Iterable[str]) -> None:
    """Refuse files with the columns that Hudi adds to each row."""
    if found := sorted(name for name in columns if name.startswith(_HUDI_COLUMNS)):
        raise Refused("HUDI_COLUMNS", folder=location, columns=found)


def nested_table_error(folder: str, name: str) -> Refused:
    """Return the refusal of a subfolder that is a table itself, with the name of its metadata folder."""
    return Refused("FOLDER_CONTAINS_TABLE", folder=folder, name=name)
