"""Compute statistics from data with Arrow, for files whose footers lack statistics or can't be trusted.

The bounds have the same text format as bounds from footers.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from decimal import Context
from decimal import Decimal as Number
from io import BufferedReader
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tableferry.errors import StateError
from tableferry.formats.parquet import directory_footers, object_footers
from tableferry.formats.parquet.bounds import texts_of
from tableferry.formats.parquet.files import Bounds, DataFile, Footer, Footers, Leaf, Unreadable
from tableferry.formats.parquet.trusted_writers import trust
from tableferry.spark import types
from tableferry.spark.types import ColumnPath, Decimal, Primitive, lowered
from tableferry.storage import AnyPath, ObjectStore

# The rows of a batch; with this number, a column of long strings takes a few megabytes.
_ROWS = 1 << 16
_NANOS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1000, "ns": 1}
_EXACT = Context(prec=80)
_UNKNOWN = Bounds(None, None, None)


def read(root: Path, files: Sequence[DataFile], *, paths: frozenset[ColumnPath]) -> Footers:
    """Yield footers with schemas and row counts from the files' footers, and statistics from their data.

    Only the leaves with these lower-case ``paths`` get statistics.
    """
    for file, footer in zip(files, directory_footers.read(root, files, leaves=0), strict=True):
        yield footer if isinstance(footer, Unreadable) else _scan(f"{root}/{file.path}", footer, paths)


def read_by_threads(root: AnyPath, files: Sequence[DataFile], *, paths: frozenset[ColumnPath]) -> Footers:
    """Do the same as `read` with one thread per core: Arrow decodes and compares without Python's lock."""

    def scan(file: DataFile) -> Footer | Unreadable:
        if isinstance(root, Path):
            return next(read(root, (file,), paths=paths))
        footer = next(object_footers.read(root, (file,), leaves=0))
        if isinstance(footer, Unreadable):
            return footer
        try:
            with ObjectStore(root.store).open(root / file.path, file.size) as source:
                return _scan(source, footer, paths)
        except StateError as error:
            # Not in `_scan`, which Spark's tasks get by value: StateError has globals that must be imported.
            return _not_read(error.message.rstrip("."))

    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        yield from pool.map(scan, files)


def _scan(source: str | BufferedReader, footer: Footer, paths: frozenset[ColumnPath]) -> Footer | Unreadable:
    leaves = [_Scanned(leaf) if lowered(leaf.path) in paths else None for leaf in footer.schema.leaves]
    columns = sorted({scanned.path[0] for scanned in leaves if scanned})
    if not columns:
        return Footer.of(footer.rows, footer.schema, [_UNKNOWN for _ in leaves])
    rows = 0
    try:
        with pq.ParquetFile(source, coerce_int96_timestamp_unit="us") as file:
            ancient = _ancient(file)
            for batch in file.iter_batches(_ROWS, columns=columns, use_threads=False):
                rows += batch.num_rows
                for scanned in leaves:
                    if scanned:
                        scanned.take(batch)
    except (pa.ArrowException, OSError) as error:
        return _not_read(str(error).splitlines()[0])
    if rows != footer.rows:
        return Unreadable(f"has {rows} rows, but its footer records {footer.rows}: rewrite it")
    bounds = [scanned.bounds(ancient) if scanned else _UNKNOWN for scanned in leaves]
    return Footer.of(rows, footer.schema, bounds)


def _not_read(reason: str) -> Unreadable:
    return Unreadable(
        f"can't be read ({reason}): write it again, or take the statistics that its footer has, with "
        "--statistics footers"
    )


def _ancient(file: pq.ParquetFile) -> frozenset[Primitive]:
    """Return the types for which Spark reads dates before 1582 and instants before 1900 as stored."""
    metadata = file.metadata
    if not trust(metadata.created_by or "", metadata.metadata or {}).ancient:
        return frozenset()
    # The reader's settings determine whether Spark shifts an old INT96.
    stored = {file.schema.column(number).physical_type for number in range(metadata.num_columns)}
    return frozenset({types.DATE, types.TIMESTAMP_NTZ} | (set() if "INT96" in stored else {types.TIMESTAMP}))


class _Scanned:
    """The lowest and highest values and the null count of a leaf, in the batches read so far."""

    def __init__(self, leaf: Leaf) -> None:
        self.path = leaf.path
        self._type = leaf.type
        self._bounded = texts_of(leaf.type, ancient=True) is not None
        self._nulls = 0
        self._nan = False
        self._ends: list[Any] = []

    def take(self, batch: pa.RecordBatch) -> None:
        """Add the values of a batch."""
        column = batch.column(self.path[0])
        for name in self.path[1:]:
            # `struct_field` makes a field null where its struct is null.
            column = pc.struct_field(column, [column.type.get_field_index(name)])
        self._nulls += column.null_count
        if not self._bounded:
            return
        column = self._plain(column)
        if pa.types.is_floating(column.type):
            self._nan = self._nan or bool(pc.any(pc.is_nan(column)).as_py())
        ends = pc.min_max(column)
        self._ends += (self._value(ends[end]) for end in ("min", "max") if ends[end].is_valid)

    def _plain(self, column: pa.Array) -> pa.Array:
        if isinstance(column, pa.ExtensionArray):
            column = column.storage
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        match self._type:
            case types.LONG:
                # Spark has no duration type, and reads the stored number.
                return column.cast(pa.int64())
            case types.STRING:
                return column.cast(pa.large_binary())
            case types.DATE:
                return column.cast(pa.date32())
            case _:
                return column

    def _value(self, end: pa.Scalar) -> Any:
        """Return a value in the form that functions from `texts_of` take."""
        match self._type:
            case types.TIMESTAMP | types.TIMESTAMP_NTZ:
                return end.value * _NANOS[end.type.unit]
            case types.DATE:
                return end.value
            case Decimal(scale=scale):
                return int(Number(end.as_py()).scaleb(scale, _EXACT))
            case _:
                return end.as_py()

    def bounds(self, ancient: frozenset[Primitive]) -> Bounds:
        """Return the statistics of all batches.

        Floats with a NaN get no bounds, because Spark orders NaN last.
        """
        texts = texts_of(self._type, ancient=self._type in ancient)
        if texts is None or self._nan or not self._ends:
            return Bounds(None, None, self._nulls)
        return Bounds(*texts(min(self._ends), max(self._ends)), self._nulls)
