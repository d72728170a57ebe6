"""The work of one Spark task: read its share of the files, and return schemas as text.

Tasks are pickled and sent to machines that may not have this package. So this module doesn't import Spark,
and uses no global that pickle stores by its import path, such as a function with a cache.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias, cast

import pyarrow as pa

from tableferry.formats.parquet.files import DataFile, FileSchema, Footer, Footers, Leaf, Unreadable
from tableferry.spark import types
from tableferry.spark.types import Primitive, Struct

# Values of ``rows`` for a failed file. The ``text`` is the reason, or the machine without the folder.
UNREADABLE, UNREACHED = -1, -2
COLUMNS = "rows bigint, schema int, described string, text string, split string"

_KINDS = (pa.int64(), pa.int32(), pa.string(), pa.string(), pa.string())

Task: TypeAlias = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
Read: TypeAlias = Callable[[Path, Sequence[DataFile]], Footers]
_Row: TypeAlias = tuple[int, int, str | None, str, str]


def task(root: str, files: Sequence[DataFile], read: Read) -> Task:
    """Return a task that reads files. Its input rows are consecutive positions in ``files``."""

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
    """Yield footers as rows. Only the first row of a schema contains its text; later rows have its number."""
    numbers: dict[int, int] = {}
    for footer in footers:
        if isinstance(footer, Unreadable):
            # Such a row has no schema; the column of its number contains whether the reason is temporary.
            yield UNREADABLE, int(footer.passing), None, footer.reason, ""
            continue
        schema, count = footer.schema, len(numbers)
        # The reader keeps a reference to each schema, so that ``id`` stays unique.
        number = numbers.setdefault(id(schema), count)
        yield (
            footer.rows,
            number,
            schema_to_text(schema) if number == count else None,
            footer.packed,
            footer.split,
        )


def _unreached(file: DataFile) -> _Row:
    return UNREACHED, 0, None, platform.node(), ""


def schema_to_text(schema: FileSchema) -> str:
    """Return a schema as text. Equal schemas have equal text."""
    columns = types.plain(schema.columns)
    leaves = [(leaf.path, types.plain(leaf.type)) for leaf in schema.leaves]
    return json.dumps([columns, leaves, sorted(schema.undecimal), sorted(schema.untyped)])


def schema_from_text(text: str) -> FileSchema:
    """Return the schema that `schema_to_text` serialized."""
    columns, leaves, undecimal, untyped = json.loads(text)
    return FileSchema(
        cast(Struct, types.typed(columns)),
        tuple(Leaf(tuple(path), cast(Primitive, types.typed(leaf))) for path, leaf in leaves),
        frozenset(map(tuple, undecimal)),
        frozenset(map(tuple, untyped)),
    )
