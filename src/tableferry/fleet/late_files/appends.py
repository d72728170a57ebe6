"""Append the rows of late files to the new table, exactly once even after retries."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

from tableferry.fleet.hive_copy.table import HiveCopy
from tableferry.fleet.hive_copy.target import Target
from tableferry.fleet.hive_tables.frames import with_null_partitions
from tableferry.fleet.hive_tables.partition_conditions import casts, spec
from tableferry.fleet.hive_tables.partitions import Partition
from tableferry.fleet.hive_tables.table_files import ListedFile
from tableferry.spark.catalog import explaining
from tableferry.spark.quoting import literal
from tableferry.spark.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class LateFile(NamedTuple):
    """A late file and the partition of its directory; None if the partition is unknown."""

    file: ListedFile
    partition: Partition | None


def append_late_files(copy: HiveCopy, name: TableName, target: Target, late: Sequence[LateFile]) -> None:
    """Append the rows of late files to the target; files whose commit exists already are skipped.

    The files are read with the Hive copy's format and columns.

    Raises:
        TableError: The files can't be read, or the table can't be written.
    """
    with explaining("LATE_FILES_NOT_APPENDED", table=name, files=[file.path for file, _ in late]):
        # One commit for each file, because a run that repeats an interrupted one may find more files.
        for file, partition in late:
            directory, _, file_name = file.path.rpartition("/")
            scratch = _scratch_table(copy, directory, partition)
            table = with_null_partitions(copy.warehouse.spark.table(scratch.sql), copy.partition_columns)
            rows = _rows_of_file(table, file_name)
            rows = rows.selectExpr(*casts(rows.columns, target.columns()))
            target.append_once(copy.warehouse, rows, _commit_key(file))
        copy.warehouse.run(f"DROP TABLE {scratch.sql}")


def _commit_key(file: ListedFile) -> str:
    """Return the idempotency key of the commit that appends a file's rows."""
    return f"tableferry-{sha256(str(file).encode('utf-8', 'surrogateescape')).hexdigest()[:16]}"


def _scratch_table(copy: HiveCopy, directory: str, partition: Partition | None) -> TableName:
    """Create an external table with the copy's format over a directory, as one partition."""
    scratch = TableName((*copy.name.parts[:-1], f"{copy.name.table}_tableferry_late"))
    copy.create_like(scratch, directory)
    if copy.partition_columns and partition is not None:
        named = spec(partition, copy.partition_columns)
        copy.warehouse.run(f"ALTER TABLE {scratch.sql} ADD {named} LOCATION {literal(directory)}")
    return scratch


def _rows_of_file(table: DataFrame, file: str) -> DataFrame:
    """Return the rows of one file in a table's directory."""
    name = "substring_index(input_file_name(), '/', -1)"
    # Spark's readers encode file names differently; a file without rows has no name in the result.
    read = [row[0] for row in table.selectExpr(f"{name} AS name").distinct().collect()]
    names = ", ".join(literal(spelling) for spelling in read if file in (spelling, unquote(spelling)))
    return table.where(f"{name} IN ({names})" if names else "false")
