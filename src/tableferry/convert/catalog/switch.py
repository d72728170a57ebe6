"""Change a table's catalog entry to Delta, after its log has the first commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tableferry.convert.catalog import log_comparison
from tableferry.errors import Refused, TableError, first_line
from tableferry.formats.hive.catalog_entry import Entry, kept_properties
from tableferry.spark.catalog import SPARK_ERRORS, condition, explaining
from tableferry.spark.quoting import literal, quote
from tableferry.spark.settings import optional_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NO_LOG = (
    "DELTA_MISSING_DELTA_TABLE",
    "DELTA_TABLE_NOT_FOUND",
    "PATH_NOT_FOUND",
    "DELTA_PATH_DOES_NOT_EXIST",
)

# Without this setting, CONVERT TO DELTA adds no properties to a log that has the session's defaults.
_NO_COMPARISON = {"spark.databricks.delta.convert.metadataCheck.enabled": "false"}


def switch_to_delta(spark: SparkSession, entry: Entry, *, merge_properties: bool = False) -> None:
    """Change a table's catalog entry to Delta; a Delta entry stays as it is.

    ``CONVERT TO DELTA`` with the table's name does this. It writes no new version if the log's
    ``configuration`` contains all properties that `kept_properties` returns. Afterwards, the comments of the
    table and its columns are those in the log. With ``merge_properties``, a commit adds the properties that
    the log lacks.

    Raises:
        Refused: The properties of the log and the table differ.
        TableError: The log is missing, or the catalog can't be changed.
    """
    if entry.is_delta:
        return
    properties = kept_properties(entry)
    # This raises if the log is missing. Without a log, the statement below would convert the files itself.
    configuration = _configuration(spark, entry)
    differing = sorted(key for key, value in properties.items() if configuration.get(key) != value)
    if differing and not merge_properties:
        raise Refused(
            "LOG_PROPERTIES_DIFFER",
            folder=entry.location,
            table=entry.name,
            properties=differing,
        )
    try:
        with optional_settings(spark, _NO_COMPARISON if merge_properties else {}):
            spark.sql(f"CONVERT TO DELTA {entry.name.sql} NO STATISTICS").collect()
    except SPARK_ERRORS as error:
        if condition(error) == "DELTA_CONVERT_METASTORE_METADATA_MISMATCH":
            raise Refused(
                "LOG_PROPERTIES_REFUSED", folder=entry.location, table=entry.name, reason=first_line(error)
            ) from error
        raise TableError("CATALOG_SWITCH_FAILED", table=entry.name, reason=first_line(error)) from error


def restore_comments(spark: SparkSession, entry: Entry) -> None:
    """Add the comments of a table's old entry that its log lacks; each comment is a commit.

    Raises:
        TableError: The table can't be changed.
    """
    with explaining("COMMENTS_NOT_RESTORED", table=entry.name):
        [detail] = spark.sql(f"DESCRIBE DETAIL {entry.name.sql}").select("description").collect()
        if entry.comment and detail["description"] != entry.comment:
            spark.sql(f"COMMENT ON TABLE {entry.name.sql} IS {literal(entry.comment)}")
        shown = {
            field.name.lower(): field.metadata.get("comment") for field in spark.table(entry.name.sql).schema
        }
        for column in entry.columns.fields:
            comment = column.metadata.get("comment")
            if comment and shown.get(column.name.lower(), comment) != comment:
                altered = f"ALTER TABLE {entry.name.sql} ALTER COLUMN {quote(column.name)}"
                spark.sql(f"{altered} COMMENT {literal(comment)}")


def _configuration(spark: SparkSession, entry: Entry) -> dict[str, str]:
    try:
        [detail] = spark.sql(f"DESCRIBE DETAIL delta.{quote(entry.location)}").select("properties").collect()
    except SPARK_ERRORS as error:
        if condition(error).startswith(NO_LOG):
            raise TableError("DELTA_LOG_MISSING", folder=entry.location, table=entry.name) from error
        raise log_comparison.unreadable(entry.location, error) from error
    return dict(detail["properties"])
