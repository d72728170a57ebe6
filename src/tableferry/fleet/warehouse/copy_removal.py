"""Drops the copy of a Hive table after a revert; the files that Hive reads stay.

A table of the copy's name that was made by somebody else stays as well.
What is dropped is looked at twice: before, and when it has a name by which no writer finds it any more. If
somebody wrote to it in between, it gets its name back.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from functools import partial
from pathlib import Path

from tableferry import storage
from tableferry.convert import overlay
from tableferry.errors import Refused
from tableferry.fleet.jobs.job import TargetFormat
from tableferry.fleet.jobs.names import dropped_name
from tableferry.fleet.warehouse import asking, far_log, hive, renaming, versions
from tableferry.fleet.warehouse.context import NeedsPerson, Warehouse
from tableferry.fleet.warehouse.existing import Entry, entries, is_made_of
from tableferry.fleet.warehouse.identity import change_unchanged
from tableferry.fleet.warehouse.progress_properties import ROOT
from tableferry.formats.hive.catalog_tables import list_tables
from tableferry.formats.hive.locations import reachable, split
from tableferry.spark.catalog import SPARK_ERRORS, explaining
from tableferry.spark.driver import in_process
from tableferry.spark.tables import TableName

_log = logging.getLogger(__name__)

# A name that nobody lists, for a log that is being removed.
_ASIDE = "_tableferry_dropped_log"


class WrittenBehind(NeedsPerson):
    """A copy was written to after Hive was last brought in step, and a person must see to the rows."""


def drop_copy(
    warehouse: Warehouse,
    source: TableName,
    name: TableName,
    form: TargetFormat,
    watermark: str | None = None,
    *,
    accept: str = "",
) -> None:
    """Drop an Iceberg or Delta copy that has no version which Hive hasn't got; one that isn't there is fine.

    No file is removed but a Delta log, if this process reaches it. Iceberg's own directory stays, for after a
    probation partitions of the Hive table can lie in it. A table of the copy's name that wasn't made of the
    Hive table stays as it is.

    Args:
        warehouse: The warehouse.
        source: The Hive table that it was made of.
        name: The copy.
        form: Its format.
        watermark: The version that Hive is in step with; None if nobody knows.
        accept: The version that somebody has accepted: `WrittenBehind.found` of the refusal.

    Raises:
        WrittenBehind: A later write to it ended; it is as it was.
        Refused: Its files, which Hive reads, would go with it.
        TableError: It may not be dropped.
    """
    expected = frozenset(version for version in (watermark, accept) if version) if watermark else None
    with explaining("TABLE_NOT_DROPPED", table=name):
        existing = entries(warehouse, (name, dropped_name(name)))
        copies = {
            copy
            for copy, entry in existing.items()
            if _is_made_of(warehouse, source, copy, entry, form, is_noted=watermark is not None)
        }
        for other in existing.keys() - copies:
            words = existing[other].kind.description
            _log.warning("%s is %s that wasn't made of %s, and stays as it is", other, words, source)
        if form is TargetFormat.ICEBERG:
            _drop_iceberg(warehouse, name, copies, expected)
        elif name in copies:
            renaming.demand_files_stay(name, existing[name])
            directory = location(warehouse, name)
            # Before the version is looked at: a commit that comes in between makes it another log.
            log = _log_of(_reachable(warehouse, directory))
            seen = _demand_version(warehouse, name, form, expected)
            if log is None and seen:
                expected = expected or frozenset((seen,))
            _drop_delta(warehouse, name, directory, log, expected)


def _is_made_of(
    warehouse: Warehouse,
    source: TableName,
    name: TableName,
    entry: Entry,
    form: TargetFormat,
    *,
    is_noted: bool,
) -> bool:
    """Say whether a table was made of a Hive table, by this fleet.

    Args:
        warehouse: The warehouse.
        source: The Hive table.
        name: The table.
        entry: What the catalog says of it.
        form: Which format it would have.
        is_noted: Whether the job knows a version of its copy, so that it has made one.
    """
    directories: list[str] = []
    if form is TargetFormat.DELTA:
        # What probation wrote for Hive may lie elsewhere by now.
        first = asking.properties(warehouse.spark, source).get(ROOT, "")
        directories = [hive.layout(warehouse, source).location, first]
    if not is_made_of(warehouse, source, name, entry, form, directories):
        return False
    if is_noted or split(entry.location) not in map(split, directories):
        return True
    try:
        history = warehouse.spark.sql(f"DESCRIBE HISTORY {name.sql}").where("version = 0")
        return [row[0] for row in history.select("userMetadata").collect()] == [overlay.MARK]
    except SPARK_ERRORS:
        if overlay.has_log(warehouse.spark, entry.location):
            raise
        # Half dropped: its log is gone already.
        return True


def location(warehouse: Warehouse, name: TableName) -> str:
    """Return a table's location in the catalog, also if its log isn't there."""
    return list_tables(warehouse.spark, name.parts[:-1], (name.table,))[name.table.lower()].location


def drop_delta(warehouse: Warehouse, name: TableName | None, directory: str) -> None:
    """Drop the entry of a Delta table, if it has one, and remove its log if this process reaches it."""
    _drop_delta(warehouse, name, directory, _log_of(_reachable(warehouse, directory)), None)


def _drop_iceberg(
    warehouse: Warehouse, name: TableName, copies: Collection[TableName], expected: frozenset[str] | None
) -> None:
    aside, form = dropped_name(name), TargetFormat.ICEBERG
    if name in copies:
        seen = _demand_version(warehouse, name, form, expected)
        expected = expected or frozenset((seen,))
        # A writer that has it open finds it by this name no more, and fails.
        renaming.rename(warehouse, name, aside)
    elif aside not in copies:
        return
    try:
        _demand_version(warehouse, aside, form, expected)
    except WrittenBehind:
        renaming.rename(warehouse, aside, name)
        raise
    statement = f"DROP TABLE {warehouse.iceberg(aside).sql}"
    change_unchanged(warehouse, (aside,), lambda: warehouse.spark.sql(statement).collect())


def _demand_version(
    warehouse: Warehouse, name: TableName, form: TargetFormat, expected: frozenset[str] | None
) -> str:
    """Make sure that a copy is at one of some versions, and return at which; empty if it has no log.

    Raises:
        WrittenBehind: It isn't.
    """
    try:
        current = versions.current(warehouse, name, form)
    except SPARK_ERRORS:
        if form is TargetFormat.ICEBERG:
            raise
        # Half dropped: its log is gone already.
        return ""
    if expected is not None and current not in expected:
        raise _written(str(name), current, expected)
    return current


def _drop_delta(
    warehouse: Warehouse,
    name: TableName | None,
    directory: str,
    log: overlay.LogIdentity | None,
    expected: frozenset[str] | None,
) -> None:
    # The log is moved first: an entry without a log is found and dropped by the next run, a log without an
    # entry would be taken for somebody's table.
    root = _reachable(warehouse, directory)
    if root is None and in_process(warehouse.spark):
        try:
            far_log.remove(warehouse, directory, expected)
        except far_log.Written as error:
            if expected is None:
                raise _another(directory) from error
            raise _written(f"the Delta table in {directory}", error.version, expected) from error
    if root is not None:
        if log is not None:
            warehouse.effect(partial(storage.remove, root / _ASIDE))
            warehouse.effect(partial(_set_aside, root, log))
        _demand_aside(root, log, expected)
    if name is not None:
        change_unchanged(warehouse, (name,), lambda: warehouse.spark.sql(f"DROP TABLE {name.sql}").collect())
    if root is not None:
        warehouse.effect(partial(storage.remove, root / _ASIDE))


def _set_aside(root: Path, expected: overlay.LogIdentity) -> None:
    """Move a log to a name that nobody lists, unless it changed since it was looked at.

    Raises:
        Refused: It did: the table was migrated again meanwhile, or written to.
    """
    if overlay.log_identity(root) != expected:
        raise _another(str(root))
    overlay.log_folder(root).rename(root / _ASIDE)


def _demand_aside(root: Path, log: overlay.LogIdentity | None, expected: frozenset[str] | None) -> None:
    """Look again at a log that was set aside, by this run or by one that died, and put it back if it changed.

    Raises:
        WrittenBehind: A write ended after it was looked at.
    """
    names = storage.names(root / _ASIDE)
    if expected is None and log is not None:
        expected = frozenset((str(overlay.newest_version(log.names)),))
    version = str(overlay.newest_version(names))
    if names and expected is not None and version not in expected:
        if not overlay.log_folder(root).exists():
            (root / _ASIDE).rename(overlay.log_folder(root))
        raise _written(f"the Delta table in {root}", version, expected)


def _written(copy: str, version: str, expected: frozenset[str]) -> WrittenBehind:
    return WrittenBehind(
        "COPY_WRITTEN_AFTER_SYNC",
        version,
        table=copy,
        version=version,
        expected=" or ".join(sorted(expected)),
    )


def _another(directory: str) -> Refused:
    return Refused("DELTA_LOG_REPLACED", folder=directory)


def _reachable(warehouse: Warehouse, directory: str) -> Path | None:
    return reachable(directory, same_machine=in_process(warehouse.spark))


def _log_of(root: Path | None) -> overlay.LogIdentity | None:
    """Return what tells a log from any other; None if this process sees none."""
    if root is None or not overlay.log_folder(root).exists():
        return None
    return overlay.log_identity(root)
