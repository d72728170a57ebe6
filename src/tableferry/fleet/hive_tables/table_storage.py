"""Choose the storage of a table's directories, and list a table's files without a Spark job.

Directories that the operating system shows are accessed as local paths, all others through the Hadoop of
Spark's driver if the driver is this process. Locations are written as Hadoop does, not percent-encoded.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tableferry.errors import StateError
from tableferry.formats.hive.locations import below, is_hidden, reachable, split
from tableferry.spark.catalog import parallel_map
from tableferry.spark.driver import in_process
from tableferry.storage.hadoop import FileStatus, Hadoop
from tableferry.storage.local import Local
from tableferry.storage.port import TableStorage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_log = logging.getLogger(__name__)

_LOCAL = Local()


def storage_of(spark: SparkSession, root: str) -> TableStorage[str] | None:
    """Return the storage of a file or directory, and of all files in it; None if only Spark reaches it."""
    path = reachable(root, same_machine=in_process(spark))
    if path is not None:
        return _LocalDirectory(root, path)
    if not in_process(spark):
        return None
    try:
        return Hadoop(spark)
    except StateError as error:
        _log.warning("%s isn't reached from here: %s", root, error.one_line)
        return None


def files_below(spark: SparkSession, locations: Sequence[str]) -> list[FileStatus] | None:
    """List the files in directories at any depth, without those that Spark's readers ignore.

    A missing directory has no files.

    Returns:
        None if Spark lists them faster: where its driver isn't this process, and on storage for which Hadoop
        may send a request for each directory.

    Raises:
        StateError: They can't be listed.
    """
    schemes = {split(location)[0] for location in locations}
    if not in_process(spark) or not schemes <= {"file", "hdfs", "s3", "s3a", "s3n"}:
        return None
    if schemes <= {"file"}:
        # Hadoop starts a program for each file of a local disk, to ask for its owner.
        found: Iterable[Iterable[FileStatus]] = (_on_disk(split(location)[2]) for location in locations)
    else:
        found = parallel_map(Hadoop(spark).files, locations)
    return [
        file
        for location, listed in zip(locations, found, strict=True)
        for file in _shown(listed, split(location)[2])
    ]


def _shown(files: Iterable[FileStatus], top: str) -> Iterator[FileStatus]:
    """Leave out files with hidden names below a path; the file system's scheme doesn't matter."""
    hidden: dict[str, bool] = {}
    for file in files:
        folder, _, name = file.path.rpartition("/")
        if folder not in hidden:
            # A location that is a file has no directories below it.
            inside = "" if top == split(file.path)[2] else split(folder)[2].removeprefix(top)
            hidden[folder] = any(map(is_hidden, inside.split("/")))
        if not hidden[folder] and not is_hidden(name):
            yield file


def _on_disk(top: str) -> Iterator[FileStatus]:
    try:
        if os.path.isdir(top):
            yield from _walk(top)
        else:
            with suppress(FileNotFoundError, NotADirectoryError):
                yield _status(top, os.stat(top))
    except OSError as error:
        raise StateError("PATH_NOT_ACCESSIBLE", file=top, reason=error.strerror) from error


def _walk(folder: str) -> Iterator[FileStatus]:
    # Like Hadoop, leave out files that are removed during the listing, and links to missing files.
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        return
    for entry in entries:
        if not entry.name.isascii() and not _is_utf8(entry.name):
            # Java can't open it.
            continue
        if not entry.is_dir():
            with suppress(FileNotFoundError):
                yield _status(entry.path, entry.stat())
        elif not is_hidden(entry.name):
            yield from _walk(entry.path)


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _status(path: str, stat: os.stat_result) -> FileStatus:
    return FileStatus(f"file:{path}", stat.st_size, stat.st_mtime_ns // 1_000_000)


@dataclass(frozen=True)
class _LocalDirectory:
    """The storage of a directory that the operating system shows, by the locations that Hadoop writes."""

    root: str
    path: Path

    def write_text(self, location: str, text: str) -> None:
        _LOCAL.write_text(self._at(location), text)

    def exists(self, location: str) -> bool:
        return _LOCAL.exists(self._at(location))

    def all_names(self, location: str) -> tuple[str, ...]:
        path = self._at(location)
        return () if os.path.isfile(path) else _LOCAL.all_names(path)

    def folders(self, location: str) -> tuple[str, ...]:
        return _LOCAL.folders(self._at(location))

    def remove(self, location: str) -> None:
        path = self._at(location)
        _LOCAL.remove(path)
        # Hadoop keeps a checksum beside each file of a local disk.
        _LOCAL.remove(path.with_name(f".{path.name}.crc"))

    def remove_empty(self, location: str) -> None:
        _LOCAL.remove_empty(self._at(location))

    def _at(self, location: str) -> Path:
        inside = below(location, self.root)
        assert inside is not None, f"{location} isn't below {self.root}"
        return self.path / inside
