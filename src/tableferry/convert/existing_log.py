"""Read the log of a converted table that has no commit after the conversion."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from tableferry import storage
from tableferry.convert import definitions
from tableferry.convert.commit_contents import ICEBERG, LEFT_OUT
from tableferry.errors import TableError
from tableferry.formats.delta import initial_commit
from tableferry.formats.hive.partitions import PartitionColumn
from tableferry.formats.parquet.files import DataFile
from tableferry.spark.tables import TableName
from tableferry.spark.types import Struct, from_json


@dataclass(frozen=True)
class ExistingLog:
    """A Delta log that a folder has before its conversion, compared with the files in the folder.

    Attributes:
        table_id: The id of the log's table.
        ours: Whether the log has only the first commit of a conversion by Tableferry.
        differences: How the folder's files differ from those that the log names: a sentence for each.
        missed: Whether each difference is a file that is older than the commit. A conversion that ends before
            its last check of the folder can miss such a file; a Delta writer can't leave one.
        shown_by: The Delta tables of the catalog, other than the one to convert, that have this folder.
        columns: All columns of the table; None if one has an unknown type.
        partition_columns: From the root down.
    """

    table_id: str
    ours: bool
    differences: tuple[str, ...] = ()
    missed: bool = False
    shown_by: tuple[TableName, ...] = ()
    columns: Struct | None = None
    partition_columns: tuple[PartitionColumn, ...] = ()


@dataclass(frozen=True)
class Conversion:
    """The contents of a log whose only commit is a conversion.

    Attributes:
        table_id: The id of the table.
        ours: Whether Tableferry wrote the commit.
        files: The data files of the commit, sorted by path.
        left_out: Files that the folder had and that the table doesn't include.
        written: The commit's modification time, as milliseconds since 1970, UTC, by its file system's clock.
        columns: All columns of the table; None if a type isn't known.
        partition_columns: The partition columns from the root directory down.
    """

    table_id: str
    ours: bool
    files: tuple[DataFile, ...]
    written: int
    columns: Struct | None
    partition_columns: tuple[PartitionColumn, ...]
    left_out: tuple[DataFile, ...] = ()

    @property
    def listed(self) -> tuple[DataFile, ...]:
        """The files that the folder had, sorted by path."""
        return tuple(sorted((*self.files, *self.left_out)))


def iceberg_metadata(root: storage.AnyPath) -> str:
    """Return the name of the Iceberg metadata file that a log's only commit converted; empty if it didn't."""
    if not initial_commit.is_only_commit(root):
        return ""
    made: dict[str, Any] = initial_commit.info(root).get(ICEBERG, {})
    return str(made.get("metadata", ""))


def conversion(root: storage.AnyPath) -> Conversion | None:
    """Return the contents of a folder's log, or None unless its only commit is a conversion.

    Raises:
        TableError: The commit isn't valid.
        StateError: The log can't be read.
    """
    first = initial_commit.log(root) / initial_commit.FIRST
    if not initial_commit.is_only_commit(root) or (text := storage.read_text(first)) is None:
        return None
    try:
        return _parsed(text, first)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TableError("CONVERSION_LOG_UNREADABLE", file=first, reason=repr(error)) from error


def _parsed(text: str, first: storage.AnyPath) -> Conversion | None:
    info: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    added = []
    # Not `splitlines`: a table's comment may contain other characters that it treats as line ends.
    for line in filter(None, text.split("\n")):
        action = json.loads(line)
        if add := action.get("add"):
            added.append(DataFile(unquote(add["path"]), add["size"], add["modificationTime"]))
        info = action.get("commitInfo", info)
        metadata = action.get("metaData", metadata)
        if info and info.get("operation") != initial_commit.OPERATION:
            return None
    if not info:
        return None
    columns, partition_columns = columns_of(metadata["schemaString"], metadata["partitionColumns"])
    return Conversion(
        table_id=metadata["id"],
        ours=str(info.get("engineInfo", "")).startswith("Tableferry/"),
        files=tuple(sorted(added)),
        written=storage.modified(first),
        columns=columns,
        partition_columns=partition_columns,
        left_out=tuple(DataFile(*file) for file in info.get(LEFT_OUT, ())),
    )


def columns_of(
    schema: str, partitioned_by: Sequence[str]
) -> tuple[Struct | None, tuple[PartitionColumn, ...]]:
    """Return a table's columns and partition columns, or None and an empty tuple if a type isn't known."""
    try:
        columns = from_json(schema)
        by_name = {column.name: column.type for column in columns.fields}
        return columns, tuple(definitions.partition_column(name, by_name[name]) for name in partitioned_by)
    except (ValueError, KeyError):
        return None, ()
