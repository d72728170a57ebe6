"""Files of a table's storage, which this process lists, reads and removes.

What the operating system shows is reached by its paths, everything else through the Hadoop of Spark's driver,
with Spark's own login, where the driver is this process: HDFS, S3, ADLS and GCS. Locations are written as
Hadoop does, not percent-encoded.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tableferry import files
from tableferry.driver import in_process
from tableferry.errors import StateError, first_line, is_sparks
from tableferry.hive.locations import below, reachable

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
        _log.warning("%s isn't reached from here: %s", root, error)
        return None


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
        return files.exists(self._at(location))

    def remove(self, location: str) -> None:
        path = self._at(location)
        files.remove(path)
        # Hadoop keeps a checksum beside each file of a local disk.
        files.remove(path.with_name(f".{path.name}.crc"))

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
            self._path = spark._jvm.org.apache.hadoop.fs.Path
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

    def read_text(self, location: str, most: int) -> str | None:
        """Read a file of at most so many bytes; None if it's longer, or isn't there."""
        with self._system(location, "can't be read") as (system, path):
            if not system.exists(path) or (size := system.getFileStatus(path).getLen()) > most:
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
