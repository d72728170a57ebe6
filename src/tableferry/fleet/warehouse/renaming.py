"""Renames tables, whose files stay where they are."""

from __future__ import annotations

from collections.abc import Iterable

from tableferry.errors import Refused, TableError
from tableferry.fleet.plan import Kind
from tableferry.fleet.warehouse import hive
from tableferry.fleet.warehouse.asking import explaining
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.existing import kinds
from tableferry.fleet.warehouse.identity import change_unchanged
from tableferry.hive.sql import in_metastore
from tableferry.tables import TableName


def rename(warehouse: Warehouse, name: TableName, to: TableName, *, beside: Iterable[TableName] = ()) -> None:
    """Rename a Hive, Iceberg or Delta table; done already is fine.

    Args:
        warehouse: The warehouse.
        name: The table.
        to: Its new name.
        beside: Other tables of its migration: it's renamed only while these are what they are now, too.

    Raises:
        ClaimLost: Another worker has the job.
        TableError: There is no such table, or it may not be renamed.
        Refused: The other name is taken, or the rename would move the table's directory.
    """
    existing = kinds(warehouse, (name, to))
    match existing.get(name), existing.get(to):
        case None, None:
            raise TableError(f"there is neither {name} nor {to}: somebody else renamed or dropped it")
        case None, _:
            return
        case Kind() as kind, None:
            pass
        case _:
            raise Refused(f"{name} is to be called {to}, and that name is taken: rename or drop one of them")
    if kind is Kind.HIVE and hive.demand(warehouse, name).managed:
        raise Refused(f"{name} is managed, and its files would move with its name: make it external first")
    old, new = (warehouse.iceberg(table) if kind is Kind.ICEBERG else table for table in (name, to))
    statement = f"ALTER TABLE {old.sql} RENAME TO {in_metastore(to)}"

    with explaining(f"{name} can't be renamed to {to}", "fix the cause, and run again"):
        names = dict.fromkeys((name, to, *beside))
        change_unchanged(warehouse, names, lambda: warehouse.spark.sql(statement).collect())
        # What this session has cached under either name is of another table.
        warehouse.spark.sql(f"REFRESH TABLE {new.sql}").collect()
