"""A Parquet file's footer: one open, one read of the file's end, and no exception whatever the bytes are.

pyarrow decodes the footer and gives raw statistics; which bytes of it are the schema, and what that means,
is looked up among the schemas already seen, so that a directory of files with one schema pays for it once.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from tableferry.convert.bounds import Kind, Trust, kind, trust
from tableferry.convert.elements import root
from tableferry.convert.facts import Bounds, FileSchema, Footer, Unreadable
from tableferry.convert.parquet_schema import Illegal, Interpreted, interpret

# Nearly all footers are smaller; one that isn't takes a second read.
_TAIL = 1 << 16
_MAGIC, _ENCRYPTED = b"PAR1", b"PARE"
# Length and magic at the end, and the magic at the beginning.
_END, _LEAST = 8, 12
# Nonce and tag of a footer that anyone can read and nobody can forge: the file's columns are encrypted.
_SIGNATURE = 28

_ROW_METADATA = b"org.apache.spark.sql.parquet.row.metadata"
_UNKNOWN = Bounds(None, None, None)

_Leaf: TypeAlias = tuple[int, Kind | None]


class _Plan(NamedTuple):
    """How to read the statistics of files with one schema by one writer."""

    schema: FileSchema
    leaves: tuple[_Leaf, ...]


class Known:
    """The schemas seen so far: files that have one in common share the object.

    It serves one thread.
    """

    def __init__(self) -> None:
        self._interpreted: dict[bytes, OrderedDict[bytes, Interpreted | Illegal]] = {}
        self._schemas: dict[FileSchema, FileSchema] = {}
        self._trusts: dict[tuple[str, bytes | None, bool], Trust] = {}
        self._plans: dict[tuple[int, Trust], _Plan] = {}

    def plan(self, footer: bytes, created_by: str, metadata: Mapping[bytes, bytes]) -> _Plan:
        """Say how to read a footer.

        Raises:
            ValueError: It's not the metadata of a Parquet file, or of one that can't be in a Delta table.
        """
        found = self._interpret(footer, metadata.get(_ROW_METADATA, b""))
        if isinstance(found, Illegal):
            raise found
        believed = trust(created_by, metadata)
        # The interpretation is kept as long as this object, so its id stays its own.
        key = (id(found), believed)
        if (plan := self._plans.get(key)) is None:
            schema, stored = found
            leaves = tuple((each.column, kind(each.element, believed)) for each in stored)
            plan = self._plans[key] = _Plan(self._schemas.setdefault(schema, schema), leaves)
        return plan

    def _interpret(self, footer: bytes, said: bytes) -> Interpreted | Illegal:
        known = self._interpreted.setdefault(said, OrderedDict())
        for beginning, found in known.items():
            if footer.startswith(beginning):
                return found
        tree, length = root(footer)
        try:
            found = interpret(tree, said.decode(errors="replace"))
        except Illegal as illegal:
            found = illegal
        known[footer[:length]] = found
        return found


def read_footer(
    path: str, *, size: int | None = None, statistics: bool = True, known: Known | None = None
) -> Footer | Unreadable:
    """Read what one file's footer says.

    Args:
        path: The file.
        size: Its bytes when it was listed; it's refused if it has others now.
        statistics: Whether to read more of the statistics than how many rows there are.
        known: The schemas seen so far in this thread.
    """
    tail = read_tail(path, size)
    return tail if isinstance(tail, Unreadable) else decode(tail, statistics=statistics, known=known)


def read_tail(path: str, size: int | None = None) -> bytes | Unreadable:
    """Read the metadata of a file as bytes, without the length and the magic that follow it."""
    try:
        file = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        try:
            now = os.fstat(file).st_size
            if size is not None and size != now:
                return Unreadable(
                    f"has changed since it was listed, from {size} to {now} bytes: "
                    "convert again when nothing writes to the directory"
                )
            return _tail(file, now)
        finally:
            os.close(file)
    except FileNotFoundError:
        return Unreadable(
            "has vanished since it was listed: convert again when nothing writes to the directory"
        )
    except OSError as error:
        return Unreadable(f"can't be read ({error.strerror}): check your rights and the storage")


def _tail(file: int, size: int) -> bytes | Unreadable:
    if size == 0:
        return Unreadable("is empty (0 bytes), so it's no Parquet file: delete it or move it away")
    data = _read(file, max(0, size - _TAIL), min(size, _TAIL))
    magic = data[-4:]
    if magic == _ENCRYPTED:
        return Unreadable("has an encrypted footer: write it again without encryption")
    begins = _read(file, 0, 4) == _MAGIC if magic != _MAGIC else True
    if magic != _MAGIC and not begins:
        return Unreadable("is not a Parquet file: delete it or move it away")
    length = int.from_bytes(data[-_END:-4], "little")
    if magic != _MAGIC or size < _LEAST or length > size - _LEAST:
        return Unreadable("is truncated: it begins as a Parquet file and doesn't end as one; write it again")
    if length + _END > len(data):
        data = _read(file, size - _END - length, length + _END)
    return data[-_END - length : -_END]


def _read(file: int, offset: int, count: int) -> bytes:
    """Read that many bytes, however many the storage gives at once."""
    data = os.pread(file, count, offset)
    while len(data) < count and (more := os.pread(file, count - len(data), offset + len(data))):
        data += more
    return data


def decode(footer: bytes, *, statistics: bool = True, known: Known | None = None) -> Footer | Unreadable:
    """Read what a footer's bytes say."""
    known = known or Known()
    # Whatever is wrong with bytes that anybody may have written: it's this one file's fault.
    try:
        return _decode(footer, statistics, known)
    except Illegal as illegal:
        return Unreadable(str(illegal))
    except Exception as error:
        why = str(error).strip().partition("\n")[0] or type(error).__name__
        return Unreadable(f"has a broken footer ({why}): write it again")


def _decode(footer: bytes, statistics: bool, known: Known) -> Footer | Unreadable:
    whole = b"".join((footer, len(footer).to_bytes(4, "little"), _MAGIC))
    with pq.ParquetFile(pa.BufferReader(whole)) as file:
        metadata = file.metadata
    if len(footer) == metadata.serialized_size + _SIGNATURE:
        return Unreadable("has encrypted columns: write it again without encryption")
    plan = known.plan(footer, metadata.created_by or "", metadata.metadata or {})
    rows = metadata.num_rows
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    if rows < 0 or rows != sum(group.num_rows for group in groups):
        raise ValueError("its row groups don't have the rows that it says it has")
    if not statistics:
        return Footer(rows, plan.schema, ())
    if rows == 0:
        return Footer(0, plan.schema, (Bounds(None, None, 0),) * len(plan.leaves))
    if len(groups) == 1:
        column = groups[0].column
        bounds = [_bounds(column(number).statistics, reader, rows) for number, reader in plan.leaves]
    else:
        bounds = [_over_all(groups, number, reader) for number, reader in plan.leaves]
    return Footer(rows, plan.schema, tuple(bounds))


def _bounds(statistics: Any, reader: Kind | None, rows: int) -> Bounds:
    if statistics is None:
        return _UNKNOWN
    nulls = statistics.null_count
    if nulls is not None and not 0 <= nulls <= rows:
        return _UNKNOWN
    if reader is None or (raw := statistics.min_raw) is None:
        return Bounds(None, None, nulls)
    lowest, highest = reader.value(raw), reader.value(statistics.max_raw)
    if lowest is None or highest is None:
        return Bounds(None, None, nulls)
    return Bounds(*reader.texts(lowest, highest), nulls)


def _over_all(groups: list[Any], number: int, reader: Kind | None) -> Bounds:
    """Put the statistics of row groups together; where one doesn't say, the file doesn't."""
    nulls: int | None = 0
    lows: list[Any] = []
    highs: list[Any] = []
    bounded = reader is not None
    for group in groups:
        rows = group.num_rows
        if rows == 0:
            continue
        statistics = group.column(number).statistics
        count = statistics.null_count if statistics is not None else None
        if count is not None and not 0 <= count <= rows:
            return _UNKNOWN
        nulls = None if nulls is None or count is None else nulls + count
        if not bounded or count == rows:
            continue
        raw = statistics.min_raw if statistics is not None else None
        if reader is None or raw is None:
            bounded = False
            continue
        lows.append(reader.value(raw))
        highs.append(reader.value(statistics.max_raw))
    if reader is None or not bounded or not lows or None in lows or None in highs:
        return Bounds(None, None, nulls)
    # A row group of NaN has no order to its neighbours, and one whose bounds are crossed can't be believed.
    if any(not low <= high for low, high in zip(lows, highs, strict=True)):
        return Bounds(None, None, nulls)
    return Bounds(*reader.texts(min(lows), max(highs)), nulls)
