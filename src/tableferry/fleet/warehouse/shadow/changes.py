"""What changed in the target, and what that asks of the Hive copy: pure, the same each time."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum

from tableferry.convert.locations import below
from tableferry.convert.partitions.paths import unescape
from tableferry.errors import Refused

Partition = tuple[str | None, ...]
"""A partition's values as Spark casts them to text, in the Hive table's order; empty for a table without."""

WHOLE: Partition = ()
NULL = "__HIVE_DEFAULT_PARTITION__"

PREFIX = "tableferry.shadow_"
WATERMARK, TARGET, SCHEMA = PREFIX + "watermark", PREFIX + "target", PREFIX + "schema"
PENDING, FOLDER = PREFIX + "pending", PREFIX + "folder"
SWEEP = "sweep"
"""What is pending when all is copied and old files are yet to go."""

# As Spark's and Hive's own writers escape a value for a directory's name.
_TO_ESCAPE = re.compile(r"[\x01-\x1f\x7f\"#%'*/:=?\\{\[\]^]")
_INTEGERS = {"tinyint", "smallint", "int", "integer", "bigint"}


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
        compared: Why everything was compared, where the changes alone didn't say enough.
        left: Directories that nobody reads any more, and that only the storage's owner can remove.
    """

    watermark: str
    done: tuple[Done, ...] = ()
    columns: tuple[str, ...] = ()
    compared: str = ""
    left: tuple[str, ...] = ()


@dataclass(frozen=True)
class Marks:
    """What an earlier run left in the Hive table's properties.

    Attributes:
        watermark: What the copy is in step with; None if that's unknown.
        schema: The id of the target's schema then; empty if the watermark's own is meant.
        pending: How far a run that didn't end was to copy, or `SWEEP`; empty if none is open.
        folder: Where rewritten partitions are, each version in a directory of its own.
    """

    watermark: str | None
    schema: str
    pending: str
    folder: str

    @property
    def half_copied(self) -> str:
        """How far a run that broke off was to copy; empty if none did."""
        return "" if self.pending == SWEEP else self.pending

    @classmethod
    def read(cls, properties: Mapping[str, str], location: str, target: str, given: str | None) -> Marks:
        """Read the properties; those of another target, of an earlier migration say, count for nothing.

        Args:
            properties: Those of the Hive table.
            location: The Hive table's.
            target: The target's id, which no other table has.
            given: The watermark where the table has none: the snapshot that the copy was made of.
        """
        if properties.get(TARGET) != target:
            # Files of an earlier migration's folder may be in use by now: this one keeps to its own.
            return cls(given, "", "", f"{location.rstrip('/')}_sync/{target[:8]}")
        return cls(
            properties.get(WATERMARK) or given,
            properties.get(SCHEMA, ""),
            properties.get(PENDING, ""),
            properties[FOLDER],
        )


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
    *,
    interrupted: bool,
) -> Plan:
    """Decide for each partition.

    Args:
        changes: What happened.
        locations: Where each of those partitions is that the Hive copy has.
        shared: The directory that the target writes to, where the Hive copy reads below it too.
        exact: Partitions whose directory holds just the files that the target has in it.
        interrupted: Whether an earlier run may have inserted rows already.
    """
    append, share, in_place, rewrite = [], {}, [], sorted(changes.touched, key=_nulls_first)
    for partition, added in sorted(changes.added.items(), key=lambda item: _nulls_first(item[0])):
        location, directory = locations.get(partition), added.directory
        if directory and partition in exact and (location is None or below(location, directory) == ""):
            if location is None:
                share[partition] = directory
            else:
                in_place.append(partition)
        elif location is None or interrupted or _is_below(location, shared):
            # Into the target's own directory nothing is inserted: it would be an orphan there.
            rewrite.append(partition)
        else:
            append.append(partition)
    rewrite += [
        each
        for each in sorted(changes.moved, key=_nulls_first)
        if each in locations and _is_below(locations[each], shared)
    ]
    return Plan(tuple(append), share, tuple(in_place), tuple(rewrite))


def demand_names(plan: Plan, columns: Sequence[str], name: str) -> None:
    """Demand that Hive can have the partitions.

    Raises:
        Refused: A value is an empty text, which Hive takes for null.
    """
    for partition in (*plan.append, *plan.share, *plan.rewrite):
        if "" in partition:
            raise Refused(
                f"{name} can't have a partition whose {columns[partition.index('')]} is an empty text: write "
                "null or a word into those rows of the table in its place, and resume the job"
            )


def columns_to_add(
    hive: Mapping[str, str], target: Mapping[str, str], partition_columns: Sequence[str], name: str
) -> dict[str, str]:
    """Return the columns that the Hive copy lacks, with their types.

    Args:
        hive: The Hive table's columns and their types.
        target: The target's.
        partition_columns: The Hive table's.
        name: The Hive table, for the message.

    Raises:
        Refused: The target lost, renamed or retyped a column, which Spark can't do to a Hive table.
    """
    there = {column.lower(): kind for column, kind in target.items()}
    own = {column.lower() for column in hive}
    if lost := [column for column in partition_columns if column.lower() not in there]:
        raise Refused(
            f"{name} is partitioned by {lost[0]}, which the table in its place no longer has: bring the "
            "column back, or finish the migration without keeping the copy in step"
        )
    wrong = [
        column
        for column, kind in hive.items()
        if column.lower() not in there or not _holds(kind, there[column.lower()])
    ]
    if wrong:
        keys = {column.lower() for column in partition_columns}
        wanted = ", ".join(f"`{each}` {kind}" for each, kind in target.items() if each.lower() not in keys)
        found = there.get(wrong[0].lower())
        said = f"is {found} by now" if found else "is no longer there"
        raise Refused(
            f"the column {wrong[0]} of {name} ({hive[wrong[0]]}) {said} in the table in its place, and Spark "
            f"can't change a Hive table's columns: run in Hive ALTER TABLE … REPLACE COLUMNS ({wanted}), and "
            "resume the job"
        )
    return {column: kind for column, kind in target.items() if column.lower() not in own}


def canonical(text: str, kind: str) -> str | None:
    """Return a partition value of the metastore as Spark casts it to text; None is null."""
    if text == NULL:
        return None
    if kind in _INTEGERS:
        return str(int(text))
    if kind.startswith("decimal"):
        scale = int(kind.rstrip(")").rpartition(",")[2]) if "," in kind else 0
        return str(Decimal(text).quantize(Decimal(1).scaleb(-scale)))
    if kind == "boolean":
        return text.lower()
    if kind.startswith("timestamp"):
        return re.sub(r"(\.\d*?)0+$", r"\1", text).rstrip(".") if "." in text else text
    return text


def parse(spec: str, kinds: Sequence[str]) -> Partition:
    """Read a line of SHOW PARTITIONS."""
    values = (unescape(level.partition("=")[2]) for level in spec.split("/"))
    return tuple(canonical(value, kind) for value, kind in zip(values, kinds, strict=True))


def spell(partition: Partition, columns: Sequence[str]) -> str:
    """Write a partition as the path of its directory, the way Spark's writer does."""
    return "/".join(
        f"{_escape(column)}={NULL if value is None else _escape(value)}"
        for column, value in zip(columns, partition, strict=True)
    )


def _escape(text: str) -> str:
    return _TO_ESCAPE.sub(lambda found: f"%{ord(found[0]):02X}", text)


def _is_below(location: str, root: str | None) -> bool:
    return root is not None and below(location, root) is not None


def _nulls_first(partition: Partition) -> tuple[tuple[bool, str], ...]:
    return tuple((value is not None, value or "") for value in partition)


# What a Hive type becomes in a format that hasn't it.
_WIDER = {"tinyint": "int", "smallint": "int", "timestamp": "timestamp_ntz"}


def _holds(hive: str, target: str) -> bool:
    mine, theirs = hive.lower(), target.lower()
    return mine == theirs or _WIDER.get(mine) == theirs
