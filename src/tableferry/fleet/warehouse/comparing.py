"""Demands that two tables hold the same rows."""

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
from tableferry.fleet.jobs.plan import Kind
from tableferry.fleet.warehouse import asking, delta, existing, hive, partition_conditions, trial, versions
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.existing import is_over
from tableferry.fleet.warehouse.files import TableFiles, listing
from tableferry.fleet.warehouse.frames import frame_of, with_null_partitions
from tableferry.fleet.warehouse.hive_table import HiveTable
from tableferry.fleet.warehouse.name_mapping import MAPPING
from tableferry.fleet.warehouse.partitions import Partition, parsed
from tableferry.fleet.warehouse.prepared import Compared, Drafted, Made, Member, members, settled, specs_of
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
"""What a frame is called, and what makes it."""

_OWN_READERS = {
    "parquet": "spark.sql.hive.convertMetastoreParquet",
    "orc": "spark.sql.hive.convertMetastoreOrc",
}
# Else a session may leave out of both sides alike what it can't read, and find that they are the same.
_WHOLE_FILES = {
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
}
_COMPARED_BY_VALUE = {"string", "tinyint", "smallint", "int", "bigint", "date"}
# What Spark can't ask a metastore for: it has no escapes there, and refuses both quotes in one value.
_UNQUOTABLE = re.compile(r"""\\|".*'|'.*\"""", re.DOTALL)
_DIRECTORY = ("scheme", "authority", "directory")
_PATH = r"^([A-Za-z][A-Za-z0-9+.-]*):(?://([^/]*))?(/.*)/[^/]+$"


class RowsDiffer(Refused):
    """Two tables' rows or columns aren't the same."""


def demand_same(
    warehouse: Warehouse,
    left: TableName,
    right: TableName,
    right_version: str | None = None,
    where: str = "true",
) -> int:
    """Make sure that two tables have the same columns and rows, in any order; return how many rows.

    Rows for which a condition doesn't hold are left out.

    A Hive timestamp and an Iceberg ``timestamptz`` are both instants, and compare as such; an integer that
    is wider on one side compares by its value. The right table is read at a snapshot id, or a version of
    Delta, if one is given.

    Raises:
        RowsDiffer: They differ; the message says where.
        TableError: One of them can't be read.
    """
    label = str(right) if right_version is None else f"{right}@{right_version}"
    return demand_same_frames(
        (str(left), lambda: rows(warehouse, left, where=where)),
        (label, lambda: rows(warehouse, right, right_version, where)),
    )


def demand_same_as_copy(
    warehouse: Warehouse, source: TableName, target: TableName, *, made_now: bool = False
) -> int:
    """Make sure that a copy, as this run made it, has the rows of the Hive table's files.

    Files that this run has compared before, and that were read as they would be now, aren't read again.
    What this run didn't make, or somebody changed since, is compared as a whole.

    Args:
        warehouse: The warehouse.
        source: The Hive table.
        target: The copy.
        made_now: Whether it was made a moment ago, so that nobody needs to look whether it was changed since.

    Returns:
        How many rows were compared.

    Raises:
        RowsDiffer: They differ; the message says where.
        TableError: One of them can't be read.
    """
    prepared = warehouse.prepared
    if prepared is None or prepared.listed is None:
        return demand_same(warehouse, source, target)
    if prepared.drafted is not None:
        return _demand_same_as_log(warehouse, prepared.listed, prepared.drafted, target)
    if prepared.made is None:
        # A run that died may have left one.
        trial.sweep(warehouse, prepared.listed.table)
        return demand_same(warehouse, source, target)
    made, listed = prepared.made, prepared.listed
    if listed.table.reading != made.reading:
        # Somebody has altered it since, and a column that nobody has written changes no file.
        return demand_same(warehouse, source, target)
    snapshot, mapping = made.snapshot, made.mapping
    with explaining("TABLE_READ_FAILED", table=target):
        if not made_now or mapping is None:
            properties = asking.properties(warehouse.spark, warehouse.iceberg(target))
            snapshot, mapping = versions.of_properties(properties), properties.get(MAPPING)
        columns = warehouse.spark.table(warehouse.iceberg(target).sql).schema
    if snapshot != made.snapshot:
        return demand_same(warehouse, source, target)
    reading = json.dumps(
        [
            made.reading,
            [(column.name, column.dataType.simpleString()) for column in columns],
            mapping,
        ]
    )
    known = prepared.compared_files(reading)
    if prepared.by_file:
        count, compared = _demand_same_files(warehouse, listed, target, made, known)
    else:
        count, compared = _demand_same_partitions(warehouse, listed.table, target, made, known)
    prepared.compared = Compared(reading, settled(compared, listed.at))
    return count


def _demand_same_files(
    warehouse: Warehouse, listed: TableFiles, target: TableName, made: Made, known: frozenset[Member] | None
) -> tuple[int, frozenset[Member]]:
    """Compare the files that the copy was given since it was compared, or all if more than these differ.

    Returns:
        How many rows were compared, and the files whose rows are the same by now.
    """
    left = made.holds - (known or frozenset())
    if known is not None and not left:
        return 0, made.holds
    since = made.since if left <= made.added else None
    files = made.holds if since is None else made.added
    if not files:
        return demand_same(warehouse, listed.table.name, target, made.snapshot), made.holds
    count = demand_same_frames(
        (f"the files of {listed.table.name}", lambda: rows_of_files(warehouse, listed, files)),
        (str(target), lambda: rows_since(warehouse, target, made.snapshot, since)),
    )
    return count, made.holds


def _demand_same_partitions(
    warehouse: Warehouse, table: HiveTable, target: TableName, made: Made, known: frozenset[Member] | None
) -> tuple[int, frozenset[Member]]:
    """Compare the partitions that aren't as they were when they were compared, but for busy ones.

    All are compared where these can't be told from the others.

    Returns:
        How many rows were compared, and the files whose rows are the same by now.
    """
    busy = warehouse.prepared.busy if warehouse.prepared else frozenset[str]()
    changed = specs_of(made.holds ^ (known or frozenset())) - busy
    quiet = frozenset(member for member in made.holds if member[1] not in busy)
    if known is not None and not changed:
        return 0, quiet
    if known is None or made.since is None:
        # Nothing of this copy was compared, as it was made anew.
        where = _in_partitions(table, busy)
        where = where and f"NOT coalesce({where}, false)"
    else:
        where = _in_partitions(table, changed)
    if where is None:
        return demand_same(warehouse, table.name, target, made.snapshot), made.holds
    return demand_same(warehouse, table.name, target, made.snapshot, where), quiet


def demand_same_as_drafted(warehouse: Warehouse, listed: TableFiles, drafted: Drafted) -> int:
    """Make sure that a Delta copy has, or will have, the rows of the Hive table in the files that it names.

    Files that this run has compared before, and that were read as they would be now, aren't read again.

    Args:
        warehouse: The warehouse.
        listed: The Hive table, as it was listed before the copy's commit was drafted.
        drafted: The copy's commit.

    Returns:
        How many rows were compared.

    Raises:
        RowsDiffer: They differ; the message says where.
        TableError: They can't be read.
        StateError: Nothing can be written beside the table's directory.
    """
    table, prepared, spark, count = listed.table, warehouse.prepared, warehouse.spark, 0
    known = (prepared.compared_files(drafted.reading) if prepared else None) or frozenset()
    if left := drafted.holds - known:
        with (
            trial.written(warehouse, table, drafted.draft, drafted.paths(left)) as folder,
            # By now the table's directory may have a Delta log.
            optional_settings(spark, {"spark.databricks.delta.formatCheck.enabled": "false"}),
        ):
            count = demand_same_frames(
                (f"the files of {table.name}", lambda: rows_of_files(warehouse, listed, left)),
                (f"{table.name} as Delta", lambda: spark.read.format("delta").load(folder)),
            )
    if prepared is not None:
        prepared.compared = Compared(drafted.reading, settled(drafted.holds, listed.at), drafted)
    return count


def _demand_same_as_log(warehouse: Warehouse, listed: TableFiles, drafted: Drafted, target: TableName) -> int:
    """Make sure that a Delta copy, by the log that this run has written, has the rows of the Hive table."""
    prepared, table = warehouse.prepared, listed.table
    known = prepared.compared_files(drafted.reading) if prepared and prepared.by_file else None
    if (
        known
        # Nobody has altered it since the log was written.
        and drafted.hive_reading == table.reading
        and drafted.holds == members(listed)
        and len(drafted.draft.files) == len(drafted.holds)
        and not known.isdisjoint(drafted.holds)
        and is_over(warehouse, table, target)
        and delta.stands(warehouse, table, drafted.draft)
    ):
        try:
            return demand_same_as_drafted(warehouse, listed, drafted)
        except (StateError, TableError) as error:
            _log.warning("%s is compared as a whole: %s", table.name, error.one_line)
    return demand_same(warehouse, table.name, target)


def demand_same_frames(left: Labelled, right: Labelled) -> int:
    """Make sure that two frames, each with what it is called, have the same rows; return how many.

    Raises:
        RowsDiffer: They differ; the message says where.
        TableError: One of them can't be read.
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


def by_file(warehouse: Warehouse, listed: TableFiles) -> bool:
    """Say whether the rows of a Hive table are those of its listed files, each read alone.

    That is so where Spark reads the table by its own reader of Parquet or ORC, and reads just these files, as
    far as it says: empty ones count there. Files that come or go meanwhile don't matter.

    Raises:
        TableError: The table can't be read.
    """
    table, spark = listed.table, warehouse.spark
    own_reader = _OWN_READERS.get(table.format)
    if own_reader is None or spark.conf.get(own_reader, "true") != "true":
        return False
    kinds = {column.name.lower(): column.type["name"] for column in table.columns}
    if any(kinds[name.lower()] == "char" for name in table.partition_columns):
        # Spark pads their values.
        return False
    with explaining("TABLE_READ_FAILED", table=table.name):
        # This session may have listed it before others wrote.
        spark.catalog.refreshTable(table.name.sql)
        read = {split(unquote(path)) for path in spark.table(table.name.sql).inputFiles()}
    known = {split(file.path) for file in listed.listing.read}
    if read == known:
        return True
    now = {split(file.path) for file in listing(warehouse, table, hive.partitions(warehouse, table)).read}
    return not (known - read) & now and read - known <= now


def rows_of_files(warehouse: Warehouse, listed: TableFiles, files: Collection[Member]) -> DataFrame:
    """Return the rows that a Hive table has in some of its files, with their partitions' values."""
    spark = warehouse.spark
    columns = {field.name.lower(): field for field in spark.table(listed.table.name.sql).schema}
    keys = [columns.pop(name.lower()) for name in listed.table.partition_columns]
    # Without it, directories' names would be columns too.
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
    # As Hadoop has it, a path isn't percent-encoded; decoding makes a space of a plus sign.
    path = F.url_decode(F.replace(F.col("_metadata.file_path"), F.lit("+"), F.lit("%2B")))
    parts = {part: F.regexp_extract(path, _PATH, at) for at, part in enumerate(_DIRECTORY, 1)}
    names = [field.name for field in columns.values()]
    # The table's own columns may have any of the names here.
    frame = frame.select(
        *(F.col(quote(name)).alias(f"c{at}") for at, name in enumerate(names)),
        *(part.alias(name) for name, part in parts.items()),
    )
    joined = frame.join(F.broadcast(values), list(_DIRECTORY))
    return joined.select(
        *(F.col(f"c{at}").alias(name) for at, name in enumerate(names)),
        *(F.col(f"k{at}").try_cast(key.dataType).alias(key.name) for at, key in enumerate(keys)),
    )


def rows_since(warehouse: Warehouse, target: TableName, snapshot: str, since: str | None) -> DataFrame:
    """Return an Iceberg table's rows at a snapshot, or only those that were added since an earlier one."""
    if since is None and snapshot == versions.NO_SNAPSHOT:
        return warehouse.spark.table(warehouse.iceberg(target).sql).where("false")
    between = {"start-snapshot-id": since, "end-snapshot-id": snapshot}
    options = {"versionAsOf": snapshot} if since is None else between
    return warehouse.spark.read.options(**options).table(warehouse.iceberg(target).sql)


def _in_partitions(table: HiveTable, specs: Collection[str]) -> str | None:
    """Write the condition that a row is in one of some partitions; None if that can't be said so."""
    columns = {column.name.lower(): column.type["name"] for column in table.columns}
    kinds = [columns[name.lower()] for name in table.partition_columns]
    # Hive's readers show another value for null, and Spark other texts of other types.
    if not 0 < len(specs) <= partition_conditions.MOST or not kinds or not {*kinds} <= _COMPARED_BY_VALUE:
        return None
    partitions = [parsed(table.name, spec, kinds) for spec in sorted(specs)]
    if metastore_refuses(partitions) or any(None in partition for partition in partitions):
        return None
    return partition_conditions.where(partitions, table.partition_columns, columns)


def metastore_refuses(partitions: Iterable[Partition]) -> bool:
    """Say whether Spark may fail to ask a metastore for one of some partitions."""
    return any(value and _UNQUOTABLE.search(value) for partition in partitions for value in partition)


def _values(spec: str) -> list[str | None]:
    return [None if value == NULL else value for _, value in split_spec(spec)]


def rows(warehouse: Warehouse, name: TableName, version: str | None = None, where: str = "true") -> DataFrame:
    """Return a table's rows that a condition holds for, as they are now or were at a version.

    Raises:
        TableError: There is no such table.
    """
    spark, kind = warehouse.spark, existing.kind(warehouse, name)
    table = warehouse.iceberg(name) if kind is Kind.ICEBERG else name
    if version == versions.NO_SNAPSHOT:
        return spark.table(table.sql).where("false")
    if version is not None:
        return spark.sql(f"SELECT * FROM {table.sql} VERSION AS OF {int(version)}").where(where)
    # Another process may have written since this session listed the files.
    spark.sql(f"REFRESH TABLE {table.sql}").collect()
    found = spark.table(table.sql).where(where)
    if kind is not Kind.HIVE:
        return found
    return with_null_partitions(found, hive.layout(warehouse, name).partition_columns)
