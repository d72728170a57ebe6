"""The second reader of files: Spark's tasks, each of which reads a share of the files by their paths.

What was tried, with 20,000 files on two cores that others used too:

- A task costs a tenth to a third of a second whatever it does, for pyspark's worker reads its zip files'
  lists again before each. So there are as many as Spark has cores, not several times as many: twenty took
  four times as long as two.
- What a task finds travels as one string a file, and each schema once a task. ``toArrow`` took 1.0 to 1.1 s,
  ``toLocalIterator`` 1.0 to 1.3 and ``collect`` 1.1 to 1.4. A batch is one job, and its results are all that
  the driver holds besides the footers that it has given out.
- The package needn't be installed where the tasks run, nor be of the same version there: what they need of
  it is pickled with them, which makes 185 kB and takes 50 ms a job, and up to 30 ms in a worker.

Run on local Spark alone: neither on Databricks nor through Spark Connect.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import cloudpickle

import tableferry
from tableferry.convert.facts import DataFile, FileSchema, Footer, Footers, Unreadable
from tableferry.convert.through_spark.schemas import from_text
from tableferry.convert.through_spark.shares import COLUMNS, UNREACHED, UNREADABLE, Read, Task, task
from tableferry.errors import Refused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Unreached(Refused):
    """A machine that runs Spark's tasks doesn't have the directory."""


def read(spark: SparkSession, root: str, files: Sequence[DataFile], read_share: Read, size: int) -> Footers:
    """Read files by tasks, ``size`` at once, in the listing's order; the root is on the tasks' machines too.

    Raises:
        Unreached: A machine that runs tasks has no such directory.
    """
    schemas: dict[str, FileSchema] = {}
    numbered: dict[int, FileSchema] = {}
    for start in range(0, len(files), size):
        batch = files[start : start + size]
        for results in _run(spark, task(root, batch, read_share), len(batch)).to_batches():
            yield from _footers(root, results, schemas, numbered)


def _run(spark: SparkSession, task: Task, count: int) -> pa.Table:
    """Run a task for each of Spark's cores, which share the numbers below `count` in their order."""
    cloudpickle.register_pickle_by_value(tableferry)  # type: ignore[no-untyped-call]
    try:
        return spark.range(count).mapInArrow(task, COLUMNS).toArrow()
    finally:
        cloudpickle.unregister_pickle_by_value(tableferry)  # type: ignore[no-untyped-call]


def _footers(
    root: str, batch: pa.RecordBatch, schemas: dict[str, FileSchema], numbered: dict[int, FileSchema]
) -> Footers:
    """Read what tasks wrote.

    Args:
        root: Where the files' paths begin.
        batch: What they wrote; a task's rows may be spread over several batches.
        schemas: The schemas seen so far, by their text.
        numbered: Those of the task whose rows were read last, by the numbers that it gave them.
    """
    for rows, number, described, text, split in zip(
        *(column.to_pylist() for column in batch.columns), strict=True
    ):
        if rows == UNREACHED:
            raise Unreached("TASKS_WITHOUT_FOLDER", folder=root, machine=text)
        if rows == UNREADABLE:
            yield Unreadable(text)
            continue
        if described is not None:
            known = schemas.get(described)
            if known is None:
                known = schemas[described] = from_text(described)
            numbered[number] = known
        yield Footer(rows, numbered[number], text, split)
