"""The sequences of copied rows whose legacy table has none, from the events of their sources.

If the hand-over is recorded or proved, the legacy table contains what the sources' events made up to the
baseline. So the newest of these events tells how new a row is, and which keys were deleted.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql.types import NullType

from tableferry.errors import first_line
from tableferry.pipelines.cdc import change_feed
from tableferry.pipelines.cdc.fold import DELETE, EXACT, OPERATION, SEQUENCE, null_safe_equal, quote_all
from tableferry.pipelines.handover.expected_rows import NotKnownError, Whole
from tableferry.pipelines.model.flows import CdcSettings
from tableferry.spark.catalog import SPARK_ERRORS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tableferry.pipelines.model.steps import EventsBefore

_NEWEST = "__newest"
_GONE = "__gone"


def newest_events(
    spark: SparkSession, before: EventsBefore, settings: CdcSettings, *, keep: bool
) -> DataFrame:
    """Return each key with the sequence of its newest event, and whether that event deleted it.

    ``keep`` reads the events now, and once only where the compute can cache them.

    Raises:
        NotKnownError: The sources don't tell these events, or can't be read.
        TableferryError: An expression of the spec doesn't fit them.
    """
    whole = Whole.of(spark, before.dataflow)
    if any(key not in before.until for flow, _ in whole.flows for key in flow.tables):
        raise NotKnownError("SOURCE_WITHOUT_BASELINE")
    try:
        events = change_feed.build_feed_events(whole.rows(before.until), settings)
        value = F.struct(F.col(SEQUENCE), (F.col(OPERATION) == DELETE).alias(_GONE))
        grouped = events.groupBy(*quote_all(settings.keys)).agg(F.max(value).alias(_NEWEST))
        newest = grouped.select(*quote_all(settings.keys), f"{_NEWEST}.{SEQUENCE}", f"{_NEWEST}.{_GONE}")
        # Only asking for the columns makes Spark Connect analyze the expressions.
        newest.schema  # noqa: B018
        if keep:
            with suppress(PySparkException):
                # Serverless compute caches nothing.
                newest = newest.persist()
            newest.count()
    except SPARK_ERRORS as error:
        raise NotKnownError("SOURCES_NOT_READABLE", reason=first_line(error)) from error
    return newest


def release(newest: DataFrame) -> None:
    """Free what `newest_events` cached."""
    with suppress(PySparkException):
        newest.unpersist()


def has_none(events: DataFrame) -> bool:
    """Return whether copied events have no sequence."""
    return isinstance(events.schema[SEQUENCE].dataType, NullType)


def with_sequences(events: DataFrame, newest: DataFrame, settings: CdcSettings) -> DataFrame:
    """Give copied events the sequences of their keys, and add a delete for each key that has been deleted.

    A row keeps no sequence if its key has no event, or if its newest event is a delete.
    """
    keys = quote_all(settings.keys)
    kinds = {field.name.lower(): field.dataType for field in events.schema}
    alike = null_safe_equal("e", "n", settings.keys)
    others = [f"e.{name}" for name in quote_all(events.columns) if name != f"`{SEQUENCE}`"]
    sequence = F.when(~F.col(f"n.{_GONE}"), F.col(f"n.{SEQUENCE}")).alias(SEQUENCE)
    rows = events.alias("e").join(newest.alias("n"), alike, "left").select(*others, sequence)
    deleted = newest.where(_GONE).alias("n").join(events.alias("e"), alike, "left_anti")
    deletes = deleted.select(
        *[
            F.col(f"n.{key}").cast(kinds[name.lower()]).alias(name)
            for key, name in zip(keys, settings.keys, strict=True)
        ],
        F.lit(DELETE).alias(OPERATION),
        F.lit(False).alias(EXACT),
        f"n.{SEQUENCE}",
    )
    return rows.unionByName(deletes, allowMissingColumns=True)
