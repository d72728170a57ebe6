"""Find tables whose directories overlap, from the locations of all tables of a catalog."""

from __future__ import annotations

import logging
import time
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from threading import Lock
from typing import TYPE_CHECKING

from tableferry.errors import TableError
from tableferry.fleet.hive_tables.progress_properties import sync_folder
from tableferry.formats.hive.catalog_tables import list_tables
from tableferry.formats.hive.locations import parents, split
from tableferry.spark.quoting import unquote
from tableferry.spark.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

# Listing a catalog with thousands of tables takes long, so the result is cached for this time.
_SECONDS = 600.0

_SAME = {"s3": "s3a", "s3n": "s3a", "abfs": "abfss"}


class DirectoryIndex:
    """Tables sorted by their directories, so that overlaps are found without comparing all pairs."""

    def __init__(self, tables: Iterable[tuple[TableName, str]]) -> None:
        """Create the index from tables and their locations."""
        self._tables: dict[tuple[str, str, str], list[tuple[TableName, str]]] = {}
        for name, location in tables:
            self._tables.setdefault(_place(location), []).append((name, location))
        self._sorted = sorted(self._tables)

    def overlapping(self, name: TableName, location: str) -> tuple[tuple[TableName, str], ...]:
        """Return the other tables whose directory equals, contains or is in this one."""
        scheme, authority, path = _place(location)
        directories = [(scheme, authority, parent) for parent in (path, *parents(path))]
        inside = path.rstrip("/") + "/"
        start = bisect_left(self._sorted, (scheme, authority, inside))
        for directory in islice(self._sorted, start, None):
            if directory[:2] != (scheme, authority) or not directory[2].startswith(inside):
                break
            directories.append(directory)
        tables = (
            table for directory in dict.fromkeys(directories) for table in self._tables.get(directory, ())
        )
        return tuple(table for table in tables if table[0].key != name.key)


def _place(location: str) -> tuple[str, str, str]:
    """Return a location's scheme, authority and path; aliases of a scheme are normalized."""
    scheme, authority, path = split(location)
    return _SAME.get(scheme, scheme), authority, path


@dataclass(frozen=True)
class _Listed:
    """The result of listing a catalog.

    Attributes:
        unlisted: The schemas that couldn't be listed.
        at: The time of the listing, in seconds of this process's monotonic clock.
    """

    directories: DirectoryIndex
    unlisted: tuple[TableName, ...]
    at: float


@dataclass(frozen=True)
class TableDirectories:
    """A cache of the directories of all tables of each catalog; it's reloaded after ten minutes.

    Attributes:
        seconds: Returns the time of this process's monotonic clock.
    """

    seconds: Callable[[], float] = time.monotonic
    _catalogs: dict[str, _Listed] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def overlapping(
        self, spark: SparkSession, name: TableName, location: str, apart: Collection[TableName] = ()
    ) -> tuple[tuple[TableName, str], ...]:
        """Return the other tables whose directory equals, contains or is in the table's directory.

        The directory for the Hive copy's rewritten partitions is checked too. Tables in `apart` are left out.
        """
        index = self._listed(spark, name.parts[0]).directories
        tables = (*index.overlapping(name, location), *index.overlapping(name, sync_folder(location)))
        names = {table.key for table in apart}
        return tuple(table for table in dict.fromkeys(tables) if table[0].key not in names)

    def unlisted(self, spark: SparkSession, name: TableName) -> tuple[TableName, ...]:
        """Return the schemas of the table's catalog whose tables can't be listed."""
        return self._listed(spark, name.parts[0]).unlisted

    def _listed(self, spark: SparkSession, catalog: str) -> _Listed:
        with self._lock:
            listed = self._catalogs.get(catalog)
            if listed is None or self.seconds() - listed.at > _SECONDS:
                unlisted: list[TableName] = []
                index = DirectoryIndex(_tables(spark, catalog, unlisted))
                listed = self._catalogs[catalog] = _Listed(index, tuple(unlisted), self.seconds())
            return listed


def _tables(spark: SparkSession, catalog: str, unlisted: list[TableName]) -> Iterator[tuple[TableName, str]]:
    for row in spark.sql(f"SHOW SCHEMAS IN {TableName((catalog,)).sql}").collect():
        schema = (catalog, unquote(row[0]))
        try:
            tables = list_tables(spark, schema)
        except TableError as error:
            _log.warning(
                "a schema can't be listed, so its tables aren't checked for shared directories: %s",
                error.one_line,
            )
            unlisted.append(TableName(schema))
            continue
        for name, entry in tables.items():
            if entry.location and entry.provider != "view":
                yield TableName((*schema, name)), entry.location
