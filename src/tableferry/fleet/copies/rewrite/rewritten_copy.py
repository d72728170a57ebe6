"""Create the copy of a table whose rows are rewritten, read its commits, and write a chunk of rows.

The Hive table and its files stay unchanged. `copy_locations` defines the copy's location.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from tableferry.amounts import first_of
from tableferry.convert import overlay
from tableferry.errors import Refused, StateError
from tableferry.fleet.copies import iceberg
from tableferry.fleet.copies.rewrite.partitions import CommitNote, CopiedPartition, list_copied_partitions
from tableferry.fleet.hive_tables.copy_locations import is_written, new_location
from tableferry.fleet.hive_tables.frames import with_null_partitions
from tableferry.fleet.hive_tables.hive_table import READING, SOURCE, HiveTable, column_paths
from tableferry.fleet.hive_tables.partition_conditions import sql_type
from tableferry.fleet.hive_tables.table_storage import storage_of
from tableferry.fleet.jobs import steps
from tableferry.fleet.jobs.job import Job, TargetFormat
from tableferry.fleet.jobs.step_plan import Kind
from tableferry.fleet.warehouse import hive, table_descriptions, target_versions
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.job_tables import kinds
from tableferry.fleet.warehouse.shared_directories import TableDirectories
from tableferry.fleet.warehouse.step_run import StepRun, record_left_directories
from tableferry.fleet.warehouse.table_identity import change_if_unchanged
from tableferry.fleet.warehouse.target_versions import NO_SNAPSHOT
from tableferry.formats.hive.locations import below, split
from tableferry.spark.catalog import explaining
from tableferry.spark.quoting import literal, pairs, quote
from tableferry.spark.tables import TableName
from tableferry.spark.types import DECLARED_AS

if TYPE_CHECKING:
    from pyspark.sql.types import StructField

_log = logging.getLogger(__name__)

NOTE = "tableferry.chunk"
"""The property of an Iceberg snapshot with its note; a Delta commit has the note in its user metadata."""

# Delta skips a commit whose number isn't higher than the application's last number.
_APPLICATION = "tableferry-rewriting"
# More than any number of chunks. A commit that skips them invalidates older writes that aren't committed.
_SEALING = 10**12
# The operations of Iceberg and Delta that don't change rows.
_NO_ROWS = {
    TargetFormat.ICEBERG: frozenset({"replace"}),
    TargetFormat.DELTA: frozenset(
        {"CREATE TABLE", "SET TBLPROPERTIES", "UNSET TBLPROPERTIES", "CHANGE COLUMN", "CHANGE COLUMNS"}
        | {"OPTIMIZE", "UPGRADE PROTOCOL", "ADD FEATURE", "VACUUM START", "VACUUM END"}
    ),
}
_RETENTION, _FOR_EVER = "delta.logRetentionDuration", "interval 36500 days"
_MAPPING = {"delta.columnMapping.mode": "name"}
# The key in a column's metadata with the default value for writers that omit the column.
_DEFAULT = "CURRENT_DEFAULT"
_WITH_DEFAULTS = {"delta.feature.allowColumnDefaults": "supported"}


@dataclass(frozen=True)
class RewrittenCopy:
    """A copy at one version.

    Attributes:
        held: The partitions of the Hive table that it contains.
        number: The highest number of its notes.
        version: Its snapshot id or Delta version.
    """

    name: TableName
    form: TargetFormat
    held: Mapping[str, CopiedPartition]
    number: int
    version: str


def open_copy(warehouse: Warehouse, table: HiveTable, name: TableName, form: TargetFormat) -> RewrittenCopy:
    """Open the copy that an earlier run created, or create an empty one.

    A copy from a time when the Hive table had other columns or read options is dropped.

    Raises:
        Refused: Another table has the copy's name, or another process wrote to the copy.
        TableError: The user may not create or read the copy.
    """
    kind = kinds(warehouse, (name,)).get(name)
    if kind is not None:
        properties = _properties(warehouse, name, kind)
        if properties.get(SOURCE) != table.name.key:
            raise Refused("COPY_NAME_TAKEN", table=name, kind=kind.description, source=table.name)
        if properties.get(READING) == _reading(table):
            return read(warehouse, name, form)
        dropped = f"DROP TABLE {warehouse.named(name, form).sql}"
        change_if_unchanged(warehouse, (name,), lambda: warehouse.spark.sql(dropped).collect())
    if warehouse.prepared is not None:
        # The compared copy was another one, and a new Delta table has the same version numbers.
        warehouse.prepared.partitions.clear()
    warehouse.run(_create_statement(warehouse, table, name, form), of=(name,))
    return read(warehouse, name, form)


def read(warehouse: Warehouse, name: TableName, form: TargetFormat) -> RewrittenCopy:
    """Read a copy's content from its commits.

    Raises:
        Refused: Another process wrote to the copy, or removed its first versions.
    """
    spark, number, notes = warehouse.spark, 0, []
    if form is TargetFormat.ICEBERG:
        version = target_versions.current_version(warehouse, name, form)
        commits = _ancestry(warehouse, name, version)
    else:
        history = spark.sql(f"DESCRIBE HISTORY {name.sql}")
        rows = history.select("version", "operation", "userMetadata").collect()
        commits = [(str(row[0]), row[1], row[2]) for row in reversed(rows)]
        version = commits[-1][0]
        if commits[0][0] != "0":
            raise _cleaned_up(name)
    for commit, operation, text in commits:
        try:
            note = CommitNote.of(text or "")
        except ValueError as error:
            # A session may set its own user metadata for all its commits.
            if operation in _NO_ROWS[form]:
                continue
            raise Refused(
                "REWRITTEN_COPY_WRITTEN", table=name, operation=operation, version=commit
            ) from error
        number = max(number, note.number)
        notes.append((commit, note))
    return RewrittenCopy(name, form, list_copied_partitions(notes), number, version)


def write(
    warehouse: Warehouse,
    table: HiveTable,
    copy: RewrittenCopy,
    partitions: Mapping[str, str | None],
    where: tuple[str, str],
    *,
    sealing: bool = False,
) -> RewrittenCopy:
    """Replace the rows of some partitions in a copy by the Hive table's current rows, in one commit.

    Args:
        warehouse: The warehouse.
        table: The Hive table.
        copy: Its copy.
        partitions: The partitions, with the digests of their files.
        where: The conditions that select the partitions' rows, in the Hive table and in the copy.
        sealing: Whether Delta must skip writes that were started before this commit and end after it.

    Returns:
        The copy after the commit.

    Raises:
        ClaimLost: Another worker has the job.
        Refused: Another process wrote to the copy.
    """
    number = copy.number + (_SEALING if sealing else 1)
    note = CommitNote(number, partitions).text()
    # Files may have been added since this session listed them.
    warehouse.spark.catalog.refreshTable(table.name.sql)
    rows = with_null_partitions(
        warehouse.spark.table(table.name.sql).where(where[0]), table.partition_columns
    )
    writer = rows.writeTo(warehouse.named(copy.name, copy.form).sql)
    if copy.form is TargetFormat.ICEBERG:
        writer = writer.option(f"snapshot-property.{NOTE}", note).option("isolation-level", "serializable")
        # If this worker is suspended here and another worker replaces these rows, the commit fails.
        if copy.version != NO_SNAPSHOT:
            writer = writer.option("validate-from-snapshot-id", copy.version)
    else:
        writer = writer.option("userMetadata", note)
        writer = writer.option("txnAppId", _APPLICATION).option("txnVersion", str(number))
    change_if_unchanged(warehouse, (table.name, copy.name), lambda: writer.overwrite(F.expr(where[1])), of=())
    return read(warehouse, copy.name, copy.form)


def require_empty(warehouse: Warehouse, folder: str) -> None:
    """Require that the directory of copies is empty before the first copy is created.

    Raises:
        Refused: The directory isn't empty.
        StateError: The directory can't be listed at the moment.
    """
    storage = storage_of(warehouse.spark, folder)
    if storage is not None and (names := storage.all_names(folder)):
        raise Refused("REWRITE_DIRECTORY_NOT_EMPTY", folder=folder, names=names)


def remove_rewritten(step: steps.RemoveRewritten, run: StepRun) -> Job:
    """Remove the files of dropped copies, or record their directory if this process can't remove them."""
    if remove_files(run.warehouse, step.target, step.hive, step.folder, run.job.target_format):
        return run.job
    return record_left_directories(run.job, [step.folder])


def remove_files(
    warehouse: Warehouse, target: TableName, hive_table: TableName, folder: str, form: TargetFormat
) -> bool:
    """Remove the files of dropped copies; return False if this process can't.

    Other files in the directory stay. If a table reads the directory, everything stays.

    Raises:
        ClaimLost: Another worker has the job.
        TableError: The catalog can't be listed.
    """
    table = hive.read_layout(warehouse, hive_table)
    read = [table.location, *(partition.location for partition in hive.partitions(warehouse, table))]
    directories = warehouse.directories or TableDirectories()
    # The new table may be in another catalog. A table that still has its name wasn't dropped, so it counts.
    catalogs = [TableName((name, "", "")) for name in dict.fromkeys((target.parts[0], hive_table.parts[0]))]
    around = partial(directories.overlapping, warehouse.spark, location=folder, apart=(hive_table,))
    others = [str(name) for found in map(around, catalogs) for name, _ in found]
    if any(below(split(location)[2], split(folder)[2]) is not None for location in read):
        others.append(str(hive_table))
    if others:
        _log.warning("%s stays unchanged, because %s is in it", folder, first_of(others))
        return True
    try:
        if (storage := storage_of(warehouse.spark, folder)) is None:
            return False
        for name in storage.all_names(folder):
            if is_written(name, form):
                warehouse.effect(partial(storage.remove, f"{folder}/{name}"), of=())
        warehouse.effect(partial(storage.remove_empty, folder), of=())
        if left := storage.all_names(folder):
            _log.warning("%s stays with files that no copy wrote: %s", folder, first_of(left))
    except StateError:
        return False
    return True


def allow_log_cleaning(step: steps.AllowLogCleaning, run: StepRun) -> Job:
    """Let Delta clean up a rewritten table's old commits again, as for any other table.

    Raises:
        TableError: The user may not change the table.
    """
    warehouse, name = run.warehouse, step.table
    with explaining("TABLE_NOT_CHANGED", table=name):
        if table_descriptions.properties(warehouse.spark, name).get(_RETENTION) == _FOR_EVER:
            statement = f"ALTER TABLE {name.sql} UNSET TBLPROPERTIES IF EXISTS ({literal(_RETENTION)})"
            warehouse.run(statement, of=(name,))
    return run.job


def _reading(table: HiveTable) -> str:
    return sha256(table.reading.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _properties(warehouse: Warehouse, name: TableName, kind: Kind) -> Mapping[str, str]:
    match kind:
        case Kind.ICEBERG:
            return table_descriptions.properties(warehouse.spark, warehouse.iceberg(name))
        case Kind.DELTA:
            return table_descriptions.properties(warehouse.spark, name)
        case _:
            return {}


def _create_statement(warehouse: Warehouse, table: HiveTable, name: TableName, form: TargetFormat) -> str:
    made_of = {SOURCE: table.name.key, READING: _reading(table)}
    if form is TargetFormat.ICEBERG:
        return iceberg.create_statement(replace(table, format="parquet"), warehouse.iceberg(name), **made_of)
    # For tables in Spark's own formats, the session caches the columns from its first read.
    warehouse.spark.catalog.refreshTable(table.name.sql)
    schema = warehouse.spark.table(table.name.sql).schema
    columns = ", ".join(map(_delta_column, schema))
    partitions = ", ".join(map(quote, table.partition_columns))
    # The commits show the copy's content only as long as none of them is cleaned up.
    made_of[_RETENTION] = _FOR_EVER
    if warehouse.column_mapping and not all(
        overlay.is_plain_name(path[-1]) for path in column_paths(table.columns)
    ):
        made_of |= _MAPPING
    if any(_DEFAULT in field.metadata for field in schema):
        made_of |= _WITH_DEFAULTS
    return (
        f"CREATE TABLE {name.sql} ({columns}) USING delta "
        + (f"PARTITIONED BY ({partitions}) " if partitions else "")
        + f"LOCATION {literal(new_location(table.location))} TBLPROPERTIES {pairs(made_of)}"
    )


def _delta_column(field: StructField) -> str:
    """Return a Hive table's column for a Delta definition, with its length and default value."""
    default = f" DEFAULT {field.metadata[_DEFAULT]}" if _DEFAULT in field.metadata else ""
    return f"{quote(field.name)} {field.metadata.get(DECLARED_AS) or sql_type(field.dataType)}{default}"


def _ancestry(warehouse: Warehouse, name: TableName, version: str) -> Sequence[tuple[str, str, str | None]]:
    """Return the ancestors of a snapshot, oldest first, each with its operation and note.

    Raises:
        Refused: An ancestor has expired.
    """
    query = (
        f"SELECT snapshot_id, parent_id, operation, summary[{literal(NOTE)}] "
        f"FROM {warehouse.iceberg(name).sql}.snapshots"
    )
    snapshots = {str(row[0]): row for row in warehouse.spark.sql(query).collect()}
    ancestry = []
    while version != NO_SNAPSHOT:
        if version not in snapshots:
            raise _cleaned_up(name)
        _, parent, operation, note = snapshots[version]
        ancestry.append((version, operation, note))
        version = str(parent) if parent is not None else NO_SNAPSHOT
    return ancestry[::-1]


def _cleaned_up(name: TableName) -> Refused:
    return Refused("REWRITTEN_COPY_LOST_VERSIONS", table=name)
