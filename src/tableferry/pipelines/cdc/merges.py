"""SQL statements that apply a batch of events: to the log, and from the log to the target.

A batch is appended to the log first. Then the rows of its keys are computed from the whole log (`fold.py`),
and one MERGE writes the differences to the target. If a process dies between the two commits, the batch is
applied again:

- The log then contains its events twice. The fold ignores the copies, so the rows are the same.
- The MERGE contains only rows that differ, so a batch that was applied completely commits nothing.

Compaction removes events that a later event of the same key has superseded. It changes no row.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tableferry.pipelines.cdc.event_columns import (
    ALIVE,
    OPERATION,
    RANK,
    SEQUENCE,
    TRUNCATE,
    equal_sql,
    null_safe_equal,
    quote_all,
)
from tableferry.pipelines.cdc.fold import Fold
from tableferry.spark.quoting import quote
from tableferry.spark.tables import TableName

TRUNCATES = "__truncates"


def remove_logged_events(fold: Fold, batch: DataFrame, log: DataFrame) -> DataFrame:
    """Remove events of a batch that the log already contains or that an event of the log outranks."""
    condition = null_safe_equal("s", "t", fold.keys)
    if fold.has_truncates:
        condition &= F.expr(f"(s.{OPERATION} = '{TRUNCATE}') = (t.{OPERATION} = '{TRUNCATE}')")
    if fold.is_keyed_by_sequence:
        condition &= F.expr(f"t.{SEQUENCE} <=> s.{SEQUENCE} AND t.{RANK} >= s.{RANK}")
    else:
        condition &= ~F.expr(_outranks_sql("s", "t"))
    return batch.alias("s").join(log.alias("t"), condition, "left_anti")


def _outranks_sql(one: str, other: str) -> str:
    """Write the condition that one event comes after another one in the log's order."""
    return (
        f"(({other}.{SEQUENCE} IS NULL AND {one}.{SEQUENCE} IS NOT NULL) OR "
        f"coalesce({one}.{SEQUENCE} > {other}.{SEQUENCE}, false) OR "
        f"({one}.{SEQUENCE} <=> {other}.{SEQUENCE} AND {one}.{RANK} > {other}.{RANK}))"
    )


def log_insert_sql(fold: Fold, log: TableName, view: str) -> str:
    """Write the INSERT of a view's events into the log."""
    columns = ", ".join(quote_all(fold.log_schema.names))
    return f"INSERT INTO {log.sql} ({columns}) SELECT {columns} FROM {view}"


def row_merge_sql(fold: Fold, target: TableName, view: str, columns: Sequence[str], condition: str) -> str:
    """Write the MERGE of a view of `Fold.find_differing_rows` into the target.

    `condition` is true for all rows of the target that may match. It lets Delta skip files.
    """
    sets = ", ".join(
        f"{quote(name)} = s.{quote(name)}" for name in columns if name not in (*fold.row_identity, ALIVE)
    )
    return (
        f"{_merge_sql(fold, target, view)} AND {condition} WHEN MATCHED AND NOT s.{ALIVE} THEN DELETE "
        + (f"WHEN MATCHED THEN UPDATE SET {sets} " if sets else "")
        + _insert_sql(columns)
    )


def row_insert_sql(fold: Fold, target: TableName, view: str, columns: Sequence[str]) -> str:
    """Write the MERGE that fills an empty target; unlike an INSERT it conflicts with a concurrent one."""
    return f"{_merge_sql(fold, target, view)} {_insert_sql(columns)}"


def _merge_sql(fold: Fold, target: TableName, view: str) -> str:
    return f"MERGE INTO {target.sql} t USING {view} s ON {equal_sql('t', 's', fold.row_identity)}"


def _insert_sql(columns: Sequence[str]) -> str:
    stored = [quote(name) for name in columns if name != ALIVE]
    return (
        f"WHEN NOT MATCHED AND s.{ALIVE} THEN INSERT ({', '.join(stored)}) "
        f"VALUES ({', '.join(f's.{name}' for name in stored)})"
    )


def find_newest_events(fold: Fold, log: DataFrame) -> DataFrame:
    """Return sequence and rank of the newest event of each key that has several events in the log."""
    kind = (F.col(OPERATION) == TRUNCATE).alias(TRUNCATES)
    keys = [F.col(quote(key)) for key in fold.keys]
    events = log.groupBy(*keys, kind).agg(
        F.max(F.struct(SEQUENCE, RANK)).alias("newest"), F.count(F.lit(1)).alias("events")
    )
    return events.where("events > 1").select(
        *keys, TRUNCATES, F.col(f"newest.{SEQUENCE}").alias(SEQUENCE), F.col(f"newest.{RANK}").alias(RANK)
    )


def superseded_delete_sql(fold: Fold, log: TableName, view: str) -> str:
    """Return the MERGE that deletes the events of a log that a newer event of their key supersedes.

    Only for a fold with a sequence whose state depends on one event per key: for SCD type 2 and
    ``ignore_null_updates``, older events still count. The view contains the result of `find_newest_events`.
    It may be older than the log, because a superseded event stays superseded.
    """
    return (
        f"MERGE INTO {log.sql} t USING {view} s ON {equal_sql('t', 's', fold.keys)} AND "
        f"(t.{OPERATION} = '{TRUNCATE}') = s.{TRUNCATES} AND {_outranks_sql('s', 't')} "
        f"WHEN MATCHED THEN DELETE"
    )
