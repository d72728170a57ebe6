"""Turn the rows of a change feed into CDC events, as the AUTO CDC settings say."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from tableferry.errors import TableError, first_line
from tableferry.pipelines.cdc.event_columns import (
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
    quote_all,
)
from tableferry.pipelines.cdc.fold import Fold
from tableferry.pipelines.model.flows import CdcSettings

# Spark's error for an event without a sequence contains the event's keys between these two texts.
NULL_SEQUENCE_PREFIX = "sequence_by is null for the event with the keys "
NULL_SEQUENCE_SUFFIX = " (tableferry)"


def build_feed_events(frame: DataFrame, settings: CdcSettings) -> DataFrame:
    """Return the CDC events of a flow's rows: the target's columns, `__sequence`, `__operation`, `__exact`.

    `where`, `apply_as_deletes`, `apply_as_truncates` and `sequence_by` can use every column of the feed, also
    columns that the target doesn't contain. Keys are always kept. An event without a sequence makes Spark
    fail when it is computed; the error names the keys. A row that is a truncate and a delete is a delete.

    Raises:
        TableError: The settings name a column that the rows lack, the rows have a column with a reserved
            name, an expression is invalid, or SCD type 2 has truncates.
    """
    if settings.scd_type == 2 and settings.apply_as_truncates:
        raise TableError("TRUNCATES_NEED_SCD_TYPE_1")
    _check_reserved_names(frame, settings)
    keys = resolve_columns(frame.columns, "keys", settings.key_columns)
    included = resolve_columns(frame.columns, "column_list", settings.column_list) or frame.columns
    excluded = resolve_columns(frame.columns, "except_column_list", settings.except_column_list)
    data = [name for name in frame.columns if name in keys or (name in included and name not in excluded)]
    resolve_columns(data, "track_history_column_list", settings.track_history_column_list)
    resolve_columns(data, "track_history_except_column_list", settings.track_history_except_column_list)
    sequence = F.expr(settings.sequence_by)
    key_json = F.to_json(F.struct(*quote_all(keys)), {"ignoreNullFields": "false"})
    message = F.concat(F.lit(NULL_SEQUENCE_PREFIX), key_json, F.lit(NULL_SEQUENCE_SUFFIX))
    operation = F.lit(UPSERT)
    if settings.apply_as_truncates:
        operation = F.when(F.expr(settings.apply_as_truncates), TRUNCATE).otherwise(operation)
    if settings.apply_as_deletes:
        operation = F.when(F.expr(settings.apply_as_deletes), DELETE).otherwise(operation)
    try:
        events = frame.where(F.expr(settings.where)) if settings.where else frame
        return events.select(
            *quote_all(data),
            F.when(sequence.isNull(), F.raise_error(message)).otherwise(sequence).alias(SEQUENCE),
            operation.alias(OPERATION),
            F.lit(False).alias(EXACT),
        )
    except AnalysisException as error:
        raise TableError("CDC_EXPRESSION_INVALID", reason=first_line(error)) from error


def _check_reserved_names(frame: DataFrame, settings: CdcSettings) -> None:
    reserved = [*EVENT_COLUMNS, RANK, ALIVE, *((START, END) if settings.scd_type == 2 else ())]
    for name in frame.columns:
        if name.lower() in map(str.lower, reserved):
            raise TableError("RESERVED_COLUMN_IN_FEED", column=name)


def resolve_columns(columns: Sequence[str], setting: str, listed: Sequence[str]) -> list[str]:
    """Return the columns that a setting lists, in the DataFrame's spelling.

    Raises:
        TableError: The DataFrame lacks one of them.
    """
    spelled = {name.lower(): name for name in columns}
    names = [re.sub(r"^`(.*)`$", r"\1", name).replace("``", "`") for name in listed]
    missing = [name for name in names if name.lower() not in spelled]
    if missing:
        raise TableError("CDC_COLUMNS_UNKNOWN", setting=setting, missing=missing, columns=", ".join(columns))
    return [spelled[name.lower()] for name in names]


def fold_events(events: DataFrame, settings: CdcSettings) -> DataFrame:
    """Return the rows of a target that gets these events and no other events."""
    fold = Fold(settings, StructType([*events.schema.fields, StructField(RANK, LongType())]))
    batch = fold.build_batch(events)
    return fold.compute_rows(None, batch).where(F.col(ALIVE)).drop(ALIVE)
