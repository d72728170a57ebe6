"""Read metrics for an Iceberg manifest from the footers of Parquet files, as Iceberg's ``add_files`` does.

Unlike org.apache.iceberg.parquet.ParquetMetrics (1.12), it leaves out metrics that the file's writer may get
wrong. It also leaves out bounds of floats that don't show a NaN, and bounds without a null count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from struct import Struct
from struct import error as StructError
from typing import Any, NamedTuple, TypeAlias

from tableferry.errors import StateError
from tableferry.formats.parquet.bounds import Kind, counts_nulls, kind
from tableferry.formats.parquet.directory_footers import Tails, by_threads
from tableferry.formats.parquet.elements import Element
from tableferry.formats.parquet.files import Unreadable
from tableferry.formats.parquet.footers import SchemaCache, answered, checked, ends, opened, read_tail, tail
from tableferry.formats.parquet.row_groups import ColumnStatistics
from tableferry.formats.parquet.schema import Interpreted, Stored
from tableferry.formats.parquet.trusted_writers import Trust, trust
from tableferry.spark.types import ColumnPath, lowered

# The characters or bytes kept of strings and binary, as by the default of `write.metadata.metrics.default`.
_KEPT = 16
_SURROGATES, _LAST = range(0xD800, 0xE000), 0x10FFFF

Encode: TypeAlias = Callable[[Any], bytes | None]


End: TypeAlias = bytes | Unreadable
"""The bytes of a Parquet file's metadata, without the length and the magic after them."""


def read_end(path: str, size: int) -> End:
    """Read the metadata of a file on a local disk; ``size`` is the file's size in bytes."""
    return read_tail(path, size)


def read_ends(sizes: Sequence[int], read: Callable[[int, int, int], bytes]) -> Iterator[End]:
    """Yield the metadata of files in slow storage, in the files' order; threads read the files.

    Args:
        sizes: The files' sizes in bytes.
        read: Returns bytes of a file, by the file's index, their offset and their number; raises StateError
            if it can't.
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
    """The metrics of a file, by field id; unknown metrics are left out.

    Attributes:
        sizes: The compressed bytes of each column in the file.
        values: The number of values of each column, including nulls.
        lowest: A lower bound of each column; left out if a value may be NaN.
        highest: An upper bound of each column; left out if a value may be NaN.
        lacks: The ids of the fields that the file doesn't have under their names.
        respelled: The names that the file has instead, if they differ only in case.
        scales: The scales of decimals in the file, except those in arrays and maps.
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
    """How to read the bounds of a column, and how to write them for Iceberg.

    Iceberg stores bounds in its single-value serialization
    (https://iceberg.apache.org/spec/#binary-single-value-serialization).
    """

    reads: Kind
    lowest: Encode
    highest: Encode


class _Known(NamedTuple):
    """Data that all files with one schema share.

    Attributes:
        leaves: Each leaf in the file's order, with its index in `Opened.orders`; the index of leaves in
            arrays and maps is None.
        lacks, respelled, scales: As in `Metrics`.
    """

    schema: Interpreted
    leaves: Sequence[tuple[Stored, int | None]]
    lacks: frozenset[int]
    respelled: frozenset[ColumnPath]
    scales: Mapping[ColumnPath, int]


class MetricsReader:
    """Read the metrics of files of one table; an instance serves one thread."""

    def __init__(self, ids: Mapping[ColumnPath, int], most: int) -> None:
        """Set the columns and fields whose metrics are read.

        Args:
            ids: The field ids, by the path with the exact names in the files. Contents of arrays and maps
                have ``element``, ``key`` and ``value`` in their paths.
            most: The maximum number of fields with metrics; the first fields have them.
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
        # Most files of a table have the same schema, so only the last schema is kept.
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
    # Iceberg takes only the size of an INT96 column, and of a column without statistics in one row group.
    sides = zip(raw.nulls, raw.lowest, raw.old_lowest, strict=True)
    if element.physical == "INT96" or any(side == (None, None, None) for side in sides):
        return
    sound = checked(raw, rows, counts=counts_nulls(element, believed))
    if sound is None:
        return
    filled, nulls = sound
    metrics.values[number] = sum(count or 0 for count in raw.values)
    # If a column has bounds but no null count, Iceberg assumes that it has no nulls. A DELETE of all values
    # between the bounds then removes the whole file.
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
    """Return how to read and write the bounds of a column, or None if the column gets no bounds."""
    meaning = element.annotation
    name = meaning.kind if meaning else ""
    # If a column has bounds but no NaN count, as in all files of other writers, Iceberg expects no NaN.
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
                    # The value in microseconds exceeds 64 bits, such as a placeholder for "no end date".
                    return None

            return _Bounded(reads, pack, pack)
        case "FLOAT" | "DOUBLE", _:
            form = Struct("<f" if element.physical == "FLOAT" else "<d")
            # Some readers treat both zeros as one value, so the bounds include both.
            return _Bounded(
                reads, lambda value: form.pack(value or -0.0), lambda value: form.pack(value or 0.0)
            )
        case _:
            return None


def _same(value: bytes) -> bytes:
    return value


_RAW = Kind(lambda raws: raws, lambda lowest, highest: (None, None))


def _decimal(unscaled: int) -> bytes:
    """Return the shortest big-endian bytes that contain the number and its sign."""
    magnitude = unscaled if unscaled >= 0 else ~unscaled
    return unscaled.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)


def _lowest_bytes(value: bytes) -> bytes:
    # A table may declare the column as string, and Iceberg can't read a character that is cut in two.
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
