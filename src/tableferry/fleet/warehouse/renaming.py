"""Gives tables other names, whose files stay where they are."""

from __future__ import annotations

from tableferry.catalog import SPARK_ERRORS
from tableferry.errors import Refused, TableError, first_line
from tableferry.fleet.plan import Kind
from tableferry.fleet.warehouse import hive
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.existing import kinds
from tableferry.hive.catalog_tables import list_tables
from tableferry.tables import DEFAULT_CATALOG, TableName


def rename(warehouse: Warehouse, name: TableName, to: TableName) -> None:
    """Rename a Hive, Iceberg or Delta table; done already is fine.

    Raises:
        TableError: There is no such table, or it may not be renamed.
        Refused: The other name is taken, or the rename would move the table's directory.
    """
    found = kinds(warehouse, (name, to))
    match found.get(name), found.get(to):
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
    old, new = (warehouse.iceberg(each) if kind is Kind.ICEBERG else each for each in (name, to))
    seen = _seen(warehouse, name, to)

    def work() -> None:
        # Who slept since it looked at its claim may find another table by that name.
        if (now := _seen(warehouse, name, to)) != seen:
            raise Refused(f"{name} isn't what it was when it was to be renamed ({now} for {seen}): run again")
        warehouse.spark.sql(f"ALTER TABLE {old.sql} RENAME TO {_in_its_catalog(name, to).sql}").collect()

    try:
        warehouse.effect(work)
        # What this session remembers of either name is of another table.
        warehouse.spark.sql(f"REFRESH TABLE {new.sql}").collect()
    except SPARK_ERRORS as error:
        raise TableError(
            f"{name} can't be renamed to {to} ({first_line(error)}): mend the cause, and run again"
        ) from error


def _seen(warehouse: Warehouse, *names: TableName) -> dict[str, tuple[str, str]]:
    """Return what the catalog says of each name that there is: its format, and where it is."""
    [schema] = {name.parts[:-1] for name in names}
    found = list_tables(warehouse.spark, schema, [name.table for name in names])
    return {name: (each.provider, each.location) for name, each in found.items()}


def _in_its_catalog(name: TableName, to: TableName) -> TableName:
    """Leave out a metastore's catalog, which a new name may not have there."""
    return TableName(to.parts[1:]) if name.parts[0] == DEFAULT_CATALOG else to
