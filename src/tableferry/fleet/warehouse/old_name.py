"""Lets a table's old name show the new table, where that is in another schema or catalog.

Readers go on by the old name, also with columns that come later; who writes by it is told that it's a view.
"""

from __future__ import annotations

from tableferry.errors import Refused
from tableferry.fleet.jobs.plan import Kind
from tableferry.fleet.warehouse.asking import describe
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.existing import kinds, qualified
from tableferry.fleet.warehouse.table_identity import change_if_unchanged
from tableferry.spark.catalog import explaining
from tableferry.spark.tables import TableName


def make_view(warehouse: Warehouse, name: TableName, target: TableName) -> None:
    """Make a view of all columns of a table; one that is there already is fine.

    An Iceberg table in the metastore's own catalog is named by the fleet's Iceberg catalog, which the
    sessions of readers need too.

    Raises:
        Refused: Something else has the name.
        TableError: The view may not be made.
    """
    if name in kinds(warehouse, (name,)):
        _demand_ours(warehouse, name, target)
        return
    # SCHEMA EVOLUTION: the view has the columns that the table has when it is read.
    statement = f"CREATE VIEW {name.sql} WITH SCHEMA EVOLUTION AS {_text(warehouse, target)}"
    with explaining("OLD_NAME_NOT_MADE_VIEW", view=name, target=target):
        warehouse.run(statement, of=(name,))


def demand_view(warehouse: Warehouse, name: TableName, target: TableName) -> None:
    """Make sure that a table's old name is the view of the new one, or nothing.

    Raises:
        Refused: Something else has the name.
    """
    if name in kinds(warehouse, (name,)):
        _demand_ours(warehouse, name, target)


def drop_view(warehouse: Warehouse, name: TableName, target: TableName) -> None:
    """Drop the view of a table, which may have lost its name by now; if there is none, that is fine.

    Raises:
        Refused: Something else has the name.
        TableError: The view may not be dropped.
    """
    if name not in kinds(warehouse, (name,)):
        return
    _demand_ours(warehouse, name, target)
    with explaining("TABLE_NOT_DROPPED", table=name):
        change_if_unchanged(
            warehouse, (name,), lambda: warehouse.spark.sql(f"DROP VIEW {name.sql}").collect(), of=(name,)
        )


def _demand_ours(warehouse: Warehouse, name: TableName, target: TableName) -> None:
    # An Iceberg table that isn't there any more can't be told from a Delta one.
    texts = {f"SELECT * FROM {table.sql}" for table in (target, warehouse.iceberg(target))}
    kind = kinds(warehouse, (name,))[name]
    if kind is not Kind.VIEW or describe(warehouse.spark, name).get("view_text") not in texts:
        raise Refused("OLD_NAME_TAKEN", name=name, kind=kind.description, target=target)


def _text(warehouse: Warehouse, target: TableName) -> str:
    return f"SELECT * FROM {qualified(warehouse, target).sql}"
