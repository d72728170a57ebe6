"""Asks the catalog about one table, and turns what Spark answers with into this package's errors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tableferry.catalog import SPARK_ERRORS
from tableferry.errors import TableError, first_line
from tableferry.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def explaining(problem: str, remedy: str) -> Iterator[None]:
    """Turn an error of Spark's into a TableError: the problem, Spark's reason, and what to do about it."""
    try:
        yield
    except SPARK_ERRORS as error:
        raise TableError(f"{problem} ({first_line(error)}): {remedy}") from error


def describe(spark: SparkSession, name: TableName, partition: str = "") -> dict[str, Any]:
    """Return what DESCRIBE … AS JSON says of a table, or of a partition that is named as in ALTER TABLE."""
    [row] = spark.sql(f"DESCRIBE TABLE EXTENDED {name.sql} {partition} AS JSON").collect()
    return dict(json.loads(row[0]))


def properties(spark: SparkSession, name: TableName) -> dict[str, str]:
    """Return a table's properties."""
    return {row["key"]: row["value"] for row in spark.sql(f"SHOW TBLPROPERTIES {name.sql}").collect()}
