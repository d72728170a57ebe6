"""What the catalog knows of a table, and what of it a Delta log keeps: frozen, and without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from tableferry.errors import Refused
from tableferry.hive.partitions import PartitionColumn
from tableferry.tables import CatalogTable
from tableferry.types import Struct

# The metastore sets it again with every change; `CONVERT TO DELTA` leaves it out of its comparison too.
_TRANSIENT = frozenset({"transient_lastDdlTime"})

_CURRENT_DEFAULT, _EXISTS_DEFAULT = "CURRENT_DEFAULT", "EXISTS_DEFAULT"

# What takes effect in a Delta table of reader version 1 and writer version 2.
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
    """The classes by which Hive reads and writes a table's rows."""

    library: str
    input_format: str
    output_format: str


@dataclass(frozen=True)
class Entry(CatalogTable):
    """What the catalog knows of a table, at one moment.

    Of a Delta table only what it says of any and the owner are filled in: everything else is its log's.

    Attributes:
        columns: All columns in their order, with their comments in ``metadata``.
        properties: Its properties, without those that the metastore keeps for itself.
        options: The options that Spark's reader and writer of Parquet take, or Hive's.
        buckets: How many files a row's key is hashed to; 0 if none.
        serde: Hive's classes, if it is Hive's table and not Spark's.
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
    """Refuse partition columns other than the catalog's, in name, type or order."""
    if _comparable(declared) != _comparable(entry.partition_columns):
        user, catalog = (
            ", ".join(map(str, columns)) or "nothing" for columns in (declared, entry.partition_columns)
        )
        raise Refused("PARTITIONED_BY_DIFFERS_FROM_CATALOG", table=entry.name, columns=catalog, declared=user)


def lasting_properties(entry: Entry) -> dict[str, str]:
    """Return the properties that somebody set, without those that the metastore sets."""
    return {key: value for key, value in entry.properties.items() if key not in _TRANSIENT}


def kept_properties(entry: Entry) -> dict[str, str]:
    """Return what the first commit's ``configuration`` has to hold.

    These are all properties but the metastore's time stamp: the command that switches the entry compares them
    with the log's. One that is missing there costs a second commit, or is refused.

    Raises:
        Refused: A property would mean something to Delta that a table of writer version 2 hasn't got.
    """
    kept = lasting_properties(entry)
    for key in kept:
        if key.lower().startswith("delta.") and not key.lower().startswith(_HARMLESS):
            raise Refused(
                "PROPERTY_ACTIVE_IN_DELTA", table=entry.name, property=key, statement=entry.name.sql
            )
    return kept


def log_columns(entry: Entry) -> Struct:
    """Return the columns as the log may hold them: with comments, lengths of char and varchar, and defaults.

    What Spark gives rows of files that lack a column, ``EXISTS_DEFAULT``, is left out: the protocol has no
    such thing.
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
    """Say whether the first commit must have the writer feature ``allowColumnDefaults``."""
    return any(_CURRENT_DEFAULT in column.metadata for column in entry.columns.fields)


def existence_defaults(entry: Entry) -> dict[str, str]:
    """Return what rows read as where their file lacks a column: column and SQL expression.

    In Delta they read as null, or differently from reader to reader: such a table can only be written anew.
    """
    return {
        column.name: str(column.metadata[_EXISTS_DEFAULT])
        for column in entry.columns.fields
        if _EXISTS_DEFAULT in column.metadata
    }


def losses(entry: Entry) -> tuple[str, ...]:
    """Say what a Delta table doesn't keep of this one."""
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
