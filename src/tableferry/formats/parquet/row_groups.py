"""Collect the statistics of columns from all row groups of a file.

pyarrow 26.0.1 ends the process at a self-contradictory footer or at encrypted columns, because its Cython
lets C++ exceptions pass in ``ColumnChunk`` and ``statistics``. It also hides bounds' order and NaN counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import compress
from operator import attrgetter
from typing import NamedTuple, TypeAlias

from tableferry.formats.parquet.elements import PHYSICAL, Element
from tableferry.formats.parquet.file_metadata import Broken, ColumnMetaData, RowGroup
from tableferry.spark.types import ColumnPath

Values: TypeAlias = Sequence[bytes | None]

_BYTE_STREAM_SPLIT = 9

# In the order of `ColumnStatistics`.
_statistics = attrgetter("null_count", "min_value", "max_value", "min", "max", "nan_count")
_sizes = attrgetter("num_values", "total_compressed_size")
_of_chunk = attrgetter("statistics")
_encodings = attrgetter("encodings")
_offset = attrgetter("data_page_offset")
_metadata = attrgetter("meta_data")
_file_path, _crypto_metadata = attrgetter("file_path"), attrgetter("crypto_metadata")


class Encrypted(Exception):
    """The file is encrypted, or one of its columns is although the footer isn't."""


class ColumnStatistics(NamedTuple):
    """A column's statistics, one item for each row group; None if the footer doesn't state the item.

    Attributes:
        nulls: The number of nulls.
        lowest: ``min_value``, plainly encoded.
        highest: ``max_value``.
        old_lowest: The deprecated ``min``, which follows the order of signed numbers.
        old_highest: ``max``.
        nans: The number of values that are NaN.
        values: The number of values, including nulls; empty if it wasn't requested.
        sizes: The compressed bytes in the file; empty if they weren't requested.
    """

    nulls: Sequence[int | None]
    lowest: Values
    highest: Values
    old_lowest: Values
    old_highest: Values
    nans: Sequence[int | None]
    values: Sequence[int | None] = ()
    sizes: Sequence[int | None] = ()

    def of(self, groups: Sequence[bool]) -> ColumnStatistics:
        """Return the statistics of the row groups whose item in ``groups`` is true."""
        return ColumnStatistics._make(tuple(compress(side, groups)) for side in self)


class RowGroups(NamedTuple):
    """The row groups of a file.

    Attributes:
        rows: The number of rows of each row group.
        statistics: The statistics of each requested column.
        split: The numbers of columns with chunks encoded as BYTE_STREAM_SPLIT.
        end: The offset of the first byte after all chunks; 0 if the footer doesn't state it.
    """

    rows: Sequence[int]
    statistics: Sequence[ColumnStatistics]
    split: frozenset[int]
    end: int = 0


NO_ROW_GROUPS = RowGroups((), (), frozenset())


class RowGroupReader:
    """Collect the statistics of files with one schema.

    Attributes:
        count: The number of column chunks of a row group.
    """

    def __init__(self, root: Element, columns: Sequence[int], *, sizes: bool = False) -> None:
        """Set the numbers of the columns to read, and whether to read their sizes."""
        self._columns, self._sizes = columns, sizes
        self._expected = [
            (PHYSICAL.index(leaf.physical), [name.encode() for name in path])
            for path, leaf in _leaves(root, ())
        ]
        self.count = len(self._expected)

    def read(self, groups: Sequence[RowGroup]) -> RowGroups:
        """Return the statistics of row groups.

        Raises:
            Encrypted: A column is encrypted.
            Broken: The row groups don't match the schema.
        """
        if not groups:
            return NO_ROW_GROUPS
        chunks = [self._chunks(group) for group in groups]
        split = frozenset(
            column
            for metadata in chunks
            for column, encodings in enumerate(map(_encodings, metadata))
            if _BYTE_STREAM_SPLIT in encodings
        )
        statistics = [
            self._statistics(column, [group[column] for group in chunks]) for column in self._columns
        ]
        last = (max(metadata, key=_offset) for metadata in chunks if metadata)
        end = max(map(_end, last), default=0)
        return RowGroups([group.num_rows for group in groups], statistics, split, end)

    def _chunks(self, group: RowGroup) -> Sequence[ColumnMetaData]:
        if group.num_rows < 0:
            raise Broken("a row group without rows or columns")
        if len(group.columns) != self.count:
            raise Broken("a row group whose columns aren't the schema's")
        if any(map(_crypto_metadata, group.columns)):
            raise Encrypted
        metadata = list(map(_metadata, group.columns))
        if not all(metadata):
            raise Broken("a column whose metadata is elsewhere")
        if any(map(_file_path, group.columns)):
            raise Broken("a column whose values are in another file")
        return metadata

    def _statistics(self, column: int, chunks: Sequence[ColumnMetaData]) -> ColumnStatistics:
        expected = self._expected[column]
        if any((chunk.type, chunk.path_in_schema) != expected for chunk in chunks):
            raise Broken("a row group whose columns aren't the schema's")
        sides = list(zip(*map(_statistics, map(_of_chunk, chunks)), strict=True))
        if self._sizes:
            sides += zip(*map(_sizes, chunks), strict=True)
        return ColumnStatistics(*sides)


def _end(chunk: ColumnMetaData) -> int:
    """Return the offset of the first byte after a chunk; 0 if it isn't stated.

    Only this end shows that a file lost bytes. Gaps between chunks don't show it:

    - Page indexes and bloom filters follow chunks (pyarrow, DuckDB).
    - Polars leaves some bytes between row groups.
    - Old writers state sizes without the dictionary's header (PARQUET-816).

    Some writers state the dictionary's offset as 0 if the chunk has no dictionary.
    """
    first, dictionary = chunk.data_page_offset, chunk.dictionary_page_offset
    if not first or chunk.total_compressed_size is None:
        return 0
    if dictionary and 0 < dictionary < first:
        first = dictionary
    return first + chunk.total_compressed_size


def _leaves(element: Element, path: ColumnPath) -> Iterable[tuple[ColumnPath, Element]]:
    for child in element.children:
        child_path = (*path, child.name)
        if child.physical:
            yield child_path, child
        else:
            yield from _leaves(child, child_path)
