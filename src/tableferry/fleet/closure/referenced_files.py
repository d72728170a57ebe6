"""List the files that any readable version of a table references."""

from __future__ import annotations

from collections.abc import Iterable
from posixpath import normpath
from urllib.parse import unquote

from tableferry.fleet.jobs.job import TargetFormat
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.formats.hive.locations import escape_wildcards, split
from tableferry.spark.catalog import SPARK_ERRORS, condition, explaining
from tableferry.spark.quoting import literal
from tableferry.spark.settings import optional_settings
from tableferry.spark.tables import TableName

_VECTOR = "deletionVector struct<storageType string, pathOrInlineDv string>"
_FILE = f"struct<path string, {_VECTOR}>"
_ACTIONS = f"add {_FILE}, remove {_FILE}, cdc struct<path string>"
_PATHS = (
    "array(add.path, remove.path, cdc.path, "
    "CASE WHEN add.deletionVector.storageType = 'p' THEN add.deletionVector.pathOrInlineDv END, "
    "CASE WHEN remove.deletionVector.storageType = 'p' THEN remove.deletionVector.pathOrInlineDv END)"
)
# Paths outside of the table's directory.
_OUTSIDE = r"path RLIKE '^/|^[A-Za-z][A-Za-z0-9+.-]*:|(^|/)[.][.](/|$)'"
_AS_FILES = {"spark.databricks.delta.formatCheck.enabled": "false"}


def list_referenced_files(
    warehouse: Warehouse, table: TableName, form: TargetFormat, location: str, fragments: Iterable[str]
) -> list[str]:
    """Return the files that any version of a table references and whose paths contain a fragment.

    For Iceberg, these are data and delete files of all snapshots, branches and tags. For Delta, these are all
    files in its log, including removed files until the log's cleanup.

    Args:
        warehouse: The warehouse.
        table: The table.
        form: Its format.
        location: Its directory, which is also returned because it contains the log or metadata.
        fragments: Such as ``/orders_sync/``; for Delta, all files outside of its directory are returned.

    Raises:
        TableError: The table can't be read.
    """
    with explaining("VERSION_FILES_NOT_LISTABLE", table=table):
        if form is TargetFormat.ICEBERG:
            named = _of_iceberg(warehouse, table, fragments)
        else:
            named = _of_delta(warehouse, location)
    return sorted({location, *named})


def _of_iceberg(warehouse: Warehouse, table: TableName, fragments: Iterable[str]) -> list[str]:
    any_of = " OR ".join(f"contains(file_path, {literal(fragment)})" for fragment in fragments)
    name = warehouse.iceberg(table)
    return [
        row[0]
        for files in ("all_data_files", "all_delete_files")
        for row in warehouse.spark.sql(
            f"SELECT DISTINCT file_path FROM {name.sql}.{files} WHERE {any_of}"
        ).collect()
    ]


def _of_delta(warehouse: Warehouse, location: str) -> list[str]:
    """Read the existing commits and checkpoints; V2 checkpoints with their sidecars."""
    log = f"{escape_wildcards(location.rstrip('/'))}/_delta_log"
    named: list[str] = []
    with optional_settings(warehouse.spark, _AS_FILES):
        for folder, form in ((log, "json"), (log, "parquet"), (f"{log}/_sidecars", "parquet")):
            reader = warehouse.spark.read.schema(_ACTIONS).format(form)
            try:
                actions = reader.option("pathGlobFilter", f"*.{form}").load(folder)
                paths = actions.selectExpr(f"explode({_PATHS}) AS path").where(_OUTSIDE).distinct()
                named += [row[0] for row in paths.collect()]
            except SPARK_ERRORS as error:
                if condition(error) != "PATH_NOT_FOUND" or folder == log:
                    raise
    # The log's paths are URL-encoded.
    return [_absolute(unquote(path), location) for path in named]


def _absolute(path: str, location: str) -> str:
    """Return the absolute path of a log's path, which is absolute or contains ``..``."""
    if path.startswith("/") or ":" in path.partition("/")[0]:
        return path
    scheme, authority, root = split(location)
    prefix = f"{scheme}://{authority}" if authority else f"{scheme}:" if scheme else ""
    return prefix + normpath(f"{root}/{path}")
