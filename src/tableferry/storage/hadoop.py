"""Access files through the Hadoop of Spark's driver, with Spark's login: HDFS, S3, ADLS and GCS.

It needs a session whose driver is this process. Paths are locations as Hadoop writes them, such as
``s3a://lake/t``, not percent-encoded.
"""

# Hadoop has no operation that creates a file only if it is missing in every file system: S3 ignores that
# request. So `Hadoop.create_text` writes through Delta's log store, which has one for each file system.

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from tableferry.errors import StateError, first_line, is_sparks
from tableferry.spark import java
from tableferry.storage.paths import hidden

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Location(str):
    """The location of a file or folder, to which ``/`` appends a name."""

    def __truediv__(self, name: str, /) -> Location:
        return Location(f"{self.rstrip('/')}/{name}")


class FileStatus(NamedTuple):
    """A file in a listing: its URI as Hadoop writes it, its bytes, and milliseconds since 1970."""

    path: str
    size: int
    modified: int


class Hadoop:
    """All file systems for which the driver has Hadoop's connector."""

    def __init__(self, spark: SparkSession) -> None:
        """Use the settings of a session.

        Raises:
            StateError: The cluster doesn't expose its Java objects.
        """
        try:
            assert spark._jvm is not None
            self._jvm: Any = spark._jvm
            self._path = self._jvm.org.apache.hadoop.fs.Path
            self._session = spark._jsparkSession
            self._conf = self._session.sessionState().newHadoopConf()
        except Exception as error:
            # Shared clusters don't expose Java objects; the exception depends on the cluster.
            if not is_sparks(error):
                raise
            raise StateError("HADOOP_OUT_OF_REACH", reason=first_line(error)) from error

    def read_text(self, path: str, most: int | None = None) -> str | None:
        """Return a file's text, or None if the file doesn't exist or has more than ``most`` bytes."""
        with self._system(path, "can't be read") as (system, at):
            if not system.exists(at):
                return None
            size = system.getFileStatus(at).getLen()
            if most is not None and size > most:
                return None
        try:
            return self.read_range(path, size, 0, size).decode()
        except UnicodeDecodeError as error:
            raise StateError("FILE_NOT_TEXT", file=path) from error

    def read_range(self, path: str, size: int, start: int, count: int) -> bytes:
        """Return ``count`` bytes of a file from an offset.

        Args:
            path: The file's location.
            size: The file's size, which saves a request to an object store.
            start: The offset.
            count: The number of bytes.
        """
        with self._system(path, "can't be read") as (system, at):
            opening = system.openFile(at).opt("fs.option.openfile.length", str(size))
            stream = opening.opt("fs.option.openfile.read.policy", "random").build().get()
            try:
                stream.seek(start)
                return bytes(stream.readNBytes(count))
            finally:
                stream.close()

    def write_text(self, path: str, text: str) -> None:
        """Replace the file by ``text``, and create its folders; HDFS shows the file while it's written."""
        with self._system(path, "can't be written") as (system, at):
            stream = system.create(at, True)
            try:
                stream.write(bytearray(text, "utf-8"))
            finally:
                stream.close()

    @property
    def can_create(self) -> bool:
        """Whether `create_text` works: whether Delta is the open-source one, and the cluster exposes it."""
        try:
            return self._log_stores() is not None
        except Exception as error:
            if not is_sparks(error):
                raise
            return False

    def create_text(self, path: str, text: str | Iterable[str]) -> bool:
        """Create the file unless it exists; at most one of several concurrent callers gets True.

        The text must end with a line feed, because Delta's log store writes lines.
        """
        whole = text if isinstance(text, str) else "".join(text)
        assert whole.endswith("\n"), f"{path} would get a line feed at its end"
        with self._system(path, "can't be written") as (system, at):
            # HDFS creates no folders here.
            system.mkdirs(at.getParent())
            # All lines are passed as one, because py4j needs a call for each item of a list.
            lines = self._jvm.java.util.List.of(whole[:-1]).iterator()
            rows = self._jvm.scala.jdk.javaapi.CollectionConverters.asScala(lines)
            try:
                self._log_stores().apply(self._session).write(at, rows, False, self._conf)
            except Exception as error:
                if not is_sparks(error) or "FileAlreadyExistsException" not in str(error):
                    raise
                return False
        return True

    def exists(self, path: str) -> bool:
        """Return whether there is such a file or folder."""
        with self._system(path, "can't be inspected") as (system, at):
            return bool(system.exists(at))

    def modified(self, path: str) -> int:
        """Return the modification time in milliseconds since 1970, UTC, by the clock of the storage."""
        with self._system(path, "can't be inspected") as (system, at):
            return int(system.getFileStatus(at).getModificationTime())

    def names(self, path: str) -> tuple[str, ...]:
        """Return a folder's visible names in order; empty if the folder doesn't exist."""
        return tuple(name for name in self.all_names(path) if not hidden(name))

    def all_names(self, path: str) -> tuple[str, ...]:
        """Return a folder's names in order, including hidden ones; empty if the folder doesn't exist."""
        return tuple(sorted(name for name, _ in self._listed(path)))

    def folders(self, path: str) -> tuple[str, ...]:
        """Return the relative paths of all folders in a folder, at any depth."""

        def inside(relative: str) -> Iterator[str]:
            for name, is_folder in self._listed(f"{path}/{relative}".rstrip("/")):
                if is_folder:
                    yield (inner := f"{relative}/{name}".lstrip("/"))
                    yield from inside(inner)

        return tuple(inside(""))

    def files(self, path: str) -> list[FileStatus]:
        """Return all files in a folder, at any depth; empty if the folder doesn't exist.

        In S3 a request lists a thousand files, in however many folders they are.
        """
        with self._system(path, "can't be listed") as (system, at):
            if not system.exists(at):
                return []
            jvm, status = self._jvm, self._jvm.org.apache.hadoop.fs.FileStatus
            found = jvm.org.apache.hadoop.util.functional.RemoteIterators.toList(system.listFiles(at, True))
            paths = java.results(jvm, found, status, "getPath", self._path._java_lang_class)
            sizes = java.numbers(jvm, found, status, "getLen")
            times = java.numbers(jvm, found, status, "getModificationTime")
            return list(map(FileStatus, java.texts(jvm, paths, self._path), sizes, times))

    def make_folder(self, path: str) -> None:
        """Create a folder and its parents."""
        with self._system(path, "can't be created") as (system, at):
            system.mkdirs(at)

    def remove(self, path: str) -> None:
        """Remove a file or a folder with its contents; do nothing if it doesn't exist."""
        with self._system(path, "can't be removed") as (system, at):
            if not system.delete(at, True) and system.exists(at):
                raise _failed(path, "can't be removed", "the file system refuses it")

    def remove_empty(self, path: str) -> None:
        """Remove a folder if it is empty."""
        if not self._listed(path):
            # This fails if another process wrote to the folder since.
            with suppress(StateError), self._system(path, "can't be removed") as (system, at):
                system.delete(at, False)

    def _listed(self, path: str) -> list[tuple[str, bool]]:
        with self._system(path, "can't be listed") as (system, at):
            if not system.exists(at):
                return []
            return [(one.getPath().getName(), one.isDirectory()) for one in system.listStatus(at)]

    def _log_stores(self) -> Any:
        """Return the object that chooses Delta's log store; None if Delta isn't the open-source one."""
        from py4j.java_gateway import JavaPackage

        stores = getattr(self._jvm.org.apache.spark.sql.delta.storage, "LogStore$")
        return None if isinstance(stores, JavaPackage) else getattr(stores, "MODULE$")

    @contextmanager
    def _system(self, path: str, failure: str) -> Iterator[tuple[Any, Any]]:
        try:
            at = self._path(path)
            yield at.getFileSystem(self._conf), at
        except Exception as error:
            if not is_sparks(error):
                raise
            raise _failed(path, failure, first_line(error)) from error


def _failed(path: str, failure: str, reason: str) -> StateError:
    return StateError("HADOOP_REQUEST_FAILED", path=path, failure=failure, reason=reason)
