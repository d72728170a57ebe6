"""Identify tables by more than their names, and change them only if they are still the same."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeVar

from tableferry.errors import TableError
from tableferry.fleet.hive_copy.target import read_target
from tableferry.fleet.jobs.job import TargetFormat
from tableferry.fleet.jobs.step_plan import Kind
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.job_tables import Entry, entries
from tableferry.formats.hive.locations import reachable
from tableferry.spark import catalog
from tableferry.spark.driver import in_process
from tableferry.spark.tables import TableName

T = TypeVar("T")

Identity = tuple[Entry, str]
"""A table's catalog entry and the id in its log; another table of the same name differs in one of them."""


def read_identities(
    warehouse: Warehouse, names: Iterable[TableName], *, refresh: bool = False
) -> Mapping[TableName, Identity]:
    """Return the identity of each table that exists; ``refresh`` ignores cached catalog entries.

    Raises:
        TableError: The user may not list the schema or read a table.
    """
    existing = entries(warehouse, names, refresh=refresh)
    return {name: (entry, _id(warehouse, name, entry)) for name, entry in existing.items()}


def change_if_unchanged(
    warehouse: Warehouse,
    names: Iterable[TableName],
    work: Callable[[], T],
    *,
    of: Collection[TableName] | None = None,
) -> T:
    """Read the tables' identities, check the claim, read them again, and run a function if they are equal.

    The first identities may come from the run's cache, the second never do. A table that is missing both
    times is unchanged.

    While a worker is suspended after its last check of the claim, another worker may revert and restart the
    migration. Then other tables have the same names, formats and directories.

    Args:
        warehouse: The warehouse.
        names: The tables.
        work: The function.
        of: The tables whose catalog entries change; None for all `names`.

    Returns:
        The function's result.

    Raises:
        ClaimLost: Another worker may have the job.
        TableError: A table was created, dropped or replaced meanwhile, or the user may not read it.
    """
    names = tuple(names)
    before = read_identities(warehouse, names)

    def work_if_unchanged() -> T:
        now = read_identities(warehouse, names, refresh=True)
        if now != before:
            # If another worker has taken the job, ClaimLost is the better reason.
            warehouse.guard()
            changed = ", ".join(sorted(str(name) for name in names if now.get(name) != before.get(name)))
            raise TableError("TABLE_CHANGED_DURING_STEP", tables=changed)
        return work()

    return warehouse.effect(work_if_unchanged, of=names if of is None else of)


def _id(warehouse: Warehouse, name: TableName, entry: Entry) -> str:
    match entry.kind:
        case Kind.ICEBERG if not entry.uuid:
            return read_target(warehouse, name, TargetFormat.ICEBERG).id
        case Kind.DELTA:
            # A log on a local disk has the id, so the catalog needn't be read.
            local = reachable(entry.location, same_machine=in_process(warehouse.spark))
            try:
                facts = catalog.facts(warehouse.spark, TableName.at(str(local)) if local else name)
            except TableError:
                # The log was moved away already.
                return ""
            return facts.table_id if facts else ""
        case _:
            return entry.uuid
