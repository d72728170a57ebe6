"""The metrics of Parquet files for an Iceberg manifest, from their footers.

They are those that Iceberg's own ``add_files`` takes (org.apache.iceberg.parquet.ParquetMetrics, 1.12), where
the file's writer is known to get them right; of any other writer's some are left out. So are bounds of floats
that don't show a NaN, and bounds without a count of nulls. Bounds are in Iceberg's single-value serialization
(https://iceberg.apache.org/spec/#binary-single-value-serialization), those of texts and bytes cut to 16
characters as `write.metadata.metrics.default` has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from struct import Struct
from struct import error as StructError
from typing import Any, NamedTuple, TypeAlias

from tableferry.convert.facts import Unreadable
from tableferry.convert.parquet.bounds import Kind, counts_nulls, kind
from tableferry.convert.parquet.elements import Element
from tableferry.convert.parquet.footers import (
    SchemaCache,
    answered,
    checked,
    ends,
    opened,
    read_tail,
    tail,
)
from tableferry.convert.parquet.reading import Tails, by_threads
from tableferry.convert.parquet.row_groups import ColumnStatistics
from tableferry.convert.parquet.schema import Interpreted, Stored
from tableferry.convert.parquet.writers import Trust, trust
from tableferry.errors import StateError
from tableferry.types import ColumnPath, lowered

_KEPT = 16
_SURROGATES, _LAST = range(0xD800, 0xE000), 0x10FFFF

Encode: TypeAlias = Callable[[Any], bytes | None]


End: TypeAlias = bytes | Unreadable
"""The metadata of a Parquet file, without their length and the magic that follow them."""


def read_end(path: str, size: int) -> End:
    """Read the metadata of a file on a disk, which has so many bytes."""
    return read_tail(path, size)


def read_ends(sizes: Sequence[int], read: Callable[[int, int, int], bytes]) -> Iterator[End]:
    """Read the metadata of files in storage that takes some time to answer, in their order, by threads.

    Args:
        sizes: The files' bytes.
        read: Gives some bytes of a file, by its number, their beginning and how many; a StateError if it
            can't.
    """

    def block(number: int) -> Tails:
        try:
            return [tail(partial(read, number), sizes[number], reads_are_slow=True)]
        except StateError as error:
            return [Unreadable(error.one_line, passing=True)]

    for tails in by_threads(block, range(len(sizes))):
        yield from tails


@dataclass(frozen=True)
class Metrics:
    """What a manifest says of a file, by its fields' ids; what isn't known is left out.

    Attributes:
        sizes: The bytes that a column takes in the file.
        values: How many values it has, nulls among them.
        lowest: A value that none is below; none if one may be NaN.
        highest: A value that none is above.
        lacks: The ids of the fields that the file hasn't got under their names.
        respelled: The names that it has instead, where they differ by their case alone.
        scales: How many decimal places decimals are stored with, but for those in arrays and maps.
    """

    rows: int
    sizes: dict[int, int] = field(default_factory=dict)
    values: dict[int, int] = field(default_factory=dict)
    nulls: dict[int, int] = field(default_factory=dict)
    lowest: dict[int, bytes] = field(default_factory=dict)
    highest: dict[int, bytes] = field(default_factory=dict)
    lacks: frozenset[int] = frozenset()
    respelled: frozenset[ColumnPath] = frozenset()
    scales: Mapping[ColumnPath, int] = field(default_factory=dict)


class _Bounded(NamedTuple):
    """How the bounds of a column become Iceberg's."""

    reads: Kind
    lowest: Encode
    highest: Encode


class _Known(NamedTuple):
    """What holds for all files of a schema.

    Attributes:
        leaves: Each leaf in the file's order, with its place among those that have an order; None for those
            in arrays and maps.
        lacks, respelled, scales: As in `Metrics`.
    """

    schema: Interpreted
    leaves: Sequence[tuple[Stored, int | None]]
    lacks: frozenset[int]
    respelled: frozenset[ColumnPath]
    scales: Mapping[ColumnPath, int]


class MetricsReader:
    """Reads the metrics of files of one table; it serves one thread."""

    def __init__(self, ids: Mapping[ColumnPath, int], most: int) -> None:
        """Read those of the columns and fields with these ids, by the very names that files have for them.

        Paths have ``element``, ``key`` and ``value`` for what is in arrays and maps. Of more than so many
        fields the first ones have metrics.
        """
        self._ids = ids
        self._metered = dict(islice(ids.items(), most))
        self._cache = SchemaCache(sizes=True)
        self._last: _Known | None = None

    def read(self, end: End) -> Metrics | None:
        """Read a file's metrics; None if they can't be read."""
        if isinstance(end, Unreadable):
            return None
        metrics = answered(lambda: self._read(end))
        return None if isinstance(metrics, Unreadable) else metrics

    def _read(self, footer: bytes) -> Metrics:
        shape, rows, groups, orders, created_by, keys = opened(footer, self._cache)
        believed = trust(created_by, keys)
        known = self._known(shape.interpreted)
        metrics = Metrics(rows, lacks=known.lacks, respelled=known.respelled, scales=known.scales)
        for (leaf, place), raw in zip(known.leaves, groups.statistics, strict=True) if groups.rows else ():
            number = self._metered.get(leaf.path)
            if number is not None:
                metrics.sizes[number] = sum(size or 0 for size in raw.sizes)
                if place is not None:
                    _add(metrics, number, leaf.element, raw, groups.rows, orders[place], believed)
        return metrics

    def _known(self, schema: Interpreted) -> _Known:
        # Files of a table mostly have one schema.
        if self._last is None or self._last.schema is not schema:
            leaves: list[tuple[Stored, int | None]] = [
                *((leaf, place) for place, leaf in enumerate(schema.stored)),
                *((leaf, None) for leaf in schema.repeated),
            ]
            names = {leaf.path for leaf, _ in leaves}
            lacks = frozenset(number for path, number in self._ids.items() if path not in names)
            lacking = {lowered(path) for path in self._ids if path not in names}
            respelled = frozenset(path for path in names - self._ids.keys() if lowered(path) in lacking)
            scales = {
                leaf.path: meaning.scale
                for leaf in schema.stored
                if leaf.path in self._ids
                and (meaning := leaf.element.annotation)
                and meaning.kind == "DECIMAL"
            }
            leaves.sort(key=lambda each: each[0].column)
            self._last = _Known(schema, leaves, lacks, respelled, scales)
        return self._last


def _add(
    metrics: Metrics,
    number: int,
    element: Element,
    raw: ColumnStatistics,
    rows: Sequence[int],
    order: int,
    believed: Trust,
) -> None:
    # Of an instant in 96 bits Iceberg takes nothing else, nor of a column of which a row group says nothing.
    sides = zip(raw.nulls, raw.lowest, raw.old_lowest, strict=True)
    if element.physical == "INT96" or any(side == (None, None, None) for side in sides):
        return
    sound = checked(raw, rows, counts=counts_nulls(element, believed))
    if sound is None:
        return
    filled, nulls = sound
    metrics.values[number] = sum(count or 0 for count in raw.values)
    # Iceberg takes a column that has bounds and no count of nulls for one without a null, and a DELETE of all
    # between the bounds takes out the whole file.
    if nulls is None:
        return
    metrics.nulls[number] = nulls
    bounded = _bounded(element, believed)
    found = ends(filled, bounded.reads, order) if bounded and filled.nulls else None
    if bounded is None or found is None:
        return
    lows, highs = found
    for bounds, bound in (
        (metrics.lowest, bounded.lowest(min(lows))),
        (metrics.highest, bounded.highest(max(highs))),
    ):
        if bound is not None:
            bounds[number] = bound


def _bounded(element: Element, believed: Trust) -> _Bounded | None:
    """Choose how to read and write the bounds of a column that is stored so; None if it gets none."""
    meaning = element.annotation
    name = meaning.kind if meaning else ""
    # Where nobody counted NaN, as in all files that others wrote, it expects none where bounds are.
    reads = kind(element, believed)
    match element.physical, name:
        case "BOOLEAN", _ if believed.numbers:
            return _Bounded(_RAW, _same, _same)
        case "BINARY", "" if believed.strings:
            return _Bounded(_RAW, _lowest_bytes, _highest_bytes)
        case _, _ if reads is None or (meaning and not meaning.signed):
            return None
        case "BINARY", "STRING" | "ENUM" | "JSON":
            return _Bounded(reads, _lowest_text, _highest_text)
        case _, "DECIMAL":
            return _Bounded(reads, _decimal, _decimal)
        case "INT32" | "INT64", _:
            form = Struct("<i" if element.physical == "INT32" else "<q")
            factor = 1000 if name == "TIMESTAMP" and meaning and meaning.unit == "MILLIS" else 1

            def pack(value: int) -> bytes | None:
                try:
                    return form.pack(value * factor)
                except StructError:
                    # A date without an end, say, in more microseconds than there are.
                    return None

            return _Bounded(reads, pack, pack)
        case "FLOAT" | "DOUBLE", _:
            form = Struct("<f" if element.physical == "FLOAT" else "<d")
            # Both zeros are one value to some readers.
            return _Bounded(
                reads, lambda value: form.pack(value or -0.0), lambda value: form.pack(value or 0.0)
            )
        case _:
            return None


def _same(value: bytes) -> bytes:
    return value


_RAW = Kind(lambda raws: raws, lambda lowest, highest: (None, None))


def _decimal(unscaled: int) -> bytes:
    """Write as few bytes as hold the number and its sign."""
    magnitude = unscaled if unscaled >= 0 else ~unscaled
    return unscaled.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)


def _lowest_bytes(value: bytes) -> bytes:
    # A table may take them for texts, and Iceberg can't read half a character.
    text = _lowest_text(value)
    return value[:_KEPT] if text is None else text


def _highest_bytes(value: bytes) -> bytes | None:
    if len(value) <= _KEPT:
        return value
    if _text(value) is not None:
        return _highest_text(value)
    kept = value[:_KEPT].rstrip(b"\xff")
    return kept[:-1] + bytes((kept[-1] + 1,)) if kept else None


def _lowest_text(value: bytes) -> bytes | None:
    text = _text(value)
    return None if text is None else text[:_KEPT].encode()


def _highest_text(value: bytes) -> bytes | None:
    text = _text(value)
    if text is None or len(text) <= _KEPT:
        return None if text is None else value
    for at in range(_KEPT - 1, -1, -1):
        above = ord(text[at]) + 1
        above = _SURROGATES.stop if above in _SURROGATES else above
        if above <= _LAST:
            return (text[:at] + chr(above)).encode()
    return None


def _text(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None
