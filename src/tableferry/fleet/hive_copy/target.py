"""The new table, Delta or Iceberg, at one version."""

from __future__ import annotations

from tableferry.fleet.hive_copy.delta_changes import DeltaTarget
from tableferry.fleet.hive_copy.iceberg_changes import IcebergTarget
from tableferry.fleet.jobs.job import TargetFormat
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.spark.tables import TableName

Target = DeltaTarget | IcebergTarget


def read_target(warehouse: Warehouse, name: TableName, form: TargetFormat) -> Target:
    """Read a table's newest version.

    Raises:
        TableError: There is no such table, or it may not be read.
    """
    if form is TargetFormat.ICEBERG:
        return IcebergTarget.read(warehouse.spark, warehouse.iceberg(name))
    return DeltaTarget.read(warehouse.spark, name)
