"""What changed in the target, and what that asks of the Hive copy: pure, the same each time."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from tableferry.errors import Refused
from tableferry.fleet.warehouse.shadow.partitions import Partition, nulls_first
from tableferry.hive.locations import below


class What(StrEnum):
    """What was done to a partition."""

    ADDED = "added"
    APPENDED = "appended"
    REWRITTEN = "rewritten"
    DROPPED = "dropped"


@dataclass(frozen=True)
class Done:
    """What was done to one partition, or to the whole table.

    Attributes:
        partition: Such as ``day=2024-01-01/hour=3``; empty for a table without partitions.
        what: What was done.
        rows: How many rows were copied; None where none was, as the copy reads the target's own files.
    """

    partition: str
    what: What
    rows: int | None = None


@dataclass(frozen=True)
class Shadowed:
    """What a run did, or in a dry run would do.

    Attributes:
        watermark: The snapshot id or version that the Hive copy is in step with.
        done: What was done to each partition.
        columns: Columns that the Hive copy got.
        removed: What a version removed that replaced all rows at once, in words; empty if none did.
        compared: Why everything was compared, where the changes alone didn't say enough.
        left: Directories that nobody reads any more, and that only the storage's owner can remove.
    """

    watermark: str
    done: tuple[Done, ...] = ()
    columns: tuple[str, ...] = ()
    removed: str = ""
    compared: str = ""
    left: tuple[str, ...] = ()


@dataclass(frozen=True)
class Columns:
    """The Hive copy's columns, without those that it's partitioned by, as the target asks for them.

    Attributes:
        every: All of them with their types, in their order.
        added: Those among them that it lacks.
        replaced: Those that it has, and that the target lost, renamed or retyped: all rows are written anew.
    """

    every: Mapping[str, str]
    added: Mapping[str, str]
    replaced: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.replaced)


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
        everything: Why the changes can't be told apart, so that all partitions have to be compared.
    """

    added: Mapping[Partition, Added] = field(default_factory=dict)
    touched: frozenset[Partition] = frozenset()
    moved: frozenset[Partition] = frozenset()
    everything: str = ""

    def touching(self, partitions: Collection[Partition]) -> Changes:
        """Return the same, with these partitions among those that are written anew."""
        added = {each: what for each, what in self.added.items() if each not in partitions}
        moved = self.moved.difference(partitions)
        return replace(self, added=added, touched=self.touched | frozenset(partitions), moved=moved)


@dataclass(frozen=True)
class Plan:
    """What the Hive copy needs.

    Attributes:
        append: Partitions that get rows inserted.
        share: New partitions, with the target's own directory that they read.
        in_place: Partitions that read the target's directory and so have the new rows already.
        rewrite: Partitions whose live rows are written anew; those that have none are dropped.
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
    """Decide for each partition.

    Args:
        changes: What happened.
        locations: Where each of those partitions is that the Hive copy has.
        shared: The directory that the target writes to, where the Hive copy reads below it too.
        exact: Partitions whose directory holds just the files that the target has in it.
        own: The only folder into whose directories rows are inserted; None if it doesn't matter. Elsewhere
            nobody could tell such a file from a late writer's.
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
        each
        for each in sorted(changes.moved, key=nulls_first)
        if each in locations and _is_below(locations[each], shared)
    ]
    return Plan(tuple(append), share, tuple(in_place), tuple(rewrite))


def demand_names(partitions: Iterable[Partition], columns: Sequence[str], name: str) -> None:
    """Demand that Hive can have the partitions.

    Raises:
        Refused: A value is an empty text, which Hive takes for null.
    """
    for partition in partitions:
        if "" in partition:
            raise Refused(
                f"{name} can't have a partition whose {columns[partition.index('')]} is an empty text: write "
                "null or a word into those rows of the table in its place, and resume the job"
            )


def become(
    hive: Mapping[str, str],
    target: Mapping[str, str],
    partition_columns: Sequence[str],
    stands_for: Mapping[str, str],
    name: str,
) -> Columns:
    """Say what columns the Hive copy is to have.

    Args:
        hive: The Hive table's columns and their types.
        target: The target's.
        partition_columns: The Hive table's.
        stands_for: What Hive's types become in a format that lacks them.
        name: The Hive table, for the message.

    Raises:
        Refused: The target lost, renamed or retyped a column that the Hive table is partitioned by.
    """

    def there_as(kind: str) -> str:
        return _TYPE.sub(lambda found: stands_for.get(found[0], found[0]), kind.lower())

    def holds(column: str) -> bool:
        return there_as(hive[column]) == there_as(there.get(column.lower(), ""))

    there = {column.lower(): kind for column, kind in target.items()}
    own = {column.lower(): column for column in hive}
    keys = {column.lower() for column in partition_columns}
    if lost := [column for column in partition_columns if not holds(column)]:
        found = there.get(lost[0].lower())
        raise Refused(
            f"{name} is partitioned by {lost[0]} ({hive[lost[0]]}), which "
            f"{f'is {found} by now' if found else 'is no longer there'} in the table in its place: take that "
            "back, or finish the migration without keeping the copy in step"
        )
    replaced = tuple(each for each in hive if each.lower() not in keys and not holds(each))
    changed = {each.lower() for each in replaced}
    added = {each: _for_hive(kind) for each, kind in target.items() if each.lower() not in own}
    if not replaced:
        return Columns({each: kind for each, kind in hive.items() if each.lower() not in keys} | added, added)
    every: dict[str, str] = {}
    for each, kind in target.items():
        mine = own.get(each.lower())
        if mine is None or each.lower() in changed:
            every[mine or each] = _for_hive(kind)
        elif each.lower() not in keys:
            every[mine] = hive[mine]
    return Columns(every, added, replaced)


# A type without parameters, at any depth; a field's name has a colon after it.
_TYPE = re.compile(r"\b[a-z_]+(?=[,>]|$)")


def _for_hive(kind: str) -> str:
    """Return the type that a Hive table has for one that it lacks."""
    return kind.replace("timestamp_ntz", "timestamp")


def _is_below(location: str, root: str | None) -> bool:
    return root is not None and below(location, root) is not None
