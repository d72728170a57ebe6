"""The statistics of column chunks, as a footer's bytes hold them.

pyarrow would decode them, but it ends the whole process at a footer that contradicts itself or whose
columns are encrypted: its Cython lets C++'s exceptions pass in ``ColumnChunk`` and ``statistics`` (26.0.1).
Nor does it show which order a column's bounds follow, or how many values are NaN.

A footer has a dozen values for each of its columns, of which three matter. A regular expression for each
column takes a chunk of the usual form in one go; one of another form goes through Thrift's own reader.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from tableferry.convert.facts import ColumnPath
from tableferry.convert.parquet.elements import PHYSICAL, Element
from tableferry.convert.parquet.thrift import BINARY, I64, LIST, STRUCT, Broken, Reader


class Encrypted(Exception):
    """The column is encrypted, though the footer isn't."""


class Raw(NamedTuple):
    """What one chunk's statistics say; None where they don't.

    Attributes:
        nulls: How many of the values are null.
        lowest: ``min_value``, plainly encoded.
        highest: ``max_value``.
        nans: How many of the values are NaN.
        old_lowest: The deprecated ``min``, which follows the order of signed numbers.
        old_highest: ``max``.
        split: Whether some of the values are encoded as BYTE_STREAM_SPLIT.
    """

    nulls: int | None = None
    lowest: bytes | None = None
    highest: bytes | None = None
    nans: int | None = None
    old_lowest: bytes | None = None
    old_highest: bytes | None = None
    split: bool = False


Group: TypeAlias = tuple[int, list[Raw]]

_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 12}

# Pieces of Thrift's compact protocol: a field's head is its number's distance and its kind.
_VARINT = rb"[\x80-\xff]*+[\x00-\x7f]"


def _heads(*kinds: int) -> bytes:
    return b"[" + b"".join(rb"\x%02x" % (step << 4 | kind) for step in range(1, 16) for kind in kinds) + b"]"


def _lists(kind: int, item: bytes) -> bytes:
    """Match a list's head and items; of one with more items, nothing."""
    alternatives = (rb"\x%02x(?:%s){%d}" % (count << 4 | kind, item, count) for count in range(6))
    return b"(?:" + b"|".join(alternatives) + b")"


_NUMBER = _heads(4, 5, 6) + _VARINT
_NUMBERS = b"(?:" + _lists(5, _VARINT) + b"|" + _lists(6, _VARINT) + b")"
_FLAT = rb"(?:%s|%s%s)*+" % (_NUMBER, _heads(9), _NUMBERS)
_STRUCTS = _lists(12, _FLAT + rb"\x00")
# Whole fields, whichever they are: what follows them is the head of another, or the struct's end.
_FIELDS = rb"(?:%s|%s(?:%s|%s)|%s%s\x00|%s)*+" % (
    *(_NUMBER, _heads(9), _NUMBERS, _STRUCTS, _heads(12), _FLAT, _heads(1, 2)),
)
# A chunk's file_offset, and of its meta_data the type and the encodings; then follows path_in_schema.
_START = re.compile(rb"\x26%s\x1c\x15([\x00-\x0e])\x19(%s)\x19" % (_VARINT, _lists(5, _VARINT)), re.DOTALL)
# The number of BYTE_STREAM_SPLIT, and as a list of encodings holds it.
_SPLIT, _SPLIT_WRITTEN = 9, b"\x12"
# codec, num_values, two sizes, data_page_offset and the two offsets that may be, up to the statistics' head.
_COUNTS = rb"\x15V\x16V\x16V\x16V\x26V(?:\x26V\x1c|\x16V\x2c|\x16V\x16V\x1c|\x3c)".replace(b"V", _VARINT)
_BEFORE = re.compile(_COUNTS, re.DOTALL)
# The rest of the meta_data and of the chunk.
_AFTER = re.compile(_FIELDS + rb"\x00" + _FIELDS + rb"\x00", re.DOTALL)


def _usual(width: int) -> re.Pattern[bytes]:
    """Match what follows the path in a chunk whose bounds have that many bytes, if it has bounds."""
    size = re.escape(bytes((width,)))
    value, plain = rb"%s(.{%d})" % (size, width), rb"%s.{%d}" % (size, width)
    # max_value and min_value, whether they're exact, and before them perhaps distinct_count
    bounds = rb"(?:\x16%s\x18|\x28)%s\x18%s(?:[\x11\x12]){0,2}" % (_VARINT, value, value)
    # The deprecated max and min, and null_count
    nulls = rb"(?:\x18%s\x18%s\x16(%s)%s|\x36(%s)(?:%s)?)" % (plain, plain, _VARINT, bounds, _VARINT, bounds)
    return re.compile(_COUNTS + nulls + rb"\x00", re.DOTALL)


class Columns:
    """How to read the chunks of files with one schema; only columns with these numbers, ascending, matter.

    Attributes:
        typed: How a footer says that all columns follow the order of their types.
    """

    def __init__(self, root: Element, numbers: Sequence[int]) -> None:
        self._indexes = {number: index for index, number in enumerate(numbers)}
        self._chunks = [_Chunk(path, leaf) for path, leaf in _leaves(root, ())]
        self.count = len(self._chunks)
        head = (self.count << 4 | STRUCT,) if self.count < 15 else (15 << 4 | STRUCT, *_encoded(self.count))
        self.typed = bytes(head) + b"\x1c\0\0" * self.count

    def group(self, reader: Reader) -> Group:
        """Read a row group: its rows, and what it says of each of these columns.

        Raises:
            Encrypted: A column of it is encrypted.
            Broken: It's no row group of that schema. Where the footer has one kind of value in the place of
                another, it may be a TypeError or AttributeError.
        """
        raws = [Raw()] * len(self._indexes)
        rows = -1
        columns = 0
        for number, kind in reader.fields():
            if number == 1 and kind == LIST:
                columns, kind = reader.list_head()
                if columns != len(self._chunks) or kind != STRUCT:
                    raise Broken("a row group whose columns aren't the schema's")
                for column, chunk in enumerate(self._chunks):
                    raw = chunk.read(reader)
                    if (index := self._indexes.get(column)) is not None:
                        raws[index] = raw
            elif number == 3:
                rows = reader.value(kind)
            else:
                reader.value(kind)
        if rows < 0 or columns != len(self._chunks):
            raise Broken("a row group without rows or columns")
        return rows, raws


class _Chunk:
    """How to read the chunks of one column."""

    def __init__(self, path: ColumnPath, leaf: Element) -> None:
        names = [name.encode() for name in path]
        self._path = names
        self._physical = PHYSICAL.index(leaf.physical)
        self._type = bytes((self._physical * 2,))
        spelled = b"".join(bytes(_encoded(len(name))) + name for name in names)
        self._spelled = bytes((len(names) << 4 | BINARY,)) + spelled if len(names) < 15 else b""
        width = leaf.length if leaf.physical == "FIXED_LEN_BYTE_ARRAY" else _WIDTHS.get(leaf.physical, 0)
        self._usual = _usual(width) if 0 < width < 128 else None

    def read(self, reader: Reader) -> Raw:
        """Read the chunk that comes next."""
        data, start = reader.data, reader.at
        head = _START.match(data, start)
        if head and head[1] == self._type and self._spelled and data.startswith(self._spelled, head.end()):
            at = head.end() + len(self._spelled)
            if self._usual is not None:
                usual = self._usual.match(data, at)
                if usual and (after := _AFTER.match(data, usual.end())):
                    reader.at = after.end()
                    first, high, low, second, other_high, other_low = usual.groups()
                    nulls = second if first is None else first
                    count = Reader(nulls).value(I64) if nulls != b"\0" else 0
                    split = _SPLIT_WRITTEN in head[2][1:]
                    return Raw(count, low or other_low, high or other_high, split=split)
            elif before := _BEFORE.match(data, at):
                reader.at = before.end()
                statistics = reader.value(STRUCT)
                if after := _AFTER.match(data, reader.at):
                    reader.at = after.end()
                    return _raw(statistics, _SPLIT_WRITTEN in head[2][1:])
                reader.at = start
        return self._unusual(reader.value(STRUCT))

    def _unusual(self, chunk: Any) -> Raw:
        metadata = chunk.get(3)
        if 8 in chunk:
            raise Encrypted
        if metadata is None:
            raise Broken("a column whose metadata is elsewhere")
        if metadata.get(1) != self._physical or metadata.get(3) != self._path:
            raise Broken("a row group whose columns aren't the schema's")
        return _raw(metadata.get(12, {}), _SPLIT in metadata.get(2, ()))


def _encoded(number: int) -> list[int]:
    """Write a number as Thrift does."""
    return [number & 127 | 128, *_encoded(number >> 7)] if number > 127 else [number]


def _raw(statistics: Any, split: bool) -> Raw:
    return Raw._make((*(statistics.get(number) for number in (3, 6, 5, 9, 2, 1)), split))


def _leaves(element: Element, path: ColumnPath) -> list[tuple[ColumnPath, Element]]:
    leaves = []
    for child in element.children:
        child_path = (*path, child.name)
        leaves += [(child_path, child)] if child.physical else _leaves(child, child_path)
    return leaves
