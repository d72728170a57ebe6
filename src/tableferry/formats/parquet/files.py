"""Frozen data classes for a table's Parquet files: their schemas, statistics and unreadable footers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from tableferry.spark.types import ColumnPath, Primitive, Struct


class DataFile(NamedTuple):
    """A Parquet file of a table.

    Attributes:
        path: The path relative to the table's root, as the file system spells it, with ``/`` between names.
        size: Bytes.
        modified: Milliseconds since 1970, UTC.
    """

    path: str
    size: int
    modified: int


@dataclass(frozen=True)
class Leaf:
    """A column of primitive type that can have statistics, because it isn't inside an array or a map."""

    path: ColumnPath
    type: Primitive


@dataclass(frozen=True)
class FileSchema:
    """A schema that one or more files have.

    Attributes:
        columns: All columns, as Spark reads them.
        leaves: The columns that can have statistics, in file order.
        undecimal: Paths of columns that Spark can't read as a wider decimal because of their storage:
            unsigned integers, and nulls without a type that aren't stored as int.
        untyped: Paths of columns that contain only nulls, stored as int, and have no type, as pandas and
            Arrow write them.
    """

    columns: Struct
    leaves: tuple[Leaf, ...]
    undecimal: frozenset[ColumnPath] = frozenset()
    untyped: frozenset[ColumnPath] = frozenset()


class Bounds(NamedTuple):
    """The statistics of one leaf in one file; None where the footer has no value or can't be trusted.

    Attributes:
        lowest: A lower bound of the values, as the JSON text in Delta's log: ``12``, ``"abc"``.
        highest: An upper bound of the values.
        nulls: The number of nulls.
    """

    lowest: str | None
    highest: str | None
    nulls: int | None


class Footer(NamedTuple):
    """The schema and statistics in a file's footer.

    Attributes:
        schema: The file's schema; files with the same schema share the object.
        packed: The statistics of the schema's first leaves: a line for each lowest value, then for each
            highest value, then for each number of nulls. The line of an unknown value is empty. It is one
            string because a table may have hundreds of thousands of files, and other processes may send it.
        split: A column encoded as BYTE_STREAM_SPLIT, which Spark's vectorized reader can't read; empty if
            no column is.
    """

    rows: int
    schema: FileSchema
    packed: str
    split: str = ""

    @classmethod
    def of(cls, rows: int, schema: FileSchema, bounds: Sequence[Bounds], split: str = "") -> Footer:
        """Pack the statistics of all leaves of the schema, or of its first ones."""
        lowest = [leaf.lowest or "" for leaf in bounds]
        highest = [leaf.highest or "" for leaf in bounds]
        nulls = ["" if leaf.nulls is None else str(leaf.nulls) for leaf in bounds]
        # JSON text has no line ends.
        return cls(rows, schema, "\n".join((*lowest, *highest, *nulls)), split)

    @property
    def bounds(self) -> tuple[Bounds, ...]:
        """The statistics of the leaves for which they were read."""
        lowest, highest, nulls = self.unpacked
        return tuple(
            Bounds(low or None, high or None, int(count) if count else None)
            for low, high, count in zip(lowest, highest, nulls, strict=True)
        )

    @property
    def leaves(self) -> int:
        """The number of leaves for which statistics were read."""
        return (self.packed.count("\n") + 1) // 3

    @property
    def unpacked(self) -> tuple[list[str], list[str], list[str]]:
        """The lowest values, highest values and null counts of the leaves; an unknown value is empty."""
        lines = self.packed.split("\n") if self.packed else []
        count = len(lines) // 3
        return lines[:count], lines[count : 2 * count], lines[2 * count :]


class Unreadable(NamedTuple):
    """A file whose footer can't be read.

    Attributes:
        reason: The end of a sentence that starts with the file's name: ``is not a Parquet file``.
        passing: Whether the reason is temporary, such as unavailable storage, and not the file's content.
    """

    reason: str
    passing: bool = False


Footers: TypeAlias = Iterator[Footer | Unreadable]
"""The footers of several files, in listing order."""
