"""Conditions that restrict reads of the log and the target to the keys of one batch.

A condition with different values for each batch makes Spark generate and compile code for each batch, and
makes Delta evaluate its statistics. So only large tables are read by ranges of keys.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from tableferry.pipelines.cdc.event_columns import OPERATION, SEQUENCE, TRUNCATE
from tableferry.pipelines.cdc.fold import Fold
from tableferry.pipelines.cdc.target_columns import sql_type
from tableferry.spark.quoting import quote
from tableferry.spark.tables import TableName

MAX_EVENTS = 20_000
"""The keys of a batch with more events aren't read: they are spread over the whole table."""

LARGE_LOG_BYTES = 16 * 2**20
"""A log of at least this size is read by ranges of keys, and compaction doesn't rewrite all of it."""

_MAX_KEY_LITERALS = 1_000
_MEASURED_EVERY = 32
_MAX_RANGES = 16
_MAX_TEXT_LENGTH = 200
# Text that needs no escape under any parser setting. U+FFFD replaces bytes that aren't valid UTF-8.
_UNESCAPED = re.compile(r"[^\\'\x00-\x1f\ufffd]*")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")

Range = tuple[str, str]


@dataclass
class LogSize:
    """Whether a stream's log is large, measured again every 32nd batch.

    Attributes:
        large_bytes: The size from which a log is large.
    """

    large_bytes: int = LARGE_LOG_BYTES
    _batches: int = 0
    _is_large: bool = False

    def is_large(self, session: SparkSession, log: TableName) -> bool:
        """Return whether the log is large enough to be read by ranges of keys."""
        if self._batches % _MEASURED_EVERY == 0:
            [detail] = session.sql(f"DESCRIBE DETAIL {log.sql}").collect()
            self._is_large = (detail["sizeInBytes"] or 0) >= self.large_bytes
        self._batches += 1
        return self._is_large


@dataclass(frozen=True)
class KeyRanges:
    """The keys and sequences of a batch, as SQL; the default restricts nothing.

    Attributes:
        event_count: The number of events; None for more than `MAX_EVENTS` or for a batch with a truncate.
        ranges: Ranges of each key column that contain all its values; a column may have no entry.
        nullable_keys: The key columns that may be NULL.
        key_literals: The distinct keys; None if there are too many or a type has no literal.
        lowest_sequence: If one event counts for each key: the log's events before it don't count.
    """

    event_count: int | None = None
    ranges: Mapping[str, Sequence[Range]] = field(default_factory=dict)
    nullable_keys: frozenset[str] = frozenset()
    key_literals: Sequence[Sequence[str]] | None = None
    lowest_sequence: str | None = None

    def row_condition(self, alias: str = "") -> str:
        """Return a condition that is true for all rows of these keys and for few other rows."""
        columns = []
        for key, ranges in self.ranges.items():
            name = f"{alias}.{quote(key)}" if alias else quote(key)
            parts = [f"{name} BETWEEN {low} AND {high}" for low, high in ranges]
            if key in self.nullable_keys:
                parts.append(f"{name} IS NULL")
            columns.append(f"({' OR '.join(parts)})")
        return " AND ".join(columns) or "true"

    def log_condition(self) -> str:
        """Return a condition that is true for all events that count for these keys and for few others."""
        parts = [f"{SEQUENCE} >= {self.lowest_sequence}"] if self.lowest_sequence else []
        if self.ranges:
            parts.append(self.row_condition())
        return " AND ".join(parts) or "true"

    def create_key_frame(self, session: SparkSession, fold: Fold) -> DataFrame | None:
        """Return the keys as a DataFrame of literals; None if they aren't known."""
        if not self.key_literals:
            return None
        rows = ", ".join(f"({', '.join(key)})" for key in self.key_literals)
        columns = ", ".join(quote(key) for key in fold.keys)
        return session.sql(f"SELECT * FROM VALUES {rows} AS keys({columns})")


def read_key_ranges(batch: DataFrame, fold: Fold, target: StructType, *, is_large: bool = True) -> KeyRanges:
    """Read the keys and sequences of a batch that is in the log's form.

    A key column has ranges only if Spark and Python sort its values alike, and the target and the log have it
    in the same type. A truncate in the log has NULL keys and counts for every batch. A log that isn't large
    is read without ranges.
    """
    types = {field.name: field.dataType for field in fold.log_schema if field.name in (*fold.keys, SEQUENCE)}
    target_types = {field.name.lower(): field.dataType for field in target}
    columns = [F.col(quote(key)).cast("string").alias(f"k{at}") for at, key in enumerate(fold.keys)]
    sequence = F.col(SEQUENCE)
    if isinstance(types.get(SEQUENCE), TimestampType):
        sequence = F.unix_micros(sequence)
    columns += [sequence.cast("string").alias("sequence"), F.col(OPERATION)]
    limit = MAX_EVENTS if is_large else _MAX_KEY_LITERALS
    rows = batch.select(*columns).limit(limit + 1).collect()
    if any(row[OPERATION] == TRUNCATE for row in rows):
        return KeyRanges()
    sequence_type = types[SEQUENCE] if fold.has_sequence and not fold.is_keyed_by_sequence else None
    if len(rows) > limit:
        return _measure_large_batch(batch, sequence, sequence_type)
    ranges, nullable = {}, set()
    for at, key in enumerate(fold.keys if is_large else []):
        values = {row[f"k{at}"] for row in rows}
        if fold.has_truncates or None in values:
            nullable.add(key)
        if target_types.get(key.lower()) == types[key]:
            found = _split_into_ranges(values - {None}, types[key])
            if found is not None and (found or key in nullable):
                ranges[key] = found
    lowest = _write_lowest_sequence({row["sequence"] for row in rows}, sequence_type)
    keys = {tuple(row[f"k{at}"] for at in range(len(fold.keys))) for row in rows}
    literals = (
        _write_keys(keys, [types[key] for key in fold.keys]) if len(keys) <= _MAX_KEY_LITERALS else None
    )
    return KeyRanges(len(rows), ranges, frozenset(nullable), literals, lowest)


def _measure_large_batch(batch: DataFrame, sequence: Column, sequence_type: DataType | None) -> KeyRanges:
    """Count the events of a batch whose keys aren't read, and find the lowest sequence."""
    [found] = batch.agg(
        F.count(F.lit(1)).alias("events"),
        F.count_if(F.col(OPERATION) == TRUNCATE).alias("truncates"),
        F.count_if(sequence.isNull()).alias("without_sequence"),
        F.min(sequence).cast("string").alias("lowest"),
    ).collect()
    if found["truncates"]:
        return KeyRanges()
    lowest = None if found["without_sequence"] else _write_lowest_sequence({found["lowest"]}, sequence_type)
    return KeyRanges(found["events"] if found["events"] <= MAX_EVENTS else None, lowest_sequence=lowest)


def _write_keys(keys: Set[tuple[str | None, ...]], types: Sequence[DataType]) -> list[list[str]] | None:
    """Write keys as SQL literals of their columns' types; None if a value has no literal."""
    written = []
    for key in keys:
        literals = [_write_literal(value, kind) for value, kind in zip(key, types, strict=True)]
        known = [literal for literal in literals if literal is not None]
        if len(known) < len(literals):
            return None
        written.append(known)
    return written


def _write_literal(value: str | None, kind: DataType) -> str | None:
    if value is None:
        return f"CAST(NULL AS {sql_type(kind)})"
    if isinstance(kind, BooleanType | DecimalType):
        return f"CAST('{value}' AS {sql_type(kind)})"
    return _write_lowest({value}, kind)


def _write_lowest_sequence(sequences: Set[str | None], kind: DataType | None) -> str | None:
    """Write the lowest sequence as SQL; None if an event has no sequence or its type has no literal."""
    known = {sequence for sequence in sequences if sequence is not None}
    if kind is None or not known or len(known) < len(sequences):
        return None
    if isinstance(kind, TimestampType):
        return f"TIMESTAMP_MICROS({min(map(int, known))})"
    return _write_lowest(known, kind)


def _write_lowest(values: Set[str], kind: DataType) -> str | None:
    """Write the lowest value as SQL; None if a value has no sortable literal."""
    ranges = _split_into_ranges(values, kind)
    return f"CAST({ranges[0][0]} AS {sql_type(kind)})" if ranges else None


def _split_into_ranges(values: Set[str], kind: DataType) -> Sequence[Range] | None:
    """Sort values and split them into ranges of SQL literals; None if a value has no sortable literal."""
    match kind:
        case ByteType() | ShortType() | IntegerType() | LongType():
            return _split_sorted([str(number) for number in sorted(map(int, values))])
        case DateType() if all(map(_DATE.fullmatch, values)):
            return [(f"DATE'{low}'", f"DATE'{high}'") for low, high in _split_sorted(sorted(values))]
        # Only strings without a collation are sorted by their code points.
        case StringType() if kind == StringType() and all(
            len(value) <= _MAX_TEXT_LENGTH and _UNESCAPED.fullmatch(value) for value in values
        ):
            return [(f"'{low}'", f"'{high}'") for low, high in _split_sorted(sorted(values))]
    return None


def _split_sorted(values: Sequence[str]) -> Sequence[Range]:
    """Split sorted values into at most `_MAX_RANGES` ranges with equal numbers of values."""
    size = max(1, -(-len(values) // _MAX_RANGES))
    parts = [values[at : at + size] for at in range(0, len(values), size)]
    return [(part[0], part[-1]) for part in parts]
