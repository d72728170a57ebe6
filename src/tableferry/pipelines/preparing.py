"""What an update of a declarative pipeline can't do itself, done before it: one target at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tableferry.catalog import SPARK_ERRORS
from tableferry.errors import TableError, first_line
from tableferry.pipelines.declarative import pinned_name
from tableferry.pipelines.perform import Runner
from tableferry.pipelines.pipeline import Pipeline
from tableferry.pipelines.plans import HISTORY_FLOW, TargetPlan
from tableferry.pipelines.steps import Forget

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def wanted(target: TargetPlan) -> bool:
    """Say whether a target has something to prepare."""
    return bool(target.state_steps) or target.copy


def prepare(target: TargetPlan, pipeline: Pipeline, spark: SparkSession, runner: Runner) -> None:
    """Record where a target begins, pin what it copies, and compare its copy once the pipeline has made it.

    Raises:
        TableError: The legacy table can't be pinned.
    """
    runner.remember(target)
    if any(isinstance(step, Forget) for step in target.state_steps):
        clear(target, pipeline, spark)
    if target.copy and pipeline.kind == "declarative":
        _pin(target, spark, runner)
    if target.copy and is_copied(target, pipeline):
        runner.compare(target)


def is_copied(target: TargetPlan, pipeline: Pipeline) -> bool:
    """Say whether the pipeline has brought the whole copy."""
    found = pipeline.progress([(target.target, HISTORY_FLOW)])
    return found[target.target.key, HISTORY_FLOW].caught_up


def clear(target: TargetPlan, pipeline: Pipeline, spark: SparkSession) -> None:
    """Drop what was made for the copy alone."""
    if pipeline.kind == "declarative":
        spark.sql(f"DROP TABLE IF EXISTS {pinned_name(target.target).sql}")


def _pin(target: TargetPlan, spark: SparkSession, runner: Runner) -> None:
    """Clone the legacy table at the pinned version, without its data files; done already is fine."""
    assert target.migration_start is not None
    copy, clone = target.migration_start.copy, pinned_name(target.target)
    runner.before(f"pinning {copy.table}@{copy.version} as {clone}")
    try:
        spark.sql(
            f"CREATE TABLE IF NOT EXISTS {clone.sql} SHALLOW CLONE {copy.table.sql} "
            f"VERSION AS OF {copy.version}"
        )
    except SPARK_ERRORS as error:
        raise TableError(
            f"{target.target}: {copy.table}@{copy.version} can't be cloned as {clone} ({first_line(error)}): "
            "mend it and prepare again"
        ) from error
