"""Decides what the Hive copy needs after the target changed: pure."""

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
    """What a run does to a partition."""

    ADDED = "added"
    APPENDED = "appended"
    REWRITTEN = "rewritten"
    EMPTIED = "emptied"


@dataclass(frozen=True)
class PartitionUpdate:
    """What was done to one partition, or to the whole table.

    Attributes:
        partition: Such as ``day=2024-01-01/hour=3``; empty for a table without partitions.
        rows: How many rows were copied; None where none was, as the copy reads the target's own files.
    """

    partition: str
    action: Action
    rows: int | None = None


@dataclass(frozen=True)
class ShadowResult:
    """What a run did, or in a dry run would do.

    Attributes:
        watermark: The snapshot id or version that the Hive copy is in step with.
        columns: Columns that the Hive copy got.
        removed: Which partitions an overwrite of the whole table removed, in a sentence; empty if none did.
        compared: Why all rows were compared, where the target's history wasn't enough.
        left: Directories that nobody reads any more, and that only the storage's owner can remove.
        looked: Whether there was a record by which late files could be looked for.
    """

    watermark: str
    done: tuple[PartitionUpdate, ...] = ()
    columns: tuple[str, ...] = ()
    removed: str = ""
    compared: str = ""
    left: tuple[str, ...] = ()
    looked: bool = True


@dataclass(frozen=True)
class Columns:
    """The Hive copy's columns, without those that it's partitioned by, as the target asks for them.

    Attributes:
        every: All of them with their types, in their order.
        added: Those among them that it lacks.
        replaced: Those that it has, and that were dropped, renamed or retyped in the target: then all rows
            are rewritten.
        widened: Those that are to get their wider types of the target, as Hive's can't hold values that
            there are by now; the rows before stay as they are.
    """

    every: Mapping[str, str]
    added: Mapping[str, str]
    replaced: tuple[str, ...] = ()
    widened: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.added or self.replaced or self.widened)

    def widening(self, names: Iterable[str], target: Mapping[str, str]) -> Columns:
        """Return the same, with columns that get the types that they have in the target."""
        types = {column.lower(): kind for column, kind in target.items()}
        wider = {name: _for_hive(types[name.lower()]) for name in names}
        return replace(self, every={**self.every, **wider}, widened=wider)


@dataclass(frozen=True)
class Added:
    """Rows that a partition got while it lost none.

    Attributes:
        directory: The one directory that holds their files, if a Hive table could read it.
        files: The files' names, where the rows have to be found by them.
    """

    directory: str | None = None
    files: tuple[str, ...] = ()


@dataclass(frozen=True)
class Changes:
    """What happened in the target between two versions.

    Attributes:
        added: Partitions that got rows and lost none.
        touched: Partitions that lost rows, or may have.
        moved: Partitions whose rows are the same, in other files.
        compare_all: Why all partitions have to be compared instead; empty if they needn't be.
    """

    added: Mapping[Partition, Added] = field(default_factory=dict)
    touched: frozenset[Partition] = frozenset()
    moved: frozenset[Partition] = frozenset()
    compare_all: str = ""

    def touching(self, partitions: Collection[Partition]) -> Changes:
        """Return the same, with these partitions touched too, so that they are rewritten."""
        added = {partition: rows for partition, rows in self.added.items() if partition not in partitions}
        moved = self.moved.difference(partitions)
        return replace(self, added=added, touched=self.touched | frozenset(partitions), moved=moved)


@dataclass(frozen=True)
class Plan:
    """What the Hive copy needs.

    Attributes:
        append: Partitions that get rows inserted.
        share: New partitions, with the target's own directory that they read.
        in_place: Partitions that read the target's directory and so have the new rows already.
        rewrite: Partitions whose current rows are written to a new directory; those without rows are dropped.
    """

    append: tuple[Partition, ...] = ()
    share: Mapping[Partition, str] = field(default_factory=dict)
    in_place: tuple[Partition, ...] = ()
    rewrite: tuple[Partition, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.append or self.share or self.rewrite)


def decide(
    changes: Changes,
    locations: Mapping[Partition, str],
    shared: str | None,
    exact: Collection[Partition],
    own: str | None = None,
    *,
    interrupted: bool,
) -> Plan:
    """Decide what to do with each partition.

    Args:
        changes: What happened in the target.
        locations: The locations of those partitions that the Hive copy has.
        shared: The directory that the target writes to, where the Hive copy reads below it too.
        exact: Partitions whose directory holds just the files that the target has in it.
        own: The only folder into whose directories rows are inserted, where such a file couldn't be told from
            a late writer's elsewhere; None if it can.
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
            # Into the target's own directory nothing is inserted: it would be an orphan there.
            rewrite.append(partition)
        else:
            append.append(partition)
    rewrite += [
        partition
        for partition in sorted(changes.moved, key=nulls_first)
        if partition in locations and _is_below(locations[partition], shared)
    ]
    return Plan(tuple(append), share, tuple(in_place), tuple(rewrite))


def demand_partition_values(
    partitions: Iterable[Partition], columns: Sequence[StructField], name: str
) -> None:
    """Make sure that Hive, whose partition columns are given, can have the partitions.

    Raises:
        Refused: A value is a text that Hive takes for null, or doesn't fit its column.
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
    """Return the columns that the Hive copy is to have, from those of both tables and their types.

    Of Hive's types, `type_substitutes` says what they become in a format that lacks them.

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
    """Return the type that a Hive table has for one that it lacks."""
    return kind.replace("timestamp_ntz", "timestamp")


def _is_below(location: str, root: str | None) -> bool:
    return root is not None and below(location, root) is not None
