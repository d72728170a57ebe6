"""What a Spark task does with its share of the files.

It's pickled and sent to machines that may not have this package: nothing here needs Spark, nor may a global
of what it uses be something that can only be imported, such as a function with a cache.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa

from tableferry.convert.facts import DataFile, Footer, Footers, Unreadable
from tableferry.convert.through_spark.schemas import to_text

# What stands in the place of a number of rows, where the text says why.
UNREADABLE, UNREACHED = -1, -2
COLUMNS = "rows bigint, schema int, described string, text string, split string"

_KINDS = (pa.int64(), pa.int32(), pa.string(), pa.string(), pa.string())

Task: TypeAlias = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
Read: TypeAlias = Callable[[Path, Sequence[DataFile]], Footers]
_Row: TypeAlias = tuple[int, int, str | None, str, str]


def task(root: str, files: Sequence[DataFile], read: Read) -> Task:
    """Make the task that reads the files whose places in the listing it's given."""

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reached = os.path.isdir(root)
        for batch in batches:
            numbers = batch.column(0).to_pylist()
            share = files[numbers[0] : numbers[-1] + 1] if numbers else ()
            rows = list(_rows(read(Path(root), share)) if reached else map(_unreached, share))
            arrays = [pa.array([row[index] for row in rows], kind) for index, kind in enumerate(_KINDS)]
            yield pa.RecordBatch.from_arrays(arrays, ["rows", "schema", "described", "text", "split"])

    return work


def _rows(footers: Iterable[Footer | Unreadable]) -> Iterator[_Row]:
    """Write footers; a schema comes with the first file that has it, and has its number from then on."""
    numbers: dict[int, int] = {}
    for footer in footers:
        if isinstance(footer, Unreadable):
            yield UNREADABLE, 0, None, footer.reason, ""
            continue
        schema, count = footer.schema, len(numbers)
        # The reader keeps each schema, so that its id stays its own.
        number = numbers.setdefault(id(schema), count)
        yield footer.rows, number, to_text(schema) if number == count else None, footer.packed, footer.split


def _unreached(file: DataFile) -> _Row:
    return UNREACHED, 0, None, platform.node(), ""
