"""Which files a table names in any version that somebody may still read, not only in the current one."""

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
# All others lie below the table's directory, where its log is.
_OUTSIDE = r"path RLIKE '^/|^[A-Za-z][A-Za-z0-9+.-]*:|(^|/)[.][.](/|$)'"
_AS_FILES = {"spark.databricks.delta.formatCheck.enabled": "false"}


def named_anywhere(
    warehouse: Warehouse, table: TableName, form: TargetFormat, location: str, fragments: Iterable[str]
) -> list[str]:
    """Return the files whose paths have one of some fragments and that a table names in any version.

    Of Iceberg these are files of all snapshots, branches and tags, data and delete files; of Delta those that
    its log still names, so also removed ones that a version before reads, until its cleanup forgets them.

    Args:
        warehouse: The warehouse.
        table: The table.
        form: Its format.
        location: Its directory, which counts as such a file, for its log or its metadata may be there.
        fragments: Such as ``/orders_sync/``; of Delta all files outside of its directory are returned.

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
    """Read the commits and checkpoints that are there, those of the second version with their sidecars."""
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
    # A log has paths as URLs.
    return [_absolute(unquote(path), location) for path in named]


def _absolute(path: str, location: str) -> str:
    """Return where a file is that a log names by its whole path, or by one that leads elsewhere."""
    if path.startswith("/") or ":" in path.partition("/")[0]:
        return path
    scheme, authority, root = split(location)
    prefix = f"{scheme}://{authority}" if authority else f"{scheme}:" if scheme else ""
    return prefix + normpath(f"{root}/{path}")
