"""Demands that two tables hold the same rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tableferry import verify
from tableferry.catalog import SPARK_ERRORS
from tableferry.errors import Refused, TableError, first_line
from tableferry.fleet.plan import Kind
from tableferry.fleet.warehouse import versions
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.existing import kind
from tableferry.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def demand_same(
    warehouse: Warehouse, left: TableName, right: TableName, right_version: str | None = None
) -> int:
    """Hold that two tables have the same columns and rows, whatever the rows' order.

    A Hive timestamp and an Iceberg ``timestamptz`` are both instants, and compare as such; an integer that
    is wider on one side compares by its value.

    Args:
        warehouse: Where they are.
        left: A table, as it is.
        right: Another one.
        right_version: A snapshot id of it, or a version of Delta; as it is by default.

    Returns:
        How many rows each has.

    Raises:
        Refused: They differ; the message tells where.
        TableError: One of them can't be read.
    """
    try:
        verdict = verify.verify(
            frame(warehouse, left),
            frame(warehouse, right, right_version),
            source_label=str(left),
            target_label=str(right) if right_version is None else f"{right}@{right_version}",
        )
    except SPARK_ERRORS as error:
        raise TableError(
            f"{left} and {right} can't be compared ({first_line(error)}): mend the cause, and run again"
        ) from error
    if not verdict.matches:
        raise Refused(verify.render(verdict))
    return verdict.source.rows


def frame(warehouse: Warehouse, name: TableName, version: str | None = None) -> DataFrame:
    """Give a table's rows, as they are now or were at a version.

    Raises:
        TableError: There is no such table.
    """
    named = warehouse.iceberg(name) if kind(warehouse, name) is Kind.ICEBERG else name
    if version == versions.NO_SNAPSHOT:
        return warehouse.spark.table(named.sql).where("false")
    if version is not None:
        return warehouse.spark.sql(f"SELECT * FROM {named.sql} VERSION AS OF {int(version)}")
    # Another process may have written since this session listed the files.
    warehouse.spark.sql(f"REFRESH TABLE {named.sql}").collect()
    return warehouse.spark.table(named.sql)
