"""Patterns that read whole row groups at once, made from the bytes of those read before.

The row groups of a directory hardly differ but in numbers and bounds: heads, names and the sizes of lists are
the same bytes in all of them. So the bytes of one give a regular expression for the others, which takes a
quarter of a microsecond for a column where `thrift.Reader` takes thirty.

A pattern takes as many bytes for each value as Thrift says, so what matches means what the plain reader says.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple, TypeAlias

from tableferry.convert.parquet import thrift
from tableferry.convert.parquet.thrift import BINARY, FALSE, LIST, SET, STRUCT, TRUE, Reader

Values: TypeAlias = Sequence[bytes | None]

FieldPath: TypeAlias = tuple[int, ...]
"""The number of a field of RowGroup, and below it those of ColumnChunk, ColumnMetaData and Statistics."""

STATISTICS: FieldPath = (1, 3, 12)
NULLS, LOWEST, HIGHEST, OLD_LOWEST, OLD_HIGHEST, NANS = ((*STATISTICS, field) for field in (3, 6, 5, 2, 1, 9))
VALUES, SIZE = (1, 3, 5), (1, 3, 7)
"""How many values there are, nulls among them, and how many bytes they take."""

_ROWS, _COLUMNS, _FILE_PATH = (3,), (1,), (1, 1)
_PHYSICAL, _ENCODINGS, _NAMES = (1, 3, 1), (1, 3, 2), (1, 3, 3)
_COUNTS, _BOUNDS = (_ROWS, NULLS, NANS, VALUES, SIZE), (LOWEST, HIGHEST, OLD_LOWEST, OLD_HIGHEST)
# The deprecated field in the place of which another came.
_OLD = {HIGHEST: OLD_HIGHEST, LOWEST: OLD_LOWEST}
# Stands for an encoding, as no field has that path.
_MARK: FieldPath = ()

# More ways to write a column, or the row group around them, aren't learned.
_MOST_WAYS = 16
_NUMBERS = (thrift.I16, thrift.I32, thrift.I64)
_VARINT = b"[\x80-\xff]{0,9}+[\x00-\x7f]"
# The lengths that take one byte, each with as many bytes behind it.
_SHORT = b"|".join(re.escape(bytes((length,))) + b".{%d}" % length for length in range(128))
# For each bit of a byte of a length, the bytes that have it.
_WITH_BIT = [re.escape(bytes(byte for byte in range(256) if byte >> bit & 1)) for bit in range(7)]


class _Asked(NamedTuple):
    """A value that is asked for."""

    field: FieldPath
    pattern: bytes


class _Again(NamedTuple):
    """A value that is asked for, and is the same as another field's before it."""

    field: FieldPath
    of: FieldPath


class _Text(NamedTuple):
    """Bytes of any length, with that before them; if they're asked for, with their field."""

    field: FieldPath | None


_Token: TypeAlias = bytes | _Asked | _Again | _Text
_Way: TypeAlias = tuple[_Token, ...]
# In their order, each once.
_Ways: TypeAlias = dict[_Way, None]


class _Unusual(Exception):
    """Of such a row group no pattern is made."""


class _Patterns(NamedTuple):
    """What was learned.

    Attributes:
        group: A whole row group.
        several: Numbers of groups of that of which at most one takes part: their value comes behind those of
            all groups and one that is always None.
        rows: Where the number of rows is.
        sides: For each column that is asked for, what gives the fields that are.
        marks: Columns, and where the mark of each is.
        rest: One of the columns of which nothing is asked.
    """

    group: re.Pattern[bytes]
    several: Sequence[Sequence[int]]
    rows: int
    sides: Sequence[Callable[[Sequence[Values]], Sequence[Values]]]
    marks: Sequence[tuple[int, int]]
    rest: re.Pattern[bytes]


class Known(NamedTuple):
    """What some row groups say, as Thrift writes it: texts with their length before them.

    Attributes:
        sides: For each column that is asked for, the values of the fields that are in each row group.
        marked: The columns that have the encoding that was asked about.
    """

    rows: Values
    sides: Sequence[Sequence[Values]]
    marked: Collection[int]


class Layouts:
    """The ways in which the row groups of one schema are written, as far as they were learned.

    Each column up to the last one whose statistics are asked for has ways of its own, as has each that was
    seen with a long text. The others, the rest, share theirs: their names may be any.
    """

    def __init__(
        self, texts: Sequence[bool], wanted: Collection[int], fields: Sequence[FieldPath], encoding: int
    ) -> None:
        """Begin with none.

        Args:
            texts: Of each column, whether its bounds may have any length.
            wanted: The columns that are asked for.
            fields: What is asked of them, of the fields named above.
            encoding: The encoding that is asked about; a column of the rest that has it isn't learned.
        """
        self._texts, self._wanted, self._encoding = texts, frozenset(wanted), encoding
        self._fields = fields
        self._last = max(wanted, default=-1)
        self._long: set[int] = set()
        # What comes before the columns and after them.
        self._before: _Ways = {}
        self._after: _Ways = {}
        self._columns: list[_Ways] = [{} for _ in texts]
        self._rest: _Ways = {}
        self._patterns: _Patterns | None = None

    def match(self, reader: Reader, count: int) -> Known | None:
        """Read so many row groups at most; None if the first isn't known."""
        patterns = self._patterns
        if patterns is None:
            return None
        data, at, match = reader.data, reader.at, patterns.group.match
        groups: list[tuple[bytes | None, ...]] = []
        while len(groups) < count and (matched := match(data, at)):
            groups.append(matched.groups())
            at = matched.end()
        if not groups:
            return None
        reader.at = at
        captured: list[Values] = list(zip(*groups, strict=True))
        nothing = (None,) * len(groups)
        captured.append(nothing)
        captured += [_one_of([captured[number] for number in numbers]) for numbers in patterns.several]
        return Known(
            captured[patterns.rows],
            [fields(captured) for fields in patterns.sides],
            [column for column, number in patterns.marks if captured[number] != nothing],
        )

    def passes(self, reader: Reader) -> bool:
        """Go past a column of the rest, if it's known."""
        matched = self._patterns.rest.match(reader.data, reader.at) if self._patterns else None
        if matched:
            reader.at = matched.end()
        return matched is not None

    def learn(self, data: bytes, start: int) -> None:
        """Learn from a row group that the plain reader has read, and make patterns of all that's learned."""
        asked = frozenset((column, field) for column in self._wanted for field in self._fields)
        walk = _Walk(Reader(data, start), self._texts, asked | {(-1, _ROWS)}, self._last, self._encoding)
        try:
            walk.struct(())
        except _Unusual:
            return
        self._long |= walk.long
        _add(self._before, walk.parts[0])
        _add(self._after, walk.parts[-1])
        for column, part in enumerate(walk.parts[1:-1]):
            if self._is_of_its_own(column):
                _add(self._columns[column], part)
            elif not any(isinstance(token, _Asked) for token in part):
                _add(self._rest, part)
        writer = _Writer(self._long)
        rest = writer.ways(-1, self._rest)
        parts = [writer.ways(-1, self._before)]
        for own, columns in groupby(range(len(self._texts)), self._is_of_its_own):
            if own:
                parts += (writer.ways(column, self._columns[column]) for column in columns)
            else:
                parts.append(b"(?:%s){%d}+" % (rest, len(list(columns))))
        group = b"".join((*parts, writer.ways(-1, self._after)))
        # Behind all groups come None, and what stands in several of them.
        several = [found for found in writer.found.values() if len(found) > 1]
        behind = iter(range(writer.count + 1, writer.count + 1 + len(several)))
        where = {key: found[0] if len(found) == 1 else next(behind) for key, found in writer.found.items()}
        sides = (
            [where.get((column, field), writer.count) for field in self._fields]
            for column in sorted(self._wanted)
        )
        self._patterns = _Patterns(
            re.compile(group, re.DOTALL),
            several,
            where[-1, _ROWS],
            [itemgetter(*numbers) for numbers in sides],
            [(column, number) for (column, field), number in where.items() if field == _MARK],
            re.compile(rest, re.DOTALL),
        )

    def _is_of_its_own(self, column: int) -> bool:
        return column <= self._last or column in self._long


def _add(ways: _Ways, part: Sequence[_Token]) -> None:
    if len(ways) < _MOST_WAYS:
        ways[tuple(part)] = None


def _one_of(sides: Sequence[Values]) -> Values:
    """Put together what at most one of them has."""
    rows = zip(*sides, strict=True)
    return tuple(next((value for value in values if value is not None), None) for values in rows)


class _Walk:
    """Goes through a row group, and says how its parts are written.

    Attributes:
        parts: What comes before the columns, each column, and what follows them.
        long: The columns with bounds of 128 bytes and more.
    """

    def __init__(
        self,
        reader: Reader,
        texts: Sequence[bool],
        asked: Collection[tuple[int, FieldPath]],
        last: int,
        encoding: int,
    ) -> None:
        """Begin; ``asked`` has columns' numbers, -1 for the row group, with fields; ``last`` is the last."""
        self.parts: list[list[_Token]] = [[]]
        self.long: set[int] = set()
        self._reader, self._texts, self._asked, self._encoding = reader, texts, asked, encoding
        self._last = last
        # The bounds of the column's statistics so far.
        self._bounds: dict[FieldPath, bytes] = {}

    def struct(self, path: FieldPath) -> None:
        """Take the fields of a struct, which is in these fields itself."""
        seen = set()
        start = self._reader.at
        for number, kind in self._reader.fields():
            # Which of two the plain reader keeps isn't worth a thought.
            if number in seen:
                raise _Unusual
            seen.add(number)
            if path == STATISTICS and len(seen) == 1:
                self._bounds.clear()
            self._field((*path, number), kind, self._since(start))
            start = self._reader.at
        self._add(re.escape(self._since(start)))

    def _field(self, path: FieldPath, kind: int, head: bytes) -> None:
        start = self._reader.at
        # The plain reader refuses these.
        if path == _FILE_PATH:
            raise _Unusual
        if path in _COUNTS:
            if kind not in _NUMBERS:
                raise _Unusual
            self._reader.value(kind)
            self._add(re.escape(head), _Asked(path, _VARINT) if self._is_asked(path) else _VARINT)
        elif path in _BOUNDS:
            if kind != BINARY:
                raise _Unusual
            self._bound(path, head)
        elif path in (_PHYSICAL, _ENCODINGS) or (path == _NAMES and self._column <= self._last):
            value = self._reader.value(kind)
            self._add(re.escape(head + self._since(start)))
            if path == _ENCODINGS and self._encoding in value:
                self._add(_Asked(_MARK, b""))
        elif kind in (TRUE, FALSE):
            # Whether it's true is in its head.
            either = bytes((head[0] & 0xF0 | TRUE, head[0] & 0xF0 | FALSE))
            self._add(b"[%s]%s" % (re.escape(either), re.escape(head[1:])))
        else:
            self._value(path, kind, head)

    def _value(self, path: FieldPath, kind: int, head: bytes = b"") -> None:
        start = self._reader.at
        if kind in _NUMBERS:
            self._reader.value(kind)
            self._add(re.escape(head) + _VARINT)
        elif kind == BINARY:
            if len(self._reader.value(kind)) > 127 and self._column >= 0:
                self.long.add(self._column)
            self._add(re.escape(head), _Text(None))
        elif kind == STRUCT:
            self._add(re.escape(head))
            self.struct(path)
        elif kind in (LIST, SET):
            count, kind = self._reader.list_head()
            self._add(re.escape(head + self._since(start)))
            for _ in range(count):
                if path == _COLUMNS:
                    self.parts.append([])
                self._value(path, kind)
            if path == _COLUMNS:
                self.parts.append([])
        else:
            self._reader.item(kind)
            self._add(re.escape(head) + b".{%d}" % (self._reader.at - start))

    def _bound(self, path: FieldPath, head: bytes) -> None:
        start = self._reader.at
        length = len(self._reader.value(BINARY))
        written = self._since(start)
        asked = self._is_asked(path)
        self._bounds[path] = written
        is_text = self._texts[self._column]
        if is_text and length > 127:
            self.long.add(self._column)
        # What has a length of its own is compared, or captured, with that.
        self._add(re.escape(head if is_text else head + written[: len(written) - length]))
        old = _OLD.get(path)
        if asked and old and self._is_asked(old) and self._bounds.get(old) == written:
            self._add(_Again(path, old))
        elif is_text:
            self._add(_Text(path if asked else None))
        else:
            value = b".{%d}" % length
            self._add(_Asked(path, value) if asked else value)

    def _is_asked(self, path: FieldPath) -> bool:
        # What follows the columns belongs to the row group again.
        column = -1 if path == _ROWS else self._column
        return (column, path) in self._asked

    @property
    def _column(self) -> int:
        return len(self.parts) - 2

    def _since(self, start: int) -> bytes:
        return self._reader.data[start : self._reader.at]

    def _add(self, *tokens: _Token) -> None:
        self.parts[-1] += tokens


class _Writer:
    """Writes patterns.

    Attributes:
        found: By a column's number, which is -1 for the row group itself, and a field's, the groups that may
            hold it.
        count: How many groups there are.
    """

    def __init__(self, long: Collection[int]) -> None:
        """Begin; ``long`` are the columns whose texts may have 128 bytes and more."""
        self._long = long
        self.found: dict[tuple[int, FieldPath], list[int]] = defaultdict(list)
        self.count = 0

    def ways(self, column: int, ways: _Ways) -> bytes:
        """Write what matches one of these ways: where two fit they say the same, so the first one counts."""
        # Where there is none, nothing fits.
        return b"(?>%s)" % b"|".join(b"".join(self._way(column, way)) for way in ways) if ways else b"(?!)"

    def _way(self, column: int, way: _Way) -> Iterator[bytes]:
        groups: dict[FieldPath, int] = {}
        for token in way:
            match token:
                case bytes():
                    yield token
                case _Again(field, of):
                    self.found[column, field].append(groups[of])
                    yield b"(?P=g%d)" % groups[of]
                case _Text(None):
                    yield self._text(column)
                case _Text(tuple(field)) | _Asked(field, _):
                    groups[field] = self.count
                    self.found[column, field].append(self.count)
                    self.count += 1
                    pattern = self._text(column) if isinstance(token, _Text) else token.pattern
                    yield b"(?P<g%d>%s)" % (groups[field], pattern)

    def _text(self, column: int) -> bytes:
        """Match bytes whose length takes one byte or, where there are long ones, two.

        Of two bytes there is a group for each bit, and then as many bytes for each bit that's there.
        """
        if column not in self._long:
            return b"(?:%s)" % _SHORT
        first, bits = self.count + 1, 2 * len(_WITH_BIT)
        self.count += bits
        low, high = (b"".join(b"(?=([%s])?)" % having for having in _WITH_BIT) for _ in range(2))
        length = b"(?=[\x80-\xff][\x00-\x7f])%s.%s." % (low, high)
        value = b"".join(b"(?(%d).{%d})" % (first + bit, 1 << bit) for bit in range(bits))
        return b"(?:%s|%s%s)" % (_SHORT, length, value)


def encoded(number: int) -> list[int]:
    """Write a number as Thrift does."""
    return [number & 127 | 128, *encoded(number >> 7)] if number > 127 else [number]
