"""List a table's partitions and their locations from the catalog."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tableferry.formats.hive import session_catalog
from tableferry.formats.hive.locations import below
from tableferry.formats.hive.partitions import (
    NULL,
    CatalogPartition,
    PartitionColumn,
    same_values,
    split_spec,
)
from tableferry.spark.catalog import explaining, parallel_map
from tableferry.spark.quoting import literal, quote
from tableferry.spark.settings import FEW_LISTING_TASKS, WHOLE_PLANS, optional_settings
from tableferry.spark.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Three sources give the locations of partitions:
#
# - The session catalog returns all partitions in one call, if Spark's driver is this process.
# - The plan of a query over all partitions contains all locations, in the order of SHOW PARTITIONS. To make
#   the plan, Spark lists the files of all partitions.
# - DESCRIBE returns one location per statement. With a local metastore that takes about 70 ms, too slow for
#   10,000 partitions. So it is used only for partitions that the plan doesn't confirm.
_LOCATIONS = re.compile(r"Location: \w+\(\d+ paths?\)\[(.*)\], PartitionFilters: ", re.DOTALL)


def list_partitions(
    spark: SparkSession, table: TableName, root: str, columns: Sequence[PartitionColumn]
) -> list[CatalogPartition]:
    """Return a partitioned table's partitions in the catalog.

    Raises:
        TableError: The catalog doesn't list the partitions.
    """
    with explaining("CATALOG_PARTITIONS_NOT_LISTABLE", table=table):
        if (known := session_catalog.partitions(spark, table)) is not None:
            return known
        specs = _specs(spark, table)
        planned = _planned_locations(spark, table, columns) if specs else []
        if len(planned) != len(specs):
            planned = [""] * len(specs)
        # A location in the plan is used only if its path contains the partition's values.
        pairs = list(zip(specs, planned, strict=True))
        doubtful = [spec for spec, location in pairs if not _confirmed(spec, location, root, columns)]
        described = parallel_map(lambda spec: _location(spark, table, spec), doubtful)
    exact = dict(zip(doubtful, described, strict=True))
    return [CatalogPartition(spec, exact.get(spec, location)) for spec, location in pairs]


def has_null_partition(spark: SparkSession, table: TableName) -> bool:
    """Return whether a partitioned table has a partition with a null value in the catalog."""
    return any(value == NULL for spec in _specs(spark, table) for _, value in split_spec(spec))


def _specs(spark: SparkSession, table: TableName) -> list[str]:
    return [row[0] for row in spark.sql(f"SHOW PARTITIONS {table.sql}").collect()]


def _planned_locations(
    spark: SparkSession, table: TableName, columns: Sequence[PartitionColumn]
) -> list[str]:
    """Return the locations in a query's plan, in the catalog's order; empty if the plan has none."""
    names = ", ".join(quote(column.name) for column in columns)
    # The filter is always true, but the optimizer can't remove it. Without a filter, the plan contains only
    # the root.
    query = f"EXPLAIN SELECT * FROM {table.sql} WHERE pmod(hash({names}), 1) = 0"
    with optional_settings(spark, FEW_LISTING_TASKS | WHOLE_PLANS):
        plan = spark.sql(query).collect()[0][0]
    locations = _LOCATIONS.search(plan)
    # A value may contain a comma, but every location begins with its scheme.
    return re.split(r", (?=[A-Za-z][A-Za-z0-9+.-]*:/)", locations[1]) if locations else []


def _confirmed(spec: str, location: str, root: str, columns: Sequence[PartitionColumn]) -> bool:
    directory = below(location, root) if location else None
    return directory is not None and same_values(spec, directory, columns)


def _location(spark: SparkSession, table: TableName, spec: str) -> str:
    values = ", ".join(f"{quote(column)} = {literal(value)}" for column, value in split_spec(spec))
    query = f"DESCRIBE TABLE EXTENDED {table.sql} PARTITION ({values}) AS JSON"
    return str(json.loads(spark.sql(query).collect()[0][0])["location"])
