"""What would stop a table's migration, or surprise people, by what is known of it: nothing is asked here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from tableferry.amounts import first_of
from tableferry.convert import overlay
from tableferry.errors import Paused, Refused
from tableferry.fleet.hive_copy.table import PURGE
from tableferry.fleet.jobs.findings import PauseFinding
from tableferry.fleet.jobs.job import PauseReason, TargetFormat
from tableferry.fleet.warehouse.hive_files import (
    Listing,
    refuse_files_outside_partitions,
    refuse_nested_files,
)
from tableferry.fleet.warehouse.hive_table import HiveTable, paths_of, stored_types
from tableferry.formats.hive.locations import below, is_hidden, split
from tableferry.formats.hive.partitions import NULL, CatalogPartition, split_spec
from tableferry.spark.tables import TableName

INTEGERS = ("tinyint", "smallint", "int", "bigint")
"""Hive's types of whole numbers."""
_NO_FILES = Listing((), (), ())
# So many characters the tables of Hive's metastore have for a name (TBL_NAME).
_LONGEST_NAME = 256


@dataclass(frozen=True)
class PreflightFacts:
    """What a preflight knows of a Hive table.

    Attributes:
        neighbours: Other tables whose directories are the same, or one in the other, with these.
        unlisted: Schemas whose tables can't be listed, so that none of theirs is a neighbour.
        movable: Whether a managed table can be made external from here.
        column_mapping: Whether a Delta table may use column mapping for names that it doesn't take otherwise.
        missing_place: Why the new table's schema can't be used; None if it can.
        rewritten: Whether its rows are rewritten, as its files can't become the new table's.
        begun: Whether that has been begun.
        names: What it and the new table are called during the migration.
        inside: Why its directory belongs to another table above it, or empty.
        keeps_name: Whether the Hive table keeps its name during probation (`old_name: table`).
    """

    table: HiveTable
    partitions: tuple[CatalogPartition, ...] = ()
    files: Listing = _NO_FILES
    neighbours: tuple[tuple[TableName, str], ...] = ()
    unlisted: tuple[TableName, ...] = ()
    movable: bool = True
    column_mapping: bool = False
    missing_place: Refused | None = None
    rewritten: bool = False
    begun: bool = False
    names: tuple[TableName, ...] = ()
    inside: str = ""
    keeps_name: bool = False


def findings(facts: PreflightFacts, form: TargetFormat) -> Iterator[PauseFinding]:
    """Yield what would stop the migration."""
    table = facts.table
    name = table.name
    if facts.missing_place is not None:
        yield PauseFinding(PauseReason.NO_TARGET_SCHEMA, facts.missing_place)
    longest = max((each.table for each in facts.names), key=len, default="")
    if len(longest) > _LONGEST_NAME:
        yield PauseFinding(
            PauseReason.UNSUPPORTED_SCHEMA,
            Refused("HIVE_NAME_TOO_LONG", table=name, name=longest, length=len(longest), limit=_LONGEST_NAME),
        )
    if table.managed and not facts.movable:
        yield PauseFinding(PauseReason.MANAGED_TABLE, Paused("MANAGED_TABLE", table=name))
    if table.properties.get(PURGE, "").lower() == "true":
        yield PauseFinding(
            PauseReason.REMOVES_FILES,
            Refused("PURGE_REMOVES_FILES", table=name, statement=name.sql, property=PURGE),
        )
    if facts.neighbours:
        others = [f"{other} at {location}" for other, location in facts.neighbours]
        yield PauseFinding(
            PauseReason.SHARED_DIRECTORY,
            Refused(
                "DIRECTORIES_OVERLAP", table=name, folder=table.location, format=form.value, others=others
            ),
        )
    if facts.inside:
        yield PauseFinding(
            PauseReason.SHARED_DIRECTORY,
            Refused("DIRECTORY_IN_OTHER_TABLE", table=name, folder=table.location, owner=facts.inside),
        )
    if facts.keeps_name and form is TargetFormat.DELTA and not facts.rewritten:
        yield PauseFinding(PauseReason.UNSUPPORTED_LAYOUT, Refused("OLD_NAME_SHARES_FILES", table=name))
    if split(table.location)[2] == "/":
        yield PauseFinding(
            PauseReason.UNSUPPORTED_LAYOUT,
            Refused("TABLE_IS_WHOLE_BUCKET", table=name, folder=table.location),
        )
    if (
        form is TargetFormat.DELTA
        and not facts.rewritten
        and (refusal := refuse_files_outside_partitions(name, facts.files))
    ):
        yield PauseFinding(PauseReason.UNSUPPORTED_LAYOUT, refusal)
    hidden = [
        str(partition)
        for partition in facts.partitions
        if any(map(is_hidden, (below(partition.location, table.location) or "").split("/")))
    ]
    if hidden:
        yield PauseFinding(
            PauseReason.UNSUPPORTED_LAYOUT, Refused("PARTITIONS_HIDDEN", table=name, partitions=hidden)
        )
    outside = [str(each) for each in facts.partitions if below(each.location, table.location) is None]
    if outside and form is TargetFormat.DELTA and not facts.rewritten:
        yield PauseFinding(
            PauseReason.UNSUPPORTED_LAYOUT,
            Refused("PARTITIONS_OUTSIDE_DIRECTORY", table=name, folder=table.location, partitions=outside),
        )
    if not facts.rewritten and (shared := _shared_directories(facts)):
        yield PauseFinding(
            PauseReason.UNSUPPORTED_LAYOUT, Refused("PARTITIONS_SHARE_DIRECTORY", table=name, folders=shared)
        )
    if refusal := refuse_nested_files(name, facts.files):
        yield PauseFinding(PauseReason.UNSUPPORTED_LAYOUT, refusal)
    unsuitable = [".".join(path) for path in paths_of(table.columns) if not overlay.is_plain_name(path[-1])]
    if unsuitable and form is TargetFormat.DELTA and not facts.column_mapping:
        yield PauseFinding(
            PauseReason.UNSUPPORTED_SCHEMA,
            Refused("NAMES_NEED_COLUMN_MAPPING", table=name, columns=unsuitable),
        )
    kinds = {column.name.lower(): column.type["name"] for column in table.columns}
    zeros = [
        partition.spec
        for partition in facts.partitions
        for key, value in split_spec(partition.spec)
        if value == "-0.0" and kinds[key.lower()] in ("float", "double")
    ]
    if zeros and form is TargetFormat.ICEBERG:
        yield PauseFinding(
            PauseReason.UNSUPPORTED_LAYOUT,
            Refused("PARTITION_OF_NEGATIVE_ZERO", table=name, partition=zeros[0]),
        )
    if table.format == "avro" and any(kinds[key.lower()] in INTEGERS for key in table.partition_columns):
        nulls = [partition.spec for partition in facts.partitions if NULL in partition.spec]
        if nulls:
            yield PauseFinding(
                PauseReason.UNSUPPORTED_LAYOUT,
                Refused("AVRO_NULL_PARTITION", table=name, partition=nulls[0]),
            )


def remarks(facts: PreflightFacts, form: TargetFormat) -> tuple[str, ...]:
    """Return what people should know of a table that can be migrated."""
    sentences = []
    if facts.rewritten:
        sentences.append(
            "its rows are rewritten as Parquet, beside the Hive table, whose files stay until tableferry "
            "fleet close: that takes their space once more"
            + ("" if facts.table.partition_columns else "; without partitions, all of them at once")
        )
    if facts.table.partition_columns:
        sentences.append(
            "a job that replaces partitions with INSERT OVERWRITE has to set "
            "spark.sql.sources.partitionOverwriteMode=dynamic after the switch, or it removes all others"
        )
    defaults = [f"{column.name} {column.default}" for column in facts.table.columns if column.default]
    if defaults and form is TargetFormat.ICEBERG:
        sentences.append(
            f"columns have defaults, {first_of(defaults)}, that Spark's Iceberg tables can't have: an INSERT "
            "that leaves such a column out gives null there"
        )
    if _keeps_milliseconds(facts.table):
        sentences.append(
            f"what is written to Hive as {facts.table.format} keeps milliseconds of timestamps: where there "
            "are finer ones, in rows that people write during probation or in partitions that they change, "
            "the table pauses before its archive or a revert, and the new table has all rows"
        )
    if facts.files.stray:
        strays = first_of([file.path for file in facts.files.stray])
        sentences.append(f"files that belong to no partition are left where they are: {strays}")
    if facts.unlisted:
        sentences.append(
            f"the tables of {first_of(facts.unlisted)} can't be listed, so whether one of them shares the "
            "table's directory isn't known: ask for the right to see them, and look again"
        )
    if form is TargetFormat.DELTA and not facts.rewritten:
        sentences.append(
            "until the Hive table is archived, it shares its files with the Delta table: nothing may read "
            "it, because changed rows appear twice, or write to it, because an INSERT OVERWRITE makes the "
            "Delta table unreadable"
        )
    return tuple(sentences)


def _keeps_milliseconds(table: HiveTable) -> bool:
    """Say whether what writes to a Hive table cuts timestamps off: Hive's Avro, and Spark's CSV and JSON."""
    if table.format in ("csv", "json"):
        options = {key.lower() for key in table.options}
        cuts = not table.serde and "timestampformat" not in options
    else:
        cuts = table.format == "avro"
    kinds = [kind["name"] for kind in stored_types(table.columns).values()]
    return cuts and any(kind.startswith("timestamp") for kind in kinds)


def _shared_directories(facts: PreflightFacts) -> list[str]:
    """Return the directories with files that several partitions have."""
    held = Counter(split(partition.location) for partition in facts.partitions)
    several = [partition.location for partition in facts.partitions if held[split(partition.location)] > 1]
    filled = {file.directory for file in facts.files.read} if several else set()
    return list(dict.fromkeys(location for location in several if split(location) in filled))
