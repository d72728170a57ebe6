"""What the catalog and the disk can disagree on about a table's partitions: frozen, and without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tableferry.hive.locations import below
from tableferry.hive.partitions import CatalogPartition, PartitionColumn, same_values, values_of
from tableferry.tables import TableName

_SHOWN = 10


@dataclass(frozen=True)
class PartitionMismatches:
    """What the catalog and the disk don't agree on; a table without any can be converted.

    Attributes:
        outside: Partitions whose files aren't below the table's root.
        elsewhere: Partitions below the root, in a directory whose name gives other values.
        missing: Partitions whose directory doesn't exist.
        unregistered: Directories of partitions, with files, that the catalog doesn't know.
    """

    outside: tuple[CatalogPartition, ...] = ()
    elsewhere: tuple[CatalogPartition, ...] = ()
    missing: tuple[CatalogPartition, ...] = ()
    unregistered: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.outside or self.elsewhere or self.missing or self.unregistered)

    @property
    def fixable(self) -> bool:
        """Whether registering and removing partitions in the catalog is all that it takes."""
        return bool(self) and not self.outside and not self.elsewhere


def compare(
    registered: Iterable[CatalogPartition],
    directories: Iterable[str],
    root: str,
    columns: Sequence[PartitionColumn],
) -> PartitionMismatches:
    """Compare the catalog's partitions with the directories that hold files.

    Directories that aren't ``column=value`` for each column are no partitions of the catalog's kind: whoever
    reads the partitions from the paths refuses them.

    Args:
        registered: The catalog's partitions.
        directories: Below the root, as the file system spells them.
        root: The table's location.
        columns: From the root down.

    Returns:
        The mismatches; ``missing`` has all partitions without files, those of an empty directory too.
    """
    directories = set(directories)
    parents = {parent for directory in directories for parent in _upwards(directory)}
    outside, elsewhere, missing = [], [], []
    known: set[str] = set()
    for each in registered:
        place = below(each.location, root)
        if place is None:
            outside.append(each)
            continue
        known.add(place)
        if not same_values(each.spec, place, columns):
            elsewhere.append(each)
        elif place not in parents:
            missing.append(each)
    unregistered = (
        directory
        for directory in directories
        if values_of(directory, columns) is not None and known.isdisjoint(_upwards(directory))
    )
    return PartitionMismatches(
        tuple(sorted(outside)), tuple(sorted(elsewhere)), tuple(sorted(missing)), tuple(sorted(unregistered))
    )


def sentences(table: TableName, root: str, found: PartitionMismatches) -> tuple[str, ...]:
    """Say what doesn't agree: for each kind how many, the first ten, and the remedy."""
    said = []
    if found.outside:
        said.append(
            f"{_counted(found.outside, 'partition')} of {table} outside its root {root}: "
            f"{_listed(found.outside)}; copy the files below the root, to where the values say, and set the "
            "partition's location to it, or drop the partition from the catalog"
        )
    if found.elsewhere:
        said.append(
            f"{_counted(found.elsewhere, 'partition')} of {table} in a directory that gives other "
            f"values: {_listed(found.elsewhere)}; move the files to where the values say and set the "
            "partition's location to it"
        )
    if found.missing:
        said.append(
            f"{_counted(found.missing, 'partition')} of {table} in the catalog without a directory: "
            f"{_listed(found.missing)}; find out where the files went, or remove the partitions with --msck"
        )
    if found.unregistered:
        said.append(
            f"{_counted(found.unregistered, 'directory', 'directories')} of {table} with files that no "
            f"partition in the catalog has: {_listed(found.unregistered)}; remove what is left over, or take "
            "them in with --msck"
        )
    return tuple(said)


def _upwards(directory: str) -> Iterator[str]:
    while directory:
        yield directory
        directory = directory.rpartition("/")[0]


def _counted(found: Sequence[object], one: str, many: str = "") -> str:
    return f"1 {one}" if len(found) == 1 else f"{len(found)} {many or one + 's'}"


def _listed(found: Sequence[object]) -> str:
    shown = ", ".join(map(str, found[:_SHOWN]))
    return shown if len(found) <= _SHOWN else f"{shown} and {len(found) - _SHOWN} more"
