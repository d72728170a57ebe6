"""Tells tables from others that have their names, and changes only those that were looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

from tableferry import catalog
from tableferry.errors import TableError
from tableferry.fleet.job import TargetFormat
from tableferry.fleet.plan import Kind
from tableferry.fleet.warehouse import asking
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.existing import kinds
from tableferry.fleet.warehouse.shadow.late.record import FILES
from tableferry.fleet.warehouse.shadow.target import read_target
from tableferry.hive.catalog_tables import list_tables
from tableferry.tables import TableName

T = TypeVar("T")

# When a Hive table was last altered or renamed, and which switch it went through.
_HIVE_PROPERTIES = ("transient_lastDdlTime", FILES)


class Identity(NamedTuple):
    """What tells a table from any other, of its name and in its directory too.

    Attributes:
        kind: What it is.
        location: Its directory.
        created: When its entry was made, as the catalog spells it.
        id: The UUID of an Iceberg table, the id of a Delta log, or when a Hive table's entry last changed.
    """

    kind: Kind
    location: str
    created: str
    id: str


def identities(warehouse: Warehouse, names: Iterable[TableName]) -> Mapping[TableName, Identity]:
    """Return the identity of each of some tables of one schema that exist.

    Raises:
        TableError: The schema may not be listed, or a table may not be read.
    """
    existing = kinds(warehouse, names)
    if not existing:
        return {}
    [schema] = {name.parts[:-1] for name in existing}
    entries = list_tables(warehouse.spark, schema, [name.table for name in existing])
    return {
        name: Identity(kind, entry.location, entry.created, _id(warehouse, name, kind))
        for name, kind in existing.items()
        # It may have gone just now.
        if (entry := entries.get(name.table.lower()))
    }


def change_unchanged(warehouse: Warehouse, names: Iterable[TableName], work: Callable[[], T]) -> T:
    """Do something to tables right after the guard, if all are still what they are now.

    A worker that sleeps behind its last look at the claim may wake when another one has reverted the table's
    migration, and begun it again: then other tables have the same names, formats and directories.

    Raises:
        ClaimLost: They aren't, as another worker has the job.
        TableError: They aren't, or they may not be looked at.
    """
    names = tuple(names)
    before = identities(warehouse, names)

    def work_if_unchanged() -> T:
        now = identities(warehouse, names)
        if now != before:
            # If the claim was lost meanwhile, that is why.
            warehouse.guard()
            changed = ", ".join(sorted(str(name) for name in names if now.get(name) != before.get(name)))
            raise TableError(
                f"{changed} was made anew or altered while it was about to be changed here: run again, which "
                "looks at it anew"
            )
        return work()

    return warehouse.effect(work_if_unchanged)


def _id(warehouse: Warehouse, name: TableName, kind: Kind) -> str:
    match kind:
        case Kind.ICEBERG:
            return read_target(warehouse, name, TargetFormat.ICEBERG).id
        case Kind.DELTA:
            try:
                facts = catalog.facts(warehouse.spark, name)
            except TableError:
                # Its log was set aside already.
                return ""
            return facts.table_id if facts else ""
        case Kind.HIVE:
            properties = asking.properties(warehouse.spark, name)
            return " ".join(properties.get(key, "") for key in _HIVE_PROPERTIES)
        case _:
            return ""
