"""Detect whether Spark's driver is this process, and report the progress of its jobs.

This module doesn't import pyspark, which isn't installed where only files are converted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from tableferry.errors import is_sparks
from tableferry.progress import Task

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Size:
    """The size of a table; None means unknown."""

    rows: int | None = None
    bytes: int | None = None


def in_process(spark: SparkSession) -> bool:
    """Return whether Spark's driver is this process, so that both see the same files under one path."""
    return not type(spark).__module__.startswith(("pyspark.sql.connect", "databricks.connect"))


@contextmanager
def track_jobs(spark: SparkSession, running: Task, expected: Callable[[], Size] = Size) -> Iterator[None]:
    """Update a task's counts with the progress of the Spark jobs of this thread inside the ``with``.

    - If Spark's driver is this process, the counts are tasks, written rows and written bytes. They come from
      the driver's status store.
    - A Spark Connect client counts tasks and read bytes, which its server reports.
    - Other clients, and clusters that refuse the status store, count nothing.

    Args:
        spark: The session.
        running: The task.
        expected: Returns the size to write; called only if the task is displayed.
    """
    if in_process(spark):
        with _tagged_jobs(spark, running, expected):
            yield
        return
    # Only the client of Spark 4 has this method.
    register: Callable[[Any], None] | None = getattr(spark, "registerProgressHandler", None)
    if register is None:
        yield
        return

    def hear(stages: Iterable[Any] | None, **_: Any) -> None:
        known = list(stages or ())
        if known:
            done = sum(stage.num_completed_tasks for stage in known)
            running.update("tasks", done, sum(stage.num_tasks for stage in known))
            running.update("bytes", sum(stage.num_bytes_read for stage in known))

    register(hear)
    try:
        yield
    finally:
        spark.removeProgressHandler(hear)  # type: ignore[attr-defined, unused-ignore]


@contextmanager
def _tagged_jobs(spark: SparkSession, running: Task, expected: Callable[[], Size]) -> Iterator[None]:
    tag = f"tableferry-{uuid4().hex}"
    try:
        context = spark.sparkContext
        context.addJobTag(tag)
        store = context._jsc.sc().statusStore()
        before = next((job.jobId() for job in _newest_first(store)), -1)
    except Exception as error:
        # Shared clusters don't expose the context; the exception depends on the cluster.
        _log.debug("the progress of Spark's jobs isn't shown here: %s", error)
        yield
        return
    size: Size | None = None

    def look(running: Task) -> None:
        nonlocal size
        size = size or expected()
        stages = [_Stage.of(stage) for job in _jobs(store, tag, before) for stage in _stages(store, job)]
        if running.refresher is None:
            return  # The block ended since the check in `refresh`; its final counts must stay.
        if stages:
            running.update("tasks", sum(stage.done for stage in stages), sum(stage.tasks for stage in stages))
        if written := sum(stage.rows for stage in stages):
            running.update("rows", written, size.rows)
            running.update("bytes", sum(stage.bytes for stage in stages), size.bytes)

    running.refresher = look
    try:
        yield
    finally:
        running.refresher = None
        context.removeJobTag(tag)
        # Tasks show only the progress, so the finished step doesn't report them.
        running.counts = {what: count for what, count in running.counts.items() if what != "tasks"}


@dataclass(frozen=True)
class _Stage:
    done: int
    tasks: int
    rows: int
    bytes: int

    @classmethod
    def of(cls, stage: Any) -> _Stage:
        return cls(stage.numCompleteTasks(), stage.numTasks(), stage.outputRecords(), stage.outputBytes())


def _jobs(store: Any, tag: str, before: int) -> Iterator[Any]:
    """Return the jobs with a tag that are newer than job ``before``; the store keeps up to 1,000 jobs."""
    newer = takewhile(lambda job: job.jobId() > before, _newest_first(store))
    return (job for job in newer if job.jobTags().contains(tag))


def _newest_first(store: Any) -> Iterator[Any]:
    jobs = store.jobsList(None)
    return (jobs.apply(number) for number in range(jobs.size()))


def _stages(store: Any, job: Any) -> Iterator[Any]:
    ids = job.stageIds()
    for number in range(ids.size()):
        try:
            stage = store.lastStageAttempt(ids.apply(number))
        except Exception as error:
            # The store has no entry for skipped stages.
            if not is_sparks(error):
                raise
            continue
        yield stage
