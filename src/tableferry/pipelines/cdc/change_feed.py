"""Events of a change feed, and the rows that they fold to."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    LongType,
    StructField,
    StructType,
)

from tableferry.errors import TableError, first_line
from tableferry.pipelines.cdc.fold import (
    ALIVE,
    DELETE,
    END,
    EVENT_COLUMNS,
    EXACT,
    OPERATION,
    RANK,
    SEQUENCE,
    START,
    TRUNCATE,
    UPSERT,
    Fold,
    names,
)
from tableferry.pipelines.model.flows import CdcSettings

# Spark's error contains these around the event's keys.
NO_SEQUENCE, AFTER_KEYS = "sequence_by is null for the event with the keys ", " (tableferry)"


def feed_events(frame: DataFrame, settings: CdcSettings) -> DataFrame:
    """Turn a feed's rows into events: `where`, deletes, truncates, sequence and the target's columns.

    The conditions and `sequence_by` see every column of the feed, also those that the target leaves out. Keys
    are always kept. An event without a sequence fails the batch, once it's folded, with an error that names
    its keys.

    Raises:
        TableError: The settings name a column that the feed lacks, or the feed uses a reserved name.
    """
    if settings.scd_type == 2 and settings.apply_as_truncates:
        raise TableError("TRUNCATES_NEED_SCD_TYPE_1")
    _reserved(frame, settings)
    keys = known_columns(frame.columns, "keys", settings.keys)
    kept = known_columns(frame.columns, "column_list", settings.column_list) or frame.columns
    left_out = known_columns(frame.columns, "except_column_list", settings.except_column_list)
    data = [name for name in frame.columns if name in keys or (name in kept and name not in left_out)]
    known_columns(data, "track_history_column_list", settings.track_history_column_list)
    known_columns(data, "track_history_except_column_list", settings.track_history_except_column_list)
    sequence = F.expr(settings.sequence_by)
    message = F.concat(F.lit(NO_SEQUENCE), F.to_json(F.struct(*names(keys)), {"ignoreNullFields": "false"}))
    operation = F.lit(UPSERT)
    if settings.apply_as_truncates:
        operation = F.when(F.expr(settings.apply_as_truncates), TRUNCATE).otherwise(operation)
    if settings.apply_as_deletes:
        operation = F.when(F.expr(settings.apply_as_deletes), DELETE).otherwise(operation)
    try:
        events = frame.where(F.expr(settings.where)) if settings.where else frame
        return events.select(
            *names(data),
            F.when(sequence.isNull(), F.raise_error(F.concat(message, F.lit(AFTER_KEYS))))
            .otherwise(sequence)
            .alias(SEQUENCE),
            operation.alias(OPERATION),
            F.lit(False).alias(EXACT),
        )
    except AnalysisException as error:
        raise TableError("CDC_EXPRESSION_INVALID", reason=first_line(error)) from error


def _reserved(frame: DataFrame, settings: CdcSettings) -> None:
    taken = {*EVENT_COLUMNS, RANK, ALIVE} | ({START, END} if settings.scd_type == 2 else set())
    for name in frame.columns:
        if name.lower() in {reserved_name.lower() for reserved_name in taken}:
            raise TableError("RESERVED_COLUMN_IN_FEED", column=name)


def known_columns(columns: Sequence[str], setting: str, listed: Sequence[str]) -> list[str]:
    """Return columns as the frame spells them."""
    spelled = {name.lower(): name for name in columns}
    plain = [re.sub(r"^`(.*)`$", r"\1", name).replace("``", "`") for name in listed]
    missing = [name for name in plain if name.lower() not in spelled]
    if missing:
        raise TableError("CDC_COLUMNS_UNKNOWN", setting=setting, missing=missing, columns=", ".join(columns))
    return [spelled[name.lower()] for name in plain]


def folded(events: DataFrame, settings: CdcSettings) -> DataFrame:
    """Return what a target holds once these events, and no others, are folded into it."""
    fold = Fold(settings, StructType([*events.schema.fields, StructField(RANK, LongType())]))
    batch = fold.batch(events)
    return fold.rows(None, batch).where(F.col(ALIVE)).drop(ALIVE)
