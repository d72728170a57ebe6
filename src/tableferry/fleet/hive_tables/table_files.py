"""Listed files of a Hive table, in its partitions' directories or elsewhere; without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple

from tableferry.errors import Refused
from tableferry.fleet.hive_tables.hive_table import HiveTable
from tableferry.formats.hive.locations import below, split
from tableferry.formats.hive.partitions import CatalogPartition
from tableferry.spark.tables import TableName

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
