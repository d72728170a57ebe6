"""Create Spark DataFrames from this process's rows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from tableferry.formats.hive.partitions import NULL
from tableferry.spark.quoting import literal, quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# The largest number of rows in a query's text.
_MAX_ROWS_IN_QUERY = 10_000


def with_null_partitions(frame: DataFrame, partition_columns: Iterable[str]) -> DataFrame:
    """Replace Hive's directory name of a null partition with null in string partition columns."""
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
    """Create a DataFrame from rows.

    Up to 10,000 rows are written into the query, because Spark starts a Python process for other rows.

    Args:
        spark: The session.
        rows: The rows, with values that JSON can represent.
        schema: ``name TYPE, …``, with names that need no quotes.
    """
    if len(rows) > _MAX_ROWS_IN_QUERY:
        return spark.createDataFrame(rows, schema)
    names = [column.split()[0] for column in schema.split(",")]
    text = json.dumps([dict(zip(names, row, strict=True)) for row in rows])
    return spark.range(1).select(F.inline(F.from_json(F.lit(text), f"ARRAY<STRUCT<{schema}>>")))
