"""Drops the copy of a Hive table after a revert; the files that Hive reads stay."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from tableferry import files
from tableferry.catalog import SPARK_ERRORS
from tableferry.convert import overlay
from tableferry.driver import in_process
from tableferry.errors import Refused
from tableferry.fleet.job import TargetFormat
from tableferry.fleet.warehouse import versions
from tableferry.fleet.warehouse.asking import explaining
from tableferry.fleet.warehouse.context import NeedsPerson, Warehouse
from tableferry.fleet.warehouse.existing import kinds
from tableferry.hive.catalog_tables import list_tables
from tableferry.hive.locations import reachable
from tableferry.tables import TableName

# A name that nobody lists, for a log that is being removed.
_ASIDE = "_tableferry_dropped_log"


def drop_copy(warehouse: Warehouse, name: TableName, form: TargetFormat) -> None:
    """Drop an Iceberg or Delta copy; one that isn't there is fine.

    No file is removed but a Delta log that this process reaches. Iceberg's own directory stays, for after a
    probation partitions of the Hive table can lie in it.

    Raises:
        TableError: It may not be dropped.
    """
    if name not in kinds(warehouse, (name,)):
        return
    with explaining(f"{name} can't be dropped", "check your rights, and run again"):
        if form is TargetFormat.ICEBERG:
            warehouse.run(f"DROP TABLE {warehouse.iceberg(name).sql}")
        else:
            drop_delta(warehouse, name, location(warehouse, name))


def _set_aside(root: Path, expected: overlay.LogIdentity) -> None:
    """Move a log to a name that nobody lists, unless it changed since it was looked at.

    Raises:
        Refused: It did: the table was migrated again meanwhile, or written to.
    """
    if overlay.log_identity(root) != expected:
        raise Refused(f"the Delta log in {root} is another than it was a moment ago: run again")
    overlay.log_folder(root).rename(root / _ASIDE)


class WrittenBehind(NeedsPerson):
    """A copy was written to after Hive was last brought in step, and a person must see to the rows."""


def demand_unwritten(
    warehouse: Warehouse, name: TableName, form: TargetFormat, watermark: str | None, *, accept: str = ""
) -> None:
    """Make sure that a copy has no version but the one that Hive is in step with: the watermark.

    Somebody may have accepted another: `WrittenBehind.found` of the refusal.

    Raises:
        WrittenBehind: A later write to it ended.
    """
    if watermark is None or name not in kinds(warehouse, (name,)):
        return
    try:
        current = versions.current(warehouse, name, form)
    except SPARK_ERRORS:
        # Half dropped: its log is gone already.
        return
    if current not in (watermark, accept):
        raise WrittenBehind(
            f"{name} is at version {current}, and Hive has what it had at {watermark}: write the rows that "
            "the Hive table lacks into it (tableferry verify shows them), and then resume the job with "
            "--accept",
            current,
        )


def location(warehouse: Warehouse, name: TableName) -> str:
    """Return a table's location in the catalog, also if its log isn't there."""
    return list_tables(warehouse.spark, name.parts[:-1], (name.table,))[name.table.lower()].location


def drop_delta(warehouse: Warehouse, name: TableName | None, directory: str) -> None:
    """Drop the entry of a Delta table, if it has one, and remove its log if this process reaches it."""
    root = reachable(directory, same_machine=in_process(warehouse.spark))
    # The log is moved first: an entry without a log is found and dropped by the next run, a log without an
    # entry would be taken for somebody's table.
    if root is not None and overlay.log_folder(root).exists():
        warehouse.effect(partial(files.remove, root / _ASIDE))
        warehouse.effect(partial(_set_aside, root, overlay.log_identity(root)))
    if name is not None:
        warehouse.run(f"DROP TABLE {name.sql}")
    if root is not None:
        warehouse.effect(partial(files.remove, root / _ASIDE))
