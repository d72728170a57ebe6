"""Files of a table's storage, which this process lists, reads and removes.

What the operating system shows is reached by its paths, everything else through the Hadoop of Spark's driver,
with Spark's own login, where the driver is this process: HDFS, S3, ADLS and GCS. Locations are written as
Hadoop does, not percent-encoded.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from tableferry import storage
from tableferry.errors import StateError, first_line, is_sparks
from tableferry.formats.hive.locations import below, is_hidden, reachable, split
from tableferry.spark import java
from tableferry.spark.catalog import parallel_map
from tableferry.spark.driver import in_process

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_log = logging.getLogger(__name__)


class TableStorage(Protocol):
    """A kind of storage; what can't be done is a StateError."""

    def names(self, location: str) -> tuple[str, ...]:
        """List all names right below a directory in order; an absent one has none."""

    def folders(self, location: str) -> tuple[str, ...]:
        """List the paths, below a directory, of all directories in it at any depth."""

    def exists(self, location: str) -> bool:
        """Say whether there is such a file or directory."""

    def write_text(self, location: str, text: str) -> None:
        """Write a file, and make the directories above it."""

    def remove(self, location: str) -> None:
        """Remove a file or a whole directory; absent is fine."""

    def remove_empty(self, location: str) -> None:
        """Remove a directory if nothing is in it."""


def storage_of(spark: SparkSession, root: str) -> TableStorage | None:
    """Return the storage of a file or directory, and of what is below it; None if only Spark reaches it."""
    path = reachable(root, same_machine=in_process(spark))
    if path is not None:
        return _Disk(root, path)
    if not in_process(spark):
        return None
    try:
        return Hadoop(spark)
    except StateError as error:
        _log.warning("%s isn't reached from here: %s", root, error.one_line)
        return None


class FileStatus(NamedTuple):
    """What a file system says of a file: its URI as Hadoop writes it, bytes, and milliseconds since 1970."""

    path: str
    size: int
    modified: int


def files_below(spark: SparkSession, locations: Sequence[str]) -> list[FileStatus] | None:
    """List the files in some directories at any depth, but for those that Spark's readers take for hidden.

    An absent directory has no files.

    Returns:
        None if Spark is better asked: where its driver isn't this process, and on storage that Hadoop may
        list by one request after the other for each directory.

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
    """Leave out files whose names below a path are hidden, whatever the file system calls its scheme."""
    hidden: dict[str, bool] = {}
    for file in files:
        folder, _, name = file.path.rpartition("/")
        if folder not in hidden:
            # Of a location that is a file no folder is inside.
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
        raise StateError(f"{top} can't be listed ({error.strerror}): make it readable") from error


def _walk(folder: str) -> Iterator[FileStatus]:
    # What goes meanwhile, and a link to nothing, is left out, as by Hadoop.
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        return
    for entry in entries:
        if not entry.name.isascii() and not _is_utf8(entry.name):
            # Java doesn't find it again.
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
class _Disk:
    """What the operating system shows."""

    root: str
    path: Path

    def names(self, location: str) -> tuple[str, ...]:
        path = self._at(location)
        try:
            return tuple(sorted(os.listdir(path))) if path.is_dir() else ()
        except OSError as error:
            raise StateError(f"{path} can't be listed ({error.strerror}): make it readable") from error

    def folders(self, location: str) -> tuple[str, ...]:
        top = self._at(location)
        found = (os.path.relpath(path, top) for path, _, _ in os.walk(top))
        return tuple(path for path in found if path != ".")

    def exists(self, location: str) -> bool:
        path = self._at(location)
        try:
            path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise StateError(f"{path} can't be looked at ({error.strerror}): make it readable") from error
        return True

    def write_text(self, location: str, text: str) -> None:
        storage.write_text(self._at(location), text)

    def remove(self, location: str) -> None:
        path = self._at(location)
        storage.remove(path)
        # Hadoop keeps a checksum beside each file of a local disk.
        storage.remove(path.with_name(f".{path.name}.crc"))

    def remove_empty(self, location: str) -> None:
        with suppress(OSError):
            self._at(location).rmdir()

    def _at(self, location: str) -> Path:
        inside = below(location, self.root)
        assert inside is not None, f"{location} isn't below {self.root}"
        return self.path / inside


class Hadoop:
    """Whatever the Hadoop of Spark's driver reaches, which is this process."""

    def __init__(self, spark: SparkSession) -> None:
        """Take the session whose settings hold.

        Raises:
            StateError: The cluster keeps its Java to itself.
        """
        with _explained("Hadoop", "can't be used"):
            assert spark._jvm is not None
            self._jvm: Any = spark._jvm
            self._path = self._jvm.org.apache.hadoop.fs.Path
            self._conf = spark._jsparkSession.sessionState().newHadoopConf()

    def names(self, location: str) -> tuple[str, ...]:
        """List all names right below a directory in order; an absent one has none."""
        return tuple(sorted(name for name, _ in self._listed(location)))

    def folders(self, location: str) -> tuple[str, ...]:
        """List the paths, below a directory, of all directories in it at any depth."""

        def inside(path: str) -> Iterator[str]:
            for name, is_folder in self._listed(f"{location}/{path}".rstrip("/")):
                if is_folder:
                    yield (inner := f"{path}/{name}".lstrip("/"))
                    yield from inside(inner)

        return tuple(inside(""))

    def files(self, location: str) -> list[FileStatus]:
        """List all files below a directory at any depth; an absent one has none.

        In S3 that is one request for a thousand files, in whatever directories these are.
        """
        with self._system(location, "can't be listed") as (system, path):
            if not system.exists(path):
                return []
            jvm, status = self._jvm, self._jvm.org.apache.hadoop.fs.FileStatus
            found = jvm.org.apache.hadoop.util.functional.RemoteIterators.toList(system.listFiles(path, True))
            paths = java.results(jvm, found, status, "getPath", self._path._java_lang_class)
            sizes = java.numbers(jvm, found, status, "getLen")
            times = java.numbers(jvm, found, status, "getModificationTime")
            return list(map(FileStatus, java.texts(jvm, paths, self._path), sizes, times))

    def exists(self, location: str) -> bool:
        """Say whether there is such a file or directory."""
        with self._system(location, "can't be looked at") as (system, path):
            return bool(system.exists(path))

    def remove(self, location: str) -> None:
        """Remove a file or a whole directory; absent is fine."""
        with self._system(location, "can't be removed") as (system, path):
            if not system.delete(path, True) and system.exists(path):
                raise StateError(f"{location} can't be removed: check the rights of Spark's login")

    def remove_empty(self, location: str) -> None:
        """Remove a directory if nothing is in it."""
        if not self._listed(location):
            # It fails if something came meanwhile.
            with suppress(StateError), self._system(location, "can't be removed") as (system, path):
                system.delete(path, False)

    def make_folder(self, location: str) -> None:
        """Make a directory, and those above it."""
        with self._system(location, "can't be made") as (system, path):
            system.mkdirs(path)

    def read_range(self, location: str, size: int, start: int, count: int) -> bytes:
        """Read some bytes of a file of a known size; that spares object stores a question for each file."""
        with self._system(location, "can't be read") as (system, path):
            opening = system.openFile(path).opt("fs.option.openfile.length", str(size))
            stream = opening.opt("fs.option.openfile.read.policy", "random").build().get()
            try:
                stream.seek(start)
                return bytes(stream.readNBytes(count))
            finally:
                stream.close()

    def write_text(self, location: str, text: str) -> None:
        """Write a file, and make the directories above it."""
        with self._system(location, "can't be written") as (system, path):
            stream = system.create(path, True)
            try:
                stream.write(bytearray(text, "utf-8"))
            finally:
                stream.close()

    def read_text(self, location: str, most: int | None = None) -> str | None:
        """Read a file; None if it isn't there, or has more bytes than some."""
        with self._system(location, "can't be read") as (system, path):
            if not system.exists(path):
                return None
            size = system.getFileStatus(path).getLen()
            if most is not None and size > most:
                return None
        return self.read_range(location, size, 0, size).decode(errors="replace")

    def _listed(self, location: str) -> list[tuple[str, bool]]:
        with self._system(location, "can't be listed") as (system, path):
            if not system.exists(path):
                return []
            return [(one.getPath().getName(), one.isDirectory()) for one in system.listStatus(path)]

    @contextmanager
    def _system(self, location: str, failure: str) -> Iterator[tuple[Any, Any]]:
        with _explained(location, failure):
            path = self._path(location)
            yield path.getFileSystem(self._conf), path


@contextmanager
def _explained(what: str, failure: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        # Clusters that several people share keep Java to themselves, each with an error of its own.
        if not is_sparks(error):
            raise
        raise StateError(
            f"{what} {failure} ({first_line(error)}): check the rights of Spark's login"
        ) from error
