"""Removes a Delta log from storage that this process reaches by Hadoop alone, and no commit with it.

Object stores rename nothing at once. So the next version is taken first, by Delta's own log store: of that
and a writer's commit only one is there, as of any two commits. It asks for a protocol that nobody has: from
then on no writer commits and no reader sees half a log, while all else is removed. It goes last. A writer
that has read the table before and commits after that leaves a log without a beginning, as nothing is there
that would stop it.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

from tableferry.convert import overlay
from tableferry.errors import StateError, first_line, is_sparks
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.storage import Hadoop

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


class _Log:
    def __init__(self, warehouse: Warehouse, location: str) -> None:
        self.warehouse, self.location = warehouse, location
        self.folder, self.storage = f"{location.rstrip('/')}/{overlay.LOG}", Hadoop(warehouse.spark)

    @classmethod
    def of(cls, warehouse: Warehouse, location: str) -> _Log | None:
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

    def closing(self, version: int) -> str:
        """Return the text of the commit that has taken a version; empty if another commit has it, or none."""
        text = self.storage.read_text(self._commit(version), _MOST_BYTES) or ""
        return text if overlay.is_closing(text) else ""

    def close(self, version: int) -> None:
        """Take a version, after which nobody commits."""
        spark = self.warehouse.spark
        jvm: Any = spark._jvm

        def write(log: Any) -> None:
            lines = jvm.java.util.ArrayList()
            for line in overlay.closing_commit():
                lines.add(line)
            rows = jvm.scala.jdk.javaapi.CollectionConverters.asScala(lines.iterator())
            path = jvm.org.apache.hadoop.fs.Path(self._commit(version))
            log.store().write(path, rows, False, log.newDeltaHadoopConf())

        try:
            log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, self.location)
            self.warehouse.effect(partial(write, log))
        except Exception as error:
            if not is_sparks(error):
                raise
            if "FileAlreadyExistsException" not in str(error):
                raise StateError(
                    f"{self.folder} can't be written ({first_line(error)}): check the rights of Spark's login"
                ) from error
            # A store may have lost its answer; or another worker took it.
            if not self.closing(version):
                raise Written(str(version)) from error

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
                    raise StateError(
                        f"{self.folder} is being removed by another process, or was: run again to look at it "
                        "anew"
                    )
                self.storage.remove(f"{self.folder}/{name}")

        self.warehouse.effect(remove_each)
        self.warehouse.effect(partial(self.storage.remove_empty, self.folder))

    def _commit(self, version: int) -> str:
        return f"{self.folder}/{version:020}.json"
