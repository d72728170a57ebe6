"""The two readers of files behind one function: in this process, and in Spark's tasks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from tableferry import session
from tableferry.convert import through_spark
from tableferry.convert.facts import DataFile, Footer, Footers, Unreadable
from tableferry.convert.parquet import objects, reading
from tableferry.convert.spark_provider import SparkProvider
from tableferry.convert.steps import Reader
from tableferry.errors import MissingPackage, Refused, SessionError, is_sparks
from tableferry.extras import install
from tableferry.files import AnyPath, ObjectPath
from tableferry.types import ColumnPath

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Not measured as such: with 20,000 files on two cores Spark's tasks in a warm session were level with this
# process, and with 2,000 they took twice as long; this is Delta's own batch of statistics. A JVM doesn't pay
# that has to be started for it: its 12 to 18 seconds are as long as reading 150,000 files here.
SPARK_PAYS_FROM = 50_000
# Each batch is a job of Spark's, which costs less than a second, and what is done is shown after each.
_SCANNED_AT_ONCE = 1000
_SHOWN = 5


def read_footers(
    root: AnyPath,
    files: Sequence[DataFile],
    spark_provider: SparkProvider,
    reader: Reader,
    *,
    leaves: int,
) -> Footers:
    """Read what the files' footers say, in the listing's order.

    Files are taken in batches of the size that the session's settings ask for, here too if there is one: so
    many at most are read ahead. ``auto`` takes Spark for many files, if there is a session whose tasks reach
    them; no JVM is started on this machine unless the reader is ``spark``.

    Raises:
        Refused: Spark was asked for, and its tasks don't reach the files.
        SessionError: Spark was asked for, and there is none; or a setting for batches is no number.
    """
    if isinstance(root, ObjectPath):
        _demand_process(root, reader)
        return objects.read(root, files, leaves=leaves)
    read = partial(reading.read, leaves=leaves)

    def in_process() -> Footers:
        running = spark_provider.running
        size = (
            len(files)
            if running is None
            else through_spark.batches.batch_size(running, statistics=leaves > 0)
        )
        for start in range(0, len(files), size or 1):
            yield from read(root, files[start : start + size])

    def in_tasks(spark: SparkSession) -> Footers:
        size = through_spark.batches.batch_size(spark, statistics=leaves > 0)
        return through_spark.tasks.read(spark, str(root), files, read, size)

    return _choose(spark_provider, reader, len(files) >= SPARK_PAYS_FROM, in_process, in_tasks)


def scan(
    root: AnyPath,
    files: Sequence[DataFile],
    spark_provider: SparkProvider,
    reader: Reader,
    paths: frozenset[ColumnPath],
) -> Footers:
    """Read files' statistics from their data, in the listing's order.

    Only leaves with these paths, in lower case, get them. ``auto`` takes Spark if there is a session whose
    tasks reach the files; no JVM is started on this machine unless the reader is ``spark``.

    Raises:
        Refused: Spark was asked for, and its tasks don't reach the files.
        SessionError: Spark was asked for, and there is none; or pyarrow isn't installed.
    """
    try:
        from tableferry.convert.parquet import scanning
    except ModuleNotFoundError as error:
        raise MissingPackage(
            "MISSING_PACKAGE_FOR_SCAN", package=error.name, command=install("scan")
        ) from error

    def in_tasks(spark: SparkSession) -> Footers:
        read = partial(scanning.read, paths=paths)
        return through_spark.tasks.read(spark, str(root), files, read, _SCANNED_AT_ONCE)

    in_threads = partial(scanning.read_by_threads, root, files, paths=paths)
    if isinstance(root, ObjectPath):
        _demand_process(root, reader)
        return in_threads()
    return _choose(spark_provider, reader, True, in_threads, in_tasks)


def all_readable(
    root: AnyPath | str,
    files: Sequence[DataFile],
    footers: Iterable[Footer | Unreadable],
    progress: Callable[[int, int], None],
) -> tuple[Footer, ...]:
    """Take the footers of all files.

    Raises:
        Refused: Some can't be read.
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


def _demand_process(root: ObjectPath, reader: Reader) -> None:
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
        case Reader.AUTO if pays and (spark := _at_hand(spark_provider)):
            return _there_if_it_can(in_tasks(spark), in_process)
        case _:
            return in_process()


def _at_hand(spark_provider: SparkProvider) -> SparkSession | None:
    """Return the session that runs, or that this environment gives without a JVM of its own."""
    if spark_provider.running is None:
        choice = session.choose(os.environ, databricks_connect=session.has_databricks_connect())
        if choice.kind != "local":
            with suppress(SessionError):
                return spark_provider.session()
    return spark_provider.running


def _there_if_it_can(footers: Footers, in_process: Callable[[], Footers]) -> Footers:
    try:
        first = next(footers)
    except Exception as error:
        # They may run elsewhere, where this path means nothing, or not be allowed to run Python at all.
        if not isinstance(error, through_spark.tasks.Unreached) and not is_sparks(error):
            raise
        return in_process()
    return chain((first,), footers)
