"""Run Spark's ``CONVERT TO DELTA`` (the native engine), for storage that only Spark reaches.

The command takes its batch sizes from the session's settings
``spark.databricks.delta.import.batchSize.schemaInference`` and ``…statsCollection``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tableferry.convert.catalog.switch import NO_LOG, restore_comments, switch_to_delta
from tableferry.convert.discovery.owning_tables import Owner, nearest
from tableferry.errors import Busy, Refused, TableError, first_line
from tableferry.formats.hive.catalog_entry import Entry, existence_defaults, kept_properties, needs_defaults
from tableferry.formats.hive.catalog_partitions import has_null_partition
from tableferry.formats.hive.locations import above, below, escape_wildcards, reachable
from tableferry.formats.hive.partitions import PartitionColumn
from tableferry.formats.parquet.files import DataFile
from tableferry.spark.catalog import SPARK_ERRORS, condition
from tableferry.spark.driver import in_process
from tableferry.spark.quoting import quote
from tableferry.spark.settings import FEW_LISTING_TASKS, optional_settings
from tableferry.spark.types import TIMESTAMP, TIMESTAMP_NTZ

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OTHER_TYPES = (
    "A column's type differs between files, and Spark doesn't name the files. Convert with --engine "
    "tableferry, or rewrite the files of the other type."
)
_REMEDIES = {
    "DELTA_EMPTY_DIRECTORY": "There is nothing to convert. Check the path.",
    "DELTA_CONVERSION_NO_PARTITION_FOUND": "Register its partitions with --msck.",
    "DELTA_UNEXPECTED_NUM_PARTITION_COLUMNS_FROM_FILE_NAME": "Declare all levels with --partitioned-by, and "
    "move files of another depth away.",
    "DELTA_UNEXPECTED_PARTITION_COLUMN_FROM_FILE_NAME": "Correct --partitioned-by.",
    "DELTA_UNEXPECTED_PARTITION_SCHEMA_FROM_USER": "Omit --partitioned-by, because the catalog contains the "
    "columns.",
    "DELTA_FAILED_CAST_PARTITION_VALUE": "Declare a type that all values of the column have, or string.",
    # The number of tasks that read the footers decides which of these two Spark raises.
    "DELTA_FAILED_TO_MERGE_FIELDS": _OTHER_TYPES,
    "DELTA_FAILED_MERGE_SCHEMA_FILE": _OTHER_TYPES,
    "DELTA_MERGE_INCOMPATIBLE_DATATYPE": "Rewrite the files of the other type.",
    "DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES": "Rename the column, or convert with --engine tableferry "
    "--column-mapping.",
    "DELTA_CONVERSION_UNSUPPORTED_COLUMN_MAPPING": "Unset spark.databricks.delta.properties.defaults."
    "columnMapping.mode, or convert with --engine tableferry --column-mapping.",
    "DELTA_CONVERT_NON_PARQUET_TABLE": "Write the table again with CREATE TABLE … USING delta AS SELECT.",
    "DELTA_MISSING_PROVIDER_FOR_CONVERT": "Write the path as parquet.`…`.",
    "PARQUET_TYPE_ILLEGAL": "Rewrite the column with microseconds.",
}
"""The remedies for errors of ``CONVERT TO DELTA``, by condition."""
_BUSY = ("DELTA_CONCURRENT_WRITE", "DELTA_PROTOCOL_CHANGED", "DELTA_METADATA_CHANGED")
_METADATA = {"Iceberg": "metadata/*.metadata.json*", "Hudi": ".hoodie/hoodie.properties"}
# Delta's error for a folder inside a table if the folder can't be a partition.
_INSIDE = "DELTA_INVALID_PARTITION_PATH"
_MISSING = ("PATH_NOT_FOUND", "DELTA_FILE_NOT_FOUND", "DELTA_DIRECTORY_NOT_FOUND")

# The causes inside the text of a task's error, the most specific first.
_CAUSES = (
    re.compile(r"([a-z][a-z0-9+.-]*:/[^\n{]*? is not a Parquet file)"),
    re.compile(r"(Could not read footer for file: [^;\n]+)"),
    re.compile(r"([a-z][a-z0-9+.-]*:/[^\n]* doesn't exist)"),
)


def list_files(spark: SparkSession, location: str) -> tuple[DataFile, ...]:
    """Return the files below a location, listed by Spark and sorted by path.

    Spark lists the directories and opens no file. It leaves out names at any depth that begin with ``.``, or
    with ``_`` and don't contain ``=``, and Hadoop's unfinished copies.

    Raises:
        TableError: The directory is missing, or it can't be listed.
    """
    files = spark.read.format("binaryFile").option("recursiveFileLookup", "true")
    try:
        with optional_settings(spark, FEW_LISTING_TASKS):
            listed = files.load(escape_wildcards(location)).selectExpr(
                "path", "length", "unix_millis(modificationTime) AS modified"
            )
            rows = listed.collect()
    except SPARK_ERRORS as error:
        if condition(error) in _MISSING:
            raise TableError("FOLDER_MISSING", folder=location) from error
        raise TableError("STORAGE_NOT_LISTABLE", folder=location, reason=first_line(error)) from error
    data_files = []
    for row in rows:
        path = below(row["path"], location)
        if path is None:
            raise TableError("NATIVE_LISTING_OUTSIDE", folder=location, file=row["path"])
        data_files.append(DataFile(path, row["length"], row["modified"]))
    return tuple(sorted(data_files))


def has_log(spark: SparkSession, location: str) -> bool:
    """Return whether a location is the root of a Delta table.

    Raises:
        TableError: Spark can't read the location.
    """
    try:
        [detail] = spark.sql(f"DESCRIBE DETAIL delta.{quote(location)}").collect()
    except SPARK_ERRORS as error:
        if condition(error).startswith((*NO_LOG, _INSIDE)):
            return False
        raise TableError("STORAGE_NOT_LISTABLE", folder=location, reason=first_line(error)) from error
    # For a folder that may be a partition of a table, Delta returns null.
    return detail["format"] is not None


def owner(spark: SparkSession, location: str) -> Owner | None:
    """Return the nearest table above a location, as `owners.owner` does, through Spark."""

    def table_format(folder: str) -> str | None:
        if has_log(spark, folder):
            return "Delta"
        root = escape_wildcards(folder)
        return next((kind for kind, file in _METADATA.items() if _has_files(spark, f"{root}/{file}")), None)

    return nearest(location, above(location), table_format)


def _has_files(spark: SparkSession, pattern: str) -> bool:
    """Return whether a file matches a Hadoop glob pattern.

    Raises:
        TableError: A folder of the pattern can't be listed.
    """
    try:
        return bool(spark.read.format("binaryFile").load(pattern).select("path").limit(1).collect())
    except SPARK_ERRORS as error:
        if condition(error) in _MISSING:
            return False
        raise TableError("STORAGE_NOT_LISTABLE", folder=pattern, reason=first_line(error)) from error


def convert(
    spark: SparkSession,
    location: str,
    partition_columns: Sequence[PartitionColumn],
    *,
    statistics: bool,
) -> None:
    """Convert the directory at a location with ``CONVERT TO DELTA``; a Delta table stays as it is.

    Raises:
        Refused: The native command can't convert the directory, and its error is the reason.
        TableError: The directory is missing, or a file isn't Parquet.
        Busy: Another process converted the directory first.
    """
    for column in partition_columns:
        if column.type in (TIMESTAMP, TIMESTAMP_NTZ):
            raise Refused("NATIVE_PARTITION_TYPE", folder=location, type=column.type, column=column.name)
    columns = ", ".join(f"{quote(column.name)} {column.type}" for column in partition_columns)
    _run(
        spark,
        f"CONVERT TO DELTA parquet.{quote(location)}"
        + ("" if statistics else " NO STATISTICS")
        + (f" PARTITIONED BY ({columns})" if columns else ""),
        location,
    )


def convert_table(spark: SparkSession, entry: Entry, *, statistics: bool) -> None:
    """Convert a catalog table with ``CONVERT TO DELTA``, and restore its comments.

    Given a table's name, the native command writes null partition values as the text
    ``__HIVE_DEFAULT_PARTITION__``. ``IS NULL`` doesn't find this text, and it isn't a number. So a table with
    such partitions is converted by its path, and then `switch_to_delta` changes its entry.

    Raises:
        Refused: The native command can't convert the table, and its error is the reason.
        TableError: A file isn't Parquet.
        Busy: Another process converted the table first.
    """
    if needs_defaults(entry) or existence_defaults(entry):
        raise Refused("NATIVE_COLUMN_DEFAULTS", table=entry.name)
    if entry.partition_columns and has_null_partition(spark, entry.name):
        # `switch_to_delta` refuses the same properties, but only after the log is written.
        kept_properties(entry)
        convert(spark, entry.location, entry.partition_columns, statistics=statistics)
        switch_to_delta(spark, entry, merge_properties=True)
    else:
        statement = f"CONVERT TO DELTA {entry.name.sql}" + ("" if statistics else " NO STATISTICS")
        _run(spark, statement, entry.location)
    restore_comments(spark, entry)


def _run(spark: SparkSession, statement: str, location: str) -> None:
    folder = reachable(location, same_machine=in_process(spark))
    log = folder / "_delta_log" if folder is not None else None
    ours = log is not None and not log.exists()
    try:
        spark.sql(statement).collect()
    except SPARK_ERRORS as error:
        if ours and log is not None:
            _tidy(log)
        raise _translated(error, location) from error


def _tidy(log: Path) -> None:
    """Remove the empty folders that a failed native run leaves, unless another process wrote to the log."""
    staged = log / "_staged_commits"
    # If another converter writes to a folder after this check, rmdir fails and the folder stays.
    with suppress(OSError):
        if {file.name for file in log.iterdir()} <= {staged.name}:
            if staged.exists():
                staged.rmdir()
            log.rmdir()


def _translated(error: Exception, location: str) -> TableError | Refused | Busy:
    text, name = str(error), condition(error)
    reported = first_line(error).removeprefix(f"[{name}] ")
    if name in _BUSY:
        return Busy("NATIVE_CONVERSION_RACE", folder=location, reason=reported)
    if name in _REMEDIES:
        return Refused("NATIVE_CONVERSION_FAILED", folder=location, reason=reported, advice=_REMEDIES[name])
    reason = next((match[1] for cause in _CAUSES if (match := cause.search(text))), reported)
    if reason.endswith(" doesn't exist"):
        return TableError("NATIVE_FOLDER_MISSING", reason=reason)
    if "DELTA_FAILED_READ_FILE_FOOTER" in text or "is not a Parquet file" in reason:
        return TableError("NATIVE_CONVERSION_OF_OTHER_FILES", folder=location, reason=reason)
    return Refused(
        "NATIVE_CONVERSION_FAILED",
        folder=location,
        reason=reason,
        advice="Fix the cause, or convert with --engine tableferry.",
    )
