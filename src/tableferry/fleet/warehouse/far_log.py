"""Writes and removes Delta logs in storage that this process reaches by Hadoop alone.

A commit is written by Delta's own log store: of two at once only one is there. With a log no commit of others
is removed. Object stores rename nothing at once, so the next version is taken first, as a writer takes it. It
asks for a protocol that nobody has: from then on no writer commits and no reader sees half a log, while all
else is removed. It goes last. A writer that has read the table before and commits after that leaves a log
without a beginning, as nothing is there that would stop it.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import partial
from typing import Any

from tableferry.convert import overlay
from tableferry.errors import StateError, first_line, is_sparks
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.storage import Hadoop
from tableferry.spark.driver import in_process

_log = logging.getLogger(__name__)

# Longer than any commit that takes a version, and shorter than most others.
_MOST_BYTES = 4096


class Written(Exception):
    """Somebody committed to the table after the version that was expected.

    Attributes:
        version: The newest one.
    """

    def __init__(self, version: str) -> None:
        """Take the version."""
        super().__init__(version)
        self.version = version


def remove(warehouse: Warehouse, location: str, expected: frozenset[str] | None) -> None:
    """Remove the log of a table at one of some versions, or at any; done already, or half, is fine.

    Where the driver has another Delta than the open one, or keeps its Java to itself, the log stays, and that
    is logged. Spark's driver is this process.

    Raises:
        ClaimLost: Another worker has the job.
        Written: It's at another version; the log is as it was.
        StateError: It can't be listed, read or removed; or another process removes it.
    """
    if (log := _Log.of(warehouse, location)) is None:
        _log.warning("a Delta log in %s is left, if one is there: it can't be removed from here", location)
        return
    newest = overlay.newest_version(log.names())
    if newest < 0:
        return
    if not log.closing(newest):
        if expected is not None and str(newest) not in expected:
            raise Written(str(newest))
        newest += 1
        log.close(newest)
    log.remove(newest)


def finish(warehouse: Warehouse, location: str) -> None:
    """Go on with the removal of a log that a run began, if one did.

    Raises:
        ClaimLost: Another worker has the job.
        StateError: It can't be listed, read or removed; or another process removes it.
    """
    log = _Log.of(warehouse, location)
    if log is not None and (newest := overlay.newest_version(log.names())) >= 0 and log.closing(newest):
        log.remove(newest)


def is_within_reach(warehouse: Warehouse, location: str) -> bool:
    """Say whether logs can be written and removed from here."""
    return _Log.of(warehouse, location) is not None


def write(warehouse: Warehouse, location: str, draft: overlay.Draft) -> None:
    """Write the first commit of a table that has no log, and that logs can be written for from here.

    Raises:
        ClaimLost: Another worker has the job.
        StateError: It can't be written, or another process wrote one.
    """
    log, text = _Log.of(warehouse, location), overlay.first_commit(draft)
    assert log is not None
    # A store may have lost its answer; and one that keeps no two drivers apart may have taken both's.
    with suppress(FileExistsError):
        log.commit(0, text)
    if log.read().first != text:
        raise StateError("DELTA_LOG_WRITTEN_CONCURRENTLY", folder=log.folder)


def read(warehouse: Warehouse, location: str) -> overlay.Log | None:
    """Read a table's log; None if that can't be done from here.

    Raises:
        StateError: It can't be read.
    """
    return log.read() if (log := _Log.of(warehouse, location)) else None


class _Log:
    def __init__(self, warehouse: Warehouse, location: str) -> None:
        self.warehouse, self.location = warehouse, location
        self.folder, self.storage = f"{location.rstrip('/')}/{overlay.LOG}", Hadoop(warehouse.spark)

    @classmethod
    def of(cls, warehouse: Warehouse, location: str) -> _Log | None:
        if not in_process(warehouse.spark):
            return None
        from py4j.java_gateway import JavaPackage

        try:
            jvm: Any = warehouse.spark._jvm
            if isinstance(jvm.org.apache.spark.sql.delta.DeltaLog, JavaPackage):
                return None
            return cls(warehouse, location)
        except Exception as error:
            # Clusters that several people share keep Java to themselves, each with an error of its own.
            if not is_sparks(error) and not isinstance(error, StateError):
                raise
            _log.debug("%s: %s", location, error)
            return None

    def names(self) -> tuple[str, ...]:
        return self.storage.names(self.folder)

    def read(self) -> overlay.Log:
        return overlay.Log(self.folder, self.names(), self.storage.read_text(self._commit(0)) or "")

    def closing(self, version: int) -> str:
        """Return the text of the commit that has taken a version; empty if another commit has it, or none."""
        text = self.storage.read_text(self._commit(version), _MOST_BYTES) or ""
        return text if overlay.is_closing(text) else ""

    def close(self, version: int) -> None:
        """Take a version, after which nobody commits."""
        try:
            self.commit(version, "\n".join(overlay.closing_commit()))
        except FileExistsError as error:
            # A store may have lost its answer; or another worker took it.
            if not self.closing(version):
                raise Written(str(version)) from error

    def commit(self, version: int, text: str) -> None:
        """Write a commit.

        Raises:
            FileExistsError: There is one of this version.
            StateError: It can't be written.
        """
        spark = self.warehouse.spark
        jvm: Any = spark._jvm

        def write(log: Any) -> None:
            if version == 0:
                # HDFS makes no directory by itself.
                log.createLogDirectoriesIfNotExists()
            # One call for all lines: a scanner is an iterator.
            lines = jvm.java.util.Scanner(text).useDelimiter("\n")
            rows = jvm.scala.jdk.javaapi.CollectionConverters.asScala(lines)
            path = jvm.org.apache.hadoop.fs.Path(self._commit(version))
            log.store().write(path, rows, False, log.newDeltaHadoopConf())

        try:
            log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, self.location)
            self.warehouse.effect(partial(write, log), of=())
        except Exception as error:
            if not is_sparks(error):
                raise
            if "FileAlreadyExistsException" in str(error):
                raise FileExistsError(self._commit(version)) from error
            raise StateError(
                "STORE_REQUEST_FAILED",
                object=self.folder,
                failure="can't be written",
                reason=first_line(error),
                advice="Check the rights of Spark's login.",
            ) from error

    def remove(self, taken: int) -> None:
        """Remove everything, the commit that has taken a version last."""
        claim, last = self.closing(taken), self._commit(taken).rpartition("/")[2]
        if not claim:
            return
        names = [*(name for name in self.names() if name != last), last]

        def remove_each() -> None:
            for name in names:
                self.warehouse.guard()
                if self.closing(taken) != claim:
                    raise StateError("DELTA_LOG_REMOVED_CONCURRENTLY", folder=self.folder)
                self.storage.remove(f"{self.folder}/{name}")

        self.warehouse.effect(remove_each)
        self.warehouse.effect(partial(self.storage.remove_empty, self.folder))

    def _commit(self, version: int) -> str:
        return f"{self.folder}/{version:020}.json"
