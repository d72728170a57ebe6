"""List the data files of a Hive table and its partitions.

File names, sizes and times come from the file system, or through Spark Connect from Spark's ``binaryFile``
reader, which doesn't read the contents for this. Both skip empty files and names that begin with ``_`` or
``.``, such as a Delta log in the table's directory and the leftovers of a job.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from tableferry.errors import StateError, TableError, first_line
from tableferry.fleet.hive_tables.hive_table import HiveTable
from tableferry.fleet.hive_tables.table_files import ListedFile, Listing
from tableferry.fleet.hive_tables.table_storage import files_below
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.formats.hive.locations import below, escape_wildcards, parents, split
from tableferry.formats.hive.partitions import CatalogPartition
from tableferry.spark.catalog import SPARK_ERRORS, condition
from tableferry.spark.settings import FEW_LISTING_TASKS, optional_settings

_log = logging.getLogger(__name__)

_LISTING = {
    **FEW_LISTING_TASKS,
    # The content isn't read, so one task can process all files.
    "spark.sql.files.maxPartitionBytes": str(2**50),
    # A directory with a Delta log is listed too.
    "spark.databricks.delta.formatCheck.enabled": "false",
}


def listing(warehouse: Warehouse, table: HiveTable, partitions: Sequence[CatalogPartition]) -> Listing:
    """List a table's files and group them by their paths.

    Raises:
        TableError: A directory can't be listed.
    """
    locations = {partition.location for partition in partitions}
    directories = set(map(split, locations if table.partition_columns else (table.location,)))
    outside = sorted(location for location in locations if below(location, table.location) is None)
    read, nested, stray = [], [], []
    for file in list_files(warehouse, [table.location, *outside]):
        scheme, authority, path = directory = file.directory
        if directory in directories:
            read.append(file)
        elif any((scheme, authority, parent) in directories for parent in parents(path)):
            nested.append(file)
        else:
            stray.append(file)
    return Listing(tuple(read), tuple(nested), tuple(stray))


def list_files(warehouse: Warehouse, locations: Sequence[str]) -> list[ListedFile]:
    """List the files below several directories; a missing directory has none.

    Raises:
        TableError: A directory can't be listed.
    """
    files = _list_by_driver(warehouse, locations)
    if files is None:
        with optional_settings(warehouse.spark, _LISTING):
            files = _list_by_spark(warehouse, locations)
            if files is None:
                # A directory is missing.
                files = [
                    file for location in locations for file in _list_by_spark(warehouse, [location]) or ()
                ]
    # A directory may be below another one.
    return sorted(set(files))


def _list_by_driver(warehouse: Warehouse, locations: Sequence[str]) -> list[ListedFile] | None:
    """List files without a Spark job; None if only Spark can list them."""
    try:
        found = files_below(warehouse.spark, locations)
    except StateError as error:
        # Shared clusters don't expose their Java, but Spark's readers work there.
        _log.debug("Spark lists the files: %s", error.one_line)
        return None
    if found is None:
        return None
    return [ListedFile(file.path, file.size, file.modified * 1000) for file in found if file.size]


def _list_by_spark(warehouse: Warehouse, locations: Iterable[str]) -> list[ListedFile] | None:
    reader = warehouse.spark.read.format("binaryFile").option("recursiveFileLookup", "true")
    try:
        rows = (
            reader.load([escape_wildcards(location) for location in locations])
            .selectExpr("path", "length", "unix_micros(modificationTime)")
            .collect()
        )
    except SPARK_ERRORS as error:
        if condition(error) == "PATH_NOT_FOUND":
            return None
        raise TableError(
            "DIRECTORIES_NOT_LISTABLE", folders=list(locations), reason=first_line(error)
        ) from error
    return [ListedFile(*row) for row in rows]
