"""Makes a managed table external, and managed again: an external table's directory stays when it is renamed.

Spark's SQL refuses to (the property EXTERNAL is its own), so the metastore's client does it, through the JVM
of this process. Where there is none, as through Spark Connect or on serverless compute, it is refused.
"""

from __future__ import annotations

from typing import Any

from tableferry.errors import Refused
from tableferry.fleet.jobs.plan import Kind
from tableferry.fleet.warehouse import hive, metastore
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.existing import entries
from tableferry.fleet.warehouse.table_identity import change_if_unchanged
from tableferry.spark.tables import TableName


def is_managed(warehouse: Warehouse, name: TableName) -> bool:
    """Say whether dropping a Hive table removes its files, and renaming it moves them.

    Raises:
        TableError: There is no such table.
        Refused: It isn't Hive's.
    """
    entry = entries(warehouse, (name,)).get(name)
    # For what there isn't, or isn't Hive's, it has the words.
    return entry.managed if entry and entry.kind is Kind.HIVE else hive.demand(warehouse, name).managed


def set_managed(warehouse: Warehouse, name: TableName, *, managed: bool) -> bool:
    """Make a table managed, or external; True if it wasn't.

    Raises:
        TableError: There is no such table, or it may not be changed.
        Refused: It isn't, and no JVM of this process reaches its metastore.
    """
    if is_managed(warehouse, name) is managed:
        return False
    if not metastore.reached(warehouse.spark, name):
        raise Refused("MANAGED_TABLE_OUT_OF_REACH", table=name)

    def change(entry: Any) -> None:
        entry.setTableType("MANAGED_TABLE" if managed else "EXTERNAL_TABLE")
        if managed:
            entry.getParameters().remove("EXTERNAL")
        else:
            entry.putToParameters("EXTERNAL", "TRUE")

    change_if_unchanged(warehouse, (name,), lambda: metastore.alter(warehouse.spark, name, change))
    return True
