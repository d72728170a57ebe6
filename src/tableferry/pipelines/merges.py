"""The two MERGEs that fold a batch of events: into the log, and from the log into the target."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tableferry.pipelines.fold import ALIVE, OPERATION, RANK, SEQUENCE, START, TRUNCATE, Fold, same
from tableferry.quoting import quote
from tableferry.tables import TableName


def fresh(fold: Fold, batch: DataFrame, log: DataFrame) -> DataFrame:
    """Leave out what wouldn't change a log of the newest events; an insert-only MERGE needs no such care."""
    if fold.per_sequence:
        return batch
    logged = log.alias("t").withColumn("__found", F.lit(True)).alias("t")
    joined = batch.alias("s").join(logged, same("t", "s", fold.keys) & F.expr(_same_kind(fold)), "left")
    return joined.where(F.col("__found").isNull() | F.expr(_outranks(fold))).select("s.*")


def _same_kind(fold: Fold) -> str:
    return f"(t.{OPERATION} = '{TRUNCATE}') = (s.{OPERATION} = '{TRUNCATE}')" if fold.truncates else "true"


def _outranks(fold: Fold) -> str:
    if not fold.sequenced:
        return f"s.{RANK} > t.{RANK}"
    return (
        f"((t.{SEQUENCE} IS NULL AND s.{SEQUENCE} IS NOT NULL) OR s.{SEQUENCE} > t.{SEQUENCE} OR "
        f"(s.{SEQUENCE} <=> t.{SEQUENCE} AND s.{RANK} > t.{RANK}))"
    )


def log_merge(fold: Fold, log: TableName, view: str) -> str:
    """Write the MERGE into the log.

    A log of all events is only ever appended to, which costs no rewritten file: an event that outranks
    another one at its sequence stands beside it, and the reader takes the higher.
    """
    columns = [quote(name) for name in fold.log.names]
    conditions = [f"t.{quote(key)} <=> s.{quote(key)}" for key in fold.keys]
    if fold.truncates:
        conditions.append(_same_kind(fold))
    matched = ""
    if fold.per_sequence:
        conditions.append(f"t.{RANK} >= s.{RANK}")
        if fold.sequenced:
            conditions.append(f"t.{SEQUENCE} <=> s.{SEQUENCE}")
    else:
        sets = ", ".join(f"{name} = s.{name}" for name in columns)
        matched = f"WHEN MATCHED AND {_outranks(fold)} THEN UPDATE SET {sets} "
    return (
        f"MERGE INTO {log.sql} t USING {view} s ON {' AND '.join(conditions)} {matched}WHEN NOT MATCHED THEN "
        f"INSERT ({', '.join(columns)}) VALUES ({', '.join(f's.{name}' for name in columns)})"
    )


def row_merge(fold: Fold, target: TableName, view: str, columns: Sequence[str]) -> str:
    """Write the MERGE of differing rows into the target."""
    identity = [*fold.keys, START] if fold.settings.scd_type == 2 else fold.keys
    stored = [quote(name) for name in columns if name != ALIVE]
    sets = ", ".join(f"{quote(name)} = s.{quote(name)}" for name in columns if name not in (*identity, ALIVE))
    return (
        f"MERGE INTO {target.sql} t USING {view} s ON "
        f"{' AND '.join(f't.{quote(name)} <=> s.{quote(name)}' for name in identity)} WHEN MATCHED AND NOT "
        f"s.{ALIVE} THEN DELETE "
        + (f"WHEN MATCHED THEN UPDATE SET {sets} " if sets else "")
        + f"WHEN NOT MATCHED AND s.{ALIVE} THEN INSERT ({', '.join(stored)}) "
        f"VALUES ({', '.join(f's.{name}' for name in stored)})"
    )
