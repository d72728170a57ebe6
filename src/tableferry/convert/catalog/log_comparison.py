"""Compare a Delta log with the files in its folder, where only Spark can read the log's current version."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tableferry.convert import existing_log
from tableferry.convert.discovery import listing
from tableferry.convert.existing_log import ExistingLog
from tableferry.errors import TableError, first_line
from tableferry.formats.delta import initial_commit
from tableferry.formats.hive.locations import below, escape_wildcards, for_spark
from tableferry.formats.parquet.files import DataFile
from tableferry.spark.catalog import SPARK_ERRORS
from tableferry.spark.settings import optional_settings
from tableferry.spark.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

# If a table uses this feature, its data files may contain deleted rows.
_DELETION_VECTORS = "deletionVectors"


def is_only_conversion(spark: SparkSession, location: str) -> bool:
    """Return whether a log consists of the first commit of a conversion only.

    Raises:
        TableError: The log can't be read.
    """
    try:
        return _is_only_conversion(spark, TableName.at(location))
    except SPARK_ERRORS as error:
        raise unreadable(location, error) from error


def compare(
    spark: SparkSession, location: str, files: Sequence[DataFile], table: TableName | None = None
) -> ExistingLog:
    """Compare the files in a log's current version with those in its folder, by path.

    Args:
        spark: The session.
        location: The folder.
        files: The files in the folder.
        table: The catalog's Delta table in this folder, if one exists.

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
        raise unreadable(location, error) from error
    logged = sorted(DataFile(below(file, location) or file, 0, 0) for file in named)
    listed = sorted(DataFile(file.path, 0, 0) for file in files)
    differences = listing.changes(logged, listed)
    if hides:
        differences.append("rows of its files may be deleted by deletion vectors")
    columns, partition_columns = existing_log.columns_of(schema, detail["partitionColumns"])
    return ExistingLog(
        detail["id"],
        ours=False,
        differences=tuple(differences),
        columns=columns,
        partition_columns=partition_columns,
    )


def checkpoints_match(spark: SparkSession, checkpoints: Sequence[str], lines: Sequence[str]) -> bool:
    """Return whether a log's checkpoints contain the same actions as its only commit.

    Args:
        spark: The session.
        checkpoints: The paths of the checkpoints.
        lines: The lines of the commit. The first one, ``commitInfo``, isn't compared.
    """
    try:
        # Databricks refuses to read files of a log unless this check is off.
        with optional_settings(spark, {"spark.databricks.delta.formatCheck.enabled": "false"}):
            paths = [escape_wildcards(for_spark(path)) for path in checkpoints]
            rows = spark.read.parquet(*paths).selectExpr("to_json(struct(*))").collect()
    except SPARK_ERRORS as error:
        _log.info("%s can't be read (%s)", ", ".join(checkpoints), first_line(error))
        return False
    return sorted(_action(row[0]) for row in rows) == sorted(map(_action, lines[1:]))


def _action(line: str) -> str:
    """Return an action as JSON text with sorted keys and features, so that equal actions have equal text."""
    action = json.loads(line)
    for features in ("readerFeatures", "writerFeatures"):
        if features in action.get("protocol", {}):
            action["protocol"][features].sort()
    return json.dumps(action, sort_keys=True)


def _is_only_conversion(spark: SparkSession, table: TableName) -> bool:
    newest = spark.sql(f"DESCRIBE HISTORY {table.sql} LIMIT 1").select("version", "operation").collect()
    return [tuple(row) for row in newest] == [(0, initial_commit.OPERATION)]


def unreadable(location: str, error: Exception) -> TableError:
    """Return the error for a Delta log that Spark can't read."""
    return TableError("DELTA_LOG_UNREADABLE_THROUGH_SPARK", folder=location, reason=first_line(error))
