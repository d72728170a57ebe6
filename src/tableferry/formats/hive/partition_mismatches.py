"""Compare a table's partitions in the catalog with those on disk, and describe the differences.

The module is independent of Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tableferry.amounts import counted, first_of
from tableferry.formats.hive.locations import below
from tableferry.formats.hive.partitions import CatalogPartition, PartitionColumn, same_values, values_of
from tableferry.spark.tables import TableName


@dataclass(frozen=True)
class PartitionMismatches:
    """The differences between partitions in the catalog and on disk; a table without any can be converted.

    Attributes:
        outside: Partitions whose location isn't below the table's root.
        elsewhere: Partitions below the root, in a directory whose name has other values.
        missing: Partitions whose directory doesn't exist.
        unregistered: Partition directories with files that aren't registered in the catalog.
    """

    outside: tuple[CatalogPartition, ...] = ()
    elsewhere: tuple[CatalogPartition, ...] = ()
    missing: tuple[CatalogPartition, ...] = ()
    unregistered: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.outside or self.elsewhere or self.missing or self.unregistered)

    @property
    def fixable(self) -> bool:
        """Whether registering and removing partitions in the catalog resolves all differences."""
        return bool(self) and not self.outside and not self.elsewhere


def compare(
    registered: Iterable[CatalogPartition],
    directories: Iterable[str],
    root: str,
    columns: Sequence[PartitionColumn],
) -> PartitionMismatches:
    """Compare the catalog's partitions with the directories below the root that contain files.

    A directory that isn't ``column=value`` for each column is ignored, because the check of the partition
    paths refuses it. A partition whose directory contains no file counts as missing.
    """
    directories = set(directories)
    parents = {parent for directory in directories for parent in _upwards(directory)}
    outside, elsewhere, missing = [], [], []
    known: set[str] = set()
    for partition in registered:
        directory = below(partition.location, root)
        if directory is None:
            outside.append(partition)
            continue
        known.add(directory)
        if not same_values(partition.spec, directory, columns):
            elsewhere.append(partition)
        elif directory not in parents:
            missing.append(partition)
    unregistered = (
        directory
        for directory in directories
        if values_of(directory, columns) is not None and known.isdisjoint(_upwards(directory))
    )
    return PartitionMismatches(
        tuple(sorted(outside)), tuple(sorted(elsewhere)), tuple(sorted(missing)), tuple(sorted(unregistered))
    )


def sentences(table: TableName, root: str, mismatches: PartitionMismatches) -> tuple[str, ...]:
    """Return a sentence for each kind of difference: the count, the first five examples and the remedy."""

    def sentence(names: Sequence[object], what: str, remedy: str, *, nouns: tuple[str, str]) -> str:
        if not names:
            return ""
        return f"{counted(len(names), *nouns)} of {table} {what}: {first_of(names)}; {remedy}"

    partitions, directories = ("partition", "partitions"), ("directory", "directories")
    problems = (
        sentence(
            mismatches.outside,
            f"outside its root {root}",
            "copy the files below the root, to where the values say, and set the partition's location to it, "
            "or drop the partition from the catalog",
            nouns=partitions,
        ),
        sentence(
            mismatches.elsewhere,
            "in a directory that gives other values",
            "move the files to where the values say and set the partition's location to it",
            nouns=partitions,
        ),
        sentence(
            mismatches.missing,
            "in the catalog without a directory",
            "find out where the files went, or remove the partitions with --msck",
            nouns=partitions,
        ),
        sentence(
            mismatches.unregistered,
            "with files that no partition in the catalog has",
            "remove leftover files, or add their partitions with --msck",
            nouns=directories,
        ),
    )
    return tuple(filter(None, problems))


def _upwards(directory: str) -> Iterator[str]:
    while directory:
        yield directory
        directory = directory.rpartition("/")[0]
