"""Read footers or scan data in this process or in Spark tasks, and complete a commit's statistics."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from tableferry.convert import catalog
from tableferry.convert.commit_contents import Contents, half_read, statistics_paths, with_bounds_of
from tableferry.convert.steps import Reader
from tableferry.errors import MissingPackage, Refused, SessionError, is_sparks
from tableferry.extras import install
from tableferry.formats.parquet import directory_footers, object_footers
from tableferry.formats.parquet.files import DataFile, Footer, Footers, Unreadable
from tableferry.formats.parquet.footers import ALL_LEAVES
from tableferry.spark import session
from tableferry.spark.provider import SparkProvider
from tableferry.spark.types import ColumnPath
from tableferry.storage import AnyPath, ObjectPath

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Delta's own batch size for statistics; the exact threshold wasn't measured. With 20,000 files on two cores,
# Spark tasks in a warm session took as long as this process, and with 2,000 files twice as long. It doesn't
# pay to start a JVM only for this: the start takes 12 to 18 seconds, as long as reading 150,000 files here.
SPARK_PAYS_FROM = 50_000
# Each batch is one Spark job, which costs less than a second; progress is shown after each batch.
_SCAN_BATCH_SIZE = 1000
_SHOWN = 5


def read_footers(
    root: AnyPath,
    files: Sequence[DataFile],
    spark_provider: SparkProvider,
    reader: Reader,
    *,
    leaves: int,
) -> Footers:
    """Read the files' footers, in listing order.

    If a session exists, its settings limit the size of a batch, and at most one batch is read ahead. ``auto``
    uses Spark for many files, if a session's tasks reach them. Only ``spark`` starts a JVM on this machine.

    Raises:
        Refused: The reader is ``spark``, and its tasks don't reach the files.
        SessionError: The reader is ``spark``, and no session is available; or a batch setting isn't a number.
    """
    if isinstance(root, ObjectPath):
        _require_process(root, reader)
        return object_footers.read(root, files, leaves=leaves)
    read = partial(directory_footers.read, leaves=leaves)

    def in_process() -> Footers:
        running = spark_provider.running
        size = len(files) if running is None else catalog.batches.batch_size(running, statistics=leaves > 0)
        for start in range(0, len(files), size or 1):
            yield from read(root, files[start : start + size])

    def in_tasks(spark: SparkSession) -> Footers:
        size = catalog.batches.batch_size(spark, statistics=leaves > 0)
        return catalog.tasks.read(spark, str(root), files, read, size)

    return _choose(spark_provider, reader, len(files) >= SPARK_PAYS_FROM, in_process, in_tasks)


def scan(
    root: AnyPath,
    files: Sequence[DataFile],
    spark_provider: SparkProvider,
    reader: Reader,
    paths: frozenset[ColumnPath],
) -> Footers:
    """Compute files' statistics from their data, in listing order.

    Only leaves with these paths, in lower case, get statistics. ``auto`` uses Spark if a session's tasks
    reach the files. Only ``spark`` starts a JVM on this machine.

    Raises:
        Refused: The reader is ``spark``, and its tasks don't reach the files.
        SessionError: The reader is ``spark``, and no session is available; or pyarrow isn't installed.
    """
    try:
        from tableferry.formats.parquet import data_scan
    except ModuleNotFoundError as error:
        raise MissingPackage(
            "MISSING_PACKAGE_FOR_SCAN", package=error.name, command=install("scan")
        ) from error

    def in_tasks(spark: SparkSession) -> Footers:
        read = partial(data_scan.read, paths=paths)
        return catalog.tasks.read(spark, str(root), files, read, _SCAN_BATCH_SIZE)

    in_threads = partial(data_scan.read_by_threads, root, files, paths=paths)
    if isinstance(root, ObjectPath):
        _require_process(root, reader)
        return in_threads()
    return _choose(spark_provider, reader, True, in_threads, in_tasks)


def all_readable(
    root: AnyPath | str,
    files: Sequence[DataFile],
    footers: Iterable[Footer | Unreadable],
    progress: Callable[[int, int], None],
) -> tuple[Footer, ...]:
    """Return the footers of all files.

    Raises:
        Refused: At least one file is unreadable.
    """
    read: list[Footer] = []
    unreadable: list[str] = []
    for file, footer in zip(files, footers, strict=True):
        match footer:
            case Unreadable(reason):
                unreadable.append(f"{file.path} {reason}")
            case Footer():
                read.append(footer)
        progress(len(read) + len(unreadable), len(files))
    if unreadable:
        more = f", and {len(unreadable) - _SHOWN:,} more" if len(unreadable) > _SHOWN else ""
        raise Refused("UNREADABLE_FILES", table=root, files=f"{'; '.join(unreadable[:_SHOWN])}{more}")
    return tuple(read)


def with_statistics(
    root: AnyPath,
    planned: Contents,
    spark: SparkProvider,
    scanned_by: Reader | None,
    progress: Callable[[int, int], None],
) -> Contents:
    """Return a commit's contents with complete statistics.

    The columns that get statistics are known only after all footers are read. With `scanned_by`, a scan of
    all data computes the statistics. Without it, the function rereads the footers of files for which too few
    columns were read.

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


def _require_process(root: ObjectPath, reader: Reader) -> None:
    if reader is Reader.SPARK:
        raise Refused("READER_NEEDS_SPARK_STORAGE", table=root)


def _choose(
    spark_provider: SparkProvider,
    reader: Reader,
    pays: bool,
    in_process: Callable[[], Footers],
    in_tasks: Callable[[SparkSession], Footers],
) -> Footers:
    match reader:
        case Reader.SPARK:
            return in_tasks(spark_provider.session())
        case Reader.AUTO if pays and (spark := _available_session(spark_provider)):
            return _in_tasks_if_possible(in_tasks(spark), in_process)
        case _:
            return in_process()


def _available_session(spark_provider: SparkProvider) -> SparkSession | None:
    """Return the running session, or one that this environment provides without starting a local JVM."""
    if spark_provider.running is None:
        choice = session.choose(os.environ, databricks_connect=session.has_databricks_connect())
        if choice.kind != "local":
            with suppress(SessionError):
                return spark_provider.session()
    return spark_provider.running


def _in_tasks_if_possible(footers: Footers, in_process: Callable[[], Footers]) -> Footers:
    try:
        first = next(footers)
    except Exception as error:
        # The tasks may run on machines without this path, or may not be allowed to run Python.
        if not isinstance(error, catalog.tasks.Unreached) and not is_sparks(error):
            raise
        return in_process()
    return chain((first,), footers)
