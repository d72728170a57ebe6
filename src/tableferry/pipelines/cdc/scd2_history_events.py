"""Turn the rows of a legacy table into CDC events: the intervals of SCD type 2, or current states.

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

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import NullType

from tableferry.errors import TableError
from tableferry.pipelines.cdc.event_columns import (
    DELETE,
    END,
    EXACT,
    OPERATION,
    SEQUENCE,
    START,
    UPSERT,
    quote_all,
)
from tableferry.pipelines.model.flows import CdcSettings
from tableferry.spark.quoting import quote

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
    keys = key_columns(frame, settings)
    data = [name for name in frame.columns if name.upper() not in (START, END)]
    if not has_intervals(frame, settings):
        return _select_events(frame, data, _sequence_column(frame, settings), F.lit(UPSERT))
    closed_by_next = {**{quote(key): F.col(quote(key)) for key in keys}, quote(START): F.col(END)}
    if batch is None:
        # Two branches, so that only closed rows are joined.
        closed = anti_join(frame.where(F.col(END).isNotNull()), frame, closed_by_next)
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
    frame = anti_join(frame, batch, closed_by_next, operation == DELETE)
    return _select_events(frame, data, sequence, operation)


def _select_events(frame: DataFrame, data: Sequence[str], sequence: Column, operation: Column) -> DataFrame:
    return frame.select(
        *quote_all(data), sequence.alias(SEQUENCE), operation.alias(OPERATION), F.lit(True).alias(EXACT)
    )


def has_sequence(frame: DataFrame, settings: CdcSettings) -> bool:
    """Return whether the rows' events have a sequence. If not, they come before the whole feed."""
    sequence = frame.select(_sequence_column(frame, settings).alias(SEQUENCE)).schema[SEQUENCE]
    return has_intervals(frame, settings) or not isinstance(sequence.dataType, NullType)


def check_sequence(frame: DataFrame, settings: CdcSettings, location: str) -> None:
    """Check that the rows' events have a sequence, which a platform's AUTO CDC requires.

    Raises:
        TableError: They have no sequence.
    """
    if not has_sequence(frame, settings):
        raise TableError("COPIED_ROWS_WITHOUT_SEQUENCE", location=location, column=settings.sequence_by)


def anti_join(
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
    if has_intervals(frame, settings):
        frame = frame.where(F.col(END).isNull())
    return frame.drop(START, END)


def has_intervals(frame: DataFrame, settings: CdcSettings) -> bool:
    """Return whether the rows have validity intervals.

    Raises:
        TableError: SCD type 2 needs them, and a column is missing.
    """
    missing = [name for name in (START, END) if not _has_column(frame, name)]
    if missing and settings.scd_type == 2:
        raise TableError("VALIDITY_COLUMNS_MISSING", columns=" and no ".join(missing))
    return not missing


def key_columns(frame: DataFrame, settings: CdcSettings) -> list[str]:
    """Return the key columns as the rows spell them.

    Raises:
        TableError: A key is missing.
    """
    spelled = {name.lower(): name for name in frame.columns}
    missing = [key for key in settings.key_columns if key.lower() not in spelled]
    if missing:
        raise TableError("LEGACY_KEYS_MISSING", keys=missing)
    return [spelled[key.lower()] for key in settings.key_columns]


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
