"""The footers of a Hive table's Parquet files, read here and not by Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from tableferry.errors import StateError
from tableferry.fleet.warehouse.files import ListedFile
from tableferry.fleet.warehouse.hive_table import HiveTable, iceberg_ids, stored_types
from tableferry.formats.hive.locations import reachable
from tableferry.formats.parquet.iceberg_blockers import Expected, blockers
from tableferry.formats.parquet.iceberg_metrics import End, read_end, read_ends
from tableferry.spark.driver import in_process
from tableferry.storage.hadoop import Hadoop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A footer takes a tenth of a millisecond on a disk, and some hundredths of a second in an object store.
_MOST = 1000


def read(spark: SparkSession, files: Sequence[ListedFile]) -> Iterator[End]:
    """Read the metadata of files in their order, from a disk or by Hadoop; Spark's driver is this process.

    Raises:
        StateError: The cluster keeps its Java to itself.
    """
    paths = [reachable(file.path, same_machine=True) for file in files]
    if None not in paths:
        return (read_end(str(path), file.size) for path, file in zip(paths, files, strict=True))
    return read_ends([file.size for file in files], by_hadoop(spark, files))


def by_hadoop(spark: SparkSession, files: Sequence[ListedFile]) -> Callable[[int, int, int], bytes]:
    """Return what reads some bytes of a file, by its place among some files, their beginning and how many.

    Raises:
        StateError: The cluster keeps its Java to itself.
    """
    hadoop = Hadoop(spark)

    def read_range(number: int, start: int, count: int) -> bytes:
        return hadoop.read_range(files[number].path, files[number].size, start, count)

    return read_range


def hindrances(
    spark: SparkSession,
    table: HiveTable,
    files: Sequence[ListedFile],
    defaults: Mapping[str, str],
) -> list[str]:
    """Say which Parquet files can't be those of an Iceberg table with a Hive table's columns, and why.

    Of more than 1,000 files so many are looked at. Nothing is known of any where Spark's driver isn't this
    process, or keeps its Java to itself, nor of one that can't be read right now.

    Args:
        spark: The session.
        table: The Hive table.
        files: Its files.
        defaults: What a column is in the rows of files that lack it, where that isn't null.
    """
    if not in_process(spark):
        return []
    chosen = files[:: max(1, -(-len(files) // _MOST))]
    try:
        ends = read(spark, chosen)
    except StateError:
        return []
    columns = table.stored_columns
    types = stored_types(columns)
    expected = Expected(
        [column.name for column in columns],
        {path: kind["name"] for path, kind in types.items()},
        {path: kind["scale"] for path, kind in types.items() if kind["name"] == "decimal"},
        defaults,
        iceberg_ids(table.columns),
    )
    found = zip(chosen, blockers(ends, expected), strict=True)
    return [f"{file.path} {why}" for file, why in found if why]
