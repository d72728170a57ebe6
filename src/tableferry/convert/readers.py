"""The two readers of footers behind one function: in this process, and in Spark's tasks."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from tableferry import session
from tableferry.convert import through_spark
from tableferry.convert.facts import DataFile, Footer, Unreadable
from tableferry.convert.parquet import reading
from tableferry.convert.plan import Reader
from tableferry.convert.sparks import Sparks
from tableferry.errors import SessionError, is_sparks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Not measured as such: with 20,000 files on two cores Spark's tasks in a warm session were level with this
# process, and with 2,000 they took twice as long; this is Delta's own batch of statistics. A JVM doesn't pay
# that has to be started for it: its 12 to 18 seconds are as long as reading 150,000 files here.
SPARK_PAYS_FROM = 50_000


def read_footers(
    root: Path, files: Sequence[DataFile], sparks: Sparks, reader: Reader, *, statistics: bool
) -> Iterator[Footer | Unreadable]:
    """Read what the files' footers say, in the listing's order.

    Files are taken in batches of the size that the session's settings ask for, here too if there is one: so
    many at most are read ahead.

    Args:
        root: Where the files' paths begin.
        files: What was listed.
        sparks: The session; no JVM is started on this machine unless `reader` is ``spark``.
        reader: Who reads; ``auto`` takes Spark for many files, if there is a session whose tasks reach them.
        statistics: Whether to read more than the rows' number and the schema.

    Raises:
        Refused: Spark was asked for, and its tasks don't reach the files.
        SessionError: Spark was asked for, and there is none; or a setting for batches is no number.
    """
    match reader:
        case Reader.SPARK:
            return through_spark.read(sparks.session(), str(root), files, statistics=statistics)
        case Reader.AUTO if len(files) >= SPARK_PAYS_FROM and (spark := _at_hand(sparks)):
            return _by_tasks_if_they_can(spark, root, files, statistics)
        case _:
            return _here(sparks.running, root, files, statistics)


def _at_hand(sparks: Sparks) -> SparkSession | None:
    """Return the session that runs, or that this environment gives without a JVM of its own."""
    if sparks.running is None:
        choice = session.choose(os.environ, databricks_connect=session.has_databricks_connect())
        if choice.kind != "local":
            with suppress(SessionError):
                return sparks.session()
    return sparks.running


def _by_tasks_if_they_can(
    spark: SparkSession, root: Path, files: Sequence[DataFile], statistics: bool
) -> Iterator[Footer | Unreadable]:
    found = through_spark.read(spark, str(root), files, statistics=statistics)
    try:
        first = next(found)
    except Exception as error:
        # They may run elsewhere, where this path means nothing, or not be allowed to run Python at all.
        if not isinstance(error, through_spark.Unreached) and not is_sparks(error):
            raise
        return _here(spark, root, files, statistics)
    return chain((first,), found)


def _here(
    spark: SparkSession | None, root: Path, files: Sequence[DataFile], statistics: bool
) -> Iterator[Footer | Unreadable]:
    size = len(files) if spark is None else through_spark.batch_size(spark, statistics=statistics)
    for start in range(0, len(files), size):
        yield from reading.read(root, files[start : start + size], statistics=statistics)
