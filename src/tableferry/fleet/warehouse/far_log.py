"""Removes a Delta log from storage that this process reaches by Hadoop alone, and no commit with it.

Object stores rename nothing at once. So the next version is taken first, by Delta's own log store: of that
and a writer's commit only one is there. It asks for a protocol that nobody has: after it no writer commits,
and no reader sees half a log, while all else is removed. It goes last.
"""

from __future__ import annotations

import logging
import re
from functools import partial
from typing import Any

from tableferry.convert import overlay
from tableferry.errors import StateError, first_line, is_sparks
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.storage import Hadoop

_log = logging.getLogger(__name__)

_COMMIT = re.compile(r"(\d{20})\.json")


class Written(Exception):
    """Somebody committed to the table after the version that was expected.

    Attributes:
        version: The newest one.
    """

    def __init__(self, version: str) -> None:
        super().__init__(version)
        self.version = version


def remove(warehouse: Warehouse, location: str, expected: frozenset[str] | None) -> None:
    """Remove the log of a table at one of some versions, or at any; done already, or half, is fine.

    Where the driver has another Delta than the open one the log stays, and that is logged.

    Raises:
        Written: It's at another version; the log is as it was.
        StateError: It can't be listed, read or removed.
    """
    storage, folder = Hadoop(warehouse.spark), f"{location.rstrip('/')}/{overlay.LOG}"
    versions = [int(match[1]) for name in storage.names(folder) if (match := _COMMIT.fullmatch(name))]
    if not versions:
        return
    newest = max(versions)
    if not overlay.is_closing(storage.read_text(f"{folder}/{_name(newest)}")):
        if expected is not None and str(newest) not in expected:
            raise Written(str(newest))
        if not _take(warehouse, location, folder, newest + 1):
            return
        newest += 1
    others = [name for name in storage.names(folder) if name != _name(newest)]

    def remove_all() -> None:
        for name in others:
            storage.remove(f"{folder}/{name}")
        storage.remove(folder)

    warehouse.effect(remove_all)


def _take(warehouse: Warehouse, location: str, folder: str, version: int) -> bool:
    """Commit what lets nobody commit any more; False if only another Delta could.

    Raises:
        Written: A writer's commit has that version.
        StateError: It can't be written.
    """
    from py4j.java_gateway import JavaPackage

    spark = warehouse.spark
    jvm = spark._jvm
    assert jvm is not None
    if isinstance(jvm.org.apache.spark.sql.delta.DeltaLog, JavaPackage):
        _log.warning("%s is left, as this compute's Delta can't be asked to remove it", folder)
        return False
    lines = jvm.java.util.ArrayList()
    for line in overlay.closing_commit():
        lines.add(line)

    def write(log: Any) -> None:
        rows = jvm.scala.jdk.javaapi.CollectionConverters.asScala(lines.iterator())
        path = jvm.org.apache.hadoop.fs.Path(f"{folder}/{_name(version)}")
        log.store().write(path, rows, False, log.newDeltaHadoopConf())

    try:
        log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, location)
        warehouse.effect(partial(write, log))
    except Exception as error:
        if not is_sparks(error):
            raise
        if "FileAlreadyExistsException" in str(error):
            raise Written(str(version)) from error
        raise StateError(f"{folder} can't be written ({first_line(error)}): check your rights") from error
    return True


def _name(version: int) -> str:
    return f"{version:020}.json"
