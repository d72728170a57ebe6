"""List the data files of a Hive table and its partitions.

File names, sizes and times come from the file system, or through Spark Connect from Spark's ``binaryFile``
reader, which doesn't read the contents for this. Both skip empty files and names that begin with ``_`` or
``.``, such as a Delta log in the table's directory and the leftovers of a job.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple

from tableferry.errors import Refused, StateError, TableError, first_line
from tableferry.fleet.hive_tables.hive_table import HiveTable
from tableferry.fleet.hive_tables.table_storage import files_below
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.formats.hive.locations import below, escape_wildcards, parents, split
from tableferry.formats.hive.partitions import CatalogPartition
from tableferry.spark.catalog import SPARK_ERRORS, condition
from tableferry.spark.settings import FEW_LISTING_TASKS, optional_settings
from tableferry.spark.tables import TableName

_log = logging.getLogger(__name__)

_LISTING = {
    **FEW_LISTING_TASKS,
    # The content isn't read, so one task can process all files.
    "spark.sql.files.maxPartitionBytes": str(2**50),
    # A directory with a Delta log is listed too.
    "spark.databricks.delta.formatCheck.enabled": "false",
}


Directory = tuple[str, str, str]
"""A directory's scheme, authority and path."""


class ListedFile(NamedTuple):
    """A listed file.

    Attributes:
        path: Its URI, in Hadoop's form.
        size: Its bytes.
        modified: Its time of modification, in microseconds since 1970.
    """

    path: str
    size: int
    modified: int

    @property
    def directory(self) -> Directory:
        """The file's directory."""
        return _directory(self.path.rpartition("/")[0])


@lru_cache(maxsize=4096)
def _directory(location: str) -> Directory:
    """Split a directory's location; the cache helps because a directory has many files."""
    return split(location)


def digest(files: Iterable[ListedFile], *more: str) -> str:
    """Return a fingerprint of the files' paths, sizes and times, and of additional lines."""
    hashed = sha256()
    for line in sorted([*(f"{file.path}\t{file.size}\t{file.modified}" for file in files), *more]):
        hashed.update(line.encode("utf-8", "surrogateescape") + b"\n")
    return hashed.hexdigest()


def paths_below(files: Iterable[ListedFile], location: str) -> Iterator[str | None]:
    """Return each file's path relative to a directory, as `below` does."""
    folders: dict[str, str | None] = {}
    for file in files:
        folder, _, name = file.path.rpartition("/")
        if folder not in folders:
            folders[folder] = below(folder, location)
        inside = folders[folder]
        yield None if inside is None else f"{inside}/{name}".lstrip("/")


class Listing(NamedTuple):
    """The files of a table.

    Attributes:
        read: Files directly in the table's directory, or in the directory of a partition.
        nested: Files in deeper directories, which Hive may read and Iceberg would miss.
        stray: Files below the table's directory that belong to no partition.
    """

    read: tuple[ListedFile, ...]
    nested: tuple[ListedFile, ...]
    stray: tuple[ListedFile, ...]

    @property
    def files(self) -> tuple[ListedFile, ...]:
        """All files."""
        return (*self.read, *self.nested, *self.stray)


def refuse_files_outside_partitions(name: TableName, files: Listing) -> Refused | None:
    """Return the refusal of a directory in which no file belongs to a partition; None if any file does.

    If some files belong to a partition, the conversion to Delta finds the partitions of the others by path.
    """
    if files.read or not files.stray:
        return None
    stray = [file.path for file in files.stray]
    return Refused("FILES_IN_NO_PARTITION", table=name, files=stray, statement=name.sql)


def refuse_nested_files(table: TableName, listing: Listing) -> Refused | None:
    """Return the refusal of files in deeper directories, which Spark leaves out; None if there are none."""
    if not listing.nested:
        return None
    return Refused("FILES_TOO_DEEP", table=table, files=[file.path for file in listing.nested])


class TableFiles(NamedTuple):
    """A Hive table's partitions and files.

    Attributes:
        partitions: The catalog's partitions; empty if the table has no partition columns.
        at: The time of the listing, in microseconds since 1970.
    """

    table: HiveTable
    partitions: tuple[CatalogPartition, ...]
    listing: Listing
    at: int

    def specs(self) -> Mapping[Directory, Sequence[str]]:
        """Return the partitions of each directory; several partitions may share a directory."""
        if not self.table.partition_columns:
            return {split(self.table.location): ("",)}
        specs: dict[Directory, list[str]] = {}
        for partition in self.partitions:
            specs.setdefault(split(partition.location), []).append(partition.spec)
        return specs

    @property
    def digest(self) -> str:
        """A fingerprint of the files, the partitions and the column types."""
        return digest(self.listing.read, *map(str, self.partitions), self.table.columns_text)


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
