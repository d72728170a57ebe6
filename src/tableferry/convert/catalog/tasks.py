"""Read files in Spark's tasks. Each task reads a share of the files by path.

Tested on local Spark only: not on Databricks, and not through Spark Connect.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import cloudpickle

import tableferry
from tableferry.convert.catalog.shares import (
    COLUMNS,
    UNREACHED,
    UNREADABLE,
    Read,
    Task,
    schema_from_text,
    task,
)
from tableferry.errors import Refused
from tableferry.formats.parquet.files import DataFile, FileSchema, Footer, Footers, Unreadable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# Measured with 20,000 files on two cores that other processes used too:
#
# - A task costs 0.1 to 0.3 s in any case, because pyspark's worker rereads the lists of its zip files before
#   each task. So each core gets one task: twenty tasks took four times as long as two.
# - A task returns one string per file, and each schema once. ``toArrow`` took 1.0 to 1.1 s,
#   ``toLocalIterator`` 1.0 to 1.3 s and ``collect`` 1.1 to 1.4 s. A batch is one job. The driver keeps only
#   its results and the footers that it has yielded.
# - Each job pickles the parts of this package that its tasks use, so the tasks' machines can lack the package
#   or have another version. The pickle is 185 kB and takes 50 ms per job, and up to 30 ms in a worker.


class Unreached(Refused):
    """A machine that runs Spark's tasks doesn't have the directory."""


def read(spark: SparkSession, root: str, files: Sequence[DataFile], read_share: Read, size: int) -> Footers:
    """Yield the footers of files in the listing's order. Each Spark job reads up to ``size`` files.

    Raises:
        Unreached: The root is missing on a machine that runs tasks.
    """
    schemas: dict[str, FileSchema] = {}
    numbered: dict[int, FileSchema] = {}
    for start in range(0, len(files), size):
        batch = files[start : start + size]
        for results in _run(spark, task(root, batch, read_share), len(batch)).to_batches():
            yield from _footers(root, results, schemas, numbered)


def _run(spark: SparkSession, task: Task, count: int) -> pa.Table:
    """Return the rows of one task per core. The tasks share the numbers 0 to ``count`` - 1 in order."""
    cloudpickle.register_pickle_by_value(tableferry)  # type: ignore[no-untyped-call]
    try:
        return spark.range(count).mapInArrow(task, COLUMNS).toArrow()
    finally:
        cloudpickle.unregister_pickle_by_value(tableferry)  # type: ignore[no-untyped-call]


def _footers(
    root: str, batch: pa.RecordBatch, schemas: dict[str, FileSchema], numbered: dict[int, FileSchema]
) -> Footers:
    """Yield the footers in rows that tasks returned.

    Args:
        root: The table's root, for errors.
        batch: The rows. The rows of one task may be in several batches.
        schemas: The schemas of all tasks, by their text. New ones are added.
        numbered: The schemas of the current task, by its numbers. New ones are added.

    Raises:
        Unreached: The root is missing on a machine that runs tasks.
    """
    for rows, number, described, text, split in zip(
        *(column.to_pylist() for column in batch.columns), strict=True
    ):
        if rows == UNREACHED:
            raise Unreached("TASKS_WITHOUT_FOLDER", folder=root, machine=text)
        if rows == UNREADABLE:
            yield Unreadable(text, passing=bool(number))
            continue
        if described is not None:
            known = schemas.get(described)
            if known is None:
                known = schemas[described] = schema_from_text(described)
            numbered[number] = known
        yield Footer(rows, numbered[number], text, split)
