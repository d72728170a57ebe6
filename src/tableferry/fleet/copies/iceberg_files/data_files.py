"""Iceberg's description of a Hive table's Parquet files: their metrics and the values of their partitions."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import date
from typing import Any, NamedTuple, TypeAlias

from tableferry.errors import Refused
from tableferry.fleet.hive_tables.hive_table import HiveTable
from tableferry.fleet.hive_tables.table_files import Directory, ListedFile
from tableferry.fleet.warehouse.prepared_copy import Member
from tableferry.fleet.warehouse.target_versions import NO_SNAPSHOT
from tableferry.formats.hive.locations import split
from tableferry.formats.hive.partitions import NULL, CatalogPartition, split_spec
from tableferry.formats.parquet.iceberg_metrics import End, Metrics, MetricsReader
from tableferry.spark.types import ColumnPath

# The default of `write.metadata.metrics.max-inferred-column-defaults`.
_MAX_COLUMNS = 100
_EPOCH = date(1970, 1, 1).toordinal()
_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
_DECIMAL = re.compile(r"decimal\(\d+, ?(\d+)\)")
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
# The number of bits without the sign.
_BITS = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}


Value: TypeAlias = int | str | None
"""A partition's value as a manifest contains it; a date is the number of days since 1970."""


class Entry(NamedTuple):
    """A data file with its partition's values and its metrics."""

    file: ListedFile
    partition: tuple[Value, ...]
    metrics: Metrics


ReadEnds: TypeAlias = Callable[[Sequence[ListedFile]], Iterable[End]]
"""Reads the footers of Parquet files, in the files' order."""


class Change(NamedTuple):
    """The changes of one commit to an Iceberg copy of a Hive table.

    Attributes:
        source: The Hive table.
        partitions: Its partitions.
        added: The files that are added.
        properties: The table properties that are set.
        after: The copy's expected snapshot; if it has another one, nothing is committed.
        gone: The files that are removed before others are added.
    """

    source: HiveTable
    partitions: Sequence[CatalogPartition]
    added: Sequence[ListedFile]
    properties: Mapping[str, str]
    after: str = NO_SNAPSHOT
    gone: Collection[Member] = ()


class Appended(NamedTuple):
    """The result of a commit.

    Attributes:
        samples: One file for each set of columns that files lack under the table's names; None if unknown.
        since: The snapshot before the files were added; None if there was none.
        snapshot: The snapshot with the files.
        mapping: The table's name mapping after the commit, as JSON.
    """

    samples: list[str] | None
    since: str | None
    snapshot: str
    mapping: str


def specs_by_directory(change: Change) -> dict[Directory, str]:
    """Return each directory's partition; the partition of a table without partition columns is empty."""
    if not change.source.partition_columns:
        return {split(change.source.location): ""}
    return {split(partition.location): partition.spec for partition in change.partitions}


class Leaf(NamedTuple):
    """A field with values, and its type in Iceberg's JSON form."""

    id: int
    type: str


Leaves: TypeAlias = Mapping[ColumnPath, Leaf]
"""The fields with values of an Iceberg schema, by their paths."""


def leaves_of(kind: Any, number: int = 0, path: ColumnPath = ()) -> Leaves:
    """Return the fields with values of an Iceberg schema, or of another type, in its JSON form."""
    match kind:
        case {"type": "struct", "fields": fields}:
            inner = [(field["name"], field["type"], field["id"]) for field in fields]
        case {"type": "list"}:
            inner = [("element", kind["element"], kind["element-id"])]
        case {"type": "map"}:
            inner = [("key", kind["key"], kind["key-id"]), ("value", kind["value"], kind["value-id"])]
        case _:
            return {path: Leaf(number, str(kind))}
    found = (leaves_of(part, number, (*path, name)) for name, part, number in inner)
    return {path: leaf for some in found for path, leaf in some.items()}


def has_default_metrics(leaves: Leaves, properties: Iterable[str]) -> bool:
    """Return whether `read_entries` reads the metrics that Iceberg would store for a table.

    Args:
        leaves: The table's fields with values.
        properties: The names of the table's properties.
    """
    # Iceberg counts nested fields after all others.
    many = len(leaves) > _MAX_COLUMNS and any(len(path) > 1 for path in leaves)
    return not many and not any(key.startswith("write.metadata.metrics") for key in properties)


def read_entries(change: Change, leaves: Leaves, read: ReadEnds) -> list[Entry] | None:
    """Read the metrics of the files that a change adds.

    Args:
        change: The change.
        leaves: The fields with values of the Iceberg table.
        read: Reads the files' footers.

    Returns:
        None if a file can't be read, or Iceberg can't store a partition's value.

    Raises:
        Refused: Iceberg would read other numbers than the file contains.
    """
    source, files = change.source, change.added
    values = {
        directory: partition_values(source, spec) for directory, spec in specs_by_directory(change).items()
    }
    found = [values.get(file.directory) for file in files]
    if None in found:
        return None
    reader, made = MetricsReader(_stored(source, leaves), _MAX_COLUMNS), []
    scales = {path: int(kind[1]) for path, leaf in leaves.items() if (kind := _DECIMAL.fullmatch(leaf.type))}
    for file, partition, end in zip(files, found, read(files), strict=True):
        metrics = reader.read(end)
        if metrics is None or partition is None:
            return None
        for path, scale in metrics.scales.items():
            if (expected := scales.get(path, scale)) != scale:
                raise Refused(
                    "DECIMAL_SCALE_DIFFERS",
                    table=source.name,
                    file=file.path,
                    column=".".join(path),
                    found=scale,
                    expected=expected,
                )
        made.append(Entry(file, partition, metrics))
    return made


def sample_files(source: HiveTable, entries: Iterable[Entry], leaves: Leaves) -> list[str]:
    """Return one file for each set of columns that files lack or spell differently than the table."""
    stored = frozenset(_stored(source, leaves).values())
    lacking = {(entry.metrics.lacks & stored, entry.metrics.respelled): entry.file.path for entry in entries}
    return sorted(path for (columns, _), path in lacking.items() if columns)


def _stored(source: HiveTable, leaves: Leaves) -> dict[ColumnPath, int]:
    """Return the leaves' ids, without partition columns, whose values Iceberg doesn't read from files."""
    keys = {column.lower() for column in source.partition_columns}
    return {path: leaf.id for path, leaf in leaves.items() if path[0].lower() not in keys}


def partition_values(source: HiveTable, spec: str) -> tuple[Value, ...] | None:
    """Return a partition's values in the order of its columns; None if Iceberg can't store one."""
    types = {column.name.lower(): column.type["name"] for column in source.columns}
    given = {name.lower(): value for name, value in split_spec(spec)}
    values: list[Value] = []
    for column in source.partition_columns:
        text = given[column.lower()]
        value = None if text == NULL else _value(text, types[column.lower()])
        if text != NULL and value is None:
            return None
        values.append(value)
    return tuple(values)


def _value(text: str, kind: str) -> Value:
    """Return a value for a manifest, a date as days since 1970; None if it isn't a value of that type."""
    if kind in _BITS and _INTEGER.fullmatch(text):
        number = int(text)
        return number if -(1 << _BITS[kind]) <= number < 1 << _BITS[kind] else None
    if kind == "date" and _DATE.fullmatch(text):
        try:
            return date.fromisoformat(text).toordinal() - _EPOCH
        except ValueError:
            return None
    return text if kind in ("string", "varchar") else None
