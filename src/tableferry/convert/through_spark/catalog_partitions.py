"""The partitions that the catalog knows, and whether they are those on disk.

The catalog gives a partition's location for one DESCRIBE each, some 70 ms with a local metastore: too slow
for 10,000. The plan of a query over all partitions names the locations of all, in the order of SHOW
PARTITIONS; only where it doesn't confirm a partition is that one described.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from tableferry.catalog import SPARK_ERRORS, condition, parallel_map
from tableferry.convert.entry import Entry
from tableferry.convert.facts import DataFile
from tableferry.convert.locations import below, literal
from tableferry.convert.mismatches import PartitionMismatches, Registered, compare, same, sentences, split
from tableferry.convert.through_spark.settings import FEW_LISTING_TASKS, WHOLE_PLANS, wished
from tableferry.errors import Refused, TableError, first_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What Hive calls a null value's directory.
_NULL = "__HIVE_DEFAULT_PARTITION__"

_LOCATIONS = re.compile(r"Location: \w+\(\d+ paths?\)\[(.*)\], PartitionFilters: ", re.DOTALL)


def partitions_of(spark: SparkSession, entry: Entry, listing: Iterable[DataFile]) -> PartitionMismatches:
    """Compare the catalog's partitions with the files on disk.

    A partition without files whose directory exists is an empty one, and no mismatch.

    Raises:
        TableError: The catalog doesn't give its partitions.
    """
    if not entry.partition_columns:
        return PartitionMismatches()
    directories = {each.path.rpartition("/")[0] for each in listing}
    found = compare(registered(spark, entry), directories, entry.location, entry.partition_columns)
    there = parallel_map(lambda each: _exists(spark, entry, each), found.missing)
    missing = (each for each, exists in zip(found.missing, there, strict=True) if not exists)
    return replace(found, missing=tuple(missing))


def check(entry: Entry, found: PartitionMismatches) -> None:
    """Refuse what would lose partitions, or bring in some that nobody sees today.

    Raises:
        Refused: The catalog and the disk don't agree.
    """
    if found:
        raise Refused(". ".join(sentences(entry.name, entry.location, found)))


def register_missing(spark: SparkSession, entry: Entry) -> None:
    """Bring the catalog in line with the directories: ``MSCK REPAIR TABLE … SYNC PARTITIONS``.

    Partitions that lie outside the root stay as they are.

    Raises:
        TableError: The catalog refuses, or a directory can't be listed.
    """
    try:
        with wished(spark, FEW_LISTING_TASKS):
            spark.sql(f"MSCK REPAIR TABLE {entry.name.sql} SYNC PARTITIONS").collect()
    except SPARK_ERRORS as error:
        raise TableError(
            f"the partitions of {entry.name} can't be registered ({first_line(error)}): check your rights, "
            "or add and drop them with ALTER TABLE"
        ) from error


def has_null(spark: SparkSession, entry: Entry) -> bool:
    """Say whether the catalog has a partition with a null value."""
    return bool(entry.partition_columns) and any(
        value == _NULL for spec in _specs(spark, entry) for _, value in split(spec)
    )


def registered(spark: SparkSession, entry: Entry) -> list[Registered]:
    """Return the partitions that the catalog knows; of the entry its name, location and columns are used.

    Raises:
        TableError: The catalog doesn't give its partitions.
    """
    try:
        specs = _specs(spark, entry)
        planned = _planned_locations(spark, entry) if specs else []
        if len(planned) != len(specs):
            planned = [""] * len(specs)
        # A place in the plan is taken for the partition's only where it is the place that the values say.
        pairs = list(zip(specs, planned, strict=True))
        doubtful = [spec for spec, location in pairs if not _confirmed(entry, spec, location)]
        described = parallel_map(lambda spec: _location(spark, entry, spec), doubtful)
    except SPARK_ERRORS as error:
        raise TableError(
            f"the catalog doesn't give the partitions of {entry.name} ({first_line(error)}): check your "
            "rights"
        ) from error
    exact = dict(zip(doubtful, described, strict=True))
    return [Registered(spec, exact.get(spec, location)) for spec, location in pairs]


def _specs(spark: SparkSession, entry: Entry) -> list[str]:
    return [row[0] for row in spark.sql(f"SHOW PARTITIONS {entry.name.sql}").collect()]


def _planned_locations(spark: SparkSession, entry: Entry) -> list[str]:
    """Return the locations that Spark would read, in the catalog's order; empty if the plan doesn't say."""
    columns = ", ".join(_quoted(each.name) for each in entry.partition_columns)
    # Always true, and nothing that the optimizer sees through: without a filter the plan has the root alone.
    query = f"EXPLAIN SELECT * FROM {entry.name.sql} WHERE pmod(hash({columns}), 1) = 0"
    with wished(spark, FEW_LISTING_TASKS | WHOLE_PLANS):
        plan = spark.sql(query).collect()[0][0]
    found = _LOCATIONS.search(plan)
    # A value may hold a comma, but every location begins with its scheme.
    return re.split(r", (?=[A-Za-z][A-Za-z0-9+.-]*:/)", found[1]) if found else []


def _confirmed(entry: Entry, spec: str, location: str) -> bool:
    place = below(location, entry.location) if location else None
    return place is not None and same(spec, place, entry.partition_columns)


def _location(spark: SparkSession, entry: Entry, spec: str) -> str:
    wanted = ", ".join(f"{_quoted(column)} = {_text(value)}" for column, value in split(spec))
    query = f"DESCRIBE TABLE EXTENDED {entry.name.sql} PARTITION ({wanted}) AS JSON"
    return str(json.loads(spark.sql(query).collect()[0][0])["location"])


def _exists(spark: SparkSession, entry: Entry, partition: Registered) -> bool:
    """Say whether the directory of a partition without files exists."""
    if entry.folder is not None:
        return (entry.folder / (below(partition.location, entry.location) or "")).is_dir()
    try:
        spark.read.format("binaryFile").load(literal(partition.location)).limit(0).collect()
    except SPARK_ERRORS as error:
        if condition(error) != "PATH_NOT_FOUND":
            raise TableError(
                f"{partition} can't be listed ({first_line(error)}): check your rights"
            ) from error
        return False
    return True


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
