"""Makes Spark frames of rows that this process has."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from tableferry.formats.hive.partitions import NULL
from tableferry.spark.quoting import literal, quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# A query's text holds so many rows.
_FEW = 10_000


def with_null_partitions(frame: DataFrame, partition_columns: Iterable[str]) -> DataFrame:
    """Show a null partition as null where Hive's own readers show the name that its directory has for it."""
    keys = {column.lower() for column in partition_columns}
    if not any(kind == "string" and name.lower() in keys for name, kind in frame.dtypes):
        return frame
    return frame.selectExpr(
        *(
            f"nullif({quote(name)}, {literal(NULL)}) AS {quote(name)}"
            if kind == "string" and name.lower() in keys
            else quote(name)
            for name, kind in frame.dtypes
        )
    )


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
