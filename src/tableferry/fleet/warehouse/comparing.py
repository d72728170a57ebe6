"""Demands that two tables hold the same rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tableferry import verify
from tableferry.errors import Refused
from tableferry.fleet.warehouse import versions
from tableferry.fleet.warehouse.asking import explaining
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.existing import qualified
from tableferry.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def demand_same(
    warehouse: Warehouse, left: TableName, right: TableName, right_version: str | None = None
) -> int:
    """Make sure that two tables have the same columns and rows, in any order; return how many rows.

    A Hive timestamp and an Iceberg ``timestamptz`` are both instants, and compare as such; an integer that
    is wider on one side compares by its value. The right table is read at a snapshot id, or a version of
    Delta, if one is given.

    Raises:
        Refused: They differ; the message says where.
        TableError: One of them can't be read.
    """
    with explaining(f"{left} and {right} can't be compared", "fix the cause, and run again"):
        verdict = verify.verify(
            rows(warehouse, left),
            rows(warehouse, right, right_version),
            source_label=str(left),
            target_label=str(right) if right_version is None else f"{right}@{right_version}",
        )
    if not verdict.matches:
        raise Refused(verify.render(verdict))
    return verdict.source.rows


def rows(warehouse: Warehouse, name: TableName, version: str | None = None) -> DataFrame:
    """Return a table's rows, as they are now or were at a version.

    Raises:
        TableError: There is no such table.
    """
    table = qualified(warehouse, name)
    if version == versions.NO_SNAPSHOT:
        return warehouse.spark.table(table.sql).where("false")
    if version is not None:
        return warehouse.spark.sql(f"SELECT * FROM {table.sql} VERSION AS OF {int(version)}")
    # Another process may have written since this session listed the files.
    warehouse.spark.sql(f"REFRESH TABLE {table.sql}").collect()
    return warehouse.spark.table(table.sql)
