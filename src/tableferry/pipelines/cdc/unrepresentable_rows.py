"""Find the legacy rows that AUTO CDC can't represent (rule 5: history is exact), and future interval ends."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import DateType, TimestampNTZType, TimestampType

from tableferry.pipelines.cdc.event_columns import END, START, quote_all
from tableferry.pipelines.cdc.scd2_history_events import anti_join, has_intervals, key_columns
from tableferry.pipelines.model.flows import CdcSettings
from tableferry.spark.quoting import quote

REASON = "__reason"


def find_unrepresentable_rows(frame: DataFrame, settings: CdcSettings) -> DataFrame:
    """Return the rows that AUTO CDC can't represent, with the `__reason` of each.

    An interval can't be represented if it has no start, doesn't end after its start, or shares its start or
    overlaps with another interval of its key; then both are returned. An interval with an invalid start or
    end doesn't invalidate other intervals. A current state can't be represented if another row has its key.
    NULL is a key.
    """
    return _add_reason(frame, settings).where(F.col(REASON).isNotNull())


@dataclass(frozen=True)
class FutureEnds:
    """Rows whose interval ends in the future. AUTO CDC treats them as closed, so no later row closes them.

    Attributes:
        count: The number of rows.
        first: The earliest end, as text.
        last: The latest end, as text.
        type: The SQL type of ``__END_AT``.
    """

    count: int
    first: str
    last: str
    type: str

    @property
    def mapping(self) -> str:
        """An expression for selectExp that makes the rows open; ``end`` is the column that is mapped now."""
        literal = f"{self.type.upper().removesuffix('_NTZ')}'{self.first}'"
        if self.first == self.last:
            return f"NULLIF(end, {literal}) AS __END_AT"
        return f"CASE WHEN end < {literal} THEN end END AS __END_AT"


def find_future_ends(frame: DataFrame, settings: CdcSettings) -> FutureEnds | None:
    """Count rows that end in the future, such as at 9999-12-31; None without such rows or without dates."""
    if not has_intervals(frame, settings):
        return None
    ends = next(field.dataType for field in frame.schema if field.name.upper() == END)
    if not isinstance(ends, DateType | TimestampType | TimestampNTZType):
        return None
    later = frame.where(F.col(END) > F.current_timestamp())
    end = F.col(END).cast("string")
    [(count, first, last)] = later.select(F.count(F.lit(1)), F.min(end), F.max(end)).collect()
    return FutureEnds(count, first, last, ends.simpleString()) if count else None


def remove_unrepresentable_rows(
    frame: DataFrame, settings: CdcSettings, batch: DataFrame | None = None
) -> DataFrame:
    """Return the rows that AUTO CDC can represent; the arguments are those of `build_history_events`.

    A row's key and interval identify it, because all rows with the same key and interval have the same fault.
    """
    bad = find_unrepresentable_rows(frame if batch is None else batch, settings)
    columns = [*key_columns(frame, settings), *((START, END) if has_intervals(frame, settings) else ())]
    return anti_join(frame, bad, {quote(column): F.col(quote(column)) for column in columns})


def _add_reason(frame: DataFrame, settings: CdcSettings) -> DataFrame:
    keys = quote_all(key_columns(frame, settings))
    if not has_intervals(frame, settings):
        is_repeated = F.count(F.lit(1)).over(Window.partitionBy(*keys)) > 1
        return frame.withColumn(REASON, F.when(is_repeated, F.lit("another row has the same key")))
    start, end = F.col(START), F.col(END)
    is_valid = start.isNotNull() & (end.isNull() | (end > start))
    same_start = F.sum(F.when(is_valid, 1)).over(Window.partitionBy(*keys, start))
    ordered = Window.partitionBy(*keys).orderBy(start)
    earlier = ordered.rowsBetween(Window.unboundedPreceding, -1)
    later = ordered.rowsBetween(1, Window.unboundedFollowing)
    open_before = F.coalesce(F.max(is_valid & end.isNull()).over(earlier), F.lit(False))
    ends_before = F.max(F.when(is_valid, end)).over(earlier)
    starts_after = F.min(F.when(is_valid, start)).over(later)
    overlaps = (
        open_before | (ends_before > start) | (starts_after < end) | (end.isNull() & starts_after.isNotNull())
    )
    reason = (
        F.when(start.isNull(), "the interval has no start")
        .when(end == start, "interval is empty (start = end)")
        .when(end < start, "ends before it starts")
        .when(same_start > 1, "another row of the key has the same start")
        .when(overlaps, "overlaps another interval of its key")
    )
    return frame.withColumn(REASON, reason)
