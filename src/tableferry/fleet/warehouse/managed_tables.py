"""Make a managed table external, so that a rename doesn't move its directory, and managed again.

Spark's SQL reserves the property EXTERNAL, so the metastore's client in this process's JVM changes the table.
Spark Connect and serverless compute have no such JVM, so the change is refused there.
"""

from __future__ import annotations

from typing import Any

from tableferry.errors import Refused
from tableferry.fleet.hive_tables import metastore
from tableferry.fleet.jobs.plan import Kind
from tableferry.fleet.warehouse import hive
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.job_tables import entries
from tableferry.fleet.warehouse.table_identity import change_if_unchanged
from tableferry.spark.tables import TableName


def is_managed(warehouse: Warehouse, name: TableName) -> bool:
    """Return whether a Hive table is managed: DROP removes its files, and RENAME moves them.

    Raises:
        TableError: The table doesn't exist.
        Refused: It isn't a Hive table.
    """
    entry = entries(warehouse, (name,)).get(name)
    return (
        entry.managed
        if entry and entry.kind is Kind.HIVE
        else hive.require_hive_table(warehouse, name).managed
    )


def set_managed(warehouse: Warehouse, name: TableName, *, managed: bool) -> bool:
    """Make a table managed or external; return whether that changed it.

    Raises:
        TableError: The table doesn't exist, or the user may not change it.
        Refused: A change is needed, and this process's JVM can't access the metastore.
    """
    if is_managed(warehouse, name) is managed:
        return False
    if not metastore.is_reachable(warehouse.spark, name):
        raise Refused("MANAGED_TABLE_OUT_OF_REACH", table=name)

    def change(entry: Any) -> None:
        entry.setTableType("MANAGED_TABLE" if managed else "EXTERNAL_TABLE")
        if managed:
            entry.getParameters().remove("EXTERNAL")
        else:
            entry.putToParameters("EXTERNAL", "TRUE")

    change_if_unchanged(warehouse, (name,), lambda: metastore.alter(warehouse.spark, name, change))
    return True
