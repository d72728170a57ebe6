"""Create the tables that flows fill, also where a killed process left one half made."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from tableferry.errors import HALF_MADE, TableError
from tableferry.pipelines.cdc.target_columns import create_sql
from tableferry.pipelines.model.flows import Target
from tableferry.spark.catalog import SPARK_ERRORS, condition, local_folder
from tableferry.spark.driver import in_process

_ROWS = ("add", "remove", "cdc", "txn")


def create(spark: SparkSession, target: Target, columns: StructType) -> None:
    """Create a table unless it's there; one process at a time may do so.

    Delta makes the log's directories, writes the first commit, and then the catalog gets the table's name.
    What a process leaves that is killed in between, Delta refuses from then on. If this process sees that
    directory, and it holds no more than that, it is removed.

    Raises:
        TableError: The directory that the table is to have holds something else.
    """
    statement = create_sql(target, columns)
    try:
        spark.sql(statement)
    except SPARK_ERRORS as error:
        if condition(error) != HALF_MADE:
            raise
        location = _location(error)
        folder = local_folder(location) if in_process(spark) else None
        if folder is None or not _is_half_made(folder):
            raise TableError("TABLE_DIRECTORY_NOT_EMPTY", table=target.name, directory=location) from error
        shutil.rmtree(folder)
        spark.sql(statement)


def _location(error: Exception) -> str:
    parameters = error.getMessageParameters() if isinstance(error, PySparkException) else None
    return (parameters or {}).get("tableLocation", "")


def _is_half_made(folder: Path) -> bool:
    """Say whether a directory holds at most the first commit of a CREATE TABLE, without rows."""
    log = folder / "_delta_log"
    if [entry.name for entry in folder.iterdir()] != [log.name]:
        return False
    # Delta makes directories in the log before it writes the commit, by the name of a hidden file.
    commits = [path.relative_to(log) for path in log.rglob("*") if path.suffix in (".json", ".parquet")]
    if not commits:
        return True
    if commits != [Path(f"{0:020}.json")]:
        return False
    actions = [
        json.loads(line) for line in (log / commits[0]).read_text(encoding="utf-8").split("\n") if line
    ]
    created = any(action.get("commitInfo", {}).get("operation") == "CREATE TABLE" for action in actions)
    return created and not any(kind in action for action in actions for kind in _ROWS)
