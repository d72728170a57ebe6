"""A table's catalog entry, and the parts of it that a Delta log keeps; immutable and independent of Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from tableferry.errors import Refused
from tableferry.formats.hive.partitions import PartitionColumn
from tableferry.spark.tables import CatalogTable
from tableferry.spark.types import Struct

# The metastore updates it with every change; `CONVERT TO DELTA` ignores it in its comparison too.
_TRANSIENT = frozenset({"transient_lastDdlTime"})

_CURRENT_DEFAULT, _EXISTS_DEFAULT = "CURRENT_DEFAULT", "EXISTS_DEFAULT"

# Properties, by prefix, that a Delta table of reader version 1 and writer version 2 supports.
_HARMLESS = (
    "delta.appendonly",
    "delta.autooptimize",
    "delta.checkpointinterval",
    "delta.dataskippingnumindexedcols",
    "delta.deletedfileretentionduration",
    "delta.enableexpiredlogcleanup",
    "delta.logretentionduration",
    "delta.randomizefileprefixes",
    "delta.randomprefixlength",
    "delta.settransactionretentionduration",
    "delta.targetfilesize",
    "delta.tunefilesizesforrewrites",
)

_NO_COLUMNS = Struct()


class SerDe(NamedTuple):
    """The classes with which Hive reads and writes a table's rows."""

    library: str
    input_format: str
    output_format: str


@dataclass(frozen=True)
class Entry(CatalogTable):
    """A table's catalog entry at one point in time.

    For a Delta table, only the attributes of `CatalogTable` and the owner are set; its log has the rest.

    Attributes:
        columns: All columns in table order, with comments in ``metadata``.
        properties: The table properties, without those that the metastore uses internally.
        options: The options of Spark's Parquet reader and writer, or of Hive's.
        buckets: The number of buckets; 0 if the table isn't bucketed.
        serde: The Hive classes of a Hive table; None for a Spark table.
    """

    columns: Struct = _NO_COLUMNS
    partition_columns: tuple[PartitionColumn, ...] = ()
    comment: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict, hash=False)
    options: Mapping[str, str] = field(default_factory=dict, hash=False)
    owner: str = ""
    buckets: int = 0
    bucket_columns: tuple[str, ...] = ()
    sort_columns: tuple[str, ...] = ()
    serde: SerDe | None = None


def check_declared(entry: Entry, declared: Sequence[PartitionColumn]) -> None:
    """Refuse partition columns that differ from the catalog's in name, type or order; case is ignored."""
    if _comparable(declared) != _comparable(entry.partition_columns):
        user, catalog = (
            ", ".join(map(str, columns)) or "nothing" for columns in (declared, entry.partition_columns)
        )
        raise Refused("PARTITIONED_BY_DIFFERS_FROM_CATALOG", table=entry.name, columns=catalog, declared=user)


def lasting_properties(entry: Entry) -> dict[str, str]:
    """Return the properties that users set, without those that the metastore sets."""
    return {key: value for key, value in entry.properties.items() if key not in _TRANSIENT}


def kept_properties(entry: Entry) -> dict[str, str]:
    """Return the properties that the first commit's ``configuration`` must contain.

    These are all properties except the metastore's timestamp, because the command that switches the entry
    compares them with the log's. If one is missing in the log, the command writes a second commit or fails.

    Raises:
        Refused: A property has an effect in Delta that a table of writer version 2 doesn't support.
    """
    kept = lasting_properties(entry)
    for key in kept:
        if key.lower().startswith("delta.") and not key.lower().startswith(_HARMLESS):
            raise Refused(
                "PROPERTY_ACTIVE_IN_DELTA", table=entry.name, property=key, statement=entry.name.sql
            )
    return kept


def log_columns(entry: Entry) -> Struct:
    """Return the columns for the log: with comments, lengths of char and varchar, and defaults.

    ``EXISTS_DEFAULT``, the value that Spark reads from files without the column, is left out, because the
    Delta protocol has no equivalent.
    """
    return Struct(
        tuple(
            replace(
                column,
                metadata={key: value for key, value in column.metadata.items() if key != _EXISTS_DEFAULT},
            )
            for column in entry.columns.fields
        )
    )


def needs_defaults(entry: Entry) -> bool:
    """Return whether the first commit must enable the writer feature ``allowColumnDefaults``."""
    return any(_CURRENT_DEFAULT in column.metadata for column in entry.columns.fields)


def existence_defaults(entry: Entry) -> dict[str, str]:
    """Return the value that Spark reads from files without a column: a SQL expression for each such column.

    Delta readers return null or differ from each other, so a table with such files can only be rewritten.
    """
    return {
        column.name: str(column.metadata[_EXISTS_DEFAULT])
        for column in entry.columns.fields
        if _EXISTS_DEFAULT in column.metadata
    }


def losses(entry: Entry) -> tuple[str, ...]:
    """Return a note for each setting of the table that the Delta table doesn't keep."""
    notes = []
    if entry.buckets:
        notes.append(
            f"it is bucketed by {', '.join(entry.bucket_columns)} into {entry.buckets}: Delta reads it right "
            "without the buckets, and writes none"
        )
    if entry.options:
        notes.append(f"its options {', '.join(sorted(entry.options))} no longer have an effect")
    return tuple(notes)


def _comparable(columns: Sequence[PartitionColumn]) -> list[tuple[str, object]]:
    return [(column.name.lower(), column.type) for column in columns]
