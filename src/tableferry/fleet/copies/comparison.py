"""Compare the rows of a Hive table and its copy, and refuse differences."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING
from urllib.parse import unquote

from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tableferry import verify
from tableferry.errors import Refused, StateError, TableError
from tableferry.fleet.copies import delta, delta_trial
from tableferry.fleet.copies.iceberg_files.name_mapping import MAPPING
from tableferry.fleet.hive_tables import partition_conditions
from tableferry.fleet.hive_tables.frames import frame_of, with_null_partitions
from tableferry.fleet.hive_tables.hive_table import HiveTable
from tableferry.fleet.hive_tables.partitions import Partition, parsed
from tableferry.fleet.hive_tables.table_files import TableFiles
from tableferry.fleet.jobs import steps
from tableferry.fleet.jobs.job import Job, PauseReason
from tableferry.fleet.jobs.step_plan import Kind
from tableferry.fleet.warehouse import hive, job_tables, table_descriptions, target_versions
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.hive_files import listing
from tableferry.fleet.warehouse.job_tables import is_in_hive_directory
from tableferry.fleet.warehouse.prepared_copy import (
    ComparedFiles,
    DeltaDraft,
    IcebergCopy,
    Member,
    members,
    settled,
    specs_of,
)
from tableferry.fleet.warehouse.step_run import StepPaused, StepRun, pausing
from tableferry.formats.hive.locations import escape_wildcards, split
from tableferry.formats.hive.partitions import NULL, split_spec
from tableferry.spark.catalog import explaining
from tableferry.spark.quoting import quote
from tableferry.spark.settings import optional_settings
from tableferry.spark.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_log = logging.getLogger(__name__)

Labelled = tuple[str, "Callable[[], DataFrame]"]
"""A frame's name for messages, and the function that creates it."""

_OWN_READERS = {
    "parquet": "spark.sql.hive.convertMetastoreParquet",
    "orc": "spark.sql.hive.convertMetastoreOrc",
}
# Otherwise a session may skip unreadable files on both sides and find no difference.
_WHOLE_FILES = {
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
}
_COMPARED_BY_VALUE = {"string", "tinyint", "smallint", "int", "bigint", "date"}
# Values that Spark can't send to a metastore: it has no escapes there, and refuses both quotes in one value.
_UNQUOTABLE = re.compile(r"""\\|".*'|'.*\"""", re.DOTALL)
_DIRECTORY = ("scheme", "authority", "directory")
_PATH = r"^([A-Za-z][A-Za-z0-9+.-]*):(?://([^/]*))?(/.*)/[^/]+$"


class RowsDiffer(Refused):
    """The rows or columns of two tables differ."""


def verify_copy(step: steps.Verify, run: StepRun) -> Job:
    """Require that a copy has the rows of the Hive table.

    Raises:
        StepPaused: The rows differ.
        TableError: One of the tables can't be read.
    """
    with pausing(PauseReason.ROWS_DIFFER):
        run.progress.update("rows", require_copy_has_same_rows(run.warehouse, step.source, step.target))
    return run.job


def verify_shadow(step: steps.VerifyShadow, run: StepRun) -> Job:
    """Require that the Hive copy has the rows that the target had at the watermark.

    If the rows differ, the job records that the next shadow run compares all rows.

    Raises:
        StepPaused: The rows differ.
        TableError: One of the tables can't be read.
    """
    version = run.job.shadow_watermark
    try:
        with pausing(PauseReason.ROWS_DIFFER):
            rows = require_same_rows(run.warehouse, step.hive, step.target, right_version=version)
    except StepPaused:
        run.save(run.job.with_record(compare_all=True))
        raise
    run.progress.update("rows", rows)
    return run.job


def require_same_rows(
    warehouse: Warehouse,
    left: TableName,
    right: TableName,
    right_version: str | None = None,
    where: str = "true",
) -> int:
    """Require that two tables have the same columns and rows, in any order; return the number of rows.

    A Hive timestamp and an Iceberg ``timestamptz`` are both compared as instants, and integers of different
    widths by value.

    Args:
        warehouse: The warehouse.
        left: The first table.
        right: The second table.
        right_version: The snapshot id or Delta version at which the second table is read; None for now.
        where: The condition of the compared rows.

    Raises:
        RowsDiffer: The tables differ; the message lists the differences.
        TableError: One of the tables can't be read.
    """
    label = str(right) if right_version is None else f"{right}@{right_version}"
    return require_same_frames(
        (str(left), lambda: read_rows(warehouse, left, where=where)),
        (label, lambda: read_rows(warehouse, right, right_version, where)),
    )


def require_copy_has_same_rows(
    warehouse: Warehouse, source: TableName, target: TableName, *, made_now: bool = False
) -> int:
    """Require that a copy has the rows of the Hive table's files.

    Files that this run has compared before, under the same definitions, aren't read again. A copy that this
    run didn't create, or that was changed since, is compared as a whole.

    Args:
        warehouse: The warehouse.
        source: The Hive table.
        target: The copy.
        made_now: Whether the caller has just created the copy, so it can't have been changed since.

    Returns:
        The number of compared rows.

    Raises:
        RowsDiffer: The tables differ; the message lists the differences.
        TableError: One of the tables can't be read.
    """
    prepared = warehouse.prepared
    if prepared is None or prepared.listed is None:
        return require_same_rows(warehouse, source, target)
    if prepared.delta_draft is not None:
        return _compare_with_log(warehouse, prepared.listed, prepared.delta_draft, target)
    if prepared.iceberg_copy is None:
        # A killed run may have left a trial.
        delta_trial.remove_trials(warehouse, prepared.listed.table)
        return require_same_rows(warehouse, source, target)
    made, listed = prepared.iceberg_copy, prepared.listed
    if listed.table.reading != made.reading:
        # The Hive table was altered since. A new column changes no file.
        return require_same_rows(warehouse, source, target)
    snapshot, mapping = made.snapshot, made.mapping
    with explaining("TABLE_READ_FAILED", table=target):
        if not made_now or mapping is None:
            properties = table_descriptions.properties(warehouse.spark, warehouse.iceberg(target))
            snapshot, mapping = target_versions.snapshot_in_properties(properties), properties.get(MAPPING)
        columns = warehouse.spark.table(warehouse.iceberg(target).sql).schema
    if snapshot != made.snapshot:
        return require_same_rows(warehouse, source, target)
    reading = json.dumps(
        [
            made.reading,
            [(column.name, column.dataType.simpleString()) for column in columns],
            mapping,
        ]
    )
    known = prepared.compared_files(reading)
    if prepared.by_file:
        count, compared = _compare_files(warehouse, listed, target, made, known)
    else:
        count, compared = _compare_partitions(warehouse, listed.table, target, made, known)
    prepared.compared = ComparedFiles(reading, settled(compared, listed.at))
    return count


def _compare_files(
    warehouse: Warehouse,
    listed: TableFiles,
    target: TableName,
    made: IcebergCopy,
    known: frozenset[Member] | None,
) -> tuple[int, frozenset[Member]]:
    """Compare the files that were added to the copy since its last comparison, or all files if others differ.

    Returns:
        The number of compared rows, and all files whose rows are known to be the same.
    """
    left = made.files - (known or frozenset())
    if known is not None and not left:
        return 0, made.files
    since = made.since if left <= made.added else None
    files = made.files if since is None else made.added
    if not files:
        return require_same_rows(warehouse, listed.table.name, target, made.snapshot), made.files
    count = require_same_frames(
        (f"the files of {listed.table.name}", lambda: read_file_rows(warehouse, listed, files)),
        (str(target), lambda: read_rows_since(warehouse, target, made.snapshot, since)),
    )
    return count, made.files


def _compare_partitions(
    warehouse: Warehouse,
    table: HiveTable,
    target: TableName,
    made: IcebergCopy,
    known: frozenset[Member] | None,
) -> tuple[int, frozenset[Member]]:
    """Compare the partitions that changed since their last comparison, without busy ones.

    The whole table is compared if no condition can select these partitions.

    Returns:
        The number of compared rows, and all files whose rows are known to be the same.
    """
    busy = warehouse.prepared.busy if warehouse.prepared else frozenset[str]()
    changed = specs_of(made.files ^ (known or frozenset())) - busy
    quiet = frozenset(member for member in made.files if member[1] not in busy)
    if known is not None and not changed:
        return 0, quiet
    if known is None or made.since is None:
        # The copy was recreated, so nothing of it was compared.
        where = _in_partitions(table, busy)
        where = where and f"NOT coalesce({where}, false)"
    else:
        where = _in_partitions(table, changed)
    if where is None:
        return require_same_rows(warehouse, table.name, target, made.snapshot), made.files
    return require_same_rows(warehouse, table.name, target, made.snapshot, where), quiet


def require_draft_has_same_rows(warehouse: Warehouse, listed: TableFiles, drafted: DeltaDraft) -> int:
    """Require that a Delta copy has, or will have, the rows of the Hive table in the files of its commit.

    Files that this run has compared before, under the same definitions, aren't read again.

    Args:
        warehouse: The warehouse.
        listed: The Hive table's listing from before the commit was drafted.
        drafted: The copy's commit.

    Returns:
        The number of compared rows.

    Raises:
        RowsDiffer: The rows differ; the message lists the differences.
        TableError: The rows can't be read.
        StateError: This process can't write beside the table's directory.
    """
    table, prepared, spark, count = listed.table, warehouse.prepared, warehouse.spark, 0
    known = (prepared.compared_files(drafted.reading) if prepared else None) or frozenset()
    if left := drafted.files - known:
        with (
            delta_trial.write_trial(warehouse, table, drafted.draft, drafted.paths(left)) as folder,
            # The table's directory may have a Delta log already.
            optional_settings(spark, {"spark.databricks.delta.formatCheck.enabled": "false"}),
        ):
            count = require_same_frames(
                (f"the files of {table.name}", lambda: read_file_rows(warehouse, listed, left)),
                (f"{table.name} as Delta", lambda: spark.read.format("delta").load(folder)),
            )
    if prepared is not None:
        prepared.compared = ComparedFiles(drafted.reading, settled(drafted.files, listed.at), drafted)
    return count


def _compare_with_log(
    warehouse: Warehouse, listed: TableFiles, drafted: DeltaDraft, target: TableName
) -> int:
    """Require that a Delta copy has the rows of the Hive table, by the log that this run has written."""
    prepared, table = warehouse.prepared, listed.table
    known = prepared.compared_files(drafted.reading) if prepared and prepared.by_file else None
    if (
        known
        # The Hive table wasn't altered since the log was written.
        and drafted.hive_reading == table.reading
        and drafted.files == members(listed)
        and len(drafted.draft.files) == len(drafted.files)
        and not known.isdisjoint(drafted.files)
        and is_in_hive_directory(warehouse, table, target)
        and delta.is_log_unchanged(warehouse, table, drafted.draft)
    ):
        try:
            return require_draft_has_same_rows(warehouse, listed, drafted)
        except (StateError, TableError) as error:
            _log.warning("%s is compared as a whole: %s", table.name, error.one_line)
    return require_same_rows(warehouse, table.name, target)


def require_same_frames(left: Labelled, right: Labelled) -> int:
    """Require that two frames have the same rows; return the number of rows.

    Raises:
        RowsDiffer: The frames differ; the message lists the differences.
        TableError: One of the frames can't be read.
    """
    with explaining("COMPARISON_FAILED", source=left[0], target=right[0]):
        source, target = left[1](), right[1]()
        with optional_settings(source.sparkSession, _WHOLE_FILES):
            verdict = verify.verify(source, target, source_label=left[0], target_label=right[0])
    if not verdict.matches:
        raise RowsDiffer(
            "TABLE_ROWS_DIFFER", source=left[0], target=right[0], comparison=verify.render(verdict)
        )
    return verdict.source.rows


def is_comparable_by_file(warehouse: Warehouse, listed: TableFiles) -> bool:
    """Return whether reading each listed file alone gives exactly the Hive table's rows.

    It does if Spark reads the table by its own reader for Parquet or ORC, and if it reads just these files.
    Files that are written or removed during this check are ignored.

    Raises:
        TableError: The table can't be read.
    """
    table, spark = listed.table, warehouse.spark
    own_reader = _OWN_READERS.get(table.format)
    if own_reader is None or spark.conf.get(own_reader, "true") != "true":
        return False
    kinds = {column.name.lower(): column.type["name"] for column in table.columns}
    if any(kinds[name.lower()] == "char" for name in table.partition_columns):
        # Spark pads the values of char columns.
        return False
    with explaining("TABLE_READ_FAILED", table=table.name):
        # This session may have listed the table before other processes wrote to it.
        spark.catalog.refreshTable(table.name.sql)
        read = {split(unquote(path)) for path in spark.table(table.name.sql).inputFiles()}
    known = {split(file.path) for file in listed.listing.read}
    if read == known:
        return True
    now = {split(file.path) for file in listing(warehouse, table, hive.partitions(warehouse, table)).read}
    return not (known - read) & now and read - known <= now


def read_file_rows(warehouse: Warehouse, listed: TableFiles, files: Collection[Member]) -> DataFrame:
    """Return the rows of some files of a Hive table, with the values of their partitions."""
    spark = warehouse.spark
    columns = {field.name.lower(): field for field in spark.table(listed.table.name.sql).schema}
    keys = [columns.pop(name.lower()) for name in listed.table.partition_columns]
    # Without this option, Spark would add columns for directories such as `day=1`.
    reader = spark.read.option("recursiveFileLookup", "true").schema(StructType(list(columns.values())))
    paths = sorted({escape_wildcards(file.path) for file, _ in files})
    frame = reader.format(listed.table.format).load(paths)
    if not keys:
        return frame
    specs = {(file.directory, spec) for file, spec in files}
    strings = [*_DIRECTORY, *(f"k{at}" for at in range(len(keys)))]
    values = frame_of(
        spark,
        [(*directory, *_values(spec)) for directory, spec in specs],
        ", ".join(f"{name} STRING" for name in strings),
    )
    # `_metadata.file_path` is percent-encoded. `url_decode` would turn a plus sign into a space.
    path = F.url_decode(F.replace(F.col("_metadata.file_path"), F.lit("+"), F.lit("%2B")))
    parts = {part: F.regexp_extract(path, _PATH, at) for at, part in enumerate(_DIRECTORY, 1)}
    names = [field.name for field in columns.values()]
    # The table's own columns may have any of the names that are used here.
    frame = frame.select(
        *(F.col(quote(name)).alias(f"c{at}") for at, name in enumerate(names)),
        *(part.alias(name) for name, part in parts.items()),
    )
    joined = frame.join(F.broadcast(values), list(_DIRECTORY))
    return joined.select(
        *(F.col(f"c{at}").alias(name) for at, name in enumerate(names)),
        *(F.col(f"k{at}").try_cast(key.dataType).alias(key.name) for at, key in enumerate(keys)),
    )


def read_rows_since(warehouse: Warehouse, target: TableName, snapshot: str, since: str | None) -> DataFrame:
    """Return an Iceberg table's rows at a snapshot, or only the rows added since an earlier snapshot."""
    if since is None and snapshot == target_versions.NO_SNAPSHOT:
        return warehouse.spark.table(warehouse.iceberg(target).sql).where("false")
    between = {"start-snapshot-id": since, "end-snapshot-id": snapshot}
    options = {"versionAsOf": snapshot} if since is None else between
    return warehouse.spark.read.options(**options).table(warehouse.iceberg(target).sql)


def _in_partitions(table: HiveTable, specs: Collection[str]) -> str | None:
    """Return the condition that a row is in one of some partitions; None if no condition can express it."""
    columns = {column.name.lower(): column.type["name"] for column in table.columns}
    kinds = [columns[name.lower()] for name in table.partition_columns]
    # Hive's readers return another value for null, and Spark other texts for other types.
    if not 0 < len(specs) <= partition_conditions.MOST or not kinds or not {*kinds} <= _COMPARED_BY_VALUE:
        return None
    partitions = [parsed(table.name, spec, kinds) for spec in sorted(specs)]
    if is_refused_by_metastore(partitions) or any(None in partition for partition in partitions):
        return None
    return partition_conditions.where(partitions, table.partition_columns, columns)


def is_refused_by_metastore(partitions: Iterable[Partition]) -> bool:
    """Return whether Spark can't filter a metastore's partitions by one of these values."""
    return any(value and _UNQUOTABLE.search(value) for partition in partitions for value in partition)


def _values(spec: str) -> list[str | None]:
    return [None if value == NULL else value for _, value in split_spec(spec)]


def read_rows(
    warehouse: Warehouse, name: TableName, version: str | None = None, where: str = "true"
) -> DataFrame:
    """Return a table's rows that fulfil an SQL condition.

    Without a version, the session's cached files of the table are refreshed first. A Hive table's null
    partitions are null in the rows; the condition sees Hive's name of such a partition instead.

    Args:
        warehouse: The warehouse.
        name: The table.
        version: A snapshot id or a Delta version as a number; no rows for NO_SNAPSHOT, None for now.
        where: The condition.

    Raises:
        TableError: The table doesn't exist, or the user may not list its schema.
    """
    spark, kind = warehouse.spark, job_tables.kind(warehouse, name)
    table = warehouse.iceberg(name) if kind is Kind.ICEBERG else name
    if version == target_versions.NO_SNAPSHOT:
        return spark.table(table.sql).where("false")
    if version is not None:
        return spark.sql(f"SELECT * FROM {table.sql} VERSION AS OF {int(version)}").where(where)
    # Other processes may have written since this session listed the files.
    spark.sql(f"REFRESH TABLE {table.sql}").collect()
    found = spark.table(table.sql).where(where)
    if kind is not Kind.HIVE:
        return found
    return with_null_partitions(found, hive.read_layout(warehouse, name).partition_columns)
