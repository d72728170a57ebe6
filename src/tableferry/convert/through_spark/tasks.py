"""The second reader of footers: Spark's tasks, each of which reads a share of the files by their paths.

What was tried, with 20,000 files on two cores:

- A task costs a tenth to a third of a second whatever it does, for pyspark's worker reads its zip files'
  lists again before each. So there are as many as Spark has cores, not several times as many.
- What a task finds travels as one string a file, and each schema once a task. ``toArrow`` and
  ``toLocalIterator`` took the same time and ``collect`` a tenth more. A batch is one job, and its results are
  all that the driver holds besides the footers that it has given out.
- The package needn't be installed where the tasks run, nor be of the same version there: what they need of
  it is pickled with them, which makes 130 kB and takes 30 ms a job, and 5 ms in a worker that has seen it.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
from pyspark import cloudpickle

import tableferry
from tableferry.catalog import SPARK_ERRORS
from tableferry.convert.facts import DataFile, FileSchema, Footer, Unreadable
from tableferry.convert.packed import pack, pack_schema, unpack, unpack_schema
from tableferry.convert.reading import read as read_here
from tableferry.errors import Refused, SessionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# How many files Delta's own command takes at once: for their statistics, and for their schemas.
_STATISTICS_BATCH = ("spark.databricks.delta.import.batchSize.statsCollection", 50_000)
_SCHEMA_BATCH = ("spark.databricks.delta.import.batchSize.schemaInference", 1_000_000)

# What stands in the place of a number of rows.
_UNREADABLE, _UNREACHED = -1, -2
_COLUMNS = "rows bigint, schema int, described string, text string"

_Row: TypeAlias = tuple[int, int, str | None, str]
_Task: TypeAlias = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class Unreached(Refused):
    """A machine that runs Spark's tasks doesn't have the directory."""


def batch_size(spark: SparkSession, *, statistics: bool) -> int:
    """Return how many files are read at once, by the settings that Delta's own command has for that.

    It infers schemas in batches of ``spark.databricks.delta.import.batchSize.schemaInference`` files and
    collects statistics in batches of ``…statsCollection``. Here one pass over the footers gives both, so the
    smaller counts, and that of the statistics only if there are any.

    Raises:
        SessionError: A setting isn't a positive number.
    """
    settings = (_SCHEMA_BATCH, _STATISTICS_BATCH) if statistics else (_SCHEMA_BATCH,)
    return min(_setting(spark, name, default) for name, default in settings)


def read(
    spark: SparkSession, root: str, files: Sequence[DataFile], *, statistics: bool
) -> Iterator[Footer | Unreadable]:
    """Read what the files' footers say, in the listing's order.

    Args:
        spark: The session.
        root: Where the files' paths begin, on the machines that run the tasks too.
        files: What was listed.
        statistics: Whether to read more than the rows' number and the schema.

    Raises:
        Unreached: A machine that runs tasks has no such directory.
        SessionError: A setting for the size of batches isn't a positive number.
    """
    schemas: dict[str, FileSchema] = {}
    numbered: dict[int, FileSchema] = {}
    size = batch_size(spark, statistics=statistics)
    for start in range(0, len(files), size):
        batch = files[start : start + size]
        for found in _run(spark, _task(root, batch, statistics), len(batch)).to_batches():
            yield from _footers(root, found, schemas, numbered)


def _setting(spark: SparkSession, name: str, default: int) -> int:
    try:
        said = spark.conf.get(name, None) or str(default)
    except SPARK_ERRORS:  # Serverless compute shows few of its settings.
        return default
    if not said.isdecimal() or int(said) == 0:
        raise SessionError(f"{name} is {said}: set it to a positive number, or unset it")
    return int(said)


def _run(spark: SparkSession, task: _Task, count: int) -> pa.Table:
    """Run a task for each of Spark's cores, which share the numbers below `count` in their order."""
    cloudpickle.register_pickle_by_value(tableferry)  # type: ignore[no-untyped-call]
    try:
        return spark.range(count).mapInArrow(task, _COLUMNS).toArrow()
    finally:
        cloudpickle.unregister_pickle_by_value(tableferry)  # type: ignore[no-untyped-call]


def _footers(
    root: str, batch: pa.RecordBatch, schemas: dict[str, FileSchema], numbered: dict[int, FileSchema]
) -> Iterator[Footer | Unreadable]:
    """Read what tasks wrote.

    Args:
        root: Where the files' paths begin.
        batch: What they wrote; a task's rows may be spread over several batches.
        schemas: The schemas seen so far, by their text.
        numbered: Those of the task whose rows were read last, by the numbers that it gave them.
    """
    for rows, number, described, text in zip(*(column.to_pylist() for column in batch.columns), strict=True):
        if rows == _UNREACHED:
            raise Unreached(
                f"{root} isn't there on {text}, where Spark's tasks run: mount it there, or read the "
                "footers here with --reader process"
            )
        if rows == _UNREADABLE:
            yield Unreadable(text)
            continue
        if described is not None:
            known = schemas.get(described)
            if known is None:
                known = schemas[described] = unpack_schema(described)
            numbered[number] = known
        yield Footer(rows, numbered[number], unpack(text))


# What runs in tasks, without Spark, and with no more of this package than is pickled with it.


def _task(root: str, files: Sequence[DataFile], statistics: bool) -> _Task:
    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reached = os.path.isdir(root)
        for batch in batches:
            numbers = batch.column(0).to_pylist()
            share = files[numbers[0] : numbers[-1] + 1] if numbers else ()
            rows = list(_rows(root, share, statistics) if reached else map(_unreached, share))
            arrays = [
                pa.array([row[place] for row in rows], kind)
                for place, kind in enumerate((pa.int64(), pa.int32(), pa.string(), pa.string()))
            ]
            yield pa.RecordBatch.from_arrays(arrays, ["rows", "schema", "described", "text"])

    return work


def _rows(root: str, files: Sequence[DataFile], statistics: bool) -> Iterator[_Row]:
    """Read some files; a schema comes with the first file that has it, and has its number from then on."""
    numbers: dict[int, int] = {}
    for found in read_here(Path(root), files, statistics=statistics):
        if isinstance(found, Unreadable):
            yield _UNREADABLE, 0, None, found.reason
            continue
        schema, count = found.schema, len(numbers)
        # The reader keeps each schema, so that its id stays its own.
        number = numbers.setdefault(id(schema), count)
        yield found.rows, number, pack_schema(schema) if number == count else None, pack(found.bounds)


def _unreached(file: DataFile) -> _Row:
    return _UNREACHED, 0, None, platform.node()
