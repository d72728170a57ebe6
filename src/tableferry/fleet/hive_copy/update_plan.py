"""Plan the updates of the Hive copy's partitions and columns after the target changed; pure functions."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from tableferry.errors import Refused
from tableferry.fleet.hive_copy.column_limits import fits
from tableferry.fleet.hive_tables.partitions import Partition, nulls_first
from tableferry.formats.hive.locations import below
from tableferry.formats.hive.partitions import NULL
from tableferry.spark.quoting import quote
from tableferry.spark.types import declared

if TYPE_CHECKING:
    from pyspark.sql.types import StructField


class Action(StrEnum):
    """How a run changes a partition."""

    ADDED = "added"
    APPENDED = "appended"
    REWRITTEN = "rewritten"
    EMPTIED = "emptied"


@dataclass(frozen=True)
class PartitionUpdate:
    """The change of one partition, or of a table without partitions.

    Attributes:
        partition: Such as ``day=2024-01-01/hour=3``; empty for a table without partitions.
        rows: The number of copied rows; None if the copy reads the target's files.
    """

    partition: str
    action: Action
    rows: int | None = None


@dataclass(frozen=True)
class ShadowResult:
    """The result of a shadow run, or of a dry run.

    Attributes:
        watermark: The target's snapshot id or version whose rows the Hive copy contains.
        updates: The changes of partitions.
        columns: Columns that were added to the Hive copy.
        removed: The partitions that an overwrite of the whole table removed, in a sentence; may be empty.
        comparison_reason: Why all rows were compared instead of reading the target's history.
        left_directories: Unused directories that only the storage's owner can remove.
        late_files_checked: Whether a file record existed, so that late files could be found.
    """

    watermark: str
    updates: tuple[PartitionUpdate, ...] = ()
    columns: tuple[str, ...] = ()
    removed: str = ""
    comparison_reason: str = ""
    left_directories: tuple[str, ...] = ()
    late_files_checked: bool = True


@dataclass(frozen=True)
class Columns:
    """The columns that the Hive copy needs to match the target, without partition columns.

    Attributes:
        every: All columns and their types, in order.
        added: Columns that the Hive copy lacks.
        replaced: Columns of the Hive copy that were dropped, renamed or retyped in the target; all rows are
            rewritten then.
        widened: Columns that get the target's wider type because Hive's type is too narrow for new values;
            existing rows aren't rewritten.
    """

    every: Mapping[str, str]
    added: Mapping[str, str]
    replaced: tuple[str, ...] = ()
    widened: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.added or self.replaced or self.widened)

    def widening(self, names: Iterable[str], target: Mapping[str, str]) -> Columns:
        """Return a copy in which these columns have the target's types."""
        types = {column.lower(): kind for column, kind in target.items()}
        wider = {name: _for_hive(types[name.lower()]) for name in names}
        return replace(self, every={**self.every, **wider}, widened=wider)


@dataclass(frozen=True)
class AddedRows:
    """Rows that were added to a partition that lost none.

    Attributes:
        directory: The directory with all their files, if a Hive table can read it.
        files: The files' names, if the rows are found by them.
    """

    directory: str | None = None
    files: tuple[str, ...] = ()


@dataclass(frozen=True)
class Changes:
    """The changes of the target between two versions.

    Attributes:
        added: Partitions that gained rows and lost none.
        touched: Partitions that lost rows, or may have lost rows.
        moved: Partitions with the same rows in new files.
        compare_all: Why all partitions must be compared instead; may be empty.
    """

    added: Mapping[Partition, AddedRows] = field(default_factory=dict)
    touched: frozenset[Partition] = frozenset()
    moved: frozenset[Partition] = frozenset()
    compare_all: str = ""

    def touching(self, partitions: Collection[Partition]) -> Changes:
        """Return a copy in which these partitions are also touched, so that they are rewritten."""
        added = {partition: rows for partition, rows in self.added.items() if partition not in partitions}
        moved = self.moved.difference(partitions)
        return replace(self, added=added, touched=self.touched | frozenset(partitions), moved=moved)


@dataclass(frozen=True)
class Plan:
    """The updates of the Hive copy's partitions.

    Attributes:
        append: Partitions into which rows are inserted.
        share: New partitions, with the target's directory that they read.
        in_place: Partitions that read the target's directory, so they contain the new rows already.
        rewrite: Partitions whose current rows are written to a new directory; those without rows are emptied.
    """

    append: tuple[Partition, ...] = ()
    share: Mapping[Partition, str] = field(default_factory=dict)
    in_place: tuple[Partition, ...] = ()
    rewrite: tuple[Partition, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.append or self.share or self.rewrite)


def plan_updates(
    changes: Changes,
    locations: Mapping[Partition, str],
    shared: str | None,
    exact: Collection[Partition],
    own: str | None = None,
    *,
    interrupted: bool,
) -> Plan:
    """Plan the update of each partition.

    Args:
        changes: The changes of the target.
        locations: The locations of the Hive copy's partitions.
        shared: The directory into which the target writes, if the Hive copy also reads from it.
        exact: Partitions whose directory contains the target's current files and no other files.
        own: The only folder below which rows may be inserted, if a shadow run's files and late files can't be
            told apart by name; else None.
        interrupted: Whether an earlier run may have inserted rows already.
    """
    append, share, in_place, rewrite = [], {}, [], sorted(changes.touched, key=nulls_first)
    for partition, added in sorted(changes.added.items(), key=lambda item: nulls_first(item[0])):
        location, directory = locations.get(partition), added.directory
        if directory and partition in exact and (location is None or below(location, directory) == ""):
            if location is None:
                share[partition] = directory
            else:
                in_place.append(partition)
        elif (
            location is None
            or interrupted
            or _is_below(location, shared)
            or (own is not None and not _is_below(location, own))
        ):
            # A file that is inserted into the target's directory would be an orphan there.
            rewrite.append(partition)
        else:
            append.append(partition)
    rewrite += [
        partition
        for partition in sorted(changes.moved, key=nulls_first)
        if partition in locations and _is_below(locations[partition], shared)
    ]
    return Plan(tuple(append), share, tuple(in_place), tuple(rewrite))


def check_partition_values(
    partitions: Iterable[Partition], columns: Sequence[StructField], name: str
) -> None:
    """Check that Hive can store the partitions' values, given its partition columns.

    Raises:
        Refused: Hive reads a value as null, or a value doesn't fit its column.
    """
    for partition in partitions:
        for column, value in zip(columns, partition, strict=True):
            if value in ("", NULL):
                raise (
                    Refused("PARTITION_VALUE_IS_NULL_IN_HIVE", table=name, column=column.name, value=value)
                    if value
                    else Refused("PARTITION_VALUE_EMPTY", table=name, column=column.name)
                )
            if value is not None and not fits(value, column):
                kind = "STRING" if column.dataType.typeName() == "string" else "INT"
                raise Refused(
                    "PARTITION_VALUE_NOT_IN_HIVE",
                    table=name,
                    column=column.name,
                    value=value,
                    type=declared(column),
                    new_column=f"{quote(column.name)} {kind}",
                )


def plan_columns(
    hive: Mapping[str, str],
    target: Mapping[str, str],
    partition_columns: Sequence[str],
    type_substitutes: Mapping[str, str],
    name: str,
) -> Columns:
    """Return the columns that the Hive copy needs, from both tables' columns and types.

    `type_substitutes` maps a Hive type to the type that the target has instead, if its format lacks it.

    Raises:
        Refused: A partition column was dropped, renamed or retyped in the target, or a column has a type that
            Hive lacks.
    """

    def in_target(kind: str) -> str:
        return _TYPE.sub(lambda match: type_substitutes.get(match[0], match[0]), kind.lower())

    def unchanged(column: str) -> bool:
        return in_target(hive[column]) == in_target(target_types.get(column.lower(), ""))

    target_types = {column.lower(): kind for column, kind in target.items()}
    own = {column.lower(): column for column in hive}
    keys = {column.lower() for column in partition_columns}
    if lost := [column for column in partition_columns if not unchanged(column)]:
        kind = target_types.get(lost[0].lower())
        raise (
            Refused("PARTITION_COLUMN_RETYPED", table=name, column=lost[0], type=hive[lost[0]], new_type=kind)
            if kind
            else Refused("PARTITION_COLUMN_DROPPED", table=name, column=lost[0], type=hive[lost[0]])
        )
    for column, kind in target.items():
        if lacking := _NOT_IN_HIVE.search(kind.lower()):
            raise Refused("COLUMN_TYPE_NOT_IN_HIVE", table=name, column=column, type=lacking[0])
    replaced = tuple(column for column in hive if column.lower() not in keys and not unchanged(column))
    changed = {column.lower() for column in replaced}
    added = {column: _for_hive(kind) for column, kind in target.items() if column.lower() not in own}
    if not replaced:
        return Columns(
            {column: kind for column, kind in hive.items() if column.lower() not in keys} | added, added
        )
    every: dict[str, str] = {}
    for column, kind in target.items():
        existing = own.get(column.lower())
        if existing is None or column.lower() in changed:
            every[existing or column] = _for_hive(kind)
        elif column.lower() not in keys:
            every[existing] = hive[existing]
    return Columns(every, added, replaced)


# A type without parameters, at any depth; a field's name has a colon after it.
_TYPE = re.compile(r"\b[a-z_]+(?=[,>]|$)")
_NOT_IN_HIVE = re.compile(
    r"\b(?:variant|geometry|geography|time|void)(?=[,>(]|$)|\binterval (?=year|month|day)"
)


def _for_hive(kind: str) -> str:
    """Return the type that a Hive table has instead of a type that Hive lacks."""
    return kind.replace("timestamp_ntz", "timestamp")


def _is_below(location: str, root: str | None) -> bool:
    return root is not None and below(location, root) is not None
