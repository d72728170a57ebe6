"""The names of the columns that AUTO CDC adds to events, logs and targets, and SQL on lists of columns."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from tableferry.spark.quoting import quote

SEQUENCE = "__sequence"
OPERATION = "__operation"
EXACT = "__exact"
RANK = "__rank"
EVENT_COLUMNS = (SEQUENCE, OPERATION, EXACT)
START = "__START_AT"
END = "__END_AT"
ALIVE = "__alive"
UPSERT, DELETE, TRUNCATE = "upsert", "delete", "truncate"


def quote_all(columns: Sequence[str]) -> list[str]:
    """Quote column names."""
    return [quote(name) for name in columns]


def equal_sql(left: str, right: str, columns: Sequence[str]) -> str:
    """Write the condition that the columns of two aliases are equal; NULL equals NULL."""
    return " AND ".join(f"{left}.{name} <=> {right}.{name}" for name in quote_all(columns))


def null_safe_equal(left: str, right: str, columns: Sequence[str]) -> Column:
    """Return the condition of `equal_sql` as a column."""
    return F.expr(equal_sql(left, right, columns))
