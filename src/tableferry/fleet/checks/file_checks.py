"""Checks of a table's partitions and files, by their directories; without Spark."""

from __future__ import annotations

from collections import Counter

from tableferry.errors import Refused
from tableferry.fleet.checks.facts import Facts, Findings, Needs, check
from tableferry.fleet.hive_tables.hive_table import HiveTable
from tableferry.fleet.hive_tables.table_files import refuse_files_outside_partitions, refuse_nested_files
from tableferry.fleet.jobs.findings import PauseFinding
from tableferry.fleet.jobs.job import PauseReason, TargetFormat
from tableferry.formats.hive.locations import below, is_hidden, split
from tableferry.formats.hive.partitions import NULL, split_spec

INTEGERS = ("tinyint", "smallint", "int", "bigint")
"""Hive's types of whole numbers."""


@check(Needs.FILES)
def files_in_no_partition(facts: Facts, form: TargetFormat) -> Findings:
    """Refuse a table for Delta whose files all belong to no partition.

    They wouldn't be in the Delta table, so its VACUUM would remove them (Delta's documentation, "Table
    utility commands").
    """
    if form is TargetFormat.DELTA and not facts.rewritten:
        yield from _layout(refuse_files_outside_partitions(facts.table.name, facts.files))


@check(Needs.FILES)
def hidden_partitions(facts: Facts, form: TargetFormat) -> Findings:
    """Refuse partitions in hidden directories, which a listing of the table leaves out.

    Hadoop's and Spark's listings skip names that begin with `_` or `.`.
    """
    table = facts.table
    hidden = [
        str(partition)
        for partition in facts.partitions
        if any(map(is_hidden, (below(partition.location, table.location) or "").split("/")))
    ]
    if hidden:
        yield from _layout(Refused("PARTITIONS_HIDDEN", table=table.name, partitions=hidden))


@check(Needs.FILES)
def partitions_outside(facts: Facts, form: TargetFormat) -> Findings:
    """Refuse partitions outside the table's directory for a Delta table in place.

    The conversion finds partitions by their paths below the directory (Delta's documentation, "Convert a
    Parquet table to a Delta table").
    """
    table = facts.table
    outside = [str(each) for each in facts.partitions if below(each.location, table.location) is None]
    if outside and form is TargetFormat.DELTA and not facts.rewritten:
        yield from _layout(
            Refused(
                "PARTITIONS_OUTSIDE_DIRECTORY", table=table.name, folder=table.location, partitions=outside
            )
        )


@check(Needs.FILES)
def shared_partition_directories(facts: Facts, form: TargetFormat) -> Findings:
    """Refuse partitions that share a directory with files, unless the rows are rewritten.

    A file of Iceberg and Delta has one value for each partition column.
    """
    if not facts.rewritten and (shared := _shared_directories(facts)):
        yield from _layout(Refused("PARTITIONS_SHARE_DIRECTORY", table=facts.table.name, folders=shared))


@check(Needs.FILES)
def nested_files(facts: Facts, form: TargetFormat) -> Findings:
    """Refuse files below the directory of a partition, or of a table without partitions.

    Hive may read them (`mapreduce.input.fileinputformat.input.dir.recursive`), and Spark leaves them out.
    """
    yield from _layout(refuse_nested_files(facts.table.name, facts.files))


@check(Needs.FILES)
def negative_zero(facts: Facts, form: TargetFormat) -> Findings:
    """Refuse a partition of -0.0 for Iceberg.

    Iceberg orders -0.0 before 0.0 (its specification, "Sorting"), so it leaves the partition out of a query
    for 0.
    """
    kinds = _column_types(facts.table)
    zeros = [
        partition.spec
        for partition in facts.partitions
        for key, value in split_spec(partition.spec)
        if value == "-0.0" and kinds[key.lower()] in ("float", "double")
    ]
    if zeros and form is TargetFormat.ICEBERG:
        yield from _layout(Refused("PARTITION_OF_NEGATIVE_ZERO", table=facts.table.name, partition=zeros[0]))


@check(Needs.FILES)
def avro_null_partition(facts: Facts, form: TargetFormat) -> Findings:
    """Refuse a null partition of an integer column in Avro, which Spark can't read with Hive's reader.

    Hive stores its value as `__HIVE_DEFAULT_PARTITION__`, which isn't a number.
    """
    table, kinds = facts.table, _column_types(facts.table)
    if table.format == "avro" and any(kinds[key.lower()] in INTEGERS for key in table.partition_columns):
        nulls = [partition.spec for partition in facts.partitions if NULL in partition.spec]
        if nulls:
            yield from _layout(Refused("AVRO_NULL_PARTITION", table=table.name, partition=nulls[0]))


def _layout(refusal: Refused | None) -> Findings:
    if refusal is not None:
        yield PauseFinding(PauseReason.UNSUPPORTED_LAYOUT, refusal)


def _column_types(table: HiveTable) -> dict[str, str]:
    return {column.name.lower(): column.type["name"] for column in table.columns}


def _shared_directories(facts: Facts) -> list[str]:
    """Return the directories with files that several partitions share."""
    held = Counter(split(partition.location) for partition in facts.partitions)
    several = [partition.location for partition in facts.partitions if held[split(partition.location)] > 1]
    filled = {file.directory for file in facts.files.read} if several else set()
    return list(dict.fromkeys(location for location in several if split(location) in filled))
