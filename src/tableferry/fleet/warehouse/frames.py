"""Makes Spark frames of rows that this process has."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# A query's text holds so many rows.
_FEW = 10_000


def frame_of(spark: SparkSession, rows: Sequence[tuple[Any, ...]], schema: str) -> DataFrame:
    """Make a frame of rows; of few in the query itself, as Spark starts a Python process for any others.

    Args:
        spark: The session.
        rows: Their values, such as JSON has.
        schema: ``name TYPE, …``, of names that need no quotes.
    """
    if len(rows) > _FEW:
        return spark.createDataFrame(rows, schema)
    names = [column.split()[0] for column in schema.split(",")]
    text = json.dumps([dict(zip(names, row, strict=True)) for row in rows])
    return spark.range(1).select(F.inline(F.from_json(F.lit(text), f"ARRAY<STRUCT<{schema}>>")))
