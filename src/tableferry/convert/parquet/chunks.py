"""What a footer's row groups say of their columns.

pyarrow would decode it, but it ends the whole process at a footer that contradicts itself or whose columns
are encrypted: its Cython lets C++'s exceptions pass in ``ColumnChunk`` and ``statistics`` (26.0.1). Nor does
it show which order a column's bounds follow, or how many values are NaN.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, compress
from typing import Any, NamedTuple

from tableferry.convert.parquet.elements import PHYSICAL, Element
from tableferry.convert.parquet.layouts import (
    HIGHEST,
    LOWEST,
    NANS,
    NULLS,
    OLD_HIGHEST,
    OLD_LOWEST,
    SIZE,
    VALUES,
    FieldPath,
    Known,
    Layouts,
    Values,
    encoded,
)
from tableferry.convert.parquet.thrift import I64, LIST, STRUCT, Broken, Reader
from tableferry.types import ColumnPath

_SPLIT = 9
"""The encoding BYTE_STREAM_SPLIT."""


class Encrypted(Exception):
    """The column is encrypted, though the footer isn't."""


class Raw(NamedTuple):
    """What the statistics of a column say in each row group; None where they don't.

    Attributes:
        nulls: How many of the values are null.
        lowest: ``min_value``, plainly encoded.
        highest: ``max_value``.
        old_lowest: The deprecated ``min``, which follows the order of signed numbers.
        old_highest: ``max``.
        nans: How many of the values are NaN.
        values: How many values there are, nulls among them; empty if nobody asked.
        sizes: The bytes that they take in the file; empty if nobody asked.
    """

    nulls: Sequence[int | None]
    lowest: Values
    highest: Values
    old_lowest: Values
    old_highest: Values
    nans: Sequence[int | None]
    values: Sequence[int | None] = ()
    sizes: Sequence[int | None] = ()

    def of(self, groups: Sequence[bool]) -> Raw:
        """Take what some of the row groups say."""
        return Raw._make(tuple(compress(side, groups)) for side in self)


class Groups(NamedTuple):
    """What row groups say.

    Attributes:
        rows: How many rows each has.
        raws: The statistics of each column that was asked for.
        split: The columns some of whose values are encoded as BYTE_STREAM_SPLIT.
    """

    rows: Sequence[int]
    raws: Sequence[Raw]
    split: frozenset[int]


NO_GROUPS = Groups((), (), frozenset())

# As `Raw` has them.
_FIELDS = (NULLS, LOWEST, HIGHEST, OLD_LOWEST, OLD_HIGHEST, NANS)


class Columns:
    """How to read the row groups of files with one schema.

    Attributes:
        typed: How a footer says that all columns follow the order of their types.
        missed: How many row groups had to be read plainly.
    """

    def __init__(self, root: Element, numbers: Sequence[int], *, sizes: bool = False) -> None:
        """Ask for the statistics of the columns with these numbers, and how large these are."""
        self._numbers = numbers
        self._fields = (*_FIELDS, VALUES, SIZE) if sizes else _FIELDS
        leaves = list(_leaves(root, ()))
        self._expected = [
            (PHYSICAL.index(leaf.physical), [name.encode() for name in path]) for path, leaf in leaves
        ]
        self._texts = [leaf.physical == "BINARY" for _, leaf in leaves]
        self._layouts = Layouts(self._texts, numbers, self._fields, _SPLIT)
        self._last = max(numbers, default=-1)
        self.missed = 0
        self.count = len(leaves)
        head = (self.count << 4 | STRUCT,) if self.count < 15 else (15 << 4 | STRUCT, *encoded(self.count))
        self.typed = bytes(head) + b"\x1c\0\0" * self.count

    def groups(self, reader: Reader, count: int) -> Groups:
        """Read so many row groups.

        Raises:
            Encrypted: A column of them is encrypted.
            Broken: They are no row groups of that schema. Where the footer has one kind of value in the place
                of another, it may be a TypeError or AttributeError.
        """
        runs = []
        while count:
            known = self._layouts.match(reader, count)
            runs.append(self._unknown(reader) if known is None else self._known(known))
            count -= len(runs[-1].rows)
        return runs[0] if len(runs) == 1 else _joined(runs)

    def _known(self, known: Known) -> Groups:
        nothing: tuple[None, ...] = (None,) * len(known.rows)

        def counts(side: Values) -> Sequence[int | None]:
            return nothing if side == nothing else list(map(_COUNTS.__getitem__, side))

        raws = []
        for column, (nulls, *sides) in zip(self._numbers, known.sides, strict=True):
            bounds = sides[:4]
            if self._texts[column]:
                bounds = [
                    side if side == nothing else [text and text[1 if text[0] < 128 else 2 :] for text in side]
                    for side in bounds
                ]
            lowest, highest, old_lowest, old_highest = bounds
            numbers = map(counts, sides[4:])
            raws.append(Raw(counts(nulls), lowest, highest, old_lowest, old_highest, *numbers))
        return Groups([_COUNTS[rows] or 0 for rows in known.rows], raws, frozenset(known.marked))

    def _unknown(self, reader: Reader) -> Groups:
        """Read a row group plainly, and learn from it."""
        start = reader.at
        rows = -1
        chunks: list[Any] = []
        for number, kind in reader.fields():
            if number == 1 and kind == LIST:
                count, kind = reader.list_head()
                if count != len(self._expected) or kind != STRUCT:
                    raise Broken("a row group whose columns aren't the schema's")
                chunks = [self._chunk(reader, column) for column in range(count)]
            else:
                value = reader.value(kind)
                rows = value if number == 3 else rows
        if rows < 0 or len(chunks) != len(self._expected):
            raise Broken("a row group without rows or columns")
        raws = [
            Raw(*((_at(chunks[column], field[2:]),) for field in self._fields)) for column in self._numbers
        ]
        self.missed += 1
        # The first may be the only one, and to make patterns takes as long as to read some dozens.
        if self.missed > 1 and self.missed.bit_count() == 1:
            self._layouts.learn(reader.data, start)
        split = (column for column, metadata in enumerate(chunks) if _SPLIT in metadata.get(2, ()))
        return Groups((rows,), raws, frozenset(split))

    def _chunk(self, reader: Reader, column: int) -> Mapping[int, Any]:
        """Read the metadata of a column; nothing of those of which nothing is asked, if they are usual."""
        own = column <= self._last
        if not own and self._layouts.passes(reader):
            return {}
        chunk = reader.value(STRUCT)
        metadata: Mapping[int, Any] | None = chunk.get(3)
        if 8 in chunk:
            raise Encrypted
        if metadata is None:
            raise Broken("a column whose metadata is elsewhere")
        if chunk.get(1):
            raise Broken("a column whose values are in another file")
        if own and (metadata.get(1), metadata.get(3)) != self._expected[column]:
            raise Broken("a row group whose columns aren't the schema's")
        return metadata


def _at(metadata: Mapping[int, Any], path: FieldPath) -> Any:
    """Return what is in a field of a column's metadata; None where it isn't there."""
    found: Any = metadata
    for number in path:
        found = found.get(number, {})
    return None if found == {} else found


def _joined(runs: Sequence[Groups]) -> Groups:
    raws = [
        Raw._make(tuple(chain.from_iterable(side)) for side in zip(*parts, strict=True))
        for parts in zip(*(run.raws for run in runs), strict=True)
    ]
    rows = tuple(chain.from_iterable(run.rows for run in runs))
    return Groups(rows, raws, frozenset[int]().union(*(run.split for run in runs)))


class _Counts(dict[bytes | None, int | None]):
    """Numbers by what Thrift writes for them, the usual ones each decoded once; None for None."""

    def __missing__(self, written: bytes) -> int:
        number: int = Reader(written).value(I64)
        if len(written) <= 2:
            self[written] = number
        return number


_COUNTS = _Counts({None: None})


def _leaves(element: Element, path: ColumnPath) -> Iterable[tuple[ColumnPath, Element]]:
    for child in element.children:
        child_path = (*path, child.name)
        if child.physical:
            yield child_path, child
        else:
            yield from _leaves(child, child_path)
