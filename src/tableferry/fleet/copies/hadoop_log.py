"""Write, read and remove Delta logs in storage that this process reaches only through Hadoop.

Delta's own log store creates the commits, so one of several concurrent writers succeeds. A log is removed as
`tableferry.formats.delta.log_removal` describes, so other writers' commits are never removed.
"""

from __future__ import annotations

import logging
from functools import partial

from tableferry.convert import overlay
from tableferry.errors import StateError
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.formats.delta.log_removal import Log, new_claim
from tableferry.spark.driver import in_process
from tableferry.storage.hadoop import Hadoop, Location

_log = logging.getLogger(__name__)


class NewerCommit(Exception):
    """Another process committed to the table after the expected version.

    Attributes:
        version: The newest version.
    """

    def __init__(self, version: str) -> None:
        """Take the version."""
        super().__init__(version)
        self.version = version


def remove(warehouse: Warehouse, location: str, expected: frozenset[str] | None) -> None:
    """Remove the log of a table, unless it is removed already; continue an interrupted removal.

    If the driver's Delta isn't the open-source one, or its Java objects aren't exposed, the log stays, and a
    warning is logged.

    Args:
        warehouse: The tables; Spark's driver is this process.
        location: The table's directory.
        expected: The versions at which the log is removed; None for any version.

    Raises:
        ClaimLost: Another worker has the job.
        NewerCommit: The table is at another version; the log is unchanged.
        StateError: The log can't be listed, read or removed, or another process removes it.
    """
    if (log := _log_of(warehouse, location)) is None:
        _log.warning("a Delta log in %s may be left, because this process can't remove it", location)
        return
    newest = _newest(log)
    if newest < 0:
        return
    if claim := log.claim_of(newest):
        _remove(warehouse, log, newest, claim)
        return
    if expected is not None and str(newest) not in expected:
        raise NewerCommit(str(newest))
    taken = newest + 1
    if not (claim := warehouse.effect(partial(log.create_claim, taken, new_claim()), of=())):
        raise NewerCommit(str(taken))
    _remove(warehouse, log, taken, claim)


def finish(warehouse: Warehouse, location: str) -> None:
    """Finish an interrupted removal of a log, if there is one.

    Raises:
        ClaimLost: Another worker has the job.
        StateError: The log can't be listed, read or removed, or another process removes it.
    """
    log = _log_of(warehouse, location)
    if log is not None and (newest := _newest(log)) >= 0 and (claim := log.claim_of(newest)):
        _remove(warehouse, log, newest, claim)


def is_within_reach(warehouse: Warehouse, location: str) -> bool:
    """Return whether this process can write and remove logs."""
    return _log_of(warehouse, location) is not None


def write(warehouse: Warehouse, location: str, draft: overlay.Draft) -> None:
    """Write the first commit of a table without a log; `is_within_reach` must be True.

    Raises:
        ClaimLost: Another worker has the job.
        StateError: The commit can't be written, or another process wrote one.
    """
    log, text = _log_of(warehouse, location), overlay.first_commit(draft)
    assert log is not None
    first = log.commit(0)
    # The result isn't reliable: the storage may have lost the response to the process that wrote the commit,
    # or may have accepted the commits of two processes.
    warehouse.effect(partial(log.storage.create_text, first, text), of=())
    if log.storage.read_text(first) != text:
        raise StateError("LOG_WRITTEN_BY_ANOTHER_PROCESS", log=log.folder)


def read(warehouse: Warehouse, location: str) -> overlay.Log | None:
    """Read a table's log; return None if this process can't.

    Raises:
        StateError: The log can't be read.
    """
    if (log := _log_of(warehouse, location)) is None:
        return None
    names = log.storage.all_names(log.folder)
    return overlay.Log(log.folder, names, log.storage.read_text(log.commit(0)) or "")


def _log_of(warehouse: Warehouse, location: str) -> Log[Location] | None:
    if not in_process(warehouse.spark):
        return None
    try:
        hadoop = Hadoop(warehouse.spark)
    except StateError as error:
        _log.debug("%s: %s", location, error.one_line)
        return None
    return Log(hadoop, Location(location) / overlay.LOG) if hadoop.can_create else None


def _newest(log: Log[Location]) -> int:
    return overlay.newest_version(log.storage.all_names(log.folder))


def _remove(warehouse: Warehouse, log: Log[Location], version: int, claim: str) -> None:
    if not warehouse.effect(partial(log.remove, version, claim, warehouse.guard)):
        raise StateError("LOG_REMOVED_BY_ANOTHER_PROCESS", log=log.folder)
    warehouse.effect(partial(Hadoop(warehouse.spark).remove_empty, log.folder))
