"""Finds streams in a user's own Python that Tableferry can't see, and so can't start where they must."""

from __future__ import annotations

import re
import uuid
from typing import TYPE_CHECKING

from tableferry.spark.quoting import quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MARK = {"tableferry.followed": "true"}
"""Reader options by which a stream is known again in a plan; Delta doesn't mind them."""

_STREAM = re.compile(r"^[\s:|+~-]*StreamingRelation")
_MARKED = "tableferry.followed -> true"


def reads_hidden_streams(frame: DataFrame, followed: int) -> bool:
    """Say whether a frame reads a stream besides those that were given to it.

    The streams are counted in Spark's own plan, for a function may get at any session and any reader. Those
    that it was given, or has asked for, bear the mark; where a plan's text doesn't show options, their number
    (``followed``) has to do.
    """
    name = f"tableferry_{uuid.uuid4().hex}"
    frame.createOrReplaceTempView(name)
    spark = frame.sparkSession
    try:
        (row,) = spark.sql(f"EXPLAIN EXTENDED SELECT * FROM {quote(name)}").collect()
    finally:
        spark.catalog.dropTempView(name)
    analyzed = row[0].partition("== Analyzed Logical Plan ==")[2].partition("== Optimized")[0]
    streams = [line for line in analyzed.split("\n") if _STREAM.match(line)]
    marked = sum(_MARKED in line for line in streams)
    return len(streams) > (marked if marked or not followed else followed)
