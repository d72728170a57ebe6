"""Rename tables without moving their files."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext

from tableferry.errors import Refused, TableError
from tableferry.fleet.jobs.plan import Kind
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.job_tables import Entry, entries
from tableferry.fleet.warehouse.table_identity import change_if_unchanged
from tableferry.spark.catalog import explaining
from tableferry.spark.tables import DEFAULT_CATALOG, METASTORES, TableName


def rename(warehouse: Warehouse, name: TableName, to: TableName, *, beside: Iterable[TableName] = ()) -> None:
    """Rename a Hive, Iceberg or Delta table, unless that was done already.

    Args:
        warehouse: The warehouse.
        name: The table.
        to: Its new name.
        beside: Other tables of its migration, which must not change before the rename.

    Raises:
        ClaimLost: Another worker has the job.
        TableError: The table doesn't exist, or the user may not rename it.
        Refused: The new name is taken, or the rename would move the table's directory.
    """
    names = tuple(dict.fromkeys((name, to, *beside)))
    existing = entries(warehouse, names)
    match existing.get(name), existing.get(to):
        case None, None:
            raise TableError("TABLE_TO_RENAME_MISSING", table=name, name=to)
        case None, _:
            return
        case Entry() as entry, None:
            pass
        case _:
            raise Refused("NEW_NAME_TAKEN", table=name, name=to)
    require_fixed_location(name, entry)
    statement = rename_statement(warehouse, entry.kind, name, to)

    def alter() -> None:
        with warehouse.table_cache.keep_renamed(name, to) if warehouse.table_cache else nullcontext():
            warehouse.spark.sql(statement).collect()
            if entry.kind is Kind.ICEBERG:
                # The Iceberg catalog may have cached an earlier table with the new name.
                warehouse.spark.sql(f"REFRESH TABLE {warehouse.iceberg(to).sql}").collect()

    with explaining("TABLE_NOT_RENAMED", table=name, name=to):
        change_if_unchanged(warehouse, names, alter, of=())


def rename_statement(warehouse: Warehouse, kind: Kind, name: TableName, to: TableName) -> str:
    """Return the statement that renames a table or a view."""
    old = warehouse.iceberg(name) if kind is Kind.ICEBERG else name
    word = "VIEW" if kind is Kind.VIEW else "TABLE"
    return f"ALTER {word} {old.sql} RENAME TO {_in_its_catalog(warehouse, to).sql}"


def require_fixed_location(name: TableName, entry: Entry) -> None:
    """Check that a rename doesn't move the table's files, which other tables read.

    A Delta table is managed by the metastore if it was recreated without a location.

    Raises:
        Refused: The table is managed.
    """
    own = entry.kind is Kind.HIVE or (entry.kind is Kind.DELTA and name.parts[0] in METASTORES)
    if own and entry.managed:
        raise Refused("MANAGED_TABLE_WOULD_MOVE", table=name)


def _in_its_catalog(warehouse: Warehouse, name: TableName) -> TableName:
    """Return a table's new name in the form that its catalog accepts.

    Catalogs that the session configures read the catalog's name as a part of the schema. Unity Catalog
    resolves a name without a catalog in the current catalog.
    """
    catalog, *rest = name.parts
    configured = warehouse.spark.conf.get(f"spark.sql.catalog.{catalog}", None) is not None
    return TableName(tuple(rest)) if configured or catalog == DEFAULT_CATALOG else name
