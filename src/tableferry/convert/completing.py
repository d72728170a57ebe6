"""Complete the statistics of a planned commit.

Which columns get statistics depends on the table's columns, which are known only after the footers are read.
"""

from __future__ import annotations

from collections.abc import Callable

from tableferry.convert.commit_contents import Contents, half_read, statistics_paths, with_bounds_of
from tableferry.convert.readers import all_readable, read_footers, scan
from tableferry.convert.steps import Reader
from tableferry.formats.parquet.footers import ALL_LEAVES
from tableferry.spark.provider import SparkProvider
from tableferry.storage import AnyPath


def with_statistics(
    root: AnyPath,
    planned: Contents,
    spark: SparkProvider,
    scanned_by: Reader | None,
    progress: Callable[[int, int], None],
) -> Contents:
    """Return a commit's contents with complete statistics.

    With `scanned_by`, a scan of all data computes the statistics. Without it, the function rereads the
    footers of files for which too few columns were read.

    Raises:
        Refused: A file is no longer readable.
    """
    if scanned_by is not None:
        read = scan(root, planned.files, spark, scanned_by, statistics_paths(planned))
        return with_bounds_of(planned, dict(enumerate(all_readable(root, planned.files, read, progress))))
    if not (numbers := half_read(planned)):
        return planned
    files = [planned.files[number] for number in numbers]
    read = read_footers(root, files, spark, Reader.AUTO, leaves=ALL_LEAVES)
    return with_bounds_of(planned, dict(zip(numbers, all_readable(root, files, read, progress), strict=True)))
