"""What an update of a declarative pipeline can't do itself, done before it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tableferry.catalog import SPARK_ERRORS
from tableferry.errors import TableError, first_line
from tableferry.pipelines.opening import OpenedProject
from tableferry.pipelines.perform import Runner
from tableferry.pipelines.pipeline import Pipeline
from tableferry.pipelines.plans import HISTORY_FLOW, Plan, TargetPlan, pinned_name
from tableferry.pipelines.steps import Forget
from tableferry.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def is_needed(target: TargetPlan) -> bool:
    """Say whether a target has something to prepare."""
    return bool(target.state_steps) or target.copy


def prepare(plan: Plan, opened: OpenedProject, runner: Runner) -> None:
    """Record where migrations start, pin what they copy, and compare each copy once the pipeline has made it.

    Raises:
        TableError: A legacy table can't be pinned.
    """
    for target in plan.targets:
        runner.remember(target)
        if any(isinstance(step, Forget) for step in target.state_steps):
            clear(target, opened)
        if target.copy and target.clone:
            _pin(target, target.clone, opened.spark, runner)
        if target.copy and opened.pipeline and _is_copied(target, opened.pipeline):
            runner.compare(target)


def _is_copied(target: TargetPlan, pipeline: Pipeline) -> bool:
    """Say whether the pipeline has brought the whole copy."""
    assert target.migration_start is not None
    starts = {target.target.key: target.migration_start.recorded_at}
    progress = pipeline.progress([(target.target, HISTORY_FLOW)], starts)
    return progress[target.target.key, HISTORY_FLOW].caught_up


def clear(target: TargetPlan, opened: OpenedProject) -> None:
    """Drop what was made for the copy alone."""
    if opened.pipeline and opened.pipeline.kind == "declarative":
        opened.spark.sql(f"DROP TABLE IF EXISTS {pinned_name(target.target).sql}")


def _pin(target: TargetPlan, clone: TableName, spark: SparkSession, runner: Runner) -> None:
    """Clone the legacy table at the pinned version, without its data files; done already is fine."""
    assert target.migration_start is not None
    copy = target.migration_start.copy
    runner.before(f"pinning {copy.table}@{copy.version} as {clone}")
    try:
        spark.sql(
            f"CREATE TABLE IF NOT EXISTS {clone.sql} SHALLOW CLONE {copy.table.sql} "
            f"VERSION AS OF {copy.version}"
        )
    except SPARK_ERRORS as error:
        raise TableError(
            f"{target.target}: {copy.table}@{copy.version} can't be cloned as {clone} ({first_line(error)}): "
            "fix it and prepare again"
        ) from error
