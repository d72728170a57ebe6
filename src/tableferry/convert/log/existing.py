"""Reads a log that a conversion wrote, and that nobody has written to since."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from tableferry import files
from tableferry.convert.facts import DataFile
from tableferry.convert.log import commit, definitions
from tableferry.convert.log.contents import ICEBERG, LEFT_OUT
from tableferry.errors import TableError
from tableferry.hive.partitions import PartitionColumn
from tableferry.types import Struct, from_json


@dataclass(frozen=True)
class Conversion:
    """What the only commit of a log says.

    Attributes:
        table_id: The id of the table.
        ours: Whether Tableferry wrote it.
        files: The data files that it names, sorted by path.
        left_out: Files that the folder had, and that the table doesn't.
        written: When it was written, as milliseconds since 1970, UTC, by the clock of its file system.
        columns: All columns of the table; None if it has a type that isn't known.
        partition_columns: From the root down.
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


def iceberg_metadata(root: files.AnyPath) -> str:
    """Return of which metadata file of an Iceberg table a log's only commit was made; empty if of none."""
    if not commit.is_only_commit(root):
        return ""
    made: dict[str, Any] = commit.info(root).get(ICEBERG, {})
    return str(made.get("metadata", ""))


def conversion(root: files.AnyPath) -> Conversion | None:
    """Read a folder's log if it is the first commit of a conversion and nothing else; None if it isn't.

    Raises:
        TableError: It can't be understood.
        StateError: It can't be read.
    """
    first = commit.log(root) / commit.FIRST
    if not commit.is_only_commit(root) or (text := files.read_text(first)) is None:
        return None
    try:
        return _parsed(text, first)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TableError("CONVERSION_LOG_UNREADABLE", file=first, reason=repr(error)) from error


def _parsed(text: str, first: files.AnyPath) -> Conversion | None:
    info: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    added = []
    # Other characters that end a line for Python may be in a table's comment.
    for line in filter(None, text.split("\n")):
        action = json.loads(line)
        if add := action.get("add"):
            added.append(DataFile(unquote(add["path"]), add["size"], add["modificationTime"]))
        info = action.get("commitInfo", info)
        metadata = action.get("metaData", metadata)
        if info and info.get("operation") != commit.OPERATION:
            return None
    if not info:
        return None
    columns, partition_columns = columns_of(metadata["schemaString"], metadata["partitionColumns"])
    return Conversion(
        table_id=metadata["id"],
        ours=str(info.get("engineInfo", "")).startswith("Tableferry/"),
        files=tuple(sorted(added)),
        written=files.modified(first),
        columns=columns,
        partition_columns=partition_columns,
        left_out=tuple(DataFile(*file) for file in info.get(LEFT_OUT, ())),
    )


def columns_of(
    schema: str, partitioned_by: Sequence[str]
) -> tuple[Struct | None, tuple[PartitionColumn, ...]]:
    """Read a table's columns and which of them are partition columns; None and none if a type isn't known."""
    try:
        columns = from_json(schema)
        by_name = {column.name: column.type for column in columns.fields}
        return columns, tuple(definitions.partition_column(name, by_name[name]) for name in partitioned_by)
    except (ValueError, KeyError):
        return None, ()
