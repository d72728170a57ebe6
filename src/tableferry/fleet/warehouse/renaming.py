"""Renames tables, whose files stay where they are."""

from __future__ import annotations

from tableferry.errors import Refused, TableError
from tableferry.fleet.plan import Kind
from tableferry.fleet.warehouse import hive
from tableferry.fleet.warehouse.asking import explaining
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.existing import kinds
from tableferry.hive.catalog_tables import list_tables
from tableferry.hive.sql import in_metastore
from tableferry.tables import TableName


def rename(warehouse: Warehouse, name: TableName, to: TableName) -> None:
    """Rename a Hive, Iceberg or Delta table; done already is fine.

    Raises:
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
    before = _entries(warehouse, name, to)

    def rename_unchanged() -> None:
        # A worker that slept since it looked at its claim may find another table by that name.
        if (now := _entries(warehouse, name, to)) != before:
            raise Refused(
                f"{name} isn't what it was when it was to be renamed ({now} for {before}): run again"
            )
        warehouse.spark.sql(f"ALTER TABLE {old.sql} RENAME TO {in_metastore(to)}").collect()

    with explaining(f"{name} can't be renamed to {to}", "fix the cause, and run again"):
        warehouse.effect(rename_unchanged)
        # What this session has cached under either name is of another table.
        warehouse.spark.sql(f"REFRESH TABLE {new.sql}").collect()


def _entries(warehouse: Warehouse, *names: TableName) -> dict[str, tuple[str, str]]:
    """Return the format and the location that the catalog has for each of some tables that exist."""
    [schema] = {name.parts[:-1] for name in names}
    entries = list_tables(warehouse.spark, schema, [name.table for name in names])
    return {name: (entry.provider, entry.location) for name, entry in entries.items()}
