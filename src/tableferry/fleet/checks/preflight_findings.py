"""Findings and remarks of a preflight, from a table's facts only; without Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from tableferry.amounts import first_of
from tableferry.convert import overlay
from tableferry.errors import Paused, Refused
from tableferry.fleet.hive_tables.hive_table import PURGE, HiveTable, column_paths, stored_types
from tableferry.fleet.jobs.findings import PauseFinding
from tableferry.fleet.jobs.job import PauseReason, TargetFormat
from tableferry.fleet.warehouse.hive_files import (
    Listing,
    refuse_files_outside_partitions,
    refuse_nested_files,
)
from tableferry.formats.hive.locations import below, is_hidden, split
from tableferry.formats.hive.partitions import NULL, CatalogPartition, split_spec
from tableferry.spark.tables import TableName

INTEGERS = ("tinyint", "smallint", "int", "bigint")
"""Hive's types of whole numbers."""
_NO_FILES = Listing((), (), ())
# The length of a table's name in Hive's metastore (TBL_NAME).
_LONGEST_NAME = 256


@dataclass(frozen=True)
class PreflightFacts:
    """The facts of a Hive table that a preflight checks.

    Attributes:
        overlapping: Other tables whose directories overlap with the table's, with these directories.
        unlisted: Schemas whose tables can't be listed, and so aren't among `overlapping`.
        can_make_external: Whether this process can make a managed table external.
        column_mapping: Whether a Delta table may use column mapping for names that it can't have without it.
        schema_refusal: Why the new table's schema can't be used; None if it can.
        rewritten: Whether the rows are rewritten because the new table can't use the files.
        rewrite_started: Whether rewriting has started.
        names: The names of the Hive table and the new table during the migration.
        owning_table: Why the directory belongs to another table above it; or empty.
        keeps_name: Whether the Hive table keeps its name during probation (`old_name: table`).
    """

    table: HiveTable
    partitions: tuple[CatalogPartition, ...] = ()
    files: Listing = _NO_FILES
    overlapping: tuple[tuple[TableName, str], ...] = ()
    unlisted: tuple[TableName, ...] = ()
    can_make_external: bool = True
    column_mapping: bool = False
    schema_refusal: Refused | None = None
    rewritten: bool = False
    rewrite_started: bool = False
    names: tuple[TableName, ...] = ()
    owning_table: str = ""
    keeps_name: bool = False


def findings(facts: PreflightFacts, form: TargetFormat) -> Iterator[PauseFinding]:
    """Yield the findings that stop the migration."""
    table = facts.table
    name = table.name
    if facts.schema_refusal is not None:
        yield PauseFinding(PauseReason.NO_TARGET_SCHEMA, facts.schema_refusal)
    longest = max((each.table for each in facts.names), key=len, default="")
    if len(longest) > _LONGEST_NAME:
        yield PauseFinding(
            PauseReason.UNSUPPORTED_SCHEMA,
            Refused("HIVE_NAME_TOO_LONG", table=name, name=longest, length=len(longest), limit=_LONGEST_NAME),
        )
    if table.managed and not facts.can_make_external:
        yield PauseFinding(PauseReason.MANAGED_TABLE, Paused("MANAGED_TABLE", table=name))
    if table.properties.get(PURGE, "").lower() == "true":
        yield PauseFinding(
            PauseReason.REMOVES_FILES,
            Refused("PURGE_REMOVES_FILES", table=name, statement=name.sql, property=PURGE),
        )
    if facts.overlapping:
        others = [f"{other} at {location}" for other, location in facts.overlapping]
        yield PauseFinding(
            PauseReason.SHARED_DIRECTORY,
            Refused(
                "DIRECTORIES_OVERLAP", table=name, folder=table.location, format=form.value, others=others
            ),
        )
    if facts.owning_table:
        yield PauseFinding(
            PauseReason.SHARED_DIRECTORY,
            Refused("DIRECTORY_IN_OTHER_TABLE", table=name, folder=table.location, owner=facts.owning_table),
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
    unsuitable = [
        ".".join(path) for path in column_paths(table.columns) if not overlay.is_plain_name(path[-1])
    ]
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
    """Return sentences that the owners of a table should read before its migration."""
    sentences = []
    if facts.rewritten:
        sentences.append(
            "its rows are rewritten as Parquet in another directory, and the Hive table's files stay until "
            "tableferry fleet close: this needs about twice the storage"
            + ("" if facts.table.partition_columns else "; without partitions, one write contains all rows")
        )
    if facts.table.partition_columns:
        sentences.append(
            "after the switch, a job that replaces partitions with INSERT OVERWRITE must set "
            "spark.sql.sources.partitionOverwriteMode=dynamic, or it removes all other partitions"
        )
    defaults = [f"{column.name} {column.default}" for column in facts.table.columns if column.default]
    if defaults and form is TargetFormat.ICEBERG:
        sentences.append(
            f"columns have defaults, {first_of(defaults)}, which Spark doesn't support for Iceberg tables: "
            "an INSERT without such a column writes null"
        )
    if _keeps_milliseconds(facts.table):
        sentences.append(
            f"Hive tables in {facts.table.format} store timestamps in milliseconds: if users write finer "
            "timestamps during probation, the table pauses before its archive or revert, and the new table "
            "has all rows"
        )
    if facts.files.stray:
        strays = first_of([file.path for file in facts.files.stray])
        sentences.append(f"files that belong to no partition stay in the directory: {strays}")
    if facts.unlisted:
        sentences.append(
            f"the tables of {first_of(facts.unlisted)} can't be listed, so one of them may share the table's "
            "directory: get the privilege to list them, and run preflight again"
        )
    if form is TargetFormat.DELTA and not facts.rewritten:
        sentences.append(
            "until the Hive table is archived, it shares its files with the Delta table: don't read it, "
            "because changed rows appear twice, and don't write to it, because an INSERT OVERWRITE makes the "
            "Delta table unreadable"
        )
    return tuple(sentences)


def _keeps_milliseconds(table: HiveTable) -> bool:
    """Return whether writers of a Hive table truncate timestamps: Hive's Avro, and Spark's CSV and JSON."""
    if table.format in ("csv", "json"):
        options = {key.lower() for key in table.options}
        cuts = not table.serde and "timestampformat" not in options
    else:
        cuts = table.format == "avro"
    kinds = [kind["name"] for kind in stored_types(table.columns).values()]
    return cuts and any(kind.startswith("timestamp") for kind in kinds)


def _shared_directories(facts: PreflightFacts) -> list[str]:
    """Return the directories with files that several partitions share."""
    held = Counter(split(partition.location) for partition in facts.partitions)
    several = [partition.location for partition in facts.partitions if held[split(partition.location)] > 1]
    filled = {file.directory for file in facts.files.read} if several else set()
    return list(dict.fromkeys(location for location in several if split(location) in filled))
