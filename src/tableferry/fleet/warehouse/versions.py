"""Which version of a target is the current one."""

from __future__ import annotations

from tableferry.fleet.job import TargetFormat
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.tables import TableName


def current(warehouse: Warehouse, table: TableName, form: TargetFormat) -> str | None:
    """Return an Iceberg table's snapshot id or a Delta table's version, as text; None before the first."""
    spark = warehouse.spark
    if form is TargetFormat.ICEBERG:
        refs = f"{warehouse.iceberg(table).sql}.refs"
        rows = spark.sql(f"SELECT snapshot_id AS version FROM {refs} WHERE name = 'main'").collect()
    else:
        rows = spark.sql(f"DESCRIBE HISTORY {table.sql} LIMIT 1").select("version").collect()
    return str(rows[0]["version"]) if rows else None
