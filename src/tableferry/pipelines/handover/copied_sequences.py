"""Give copied rows the sequences that the legacy table lacks, from the events of the sources.

If the hand-over point is recorded or proved, the legacy table is the result of the events up to the baseline.
So the newest of these events has the sequence of its key's row, or of its key's deletion.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql.types import NullType

from tableferry.errors import first_line
from tableferry.pipelines.cdc import change_feed
from tableferry.pipelines.cdc.event_columns import (
    DELETE,
    EXACT,
    OPERATION,
    SEQUENCE,
    null_safe_equal,
    quote_all,
)
from tableferry.pipelines.handover.expected_rows import RowsNotDerivableError, TargetOutput
from tableferry.pipelines.model.flows import CdcSettings
from tableferry.spark.catalog import SPARK_ERRORS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tableferry.pipelines.model.steps import BaselineEvents

_NEWEST = "__newest"
_IS_DELETED = "__is_deleted"


def read_newest_events(
    spark: SparkSession, before: BaselineEvents, settings: CdcSettings, *, persist: bool
) -> DataFrame:
    """Return each key of the sources up to the baselines, with its newest event's sequence and kind.

    Copied rows that have no sequence get it from this result, so that a late event doesn't replace them. With
    `persist` the events are read immediately, and the result is cached if the compute supports that.

    Raises:
        RowsNotDerivableError: The events can't be derived from the sources, or a source can't be read.
        TableferryError: An expression of the spec can't be applied to the rows.
    """
    output = TargetOutput.of_dataflow(spark, before.dataflow)
    if output.tables.keys() - before.until.keys():
        raise RowsNotDerivableError("SOURCE_WITHOUT_BASELINE")
    try:
        events = change_feed.build_feed_events(output.read_rows(before.until), settings)
        value = F.struct(F.col(SEQUENCE), (F.col(OPERATION) == DELETE).alias(_IS_DELETED))
        grouped = events.groupBy(*quote_all(settings.key_columns)).agg(F.max(value).alias(_NEWEST))
        newest = grouped.select(
            *quote_all(settings.key_columns), f"{_NEWEST}.{SEQUENCE}", f"{_NEWEST}.{_IS_DELETED}"
        )
        # Spark Connect analyzes the expressions only when the schema is read.
        newest.schema  # noqa: B018
        if persist:
            with suppress(PySparkException):
                # Serverless compute can't cache.
                newest = newest.persist()
            newest.count()
    except SPARK_ERRORS as error:
        raise RowsNotDerivableError("SOURCES_NOT_READABLE", reason=first_line(error)) from error
    return newest


def unpersist(newest: DataFrame) -> None:
    """Release the events that `read_newest_events` cached."""
    with suppress(PySparkException):
        newest.unpersist()


def has_sequences(events: DataFrame) -> bool:
    """Return whether copied events have sequences."""
    return not isinstance(events.schema[SEQUENCE].dataType, NullType)


def add_sequences(events: DataFrame, newest: DataFrame, settings: CdcSettings) -> DataFrame:
    """Give copied events the sequences of their keys, and add a delete event for each deleted key.

    A row gets no sequence if its key has no event, or if the key's newest event is a delete.
    """
    keys = quote_all(settings.key_columns)
    kinds = {field.name.lower(): field.dataType for field in events.schema}
    alike = null_safe_equal("e", "n", settings.key_columns)
    others = [f"e.{name}" for name in quote_all(events.columns) if name != f"`{SEQUENCE}`"]
    sequence = F.when(~F.col(f"n.{_IS_DELETED}"), F.col(f"n.{SEQUENCE}")).alias(SEQUENCE)
    rows = events.alias("e").join(newest.alias("n"), alike, "left").select(*others, sequence)
    deleted = newest.where(_IS_DELETED).alias("n").join(events.alias("e"), alike, "left_anti")
    deletes = deleted.select(
        *[
            F.col(f"n.{key}").cast(kinds[name.lower()]).alias(name)
            for key, name in zip(keys, settings.key_columns, strict=True)
        ],
        F.lit(DELETE).alias(OPERATION),
        F.lit(False).alias(EXACT),
        f"n.{SEQUENCE}",
    )
    return rows.unionByName(deletes, allowMissingColumns=True)
