"""Create the tables that flows fill, even if a killed process left an unfinished table directory."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import BooleanType, LongType, NullType, StringType, StructField, StructType

from tableferry.errors import HALF_MADE, TableError
from tableferry.pipelines.cdc.change_feed import resolve_columns
from tableferry.pipelines.cdc.event_columns import END, EVENT_COLUMNS, EXACT, OPERATION, RANK, SEQUENCE, START
from tableferry.pipelines.cdc.target_columns import COLUMN_MAPPING, create_table_sql
from tableferry.pipelines.model.flows import Target, event_log_name
from tableferry.spark.catalog import SPARK_ERRORS, condition, local_folder
from tableferry.spark.driver import in_process

_ROW_ACTIONS = ("add", "remove", "cdc", "txn")


def create_tables(spark: SparkSession, target: Target, columns: StructType) -> None:
    """Create a target and its log if they don't exist; a target without AUTO CDC has no log.

    The columns are those of the events, with or without `__operation` and `__exact`; without AUTO CDC they
    are those of the rows. For SCD type 2 `__START_AT` and `__END_AT` get the type of `__sequence`.

    Raises:
        TableError: The sequence of SCD type 2 has no type, or a key isn't among the columns.
    """
    if target.cdc is None:
        _create_table(spark, target, columns)
        return
    event_columns = {name.lower() for name in EVENT_COLUMNS}
    data = [field for field in columns.fields if field.name.lower() not in event_columns]
    key_names = resolve_columns([field.name for field in data], "keys", target.cdc.key_columns)
    sequence = [
        field
        for field in columns.fields
        if field.name == SEQUENCE and not isinstance(field.dataType, NullType)
    ]
    if target.cdc.scd_type == 2 and not sequence:
        raise TableError("SEQUENCE_TYPE_UNKNOWN", table=target.name)
    keys = [field for field in data if field.name in key_names]
    others = [field for field in data if field.name not in key_names]
    log = Target(
        name=event_log_name(target.name),
        # The default, a checkpoint every tenth commit, takes longer than the append itself.
        properties={COLUMN_MAPPING: "name", "delta.checkpointInterval": "100"},
        comment=f"Every event of {target.name}, written and read by tableferry",
    )
    event_fields = [
        StructField(OPERATION, StringType()),
        StructField(EXACT, BooleanType()),
        StructField(RANK, LongType()),
    ]
    _create_table(spark, log, StructType([*keys, *sequence, *event_fields, *others]))
    if target.cdc.scd_type == 2:
        data = [*data, *(StructField(name, sequence[0].dataType) for name in (START, END))]
    _create_table(spark, target, StructType(data))


def _create_table(spark: SparkSession, target: Target, columns: StructType) -> None:
    """Create a table if it doesn't exist; only one process at a time may do so.

    Delta creates the log directory and writes the first commit; then the catalog gets the table's name. If a
    process is killed in between, Delta refuses the directory from then on. This function removes the
    directory if it is local and contains nothing else.

    Raises:
        TableError: The table's directory contains other files, or can't be read by this process.
    """
    statement = create_table_sql(target, columns)
    try:
        spark.sql(statement)
    except SPARK_ERRORS as error:
        if condition(error) != HALF_MADE:
            raise
        location = _error_location(error)
        folder = local_folder(location) if in_process(spark) else None
        if folder is None or not _is_half_created(folder):
            raise TableError("TABLE_DIRECTORY_NOT_EMPTY", table=target.name, directory=location) from error
        shutil.rmtree(folder)
        spark.sql(statement)


def _error_location(error: Exception) -> str:
    parameters = error.getMessageParameters() if isinstance(error, PySparkException) else None
    return (parameters or {}).get("tableLocation", "")


def _is_half_created(folder: Path) -> bool:
    """Return whether a directory contains at most the first commit of a CREATE TABLE, without rows."""
    log = folder / "_delta_log"
    if [entry.name for entry in folder.iterdir()] != [log.name]:
        return False
    # Before the commit Delta creates directories in the log that are named like hidden files.
    commits = [path.relative_to(log) for path in log.rglob("*") if path.suffix in (".json", ".parquet")]
    if not commits:
        return True
    if commits != [Path(f"{0:020}.json")]:
        return False
    actions = [
        json.loads(line) for line in (log / commits[0]).read_text(encoding="utf-8").split("\n") if line
    ]
    created = any(action.get("commitInfo", {}).get("operation") == "CREATE TABLE" for action in actions)
    return created and not any(kind in action for action in actions for kind in _ROW_ACTIONS)
