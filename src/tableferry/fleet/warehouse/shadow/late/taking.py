"""Append the rows of late files to the new table, once, however often that is tried."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

from tableferry.catalog import SPARK_ERRORS
from tableferry.errors import TableError, first_line
from tableferry.fleet.warehouse.files import ListedFile
from tableferry.fleet.warehouse.shadow.conditions import spec
from tableferry.fleet.warehouse.shadow.hive_copy import HiveCopy
from tableferry.fleet.warehouse.shadow.partitions import Partition
from tableferry.fleet.warehouse.shadow.target import Target
from tableferry.hive.sql import quoted, text
from tableferry.tables import DEFAULT_CATALOG, TableName

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Late(NamedTuple):
    """A late file, and the partition that its directory stands for; None if it stands for none."""

    file: ListedFile
    partition: Partition | None


def take(copy: HiveCopy, name: TableName, target: Target, late: Sequence[Late]) -> None:
    """Append the rows of files to a table, as Hive would read them; done already is fine.

    Args:
        copy: The Hive copy, by whose format and columns the files are read.
        name: The table, for messages.
        target: The table.
        late: The files, each with its partition.

    Raises:
        TableError: The files can't be read, or the table can't be written.
    """
    passing = TableName((*copy.name.parts[:-1], f"{copy.name.table}_tableferry_late"))
    try:
        for one in late:
            folder, _, name_of_file = one.file.path.rpartition("/")
            _show(copy, passing, folder, one.partition)
            # A commit for each, for another may come before the next run, if this one dies.
            target.append_once(
                copy.warehouse, _as_of(_rows(copy, passing, name_of_file), target), _key(one.file)
            )
        copy.warehouse.run(f"DROP TABLE {passing.sql}")
    except SPARK_ERRORS as error:
        raise TableError(
            f"the rows of {late[0].file.path}, and of {len(late) - 1} more files, can't be taken into {name} "
            f"({first_line(error)}): mend the cause, and run again"
        ) from error


def _key(file: ListedFile) -> str:
    """Name the commit that takes a file in."""
    return f"tableferry-{sha256(str(file).encode('utf-8', 'surrogateescape')).hexdigest()[:16]}"


def _show(copy: HiveCopy, passing: TableName, folder: str, partition: Partition | None) -> None:
    """Make a passing external table of the copy's format over a directory, as one partition."""
    w, keys = copy.warehouse, copy.partition_columns
    # Spark's LIKE takes no catalog.
    own = copy.name.parts[0] == DEFAULT_CATALOG
    new, old = (TableName(each.parts[own:]).sql for each in (passing, copy.name))
    w.run(f"DROP TABLE IF EXISTS {passing.sql}")
    w.run(f"CREATE TABLE {new} LIKE {old} LOCATION {text(folder)}")
    if keys and partition is not None:
        w.run(f"ALTER TABLE {passing.sql} ADD {spec(partition, keys)} LOCATION {text(folder)}")


def _rows(copy: HiveCopy, passing: TableName, file: str) -> DataFrame:
    """Read one file of that directory."""
    frame = copy.warehouse.spark.table(passing.sql)
    name = "substring_index(input_file_name(), '/', -1)"
    # Each of Spark's readers writes names in its own way; a file without rows has none.
    there = [row[0] for row in frame.selectExpr(f"{name} AS name").distinct().collect()]
    names = ", ".join(text(each) for each in there if file in (each, unquote(each)))
    return frame.where(f"{name} IN ({names})" if names else "false")


def _as_of(rows: DataFrame, target: Target) -> DataFrame:
    there = {column.lower(): quoted(column) for column in rows.columns}
    return rows.selectExpr(
        *(
            f"CAST({there.get(name.lower(), 'NULL')} AS {kind}) AS {quoted(name)}"
            for name, kind in target.columns().items()
        )
    )
