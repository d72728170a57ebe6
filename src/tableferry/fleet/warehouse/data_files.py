"""What Iceberg is told of a Hive table's Parquet files: their metrics, and the values of their partitions."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import date
from typing import Any, NamedTuple, TypeAlias

from tableferry.errors import Refused
from tableferry.fleet.warehouse.files import Directory, ListedFile
from tableferry.fleet.warehouse.hive_table import HiveTable
from tableferry.fleet.warehouse.manifest_file import Entry, Value
from tableferry.fleet.warehouse.prepared import Member
from tableferry.fleet.warehouse.versions import NO_SNAPSHOT
from tableferry.formats.hive.locations import split
from tableferry.formats.hive.partitions import NULL, CatalogPartition, split_spec
from tableferry.formats.parquet.iceberg_metrics import End, MetricsReader
from tableferry.spark.types import ColumnPath

# Iceberg takes the metrics of so many columns unless a table says otherwise.
_MOST_COLUMNS = 100
_EPOCH = date(1970, 1, 1).toordinal()
_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
_DECIMAL = re.compile(r"decimal\(\d+, ?(\d+)\)")
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
# How many bits of a whole number aren't its sign.
_BITS = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}


ReadEnds: TypeAlias = Callable[[Sequence[ListedFile]], Iterable[End]]
"""Reads the metadata of Parquet files."""


class Change(NamedTuple):
    """What one commit is to do to an Iceberg table that is made of a Hive table.

    Attributes:
        source: The Hive table.
        partitions: Its partitions.
        added: Files that are added.
        properties: Those that are set.
        after: The snapshot that the table is at; nothing is done if it's at another.
        gone: Files that it holds, and that are taken out first.
    """

    source: HiveTable
    partitions: Sequence[CatalogPartition]
    added: Sequence[ListedFile]
    properties: Mapping[str, str]
    after: str = NO_SNAPSHOT
    gone: Collection[Member] = ()


class Appended(NamedTuple):
    """What a commit did.

    Attributes:
        samples: A file for each set of columns that files lack under the table's own names; None if nobody
            knows.
        since: The snapshot before the files were added, or None if there was none.
        snapshot: The one that holds them.
        mapping: The table's name mapping now.
    """

    samples: list[str] | None
    since: str | None
    snapshot: str
    mapping: str


def specs_of(change: Change) -> dict[Directory, str]:
    """Return the partition that each directory holds; without partition columns that is an empty one."""
    if not change.source.partition_columns:
        return {split(change.source.location): ""}
    return {split(partition.location): partition.spec for partition in change.partitions}


class Leaf(NamedTuple):
    """A field that holds values, and its type as Iceberg's JSON has it."""

    id: int
    type: str


Leaves: TypeAlias = Mapping[ColumnPath, Leaf]
"""The leaves of an Iceberg schema, by their paths."""


def leaves_of(kind: Any, number: int = 0, path: ColumnPath = ()) -> Leaves:
    """Return the leaves of an Iceberg schema, or of another type, in its JSON form."""
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


def are_measured(leaves: Leaves, properties: Iterable[str]) -> bool:
    """Say whether the metrics of a table's columns are those that `entries_of` gives.

    Args:
        leaves: Those of its columns.
        properties: The names of its properties.
    """
    # Iceberg takes those of nested fields after all others.
    many = len(leaves) > _MOST_COLUMNS and any(len(path) > 1 for path in leaves)
    return not many and not any(key.startswith("write.metadata.metrics") for key in properties)


def entries_of(
    change: Change,
    leaves: Leaves,
    read: ReadEnds,
) -> list[Entry] | None:
    """Read the metrics of files that are added.

    Args:
        change: What adds them.
        leaves: Those of the Iceberg table.
        read: Reads files' metadata.

    Returns:
        None if one can't be read, or a partition's value can't be written.

    Raises:
        Refused: Iceberg would read other numbers than the file has.
    """
    source, files = change.source, change.added
    values = {directory: values_of(source, spec) for directory, spec in specs_of(change).items()}
    found = [values.get(file.directory) for file in files]
    if None in found:
        return None
    reader, made = MetricsReader(_stored(source, leaves), _MOST_COLUMNS), []
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


def samples_of(source: HiveTable, entries: Iterable[Entry], leaves: Leaves) -> list[str]:
    """Return a file for each set of columns that files lack under the table's own names, and spell so."""
    stored = frozenset(_stored(source, leaves).values())
    lacking = {(entry.metrics.lacks & stored, entry.metrics.respelled): entry.file.path for entry in entries}
    return sorted(path for (columns, _), path in lacking.items() if columns)


def _stored(source: HiveTable, leaves: Leaves) -> dict[ColumnPath, int]:
    """Return the leaves' ids without those of partition columns, which nobody reads from files."""
    keys = {column.lower() for column in source.partition_columns}
    return {path: leaf.id for path, leaf in leaves.items() if path[0].lower() not in keys}


def values_of(source: HiveTable, spec: str) -> tuple[Value, ...] | None:
    """Return a partition's values in the order of its columns; None if one can't be written."""
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
    """Return a value as a manifest has it, dates as days since 1970; None if it isn't one of that type."""
    if kind in _BITS and _INTEGER.fullmatch(text):
        number = int(text)
        return number if -(1 << _BITS[kind]) <= number < 1 << _BITS[kind] else None
    if kind == "date" and _DATE.fullmatch(text):
        try:
            return date.fromisoformat(text).toordinal() - _EPOCH
        except ValueError:
            return None
    return text if kind in ("string", "varchar") else None
