"""Between which values the keys of a batch lie, so that Delta and Parquet skip what can't hold them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ByteType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
)

from tableferry.pipelines.fold import OPERATION, TRUNCATE, Fold
from tableferry.quoting import quote

MOST = 20_000
"""More keys than these aren't looked at: they are all over the table."""

_RANGES = 16
_LONGEST = 200
# What SQL takes as it stands, whatever the parser's settings; U+FFFD stands for bytes that aren't text.
_PLAIN = re.compile(r"[^\\'\x00-\x1f\ufffd]*")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")

Range = tuple[str, str]


@dataclass(frozen=True)
class KeyRanges:
    """Ranges that hold every key of a batch.

    Attributes:
        events: How many events the batch has; None for more than `MOST`, or where it touches any key.
        ranges: The ranges of a key column, as SQL; columns without any are left out.
        null: The key columns that may be NULL.
    """

    events: int | None = None
    ranges: Mapping[str, Sequence[Range]] = field(default_factory=dict)
    null: frozenset[str] = frozenset()

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


def key_ranges(batch: DataFrame, fold: Fold, target: StructType) -> KeyRanges:
    """Look at the keys of a batch, which is in the log's form.

    A key column has ranges only if Spark and Python put its values in the same order, and the target has it
    in the type that the log has. Truncates in the log have NULL keys, and those count for every batch.
    """
    types = {field.name: field.dataType for field in fold.log if field.name in fold.keys}
    there = {field.name.lower(): field.dataType for field in target}
    columns = [F.col(quote(key)).cast("string").alias(f"k{at}") for at, key in enumerate(fold.keys)]
    rows = batch.select(*columns, F.col(OPERATION)).limit(MOST + 1).collect()
    if len(rows) > MOST or any(row[OPERATION] == TRUNCATE for row in rows):
        return KeyRanges()
    ranges, null = {}, set()
    for at, key in enumerate(fold.keys):
        values = {row[f"k{at}"] for row in rows}
        if fold.truncates or None in values:
            null.add(key)
        if there.get(key.lower()) == types[key]:
            found = _ranges(values - {None}, types[key])
            if found is not None and (found or key in null):
                ranges[key] = found
    return KeyRanges(len(rows), ranges, frozenset(null))


def _ranges(values: set[str], kind: DataType) -> Sequence[Range] | None:
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
