"""Create the tables that flows fill, also where a killed process left one half made."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from tableferry.catalog import SPARK_ERRORS, condition, local_folder
from tableferry.driver import in_process
from tableferry.errors import TableError
from tableferry.pipelines.ddl import create_sql
from tableferry.pipelines.flows import Target

_NOT_EMPTY = "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION"
_ROWS = ("add", "remove", "cdc", "txn")


def create(spark: SparkSession, target: Target, columns: StructType) -> None:
    """Create a table unless it's there; one process at a time may do so.

    Delta writes the first commit of a table's log, and then the catalog gets its name. What a process leaves
    that is killed between the two, Delta refuses from then on. If this process sees that directory, and it
    holds nothing but that commit, it is removed.

    Raises:
        TableError: The directory that the table is to have holds something else.
    """
    statement = create_sql(target, columns)
    try:
        spark.sql(statement)
    except SPARK_ERRORS as error:
        if condition(error) != _NOT_EMPTY:
            raise
        location = _location(error)
        folder = local_folder(location) if in_process(spark) else None
        if folder is None or not _is_half_made(folder):
            raise TableError(
                f"{target.name} can't be created, as its directory {location} isn't empty: if a run was "
                "killed while it created the table, and nothing in there is needed, remove it, and run again"
            ) from error
        shutil.rmtree(folder)
        spark.sql(statement)


def _location(error: Exception) -> str:
    parameters = error.getMessageParameters() if isinstance(error, PySparkException) else None
    return (parameters or {}).get("tableLocation", "")


def _is_half_made(folder: Path) -> bool:
    """Say whether a directory holds the first commit of a CREATE TABLE, without rows, and nothing else."""
    log = folder / "_delta_log"
    if [entry.name for entry in folder.iterdir()] != [log.name]:
        return False
    commits = [entry for entry in log.iterdir() if entry.suffix in (".json", ".parquet")]
    if [entry.name for entry in commits] != [f"{0:020}.json"]:
        return False
    actions = [json.loads(line) for line in commits[0].read_text(encoding="utf-8").split("\n") if line]
    created = any(action.get("commitInfo", {}).get("operation") == "CREATE TABLE" for action in actions)
    return created and not any(kind in action for action in actions for kind in _ROWS)
