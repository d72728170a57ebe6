"""AUTO CDC from snapshots as one idempotent operation on Delta tables: what changed becomes events.

A snapshot is compared with the rows that a target has now, and what differs goes the way of a feed's events
(see `cdc`), with the snapshot's version for their sequence. The target's log of events is the only record of
how far that is: a run that dies between the two commits of a snapshot leaves its events there, from which the
next run makes the rows before it looks at anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from tableferry.errors import TableError
from tableferry.pipelines import cdc, views
from tableferry.pipelines.ddl import comparable, sql_type
from tableferry.pipelines.flows import CdcSettings, SnapshotCdc, Target, View, log_name
from tableferry.pipelines.fold import (
    DELETE,
    END,
    EVENT_COLUMNS,
    EXACT,
    OPERATION,
    RANK,
    SEQUENCE,
    START,
    UPSERT,
    names,
    same,
    struct,
)
from tableferry.pipelines.metadata import with_added
from tableferry.pipelines.snapshots import Version, next_snapshot
from tableferry.spark.catalog import exists
from tableferry.spark.quoting import quote
from tableferry.spark.tables import TableName

Before = Callable[[str], None]


def apply(spark: SparkSession, target: Target, named: Mapping[str, View], before: Before) -> None:
    """Take every snapshot that is there and hasn't been taken; ``named`` are the views of its spec.

    Raises:
        TableError: A snapshot can't be read, has no rows or several of one key, or the target's log is gone.
    """
    snapshots = target.snapshots
    assert snapshots is not None
    settings = CdcSettings(
        snapshots.keys,
        SEQUENCE,
        snapshots.scd_type,
        track_history_column_list=snapshots.track_history_column_list,
        track_history_except_column_list=snapshots.track_history_except_column_list,
    )
    latest = _resume(spark, target, settings, before)
    for rows, version in _snapshots(spark, snapshots, named, latest):
        sequence = _sequence(snapshots, version)
        if not exists(spark, target.name):
            before(f"creating {target.name}")
            cdc.create_tables(spark, replace(target, cdc=settings), _columns(spark, target, rows, sequence))
        _check_keys(rows, snapshots, version)
        events = _changes(rows, _current(spark, target.name, settings), settings)
        events = events.withColumn(SEQUENCE, sequence).withColumn(EXACT, F.lit(False))
        before(f"the snapshot of version {version} into {target.name}")
        cdc.apply(events, target.name, settings, before=before)


def _snapshots(
    spark: SparkSession, snapshots: SnapshotCdc, named: Mapping[str, View], latest: Version | None
) -> Iterator[tuple[DataFrame, Version]]:
    """Yield the snapshots behind a version, in their order; a view is the one of now."""
    if isinstance(snapshots.source, str):
        now: Any = datetime.now(UTC)
        if isinstance(latest, datetime):
            now = max(now, latest.astimezone(UTC) + timedelta(microseconds=1))
        yield views.read(spark, named, snapshots.source, {}, once=True), now
        return
    while (following := next_snapshot(spark, snapshots, latest)) is not None:
        yield following
        latest = following[1]


def _resume(spark: SparkSession, target: Target, settings: CdcSettings, before: Before) -> Version | None:
    """Finish the newest snapshot that is in the log; return its version, or None where there is none."""
    log = log_name(target.name)
    if not exists(spark, log):
        if exists(spark, target.name):
            raise TableError("SNAPSHOT_LOG_MISSING", location=target.location, table=target.name, log=log)
        return None
    if not exists(spark, target.name):
        raise TableError("SNAPSHOT_TARGET_MISSING", location=target.location, table=target.name, log=log)
    logged = spark.table(log.sql)
    latest: Version | None = logged.agg(F.max(SEQUENCE)).collect()[0][0]
    if latest is not None:
        newest = logged.where(F.col(SEQUENCE) == F.lit(latest)).drop(RANK)
        cdc.apply(newest, target.name, settings, before=before)
    return latest


def _sequence(snapshots: SnapshotCdc, version: Version) -> Column:
    """Return a version as the sequence of its events; its type is the one that the spec gives it."""
    source = snapshots.source
    return F.lit(version).cast("timestamp" if isinstance(source, str) else source.version_type)


def _columns(spark: SparkSession, target: Target, rows: DataFrame, sequence: Column) -> StructType:
    """Take a table's columns from its schema file, or from its first snapshot."""
    schema = rows.schema
    if target.schema_file is not None:
        schema = with_added(views.schema_of(spark, target.schema_file), target)
    kept = [field for field in schema.fields if field.name.upper() not in (START, END)]
    kind = spark.range(1).select(sequence.alias(SEQUENCE)).schema[0].dataType
    return StructType([*kept, StructField(SEQUENCE, kind)])


def _current(spark: SparkSession, target: TableName, settings: CdcSettings) -> DataFrame:
    """Return the rows that hold now."""
    frame = spark.table(target.sql)
    if settings.scd_type == 1:
        return frame
    return frame.where(F.col(END).isNull()).drop(START, END)


def _check_keys(rows: DataFrame, snapshots: SnapshotCdc, version: Version) -> None:
    keys = names(snapshots.keys)
    twice = rows.groupBy(*keys).count().where("count > 1").take(1)
    if twice:
        shown = ", ".join(f"{key}={twice[0][key]}" for key in snapshots.keys)
        raise TableError(
            "SNAPSHOT_KEY_NOT_UNIQUE",
            location=snapshots.location,
            version=version,
            count=twice[0]["count"],
            key=shown,
        )


def _changes(rows: DataFrame, current: DataFrame, settings: CdcSettings) -> DataFrame:
    """Return what a snapshot changes, as events: new and other rows, and keys that it no longer has."""
    keys = list(settings.keys)
    reserved = {name.lower() for name in (*EVENT_COLUMNS, RANK, START, END)}
    if taken := [name for name in rows.columns if name.lower() in reserved]:
        raise TableError("RESERVED_COLUMN_IN_SNAPSHOT", column=taken[0])
    there = {field.name.lower(): field for field in current.schema.fields}
    old = current.withColumn("__there", F.lit(True)).alias("t")
    new = rows.alias("s")
    key_names = {key.lower() for key in keys}
    mine, theirs = [], []
    for field in rows.schema.fields:
        name = field.name.lower()
        if name in key_names:
            continue
        value = f"s.{quote(field.name)}"
        if name in there:
            kind = there[name].dataType
            mine.append(comparable(f"CAST({value} AS {sql_type(kind)})", kind))
            theirs.append(comparable(f"t.{quote(there[name].name)}", kind))
        else:
            mine.append(f"{value} IS NOT NULL")
            theirs.append("false")
    for name, field in there.items():
        # What the snapshot doesn't have any more is NULL from now on.
        if name not in {column.lower() for column in rows.columns}:
            mine.append("false")
            theirs.append(f"t.{quote(field.name)} IS NOT NULL")
    differs = f"t.__there IS NULL OR NOT {struct(mine)} <=> {struct(theirs)}"
    matched = same("s", "t", keys)
    upserts = new.join(old, matched, "left").where(differs).select("s.*").withColumn(OPERATION, F.lit(UPSERT))
    gone = current.alias("t").join(rows.alias("s"), matched, "left_anti")
    deletes = gone.select(*names(keys)).withColumn(OPERATION, F.lit(DELETE))
    return upserts.unionByName(deletes, allowMissingColumns=True)
