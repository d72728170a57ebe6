"""Compares a Delta log with the files in its folder where only Spark can read the log as it is now."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tableferry.catalog import SPARK_ERRORS
from tableferry.convert.facts import DataFile, ExistingLog
from tableferry.convert.folder import discover
from tableferry.convert.log import commit, existing
from tableferry.errors import TableError, first_line
from tableferry.hive.locations import below, escape_wildcards, for_spark
from tableferry.hive.settings import optional_settings
from tableferry.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

# Files of a table that has them may hold rows that were deleted.
_DELETION_VECTORS = "deletionVectors"


def is_only_conversion(spark: SparkSession, location: str) -> bool:
    """Say whether a log is the first commit of a conversion and nothing else.

    Raises:
        TableError: It can't be read.
    """
    try:
        return _is_only_conversion(spark, TableName.at(location))
    except SPARK_ERRORS as error:
        raise _unreadable(location, error) from error


def compare(
    spark: SparkSession, location: str, files: Sequence[DataFile], table: TableName | None = None
) -> ExistingLog:
    """Compare the files that a log names now with those in its folder, by their paths.

    Args:
        spark: The session.
        location: The folder.
        files: What it holds.
        table: The Delta table of the catalog that is there, if there is one.

    Raises:
        TableError: The log can't be read.
    """
    shown = table or TableName.at(location)
    try:
        [detail] = spark.sql(f"DESCRIBE DETAIL {shown.sql}").collect()
        frame = spark.sql(f"SELECT * FROM {shown.sql}")
        named, schema = frame.inputFiles(), frame.schema.json()
        may_hide = _DELETION_VECTORS in (detail["tableFeatures"] or ())
        hides = may_hide and not _is_only_conversion(spark, shown)
    except SPARK_ERRORS as error:
        raise _unreadable(location, error) from error
    logged = sorted(DataFile(below(file, location) or file, 0, 0) for file in named)
    listed = sorted(DataFile(file.path, 0, 0) for file in files)
    differences = discover.changes(logged, listed)
    if hides:
        differences.append("rows of its files may be deleted by deletion vectors")
    columns, partition_columns = existing.columns_of(schema, detail["partitionColumns"])
    return ExistingLog(
        detail["id"],
        ours=False,
        differences=tuple(differences),
        columns=columns,
        partition_columns=partition_columns,
    )


def checkpoints_say(spark: SparkSession, checkpoints: Sequence[str], lines: Sequence[str]) -> bool:
    """Say whether a log's checkpoints, by their paths, say what the lines of its only commit do."""
    try:
        # Databricks reads no file of a log unless it's told to.
        with optional_settings(spark, {"spark.databricks.delta.formatCheck.enabled": "false"}):
            paths = [escape_wildcards(for_spark(path)) for path in checkpoints]
            rows = spark.read.parquet(*paths).selectExpr("to_json(struct(*))").collect()
    except SPARK_ERRORS as error:
        _log.info("%s can't be read (%s)", ", ".join(checkpoints), first_line(error))
        return False
    return sorted(_action(row[0]) for row in rows) == sorted(map(_action, lines[1:]))


def _action(line: str) -> str:
    """Return an action as text that is the same however it was spelled."""
    action = json.loads(line)
    for features in ("readerFeatures", "writerFeatures"):
        if features in action.get("protocol", {}):
            action["protocol"][features].sort()
    return json.dumps(action, sort_keys=True)


def _is_only_conversion(spark: SparkSession, table: TableName) -> bool:
    newest = spark.sql(f"DESCRIBE HISTORY {table.sql} LIMIT 1").select("version", "operation").collect()
    return [tuple(row) for row in newest] == [(0, commit.OPERATION)]


def _unreadable(location: str, error: Exception) -> TableError:
    return TableError("DELTA_LOG_UNREADABLE_THROUGH_SPARK", folder=location, reason=first_line(error))
