"""Lists the data files of a Hive table, wherever its partitions are.

A file's name, size and time come from the file system, or from Spark's ``binaryFile`` reader, whose content
isn't read, where there is none to ask: through Spark Connect. Both leave out empty files, which no reader
reads, and names that begin with ``_`` or ``.``, so neither a Delta log in the table's directory nor a job's
leftovers count.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple

from tableferry.errors import Refused, StateError, TableError, first_line
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.hive_table import HiveTable
from tableferry.fleet.warehouse.table_storage import files_below
from tableferry.formats.hive.locations import below, escape_wildcards, parents, split
from tableferry.formats.hive.partitions import CatalogPartition
from tableferry.spark.catalog import SPARK_ERRORS, condition
from tableferry.spark.settings import FEW_LISTING_TASKS, optional_settings
from tableferry.spark.tables import TableName

_log = logging.getLogger(__name__)

_LISTING = {
    **FEW_LISTING_TASKS,
    # Nobody reads these files' content, so a task takes as many as there are.
    "spark.sql.files.maxPartitionBytes": str(2**50),
    # A directory may have a Delta log by now, and is listed all the same.
    "spark.databricks.delta.formatCheck.enabled": "false",
}


Directory = tuple[str, str, str]
"""A directory's scheme, authority and path."""


class ListedFile(NamedTuple):
    """A file, as a listing shows it.

    Its path is a URI, as Hadoop writes it, its size in bytes, its time in microseconds since 1970.
    """

    path: str
    size: int
    modified: int

    @property
    def directory(self) -> Directory:
        """Where it is."""
        return _directory(self.path.rpartition("/")[0])


@lru_cache(maxsize=4096)
def _directory(location: str) -> Directory:
    """Return a directory as `split` does, for there are many files in each."""
    return split(location)


def digest(files: Iterable[ListedFile], *more: str) -> str:
    """Return what is another if a file's path, size or time is, or one of some more lines."""
    hashed = sha256()
    for line in sorted([*(f"{file.path}\t{file.size}\t{file.modified}" for file in files), *more]):
        hashed.update(line.encode("utf-8", "surrogateescape") + b"\n")
    return hashed.hexdigest()


def paths_below(files: Iterable[ListedFile], location: str) -> Iterator[str | None]:
    """Return the path of each file below a directory, as `below` does; there are many files in each."""
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
        read: Those that lie in the table's directory, or in a partition's if it has partitions.
        nested: Those in a directory below one of these, which Hive may read and Iceberg would miss.
        stray: Those below the table's directory that belong to no partition.
    """

    read: tuple[ListedFile, ...]
    nested: tuple[ListedFile, ...]
    stray: tuple[ListedFile, ...]

    @property
    def files(self) -> tuple[ListedFile, ...]:
        """All of them."""
        return (*self.read, *self.nested, *self.stray)


def unregistered(name: TableName, files: Listing) -> Refused | None:
    """Return why a directory can't become a Delta table whose files are no partition's; None if it can.

    Where some are a partition's, the others are found with their paths.
    """
    if files.read or not files.stray:
        return None
    stray = [file.path for file in files.stray]
    return Refused("FILES_IN_NO_PARTITION", table=name, files=stray, statement=name.sql)


def too_deep(table: TableName, listing: Listing) -> Refused | None:
    """Return the refusal of files in deeper directories, which Spark leaves out; None if there are none."""
    if not listing.nested:
        return None
    return Refused("FILES_TOO_DEEP", table=table, files=[file.path for file in listing.nested])


class TableFiles(NamedTuple):
    """A Hive table's partitions and files.

    Attributes:
        partitions: Those that the catalog knows; empty if the table has no partition columns.
        at: When they were listed, in microseconds since 1970.
    """

    table: HiveTable
    partitions: tuple[CatalogPartition, ...]
    listing: Listing
    at: int

    def specs(self) -> Mapping[Directory, Sequence[str]]:
        """Return the partitions that each directory holds: more than one, if somebody made it so."""
        if not self.table.partition_columns:
            return {split(self.table.location): ("",)}
        specs: dict[Directory, list[str]] = {}
        for partition in self.partitions:
            specs.setdefault(split(partition.location), []).append(partition.spec)
        return specs

    @property
    def digest(self) -> str:
        """What is another if a file, a partition or the type of a column is."""
        return digest(self.listing.read, *map(str, self.partitions), self.table.columns_text)


def listing(warehouse: Warehouse, table: HiveTable, partitions: Sequence[CatalogPartition]) -> Listing:
    """List a table's files, by their paths.

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
    """List the files of several directories at any depth; one that isn't there has none.

    Raises:
        TableError: One can't be listed.
    """
    files = _from_here(warehouse, locations)
    if files is None:
        with optional_settings(warehouse.spark, _LISTING):
            files = _by_spark(warehouse, locations)
            if files is None:
                # One of them isn't there.
                files = [file for location in locations for file in _by_spark(warehouse, [location]) or ()]
    # A directory may lie in another one.
    return sorted(set(files))


def _from_here(warehouse: Warehouse, locations: Sequence[str]) -> list[ListedFile] | None:
    """List files without a Spark job; None if Spark is to be asked."""
    try:
        found = files_below(warehouse.spark, locations)
    except StateError as error:
        # Clusters that several people share keep their Java to themselves, but not Spark's readers.
        _log.debug("Spark lists the files: %s", error.one_line)
        return None
    if found is None:
        return None
    return [ListedFile(file.path, file.size, file.modified * 1000) for file in found if file.size]


def _by_spark(warehouse: Warehouse, locations: Iterable[str]) -> list[ListedFile] | None:
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
