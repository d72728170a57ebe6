"""Which statistics a commit has is known once the table's columns are: here what's missing is read."""

from __future__ import annotations

from collections.abc import Callable

from tableferry.convert.log.contents import Contents, half_read, statistics_paths, with_bounds_of
from tableferry.convert.parquet.footers import ALL_LEAVES
from tableferry.convert.readers import all_readable, read_footers, scan
from tableferry.convert.spark_provider import SparkProvider
from tableferry.convert.steps import Reader
from tableferry.files import AnyPath


def with_statistics(
    root: AnyPath,
    planned: Contents,
    spark: SparkProvider,
    scanned_by: Reader | None,
    progress: Callable[[int, int], None],
) -> Contents:
    """Return what a commit says with all its statistics: from all data if it's to be scanned by somebody.

    Else footers are read again of which only the first columns were, as far as the table needs others.

    Raises:
        Refused: A file can't be read any more.
    """
    if scanned_by is not None:
        read = scan(root, planned.files, spark, scanned_by, statistics_paths(planned))
        return with_bounds_of(planned, dict(enumerate(all_readable(root, planned.files, read, progress))))
    if not (numbers := half_read(planned)):
        return planned
    files = [planned.files[number] for number in numbers]
    read = read_footers(root, files, spark, Reader.AUTO, leaves=ALL_LEAVES)
    return with_bounds_of(planned, dict(zip(numbers, all_readable(root, files, read, progress), strict=True)))
