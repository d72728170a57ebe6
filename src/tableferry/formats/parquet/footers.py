"""Read and decode the footer of a Parquet file; invalid bytes give an `Unreadable`, never an exception.

Nearly every footer takes one open and one read. Files with the same schema share its cached interpretation.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import compress
from operator import le, lt
from typing import Any, NamedTuple, TypeVar, cast

from tableferry.formats.parquet.bounds import Kind, counts_nulls, kind
from tableferry.formats.parquet.elements import root
from tableferry.formats.parquet.file_metadata import (
    Broken,
    ColumnOrder,
    FileMetaData,
    SchemaElement,
    decode_after_schema,
    decode_schema,
)
from tableferry.formats.parquet.files import Bounds, FileSchema, Footer, Unreadable
from tableferry.formats.parquet.row_groups import ColumnStatistics, Encrypted, RowGroupReader, RowGroups
from tableferry.formats.parquet.schema import Illegal, Interpreted, interpret, with_spark_schema
from tableferry.formats.parquet.trusted_writers import Trust, trust

# Nearly all footers are smaller; a larger footer takes a second read.
_TAIL = 1 << 16
_MAGIC, _ENCRYPTED = b"PAR1", b"PARE"
# The bytes of the length and the magic at the end, and the same with the magic at the beginning.
_END, _LEAST = 8, 12
# Enough for any table. Without a limit, lookups would get slower with each file if all schemas differ.
_MOST_SHAPES = 64

_ROW_METADATA = b"org.apache.spark.sql.parquet.row.metadata"
# The field numbers of ColumnOrder.
_TYPE_ORDER, _TOTAL_ORDER = 1, 2

ALL_LEAVES = sys.maxsize
"""The number of leaves that means all leaves of a file."""

_UNKNOWN = Bounds(None, None, None)

VANISHED = Unreadable(
    "has vanished since it was listed: convert again when nothing writes to the directory", passing=True
)


T = TypeVar("T")


class _Leaf(NamedTuple):
    """How to read the statistics of one leaf.

    Attributes:
        slot: Its index among the stored leaves.
        reads: How to read its bounds; None if it gets no bounds.
        counts: Whether its null counts are correct.
    """

    slot: int
    reads: Kind | None
    counts: bool


class _Plan(NamedTuple):
    """How to read the statistics of the first leaves, in files with one schema and one writer."""

    schema: FileSchema
    leaves: tuple[_Leaf, ...]


class Shape(NamedTuple):
    """Data that files with the same schema share.

    The key of a plan is Spark's row metadata and the trust in the writer.
    """

    interpreted: Interpreted
    row_groups: RowGroupReader
    plans: dict[tuple[bytes, Trust], _Plan | Illegal]


class SchemaCache:
    """Cache of file schemas; files with the same schema share one object.

    An instance serves one thread, and always reads the same leaves.
    """

    def __init__(self, leaves: int = ALL_LEAVES, *, sizes: bool = False) -> None:
        """Set how many of a file's first leaves get statistics, and whether to read their sizes."""
        self._leaves, self._sizes = leaves, sizes
        self._shapes: dict[bytes, Shape | Illegal] = {}
        self._schemas: dict[FileSchema, FileSchema] = {}

    def shape(self, footer: bytes) -> tuple[Shape, int]:
        """Return a footer's schema and the offset of the first byte after it.

        Raises:
            Broken: The footer has no valid schema.
            Illegal: A Delta table can't have the schema.
        """
        known = next(filter(footer.startswith, self._shapes), None)
        if known is None:
            elements, end = decode_schema(footer)
            shape = _shape(elements, self._leaves, sizes=self._sizes)
            if len(self._shapes) == _MOST_SHAPES:
                del self._shapes[next(iter(self._shapes))]
            self._shapes[footer[:end]] = shape
        else:
            shape, end = self._shapes[known], len(known)
        if isinstance(shape, Illegal):
            raise shape
        return shape, end

    def plan(self, shape: Shape, created_by: str, keys: Mapping[bytes, bytes]) -> _Plan:
        """Return how to read a footer's statistics.

        Raises:
            Illegal: Spark's row metadata has a type that a Delta table can't have.
        """
        key = keys.get(_ROW_METADATA, b""), trust(created_by, keys)
        if (plan := shape.plans.get(key)) is None:
            plan = shape.plans[key] = self._new_plan(shape.interpreted, *key)
        if isinstance(plan, Illegal):
            raise plan
        return plan

    def _new_plan(self, interpreted: Interpreted, row_metadata: bytes, believed: Trust) -> _Plan | Illegal:
        try:
            schema, indexes = with_spark_schema(interpreted, row_metadata.decode(errors="replace"))
        except Illegal as illegal:
            return illegal
        elements = ((index, interpreted.stored[index].element) for index in indexes)
        leaves = tuple(
            _Leaf(index, kind(element, believed), counts_nulls(element, believed))
            for index, element in elements
            if index < self._leaves
        )
        return _Plan(self._schemas.setdefault(schema, schema), leaves)


def read_tail(path: str, size: int | None = None) -> bytes | Unreadable:
    """Return the bytes of a file's metadata, without the length and the magic after them.

    ``size`` is the file's size in the listing; if the size has changed, the file is `Unreadable`.
    """
    try:
        file = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        try:
            now = os.fstat(file).st_size
            if size is not None and size != now:
                return Unreadable(
                    f"has changed since it was listed, from {size} to {now} bytes: "
                    "convert again when nothing writes to the directory",
                    passing=True,
                )
            return tail(partial(_read, file), now)
        finally:
            os.close(file)
    except FileNotFoundError:
        return VANISHED
    except OSError as error:
        reason = f"can't be read ({error.strerror}): check your rights and the storage"
        return Unreadable(reason, passing=True)


def tail(read: Callable[[int, int], bytes], size: int, *, reads_are_slow: bool = False) -> bytes | Unreadable:
    """Return the same as `read_tail` for a file that ``read`` gives access to.

    Args:
        read: Returns bytes of the file, by their offset and number.
        size: The file's size in bytes.
        reads_are_slow: Whether to skip the read of the file's first bytes if it ends as a Parquet file.
    """
    if size == 0:
        return Unreadable("is empty (0 bytes), so it's no Parquet file: delete it or move it away")
    data = read(max(0, size - _TAIL), min(size, _TAIL))
    magic = data[-4:]
    if magic == _ENCRYPTED:
        return Unreadable("has an encrypted footer: write it again without encryption")
    if len(data) == size:
        begins = data.startswith(_MAGIC)
    else:
        begins = (reads_are_slow and magic == _MAGIC) or read(0, 4) == _MAGIC
    if magic != _MAGIC and not begins:
        return Unreadable("is not a Parquet file: delete it or move it away")
    length = int.from_bytes(data[-_END:-4], "little")
    if magic != _MAGIC or size < _LEAST or length > size - _LEAST:
        return Unreadable("is truncated: it begins as a Parquet file and doesn't end as one; write it again")
    if not begins:
        return Unreadable("has lost its first bytes: it ends as a Parquet file only, so write it again")
    if length + _END > len(data):
        data = read(size - _END - length, length + _END)
    return data[-_END - length : -_END]


def _read(file: int, offset: int, count: int) -> bytes:
    """Read ``count`` bytes; a single read may return fewer."""
    data = os.pread(file, count, offset)
    while len(data) < count and (more := os.pread(file, count - len(data), offset + len(data))):
        data += more
    return data


def decode(
    footer: bytes, cache: SchemaCache | None = None, *, size: int | None = None
) -> Footer | Unreadable:
    """Decode a footer; if ``size`` is given, check that the file is large enough for its row groups."""
    return answered(lambda: _footer(footer, cache or SchemaCache(), size))


def answered(read: Callable[[], T]) -> T | Unreadable:
    """Return the result of a function that reads a footer, or `Unreadable` with the reason if it fails."""
    try:
        return read()
    except Illegal as illegal:
        return Unreadable(str(illegal))
    except Encrypted:
        return Unreadable("has encrypted columns: write it again without encryption")
    except Broken as broken:
        return Unreadable(f"has a broken footer ({broken}): write it again")
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        # A footer may have a value of any type anywhere. That's an error in the file, not in this code.
        return Unreadable("has a broken footer (a value isn't of its kind): write it again")


class Opened(NamedTuple):
    """A decoded footer.

    Attributes:
        groups: The statistics of the first stored leaves, up to the number that the cache reads. If the cache
            reads sizes, also the statistics of leaves in arrays and maps, all in the file's order.
        orders: The number of the order that the bounds of each stored leaf follow; 0 if none is stated.
        created_by: The writer's name; empty if the footer has none.
        keys: The footer's key-value metadata.
    """

    shape: Shape
    rows: int
    groups: RowGroups
    orders: Sequence[int]
    created_by: str
    keys: Mapping[bytes, bytes]


def opened(footer: bytes, cache: SchemaCache) -> Opened:
    """Read a footer.

    Raises:
        Illegal: A Delta table can't have the schema.
        Encrypted: The file is encrypted.
        Broken: The footer is invalid. A value of the wrong type raises other errors: see `answered`.
    """
    shape, end = cache.shape(footer)
    metadata = decode_after_schema(footer, end)
    if metadata.encryption_algorithm is not None:
        raise Encrypted
    groups = shape.row_groups.read(metadata.row_groups)
    if metadata.num_rows < 0 or metadata.num_rows != sum(groups.rows):
        raise Broken("its row groups don't have the recorded number of rows")
    keys = {pair.key: pair.value for pair in metadata.key_value_metadata}
    created_by = metadata.created_by.decode(errors="replace")
    return Opened(shape, metadata.num_rows, groups, _orders(shape, metadata), created_by, keys)


def _footer(footer: bytes, cache: SchemaCache, size: int | None) -> Footer:
    shape, rows, groups, orders, created_by, keys = opened(footer, cache)
    if size is not None and groups.end > size - _END - len(footer):
        raise Broken("it names values beyond its own beginning, so the file has lost bytes before it")
    plan = cache.plan(shape, created_by, keys)
    if rows == 0:
        return Footer.of(0, plan.schema, [Bounds(None, None, 0)] * len(plan.leaves))
    bounds = [_bounds(groups, leaf, orders[leaf.slot]) for leaf in plan.leaves]
    split = (stored.path for stored in shape.interpreted.stored if stored.column in groups.split)
    return Footer.of(rows, plan.schema, bounds, ".".join(next(split, ())))


def _shape(elements: Sequence[SchemaElement], leaves: int, *, sizes: bool) -> Shape | Illegal:
    tree = root(elements)
    try:
        interpreted = interpret(tree)
    except Illegal as illegal:
        return illegal
    columns = [stored.column for stored in interpreted.stored[:leaves]]
    if sizes:
        columns = sorted((*columns, *(stored.column for stored in interpreted.repeated)))
    return Shape(interpreted, RowGroupReader(tree, columns, sizes=sizes), {})


def _orders(shape: Shape, metadata: FileMetaData) -> Sequence[int]:
    """Return the number of the order that the bounds of each stored leaf follow; 0 if none is stated."""
    orders, leaves = metadata.column_orders, shape.interpreted.stored
    if len(orders) != shape.row_groups.count:
        return [0] * len(leaves)
    return [_order(orders[leaf.column]) for leaf in leaves]


def _order(order: ColumnOrder) -> int:
    if order.type_order is not None:
        return _TYPE_ORDER
    return 0 if order.total_order is None else _TOTAL_ORDER


def ends(raw: ColumnStatistics, reads: Kind, order: int) -> tuple[Sequence[Any], Sequence[Any]] | None:
    """Return the lowest and the highest value of each chunk, or None if they can't be trusted."""
    lowest, highest = raw.lowest, raw.highest
    if order == _TOTAL_ORDER or reads.counted:
        # Writers leave NaN out of bounds, so bounds of floats are complete only if no value is NaN.
        if not reads.counted or order == 0 or any(count != 0 for count in raw.nans):
            return None
    elif order != _TYPE_ORDER or None in lowest:
        if not reads.signed:
            return None
        news = zip(lowest, highest, raw.old_lowest, raw.old_highest, strict=True)
        both = [
            (low, high) if order == _TYPE_ORDER and low is not None else (old_low, old_high)
            for low, high, old_low, old_high in news
        ]
        lowest, highest = zip(*both, strict=True)
    if None in lowest or None in highest:
        return None
    lows, highs = reads.values(cast(Sequence[bytes], lowest)), reads.values(cast(Sequence[bytes], highest))
    # A NaN can't be ordered, and a lowest value above the highest can't be right.
    return (lows, highs) if lows and highs and all(map(le, lows, highs)) else None


def _bounds(groups: RowGroups, leaf: _Leaf, order: int) -> Bounds:
    """Combine the statistics of all row groups; a value is unknown if one row group doesn't state it."""
    sound = checked(groups.statistics[leaf.slot], groups.rows, counts=leaf.counts)
    if sound is None:
        return _UNKNOWN
    raw, nulls = sound
    found = ends(raw, leaf.reads, order) if leaf.reads and raw.nulls else None
    if leaf.reads is None or found is None:
        return Bounds(None, None, nulls)
    lows, highs = found
    return Bounds(*leaf.reads.texts(min(lows), max(highs)), nulls)


def checked(
    raw: ColumnStatistics, rows: Sequence[int], *, counts: bool
) -> tuple[ColumnStatistics, int | None] | None:
    """Return the statistics of row groups that have values, and the number of nulls in all row groups.

    Row groups without rows are left out, and row groups with only nulls too if null counts are correct
    (``counts``). The number of nulls is None if it isn't known. The result is None if a chunk contradicts
    itself: it has more nulls than rows, or it has bounds although all its values are null.
    """
    if None not in raw.nulls:
        known = cast(Sequence[int], raw.nulls)
        if min(known, default=0) >= 0 and all(map(lt, known, rows)):
            return raw, sum(known) if counts else None
    some = []
    for at, (count, of) in enumerate(zip(raw.nulls, rows, strict=True)):
        if of and count is not None and not 0 <= count < of:
            bounds = raw.lowest[at], raw.highest[at], raw.old_lowest[at], raw.old_highest[at]
            if count != of or any(end is not None for end in bounds):
                return None
        some.append(of > 0 and not (counts and count == of))
    nulls = None if None in compress(raw.nulls, rows) else sum(count or 0 for count in raw.nulls)
    return raw.of(some), nulls if counts else None
