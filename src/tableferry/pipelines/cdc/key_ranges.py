"""What a small batch touches: its keys, and which rows of the log and the target may hold them.

A condition with other values for each batch has Spark write and compile new code for each batch, and Delta
look through its statistics. So only large tables are read by the ranges of the keys.
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

from tableferry.pipelines.cdc.fold import OPERATION, SEQUENCE, TRUNCATE, Fold
from tableferry.pipelines.cdc.target_columns import sql_type
from tableferry.spark.quoting import quote
from tableferry.spark.tables import TableName

MOST = 20_000
"""More keys than these aren't looked at: they are all over the table; nor more than `_FEW` of a small one."""

LARGE = 16 * 2**20
"""The bytes from which a log is read by the ranges of keys, and no more rewritten whole to compact it."""

_FEW = 1_000
_ASKED_EVERY = 32
_RANGES = 16
_LONGEST = 200
# What SQL takes as it stands, whatever the parser's settings; U+FFFD stands for bytes that aren't text.
_PLAIN = re.compile(r"[^\\'\x00-\x1f\ufffd]*")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")

Range = tuple[str, str]


@dataclass
class Sizes:
    """What a stream remembers of how large its log is, which it asks each 32nd batch.

    Attributes:
        least: The bytes from which ranges are worth it.
    """

    least: int = LARGE
    _batches: int = 0
    _large: bool = False

    def large(self, session: SparkSession, log: TableName) -> bool:
        """Return whether the log, and so perhaps the target, is to be read by the ranges of keys."""
        if self._batches % _ASKED_EVERY == 0:
            [detail] = session.sql(f"DESCRIBE DETAIL {log.sql}").collect()
            self._large = (detail["sizeInBytes"] or 0) >= self.least
        self._batches += 1
        return self._large


@dataclass(frozen=True)
class KeyRanges:
    """Ranges that hold every key of a batch.

    Attributes:
        events: How many events the batch has; None for more than `MOST`, or where it touches any key.
        ranges: The ranges of a key column, as SQL; columns without any are left out.
        null: The key columns that may be NULL.
        keys: The distinct keys, each column as SQL; None where there are many, or a type can't be written.
        since: Where only the newest event of a key counts: none that counts has a lower sequence, as SQL.
    """

    events: int | None = None
    ranges: Mapping[str, Sequence[Range]] = field(default_factory=dict)
    null: frozenset[str] = frozenset()
    keys: Sequence[Sequence[str]] | None = None
    since: str | None = None

    def condition(self, alias: str = "") -> str:
        """Write what is true of each row of these keys, and of few others."""
        columns = []
        for key, ranges in self.ranges.items():
            name = f"{alias}.{quote(key)}" if alias else quote(key)
            parts = [f"{name} BETWEEN {low} AND {high}" for low, high in ranges]
            if key in self.null:
                parts.append(f"{name} IS NULL")
            columns.append(f"({' OR '.join(parts)})")
        return " AND ".join(columns) or "true"

    def logged(self) -> str:
        """Write what is true of each event in the log that counts for these keys, and of few others."""
        since = [f"{SEQUENCE} >= {self.since}"] if self.since is not None else []
        return " AND ".join([*since, *([self.condition()] if self.ranges else [])]) or "true"

    def touched(self, session: SparkSession, fold: Fold) -> DataFrame | None:
        """Return the keys as a frame that nothing has to be read for; None where they aren't known."""
        if not self.keys:
            return None
        rows = ", ".join(f"({', '.join(key)})" for key in self.keys)
        columns = ", ".join(quote(key) for key in fold.keys)
        return session.sql(f"SELECT * FROM VALUES {rows} AS touched({columns})")


def key_ranges(batch: DataFrame, fold: Fold, target: StructType, *, ranged: bool = True) -> KeyRanges:
    """Look at the keys of a batch, which is in the log's form.

    A key column has ranges only if Spark and Python put its values in the same order, and the target has it
    in the type that the log has. Truncates in the log have NULL keys, and those count for every batch.
    ``ranged`` says whether the tables are so large that ranges are worth it.
    """
    types = {field.name: field.dataType for field in fold.log if field.name in (*fold.keys, SEQUENCE)}
    there = {field.name.lower(): field.dataType for field in target}
    columns = [F.col(quote(key)).cast("string").alias(f"k{at}") for at, key in enumerate(fold.keys)]
    sequence = F.col(SEQUENCE)
    if isinstance(types.get(SEQUENCE), TimestampType):
        sequence = F.unix_micros(sequence)
    columns += [sequence.cast("string").alias("sequence"), F.col(OPERATION)]
    most = MOST if ranged else _FEW
    rows = batch.select(*columns).limit(most + 1).collect()
    if any(row[OPERATION] == TRUNCATE for row in rows):
        return KeyRanges()
    newest_counts = fold.sequenced and not fold.per_sequence
    if len(rows) > most:
        return _of_many(batch, sequence, types[SEQUENCE] if newest_counts else None)
    ranges, null = {}, set()
    for at, key in enumerate(fold.keys if ranged else []):
        values = {row[f"k{at}"] for row in rows}
        if fold.truncates or None in values:
            null.add(key)
        if there.get(key.lower()) == types[key]:
            found = _ranges(values - {None}, types[key])
            if found is not None and (found or key in null):
                ranges[key] = found
    since = _least({row["sequence"] for row in rows}, types[SEQUENCE]) if newest_counts else None
    keys = {tuple(row[f"k{at}"] for at in range(len(fold.keys))) for row in rows}
    written = _written(keys, [types[key] for key in fold.keys]) if len(keys) <= _FEW else None
    return KeyRanges(len(rows), ranges, frozenset(null), written, since)


def _of_many(batch: DataFrame, sequence: Column, kind: DataType | None) -> KeyRanges:
    """Count the events of a batch whose keys aren't looked at, and find their lowest sequence."""
    found = batch.agg(
        F.count(F.lit(1)).alias("events"),
        F.count_if(F.col(OPERATION) == TRUNCATE).alias("truncates"),
        F.count_if(sequence.isNull()).alias("without"),
        F.min(sequence).cast("string").alias("least"),
    ).collect()[0]
    if found["truncates"]:
        return KeyRanges()
    since = None if kind is None or found["without"] else _least({found["least"]}, kind)
    return KeyRanges(found["events"] if found["events"] <= MOST else None, since=since)


def _written(keys: Set[tuple[str | None, ...]], kinds: Sequence[DataType]) -> Sequence[Sequence[str]] | None:
    """Write keys as SQL, each value in its column's type."""
    written = []
    for key in keys:
        values = [_value(value, kind) for value, kind in zip(key, kinds, strict=True)]
        if None in values:
            return None
        written.append([value for value in values if value is not None])
    return written


def _value(value: str | None, kind: DataType) -> str | None:
    if value is None:
        return f"CAST(NULL AS {sql_type(kind)})"
    if isinstance(kind, BooleanType | DecimalType):
        return f"CAST('{value}' AS {sql_type(kind)})"
    ranges = _ranges({value}, kind)
    return f"CAST({ranges[0][0]} AS {sql_type(kind)})" if ranges else None


def _least(sequences: Set[str | None], kind: DataType) -> str | None:
    """Write the lowest sequence as SQL; None if an event has none, or the type can't be written."""
    known = {sequence for sequence in sequences if sequence is not None}
    if not known or len(known) < len(sequences):
        return None
    if isinstance(kind, TimestampType):
        return f"TIMESTAMP_MICROS({min(map(int, known))})"
    ranges = _ranges(known, kind)
    return f"CAST({ranges[0][0]} AS {sql_type(kind)})" if ranges else None


def _ranges(values: Set[str], kind: DataType) -> Sequence[Range] | None:
    match kind:
        case ByteType() | ShortType() | IntegerType() | LongType():
            return _cut([str(number) for number in sorted(map(int, values))])
        case DateType() if all(map(_DATE.fullmatch, values)):
            return [(f"DATE'{low}'", f"DATE'{high}'") for low, high in _cut(sorted(values))]
        # Of texts, only those without a collation are in the order of their code points.
        case StringType() if kind == StringType() and all(
            len(value) <= _LONGEST and _PLAIN.fullmatch(value) for value in values
        ):
            return [(f"'{low}'", f"'{high}'") for low, high in _cut(sorted(values))]
    return None


def _cut(values: Sequence[str]) -> Sequence[Range]:
    """Cut values that are in order into a few ranges of as many."""
    size = max(1, -(-len(values) // _RANGES))
    parts = [values[at : at + size] for at in range(0, len(values), size)]
    return [(part[0], part[-1]) for part in parts]
