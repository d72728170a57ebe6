"""Read the footers of a Hive table's Parquet files in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from tableferry.fleet.hive_tables.table_files import ListedFile
from tableferry.formats.hive.locations import reachable
from tableferry.formats.parquet.iceberg_metrics import End, read_end, read_ends
from tableferry.storage.hadoop import Hadoop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
