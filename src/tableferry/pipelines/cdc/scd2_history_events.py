"""Turn the rows of a legacy table into CDC events, and find the rows that AUTO CDC can't represent.

The events rebuild the legacy table's history row by row:

- A table with `__START_AT` and `__END_AT` has one validity interval in each row. SCD type 2 needs both
  columns. An interval gives an upsert at its start. A closed interval also gives a delete at its end, unless
  the key's next interval starts at that instant: its upsert then closes the interval.
- Any other table has the current state of one key in each row. A state gives one upsert.

All these events have `__exact` = True: a NULL is a value also under ignore_null_updates, and each upsert
opens an interval even if no tracked column changed. At one sequence a copied delete comes before a copied
upsert, and both come before the feed's events.

The rows are those of the migration's own select. The feed's where, apply_as_deletes and column lists don't
apply.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import DateType, NullType, TimestampNTZType, TimestampType

from tableferry.errors import TableError
from tableferry.pipelines.cdc.fold import DELETE, END, EXACT, OPERATION, SEQUENCE, START, UPSERT, quote_all
from tableferry.pipelines.model.flows import CdcSettings
from tableferry.spark.quoting import quote

REASON = "__reason"

_EVENT = "__event"


def build_history_events(
    frame: DataFrame, settings: CdcSettings, batch: DataFrame | None = None
) -> DataFrame:
    """Return the events of the legacy table's rows.

    The upsert of a current state has the sequence `__START_AT` if the rows have that column, else
    `sequence_by` if the rows have its columns, else NULL, which is before every event of the feed. If `frame`
    is a stream, `batch` has the same rows as a batch.

    Raises:
        TableError: A key is missing, or `__START_AT` or `__END_AT` is missing under SCD type 2.
    """
    keys = _key_columns(frame, settings)
    data = [name for name in frame.columns if name.upper() not in (START, END)]
    if not _has_intervals(frame, settings):
        return _select_events(frame, data, _sequence_column(frame, settings), F.lit(UPSERT))
    closed_by_next = {**{quote(key): F.col(quote(key)) for key in keys}, quote(START): F.col(END)}
    if batch is None:
        # Two branches, so that only closed rows are joined.
        closed = _anti_join(frame.where(F.col(END).isNotNull()), frame, closed_by_next)
        upserts = _select_events(frame, data, F.col(START), F.lit(UPSERT))
        return upserts.unionByName(_select_events(closed, data, F.col(END), F.lit(DELETE)))
    # One branch, because a stream can be read only once.
    instants = F.array(
        F.struct(F.col(START).alias("at"), F.lit(UPSERT).alias("operation")),
        F.struct(F.col(END).alias("at"), F.lit(DELETE).alias("operation")),
    )
    sequence, operation = F.col(f"{_EVENT}.at"), F.col(f"{_EVENT}.operation")
    closed_by_next[quote(START)] = sequence
    frame = frame.withColumn(_EVENT, F.explode(instants)).where(sequence.isNotNull() | (operation == UPSERT))
    frame = _anti_join(frame, batch, closed_by_next, operation == DELETE)
    return _select_events(frame, data, sequence, operation)


def _select_events(frame: DataFrame, data: Sequence[str], sequence: Column, operation: Column) -> DataFrame:
    return frame.select(
        *quote_all(data), sequence.alias(SEQUENCE), operation.alias(OPERATION), F.lit(True).alias(EXACT)
    )


def has_sequence(frame: DataFrame, settings: CdcSettings) -> bool:
    """Return whether the rows' events have a sequence. If not, they come before the whole feed."""
    sequence = frame.select(_sequence_column(frame, settings).alias(SEQUENCE)).schema[SEQUENCE]
    return _has_intervals(frame, settings) or not isinstance(sequence.dataType, NullType)


def check_sequence(frame: DataFrame, settings: CdcSettings, location: str) -> None:
    """Check that the rows' events have a sequence, which a platform's AUTO CDC requires.

    Raises:
        TableError: They have no sequence.
    """
    if not has_sequence(frame, settings):
        raise TableError("COPIED_ROWS_WITHOUT_SEQUENCE", location=location, column=settings.sequence_by)


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
    if not _has_intervals(frame, settings):
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
    columns = [*_key_columns(frame, settings), *((START, END) if _has_intervals(frame, settings) else ())]
    return _anti_join(frame, bad, {quote(column): F.col(quote(column)) for column in columns})


def _anti_join(
    frame: DataFrame, others: DataFrame, columns: Mapping[str, Column], where: Column | None = None
) -> DataFrame:
    """Remove the rows that match a row of a batch; `frame` may be a stream.

    `columns` maps each column of `others` to the expression that must be equal to it; NULL equals NULL. Only
    rows that fulfil `where` are removed.
    """
    renamed = {f"__other_{number}": column for number, column in enumerate(columns)}
    others = others.select(*[F.col(column).alias(name) for name, column in renamed.items()])
    matches = F.lit(True) if where is None else where
    for name, column in renamed.items():
        matches &= columns[column].eqNullSafe(F.col(name))
    return frame.join(others, matches, "left_anti")


def select_target_rows(frame: DataFrame, settings: CdcSettings) -> DataFrame:
    """Return the rows that a target contains: all for SCD type 2, the open ones for SCD type 1."""
    if settings.scd_type == 2:
        return frame
    if _has_intervals(frame, settings):
        frame = frame.where(F.col(END).isNull())
    return frame.drop(START, END)


def _add_reason(frame: DataFrame, settings: CdcSettings) -> DataFrame:
    keys = quote_all(_key_columns(frame, settings))
    if not _has_intervals(frame, settings):
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


def _has_intervals(frame: DataFrame, settings: CdcSettings) -> bool:
    missing = [name for name in (START, END) if not _has_column(frame, name)]
    if missing and settings.scd_type == 2:
        raise TableError("VALIDITY_COLUMNS_MISSING", columns=" and no ".join(missing))
    return not missing


def _key_columns(frame: DataFrame, settings: CdcSettings) -> list[str]:
    spelled = {name.lower(): name for name in frame.columns}
    missing = [key for key in settings.keys if key.lower() not in spelled]
    if missing:
        raise TableError("LEGACY_KEYS_MISSING", keys=missing)
    return [spelled[key.lower()] for key in settings.keys]


def _sequence_column(frame: DataFrame, settings: CdcSettings) -> Column:
    if _has_column(frame, START):
        return F.col(quote(START))
    try:
        _ = frame.selectExpr(settings.sequence_by).schema
    except AnalysisException:
        return F.lit(None)
    return F.expr(settings.sequence_by)


def _has_column(frame: DataFrame, column: str) -> bool:
    return column.lower() in (name.lower() for name in frame.columns)
