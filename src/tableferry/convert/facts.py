"""Facts about a directory of Parquet files and its log; immutable and independent of Spark and Arrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from tableferry.hive.partitions import PartitionColumn
from tableferry.tables import TableName
from tableferry.types import ColumnPath, Primitive, Struct


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


@dataclass(frozen=True)
class IcebergTable:
    """An Iceberg table.

    Attributes:
        root: Its folder: a local path, or the URI of a store.
        catalog: The table's name, starting with a pyiceberg catalog; empty if the user named the folder.
    """

    root: str
    catalog: str = ""


@dataclass(frozen=True)
class IcebergState:
    """The state of an Iceberg table when it was read.

    Attributes:
        at: The metadata file that was read.
        by_id: The reason why columns must be matched by id; empty if they can be matched by name.
        last_id: The highest column id that was ever assigned.
    """

    table: IcebergTable
    at: str
    by_id: str = ""
    last_id: int = 0
    comment: str | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ExistingLog:
    """A Delta log that a folder has before its conversion, compared with the files in the folder.

    Attributes:
        table_id: The id of the log's table.
        ours: Whether the log has only the first commit of a conversion by Tableferry.
        differences: How the folder's files differ from those that the log names: a sentence for each.
        missed: Whether each difference is a file that is older than the commit. A conversion that ends before
            its last check of the folder can miss such a file; a Delta writer can't leave one.
        shown_by: The Delta tables of the catalog, other than the one to convert, that have this folder.
        columns: All columns of the table; None if one has an unknown type.
        partition_columns: From the root down.
    """

    table_id: str
    ours: bool
    differences: tuple[str, ...] = ()
    missed: bool = False
    shown_by: tuple[TableName, ...] = ()
    columns: Struct | None = None
    partition_columns: tuple[PartitionColumn, ...] = ()


Footers: TypeAlias = Iterator[Footer | Unreadable]
"""The footers of several files, in listing order."""


@dataclass(frozen=True)
class Partitions:
    """The partition columns of a table, from the root down, and every file's values.

    Attributes:
        values: For each file, in listing order, each column's value as the log writes it; None is null.
        same_values: A note for each column value that directories spell in two ways; also in ``notes``.
    """

    columns: tuple[PartitionColumn, ...]
    values: tuple[tuple[str | None, ...], ...]
    notes: tuple[str, ...] = ()
    same_values: tuple[str, ...] = ()
