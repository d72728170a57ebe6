"""Compare the catalog's partitions with the directories on disk, and register the directories."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from tableferry.errors import TableError, first_line
from tableferry.formats.hive.catalog_entry import Entry
from tableferry.formats.hive.catalog_partitions import list_partitions
from tableferry.formats.hive.locations import below, escape_wildcards
from tableferry.formats.hive.partition_mismatches import PartitionMismatches, compare
from tableferry.formats.hive.partitions import CatalogPartition
from tableferry.formats.parquet.files import DataFile
from tableferry.spark.catalog import SPARK_ERRORS, condition, explaining, parallel_map
from tableferry.spark.settings import FEW_LISTING_TASKS, optional_settings
from tableferry.spark.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def partitions_of(spark: SparkSession, entry: Entry, listing: Iterable[DataFile]) -> PartitionMismatches:
    """Return the mismatches between the catalog's partitions and the files on disk.

    A partition whose directory exists without files is empty, which is no mismatch.

    Raises:
        TableError: The catalog doesn't list its partitions.
    """
    if not entry.partition_columns:
        return PartitionMismatches()
    directories = {file.path.rpartition("/")[0] for file in listing}
    registered = list_partitions(spark, entry.name, entry.location, entry.partition_columns)
    mismatches = compare(registered, directories, entry.location, entry.partition_columns)
    exist = parallel_map(lambda partition: _exists(spark, entry, partition), mismatches.missing)
    missing = (partition for partition, exists in zip(mismatches.missing, exist, strict=True) if not exists)
    return replace(mismatches, missing=tuple(missing))


def register_partitions(spark: SparkSession, table: TableName) -> None:
    """Update the catalog's partitions from the directories: ``MSCK REPAIR TABLE … SYNC PARTITIONS``.

    Partitions outside the root stay as they are.

    Raises:
        TableError: The catalog refuses the update, or a directory can't be listed.
    """
    with (
        explaining("CATALOG_PARTITIONS_NOT_REGISTERED", table=table),
        optional_settings(spark, FEW_LISTING_TASKS),
    ):
        spark.sql(f"MSCK REPAIR TABLE {table.sql} SYNC PARTITIONS").collect()


def _exists(spark: SparkSession, entry: Entry, partition: CatalogPartition) -> bool:
    """Return whether the directory of a partition without files exists."""
    if entry.folder is not None:
        return (entry.folder / (below(partition.location, entry.location) or "")).is_dir()
    try:
        spark.read.format("binaryFile").load(escape_wildcards(partition.location)).limit(0).collect()
    except SPARK_ERRORS as error:
        if condition(error) != "PATH_NOT_FOUND":
            raise TableError(
                "CATALOG_PARTITION_NOT_LISTABLE", partition=partition, reason=first_line(error)
            ) from error
        return False
    return True
