"""Append the rows of late files to the new table, once, however often that is tried."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import reduce
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from tableferry.catalog import SPARK_ERRORS
from tableferry.errors import TableError, first_line
from tableferry.fleet.warehouse.files import ListedFile
from tableferry.fleet.warehouse.shadow.conditions import quoted, spec, text
from tableferry.fleet.warehouse.shadow.hive_copy import HiveCopy
from tableferry.fleet.warehouse.shadow.partitions import Partition
from tableferry.fleet.warehouse.shadow.target import Target
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
    key = sha256("\n".join(map(str, sorted(each.file for each in late))).encode("utf-8", "surrogateescape"))
    passing: list[TableName] = []
    folders: dict[tuple[str, Partition | None], list[str]] = defaultdict(list)
    for path, partition in ((each.file.path, each.partition) for each in late):
        folder, _, file = path.rpartition("/")
        folders[folder, partition].append(file)
    try:
        frames = []
        for (folder, partition), files in folders.items():
            passing.append(TableName((*copy.name.parts[:-1], f"{copy.name.table}_late_{len(passing)}")))
            frames.append(_rows(copy, passing[-1], folder, partition, files))
        rows = reduce(lambda one, other: one.unionByName(other), frames)
        target.append_once(copy.warehouse, _as_of(rows, target), f"tableferry-{key.hexdigest()[:16]}")
    except SPARK_ERRORS as error:
        raise TableError(
            f"the rows of {late[0].file.path}, and of {len(late) - 1} more files, can't be taken into {name} "
            f"({first_line(error)}): mend the cause, and run again"
        ) from error
    finally:
        for table in passing:
            copy.warehouse.run(f"DROP TABLE IF EXISTS {table.sql}")


def _rows(
    copy: HiveCopy, passing: TableName, folder: str, partition: Partition | None, files: Sequence[str]
) -> DataFrame:
    """Read files through a passing external table of the copy's format, with one partition."""
    w, keys = copy.warehouse, copy.partition_columns
    # Spark's LIKE takes no catalog.
    own = copy.name.parts[0] == DEFAULT_CATALOG
    new, old = (TableName(each.parts[own:]).sql for each in (passing, copy.name))
    w.run(f"DROP TABLE IF EXISTS {passing.sql}")
    w.run(f"CREATE TABLE {new} LIKE {old} LOCATION {text(folder)}")
    if keys and partition is not None:
        w.run(f"ALTER TABLE {passing.sql} ADD {spec(partition, keys)} LOCATION {text(folder)}")
    names = ", ".join(text(each) for file in files for each in {file, quote(file)})
    return w.spark.table(passing.sql).where(f"substring_index(input_file_name(), '/', -1) IN ({names})")


def _as_of(rows: DataFrame, target: Target) -> DataFrame:
    there = {column.lower(): quoted(column) for column in rows.columns}
    return rows.selectExpr(
        *(
            f"CAST({there.get(name.lower(), 'NULL')} AS {kind}) AS {quoted(name)}"
            for name, kind in target.columns().items()
        )
    )
