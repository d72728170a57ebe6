"""Tells tables from others that have their names, and changes only those that were looked at."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeVar

from tableferry.errors import TableError
from tableferry.fleet.hive_copy.target import read_target
from tableferry.fleet.jobs.job import TargetFormat
from tableferry.fleet.jobs.plan import Kind
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.existing import Entry, entries
from tableferry.formats.hive.locations import reachable
from tableferry.spark import catalog
from tableferry.spark.driver import in_process
from tableferry.spark.tables import TableName

T = TypeVar("T")

Identity = tuple[Entry, str]
"""What tells a table from any other, of its name and in its directory too: its entry, and its log's id."""


def identities(
    warehouse: Warehouse, names: Iterable[TableName], *, anew: bool = False
) -> Mapping[TableName, Identity]:
    """Return the identity of each of some tables that exist.

    Raises:
        TableError: The schema may not be listed, or a table may not be read.
    """
    existing = entries(warehouse, names, anew=anew)
    return {name: (entry, _id(warehouse, name, entry)) for name, entry in existing.items()}


def change_unchanged(
    warehouse: Warehouse,
    names: Iterable[TableName],
    work: Callable[[], T],
    *,
    of: Collection[TableName] | None = None,
) -> T:
    """Do something to tables right after the guard, if all are still what they were when they were looked at.

    A worker that sleeps behind its last look at the claim may wake when another one has reverted the table's
    migration, and begun it again: then other tables have the same names, formats and directories.

    `of` is as in `Warehouse.effect`.

    Raises:
        ClaimLost: They aren't, as another worker has the job.
        TableError: They aren't, or they may not be looked at.
    """
    names = tuple(names)
    before = identities(warehouse, names)

    def work_if_unchanged() -> T:
        now = identities(warehouse, names, anew=True)
        if now != before:
            # If the claim was lost meanwhile, that is why.
            warehouse.guard()
            changed = ", ".join(sorted(str(name) for name in names if now.get(name) != before.get(name)))
            raise TableError("TABLE_CHANGED_DURING_STEP", tables=changed)
        return work()

    return warehouse.effect(work_if_unchanged, of=of)


def _id(warehouse: Warehouse, name: TableName, entry: Entry) -> str:
    match entry.kind:
        case Kind.ICEBERG if not entry.uuid:
            return read_target(warehouse, name, TargetFormat.ICEBERG).id
        case Kind.DELTA:
            # The log on this machine's disk says it without another question to the catalog.
            local = reachable(entry.location, same_machine=in_process(warehouse.spark))
            try:
                facts = catalog.facts(warehouse.spark, TableName.at(str(local)) if local else name)
            except TableError:
                # Its log was set aside already.
                return ""
            return facts.table_id if facts else ""
        case _:
            return entry.uuid
