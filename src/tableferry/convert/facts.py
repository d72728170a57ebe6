"""What is known of a directory of Parquet files: frozen, and without Spark or Arrow."""

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
        path: Where it is below the table's root, as the file system spells it, with ``/`` between names.
        size: Bytes.
        modified: Milliseconds since 1970, UTC.
    """

    path: str
    size: int
    modified: int


@dataclass(frozen=True)
class Leaf:
    """A column of primitive type, in no array and no map, so that statistics can say something of it."""

    path: ColumnPath
    type: Primitive


@dataclass(frozen=True)
class FileSchema:
    """The schema that some files share.

    Attributes:
        columns: All columns, as Spark would read them.
        leaves: Those of which there can be statistics, in the file's order.
        undecimal: Paths of what is stored in a way that Spark can't read as a wider decimal: integers without
            a sign, and nulls without a type that aren't stored as int.
        untyped: Paths of columns that contain only nulls, stored as int, and have no type, as pandas and
            Arrow write them.
    """

    columns: Struct
    leaves: tuple[Leaf, ...]
    undecimal: frozenset[ColumnPath] = frozenset()
    untyped: frozenset[ColumnPath] = frozenset()


class Bounds(NamedTuple):
    """The statistics of one leaf in one file; None where the footer doesn't say or can't be trusted.

    Attributes:
        lowest: A value that none is below, as the JSON text that Delta's log holds: ``12``, ``"abc"``.
        highest: A value that none is above.
        nulls: How many are null.
    """

    lowest: str | None
    highest: str | None
    nulls: int | None


class Footer(NamedTuple):
    """What a file's footer says.

    Attributes:
        schema: Its schema; files that share one share the object.
        packed: The statistics of the schema's first leaves as one string, for a table may have hundreds of
            thousands of files, and they may come from other processes: a line for each lowest value, then
            for each highest and each number of nulls; empty for what isn't known.
        split: A column encoded as BYTE_STREAM_SPLIT, which Spark's vectorized reader can't read; empty if
            none is.
    """

    rows: int
    schema: FileSchema
    packed: str
    split: str = ""

    @classmethod
    def of(cls, rows: int, schema: FileSchema, bounds: Sequence[Bounds], split: str = "") -> Footer:
        """Pack the statistics of the schema's leaves, the first or all."""
        lowest = [leaf.lowest or "" for leaf in bounds]
        highest = [leaf.highest or "" for leaf in bounds]
        nulls = ["" if leaf.nulls is None else str(leaf.nulls) for leaf in bounds]
        # JSON text has no line ends.
        return cls(rows, schema, "\n".join((*lowest, *highest, *nulls)), split)

    @property
    def bounds(self) -> tuple[Bounds, ...]:
        """The statistics of the schema's leaves, as far as they were read."""
        lowest, highest, nulls = self.unpacked
        return tuple(
            Bounds(low or None, high or None, int(count) if count else None)
            for low, high, count in zip(lowest, highest, nulls, strict=True)
        )

    @property
    def leaves(self) -> int:
        """Of how many of the schema's leaves there are statistics."""
        return (self.packed.count("\n") + 1) // 3

    @property
    def unpacked(self) -> tuple[list[str], list[str], list[str]]:
        """The leaves' lowest values, their highest and their numbers of nulls; empty for what isn't known."""
        lines = self.packed.split("\n") if self.packed else []
        count = len(lines) // 3
        return lines[:count], lines[count : 2 * count], lines[2 * count :]


class Unreadable(NamedTuple):
    """A file whose footer can't be had.

    Attributes:
        reason: Why, as it follows the file's name: ``is not a Parquet file``.
        passing: Whether that tells of this moment, and nothing of the file.
    """

    reason: str
    passing: bool = False


@dataclass(frozen=True)
class IcebergTable:
    """An Iceberg table.

    Attributes:
        root: Its folder: a local path, or the URI of a store.
        catalog: Its name with that of one of pyiceberg's catalogs in front; empty if its folder was named.
    """

    root: str
    catalog: str = ""


@dataclass(frozen=True)
class IcebergState:
    """How an Iceberg table stands.

    Attributes:
        at: Its metadata file.
        by_id: Why its columns have to be found by their ids; empty if their names do.
        last_id: The highest id that a column ever had.
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
        table_id: The id of its table.
        ours: Whether it is nothing but the first commit of a conversion by Tableferry.
        differences: How the folder's files differ from those that the log names: a sentence for each.
        missed: Whether each of these is a file that was there before the commit, which a conversion that died
            didn't look for any more. No writer of Delta can have left it.
        shown_by: The Delta tables of the catalog, other than the one to convert, that are in this folder.
        columns: All columns of the table; None if they can't be told.
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
"""What several files' footers say, in the listing's order."""


@dataclass(frozen=True)
class Partitions:
    """The partition columns of a table, from the root down, and every file's values.

    Attributes:
        values: For each file, in the listing's order, each column's value as the log writes it; None is null.
        same_values: Which directories have one value of a column in two spellings, as notes say too.
    """

    columns: tuple[PartitionColumn, ...]
    values: tuple[tuple[str | None, ...], ...]
    notes: tuple[str, ...] = ()
    same_values: tuple[str, ...] = ()
