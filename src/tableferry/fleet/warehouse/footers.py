"""Read the footers of a Hive table's Parquet files in this process, and check the files for Iceberg."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from tableferry.errors import StateError
from tableferry.fleet.warehouse.eligibility import HiveTable, iceberg_ids, stored_types
from tableferry.fleet.warehouse.files import ListedFile
from tableferry.formats.hive.locations import reachable
from tableferry.formats.parquet.iceberg_blockers import Expected, blockers
from tableferry.formats.parquet.iceberg_metrics import End, read_end, read_ends
from tableferry.spark.driver import in_process
from tableferry.storage.hadoop import Hadoop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Reading a footer takes 0.1 ms on a local disk, and 10 to 50 ms in an object store.
_MAX_FILES = 1000


def read(spark: SparkSession, files: Sequence[ListedFile]) -> Iterator[End]:
    """Read the footers of files in their order, from a local disk or through Hadoop.

    Spark's driver must be this process.

    Raises:
        StateError: The cluster doesn't expose its Java.
    """
    paths = [reachable(file.path, same_machine=True) for file in files]
    if None not in paths:
        return (read_end(str(path), file.size) for path, file in zip(paths, files, strict=True))
    return read_ends([file.size for file in files], by_hadoop(spark, files))


def by_hadoop(spark: SparkSession, files: Sequence[ListedFile]) -> Callable[[int, int, int], bytes]:
    """Return a function that reads a range of a file through Hadoop, by the file's index, offset and length.

    Raises:
        StateError: The cluster doesn't expose its Java.
    """
    hadoop = Hadoop(spark)

    def read_range(number: int, start: int, count: int) -> bytes:
        return hadoop.read_range(files[number].path, files[number].size, start, count)

    return read_range


def list_blockers(
    spark: SparkSession,
    table: HiveTable,
    files: Sequence[ListedFile],
    defaults: Mapping[str, str],
) -> list[str]:
    """List the Parquet files that can't be added to a Hive table's Iceberg copy, and why.

    At most 1,000 files are checked. A file that can't be read at the moment is skipped. Without access to
    the driver's Java, no file is checked.

    Args:
        spark: The session.
        table: The Hive table.
        files: Its files.
        defaults: The values (as SQL) of columns in rows of files that lack them, if these aren't null.
    """
    if not in_process(spark):
        return []
    chosen = files[:: max(1, -(-len(files) // _MAX_FILES))]
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
