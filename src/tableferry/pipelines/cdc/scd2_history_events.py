"""A legacy table's rows as AUTO CDC events, and those of its rows that AUTO CDC can't represent.

The rows come as the migration's own select made them; nothing of the feed's where, deletes, column lists or
ignore_null_updates is applied to them. Where `__START_AT` and `__END_AT` are both there (SCD type 2 needs
them), each row is a validity interval; else each row is the present state of its key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import DateType, NullType, TimestampNTZType, TimestampType

from tableferry.errors import TableError
from tableferry.pipelines.cdc.fold import DELETE, END, EXACT, OPERATION, SEQUENCE, START, UPSERT, names
from tableferry.pipelines.model.flows import CdcSettings
from tableferry.spark.quoting import quote

REASON = "__reason"

_ROW = "__row"


def history_events(frame: DataFrame, settings: CdcSettings, whole: DataFrame | None = None) -> DataFrame:
    """Turn the legacy table's rows into events whose NULLs are real and whose intervals stay as they are.

    An interval gives an upsert at its start and, where it's closed and no other row of its key starts at that
    very instant, a delete at its end. The present state of a key gives an upsert at `__START_AT` where that
    is mapped, else at the feed's `sequence_by` where the frame has the columns for it, else before every
    event of the feed. Where `frame` is a stream of the rows, `whole` has them as a batch.

    Raises:
        TableError: A key, or for SCD type 2 `__START_AT` or `__END_AT`, isn't among the columns.
    """
    keys = _keys(frame, settings)
    data = [name for name in frame.columns if name.upper() not in (START, END)]
    if not _has_intervals(frame, settings):
        return _events(frame, data, _sequence(frame, settings), F.lit(UPSERT))
    closes = {**{quote(key): F.col(quote(key)) for key in keys}, quote(START): F.col(END)}
    if whole is None:
        # In two parts, so that no more rows than the closed ones are looked up.
        closed = _without(frame.where(F.col(END).isNotNull()), frame, closes)
        upserts = _events(frame, data, F.col(START), F.lit(UPSERT))
        return upserts.unionByName(_events(closed, data, F.col(END), F.lit(DELETE)))
    # A stream is read once.
    instants = F.array(
        F.struct(F.col(START).alias("at"), F.lit(UPSERT).alias("operation")),
        F.struct(F.col(END).alias("at"), F.lit(DELETE).alias("operation")),
    )
    sequence, operation = F.col(f"{_ROW}.at"), F.col(f"{_ROW}.operation")
    closes[quote(START)] = sequence
    frame = frame.withColumn(_ROW, F.explode(instants)).where(sequence.isNotNull() | (operation == UPSERT))
    frame = _without(frame, whole, closes, operation == DELETE)
    return _events(frame, data, sequence, operation)


def _events(frame: DataFrame, data: Sequence[str], sequence: Column, operation: Column) -> DataFrame:
    return frame.select(
        *names(data), sequence.alias(SEQUENCE), operation.alias(OPERATION), F.lit(True).alias(EXACT)
    )


def has_sequence(frame: DataFrame, settings: CdcSettings) -> bool:
    """Return whether the rows' events have a sequence; without one, they are older than the whole feed."""
    sequence = frame.select(_sequence(frame, settings).alias(SEQUENCE)).schema[SEQUENCE]
    return _has_intervals(frame, settings) or not isinstance(sequence.dataType, NullType)


def check_sequence(frame: DataFrame, settings: CdcSettings, location: str) -> None:
    """Make sure that the rows' events have a sequence: AUTO CDC on a platform takes none without.

    Raises:
        TableError: They would come without one, merely before every event of the feed.
    """
    if not has_sequence(frame, settings):
        raise TableError("COPIED_ROWS_WITHOUT_SEQUENCE", location=location, column=settings.sequence_by)


def not_representable(frame: DataFrame, settings: CdcSettings) -> DataFrame:
    """Return the rows that AUTO CDC can't represent, with the `__reason` of each.

    Among intervals: no start; an end that isn't after the start; the start of another row of the key; an
    overlap with another row of the key (both are returned). A row without extent gets no other row into this
    list. Among present states: another row of the key. NULL is a key like any other.
    """
    return _judged(frame, settings).where(F.col(REASON).isNotNull())


@dataclass(frozen=True)
class FutureEnds:
    """Rows whose interval ends in the future: to AUTO CDC they are closed, so no later row closes them.

    Attributes:
        first: The earliest of their ends, as text.
        last: The latest, as text.
        type: The SQL type of ``__END_AT``.
    """

    count: int
    first: str
    last: str
    type: str

    @property
    def mapping(self) -> str:
        """A mapping that makes them open, for selectExp; ``end`` stands for what is mapped now."""
        literal = f"{self.type.upper().removesuffix('_NTZ')}'{self.first}'"
        if self.first == self.last:
            return f"NULLIF(end, {literal}) AS __END_AT"
        return f"CASE WHEN end < {literal} THEN end END AS __END_AT"


def future_ends(frame: DataFrame, settings: CdcSettings) -> FutureEnds | None:
    """Count the rows that end in the future, such as at 9999-12-31; None if there are none, or no dates."""
    if not _has_intervals(frame, settings):
        return None
    ends = next(field.dataType for field in frame.schema if field.name.upper() == END)
    if not isinstance(ends, DateType | TimestampType | TimestampNTZType):
        return None
    later = frame.where(F.col(END) > F.current_timestamp())
    end = F.col(END).cast("string")
    [(count, first, last)] = later.select(F.count(F.lit(1)), F.min(end), F.max(end)).collect()
    return FutureEnds(count, first, last, ends.simpleString()) if count else None


def expressible(frame: DataFrame, settings: CdcSettings, whole: DataFrame | None = None) -> DataFrame:
    """Return the rows without those that AUTO CDC can't represent; the arguments are `history_events`'.

    What is wrong with a row depends on its key and its interval alone, given all the others.
    """
    bad = not_representable(frame if whole is None else whole, settings)
    columns = [*_keys(frame, settings), *((START, END) if _has_intervals(frame, settings) else ())]
    return _without(frame, bad, {quote(column): F.col(quote(column)) for column in columns})


def _without(
    frame: DataFrame, others: DataFrame, columns: Mapping[str, Column], where: Column | None = None
) -> DataFrame:
    """Leave out rows of which another frame, a batch, has one alike; a stream, too, can be joined so.

    ``columns`` are what must be equal, NULLs too, to each column of the others; only rows that fulfil
    ``where`` are left out.
    """
    renamed = {f"__other_{number}": column for number, column in enumerate(columns)}
    others = others.select(*[F.col(column).alias(name) for name, column in renamed.items()])
    alike = F.lit(True) if where is None else where
    for name, column in renamed.items():
        alike &= columns[column].eqNullSafe(F.col(name))
    return frame.join(others, alike, "left_anti")


def current(frame: DataFrame, settings: CdcSettings) -> DataFrame:
    """Return what a target keeps of the rows: all, or, SCD type 1, those that no end has closed."""
    if settings.scd_type == 2:
        return frame
    if _has_intervals(frame, settings):
        frame = frame.where(F.col(END).isNull())
    return frame.drop(START, END)


def _judged(frame: DataFrame, settings: CdcSettings) -> DataFrame:
    keys = names(_keys(frame, settings))
    if not _has_intervals(frame, settings):
        several = F.count(F.lit(1)).over(Window.partitionBy(*keys)) > 1
        return frame.withColumn(REASON, F.when(several, F.lit("another row has the same key")))
    start, end = F.col(START), F.col(END)
    sound = start.isNotNull() & (end.isNull() | (end > start))
    twins = F.sum(F.when(sound, 1)).over(Window.partitionBy(*keys, start))
    ordered = Window.partitionBy(*keys).orderBy(start)
    earlier = ordered.rowsBetween(Window.unboundedPreceding, -1)
    later = ordered.rowsBetween(1, Window.unboundedFollowing)
    open_before = F.coalesce(F.max(sound & end.isNull()).over(earlier), F.lit(False))
    ends_before = F.max(F.when(sound, end)).over(earlier)
    starts_after = F.min(F.when(sound, start)).over(later)
    overlaps = (
        open_before | (ends_before > start) | (starts_after < end) | (end.isNull() & starts_after.isNotNull())
    )
    return frame.withColumn(REASON, _reason(start, end, twins > 1, overlaps))


def _reason(start: Column, end: Column, twin: Column, overlaps: Column) -> Column:
    return (
        F.when(start.isNull(), "the interval has no start")
        .when(end == start, "interval is empty (start = end)")
        .when(end < start, "ends before it starts")
        .when(twin, "another row of the key has the same start")
        .when(overlaps, "overlaps another interval of its key")
    )


def _has_intervals(frame: DataFrame, settings: CdcSettings) -> bool:
    missing = [name for name in (START, END) if not _has(frame, name)]
    if missing and settings.scd_type == 2:
        raise TableError("VALIDITY_COLUMNS_MISSING", columns=" and no ".join(missing))
    return not missing


def _keys(frame: DataFrame, settings: CdcSettings) -> list[str]:
    spelled = {name.lower(): name for name in frame.columns}
    missing = [key for key in settings.keys if key.lower() not in spelled]
    if missing:
        raise TableError("LEGACY_KEYS_MISSING", keys=missing)
    return [spelled[key.lower()] for key in settings.keys]


def _sequence(frame: DataFrame, settings: CdcSettings) -> Column:
    if _has(frame, START):
        return F.col(quote(START))
    try:
        _ = frame.selectExpr(settings.sequence_by).schema
    except AnalysisException:
        return F.lit(None)
    return F.expr(settings.sequence_by)


def _has(frame: DataFrame, column: str) -> bool:
    return column.lower() in (name.lower() for name in frame.columns)
