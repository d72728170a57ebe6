"""The statements that fold a batch of events: into the log, and from the log into the target."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tableferry.pipelines.cdc.fold import ALIVE, OPERATION, RANK, SEQUENCE, START, TRUNCATE, Fold, same
from tableferry.spark.quoting import quote
from tableferry.spark.tables import TableName

TRUNCATES = "__truncates"


def unknown(fold: Fold, batch: DataFrame, log: DataFrame) -> DataFrame:
    """Leave out events that a log has or, where only the newest one of a key counts, has newer ones than."""
    condition = same("s", "t", fold.keys) & F.expr(_same_kind(fold, "s", "t"))
    if fold.per_sequence:
        condition &= F.expr(f"t.{SEQUENCE} <=> s.{SEQUENCE} AND t.{RANK} >= s.{RANK}")
    else:
        condition &= ~F.expr(_outranks("s", "t"))
    return batch.alias("s").join(log.alias("t"), condition, "left_anti")


def _same_kind(fold: Fold, one: str, other: str) -> str:
    if not fold.truncates:
        return "true"
    return f"({one}.{OPERATION} = '{TRUNCATE}') = ({other}.{OPERATION} = '{TRUNCATE}')"


def _outranks(one: str, other: str) -> str:
    return (
        f"(({other}.{SEQUENCE} IS NULL AND {one}.{SEQUENCE} IS NOT NULL) OR "
        f"coalesce({one}.{SEQUENCE} > {other}.{SEQUENCE}, false) OR "
        f"({one}.{SEQUENCE} <=> {other}.{SEQUENCE} AND {one}.{RANK} > {other}.{RANK}))"
    )


def log_insert(fold: Fold, log: TableName, view: str) -> str:
    """Write the INSERT into the log."""
    columns = ", ".join(quote(name) for name in fold.log.names)
    return f"INSERT INTO {log.sql} ({columns}) SELECT {columns} FROM {view}"


def row_merge(fold: Fold, target: TableName, view: str, columns: Sequence[str], where: str) -> str:
    """Write the MERGE of differing rows into the target; ``where`` holds for its rows that may be matched."""
    sets = ", ".join(
        f"{quote(name)} = s.{quote(name)}" for name in columns if name not in (*_identity(fold), ALIVE)
    )
    return (
        f"{_merge(fold, target, view)} AND {where} WHEN MATCHED AND NOT s.{ALIVE} THEN DELETE "
        + (f"WHEN MATCHED THEN UPDATE SET {sets} " if sets else "")
        + _insert(columns)
    )


def row_insert(fold: Fold, target: TableName, view: str, columns: Sequence[str]) -> str:
    """Write the MERGE of rows into a target that has none; it conflicts with another one that fills it."""
    return f"{_merge(fold, target, view)} {_insert(columns)}"


def _identity(fold: Fold) -> Sequence[str]:
    return [*fold.keys, START] if fold.settings.scd_type == 2 else fold.keys


def _merge(fold: Fold, target: TableName, view: str) -> str:
    equal = " AND ".join(f"t.{quote(name)} <=> s.{quote(name)}" for name in _identity(fold))
    return f"MERGE INTO {target.sql} t USING {view} s ON {equal}"


def _insert(columns: Sequence[str]) -> str:
    stored = [quote(name) for name in columns if name != ALIVE]
    return (
        f"WHEN NOT MATCHED AND s.{ALIVE} THEN INSERT ({', '.join(stored)}) "
        f"VALUES ({', '.join(f's.{name}' for name in stored)})"
    )


def newest(fold: Fold, log: DataFrame) -> DataFrame:
    """Return the sequence and rank of the newest event of each key of which a log has several."""
    kind = (F.col(OPERATION) == TRUNCATE).alias(TRUNCATES)
    keys = [F.col(quote(key)) for key in fold.keys]
    several = log.groupBy(*keys, kind).agg(
        F.max(F.struct(SEQUENCE, RANK)).alias("newest"), F.count(F.lit(1)).alias("events")
    )
    return several.where("events > 1").select(
        *keys, TRUNCATES, F.col(f"newest.{SEQUENCE}").alias(SEQUENCE), F.col(f"newest.{RANK}").alias(RANK)
    )


def superseded_merge(fold: Fold, log: TableName, view: str) -> str:
    """Write the MERGE that drops events from a log behind which the `newest` in ``view`` come.

    An event stays superseded whatever comes meanwhile, so it doesn't matter how old the view is.
    """
    equal = " AND ".join(f"t.{quote(key)} <=> s.{quote(key)}" for key in fold.keys)
    return (
        f"MERGE INTO {log.sql} t USING {view} s ON {equal} AND "
        f"(t.{OPERATION} = '{TRUNCATE}') = s.{TRUNCATES} AND {_outranks('s', 't')} WHEN MATCHED THEN DELETE"
    )
