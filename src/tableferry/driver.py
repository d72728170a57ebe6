"""Spark's driver: whether it's this process, and how far the jobs are that it runs for this thread.

Nothing here loads Spark, as whoever converts files alone has none.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from tableferry.activity import Activity
from tableferry.errors import is_sparks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Size:
    """How large a table is, as far as that is known."""

    rows: int | None = None
    bytes: int | None = None


def in_process(spark: SparkSession) -> bool:
    """Return whether Spark's driver is this process, so that both see the same files under one path."""
    return not type(spark).__module__.startswith(("pyspark.sql.connect", "databricks.connect"))


@contextmanager
def following(spark: SparkSession, running: Activity, expected: Callable[[], Size] = Size) -> Iterator[None]:
    """Let an activity count what the Spark jobs do that this thread starts inside the ``with``.

    Where Spark's driver is this process, it's tasks, and the rows and bytes that were written. That needs the
    driver's status store, which Spark Connect doesn't have; a client of that hears from its server how many
    tasks are done, and how many bytes they read. Where compute shows neither, nothing is counted.
    How much there will be to write is asked once, and only if somebody watches.
    """
    if in_process(spark):
        with _tagged_jobs(spark, running, expected):
            yield
        return
    # Only Spark 4's client has it.
    register: Callable[[Any], None] | None = getattr(spark, "registerProgressHandler", None)
    if register is None:
        yield
        return

    def hear(stages: Iterable[Any] | None, **_: Any) -> None:
        known = list(stages or ())
        if known:
            done = sum(stage.num_completed_tasks for stage in known)
            running.count("tasks", done, sum(stage.num_tasks for stage in known))
            running.count("bytes", sum(stage.num_bytes_read for stage in known))

    register(hear)
    try:
        yield
    finally:
        spark.removeProgressHandler(hear)  # type: ignore[attr-defined, unused-ignore]


@contextmanager
def _tagged_jobs(spark: SparkSession, running: Activity, expected: Callable[[], Size]) -> Iterator[None]:
    tag = f"tableferry-{uuid4().hex}"
    try:
        context = spark.sparkContext
        context.addJobTag(tag)
        store = context._jsc.sc().statusStore()
        before = next((job.jobId() for job in _newest_first(store)), -1)
    except Exception as error:
        # Clusters that several people share keep the context to themselves, each with an error of its own.
        _log.debug("the progress of Spark's jobs isn't shown here: %s", error)
        yield
        return
    size: Size | None = None

    def look(running: Activity) -> None:
        nonlocal size
        size = size or expected()
        stages = [_Stage.of(stage) for job in _jobs(store, tag, before) for stage in _stages(store, job)]
        if running.look is None:
            return  # It ended meanwhile, and has counted by itself.
        if stages:
            running.count("tasks", sum(stage.done for stage in stages), sum(stage.tasks for stage in stages))
        if written := sum(stage.rows for stage in stages):
            running.count("rows", written, size.rows)
            running.count("bytes", sum(stage.bytes for stage in stages), size.bytes)

    running.look = look
    try:
        yield
    finally:
        running.look = None
        context.removeJobTag(tag)
        # They were its progress.
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
    """Return the jobs with a tag; the store keeps up to a thousand, most of them no newer than ``before``."""
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
            # The store doesn't know the stages that a job skips.
            if not is_sparks(error):
                raise
            continue
        yield stage
