"""What an update of a declarative pipeline can't do itself, done before it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tableferry.errors import TableError
from tableferry.pipelines.engines.performer import Runner
from tableferry.pipelines.model.plan import HISTORY_FLOW, Plan, TargetPlan, pinned_name
from tableferry.pipelines.model.steps import Forget, Recognise
from tableferry.pipelines.planning.pipeline_port import Pipeline
from tableferry.pipelines.planning.project import OpenedProject
from tableferry.spark import catalog
from tableferry.spark.catalog import SPARK_ERRORS, explaining
from tableferry.spark.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NO_SUCH_SYNTAX = "PARSE_SYNTAX_ERROR"


def is_needed(target: TargetPlan, opened: OpenedProject) -> bool:
    """Say whether a target has something to prepare."""
    return bool(target.state_steps) or target.copy or _lacks_clone(target, opened)


def _lacks_clone(target: TargetPlan, opened: OpenedProject) -> bool:
    return target.clone is not None and not catalog.exists(opened.spark, target.clone)


def prepare(plan: Plan, opened: OpenedProject, runner: Runner) -> None:
    """Record where migrations start, pin what they copy, and compare each copy once the pipeline has made it.

    Raises:
        TableError: A legacy table can't be pinned.
    """
    for target in plan.targets:
        runner.perform_state_steps(target)
        if any(isinstance(step, Forget) for step in target.state_steps):
            clear(target, opened)
        if target.clone and (target.copy or _lacks_clone(target, opened)):
            _pin(target, target.clone, opened.spark, runner)
        if target.copy and opened.pipeline and _is_copied(target, opened.pipeline):
            runner.compare(target)
    if runner.verdicts:
        # The update that follows may start flows, so what a compared copy lets record comes before it.
        again, _ = opened.decided()
        for target in again.targets:
            runner.perform_state_steps(_recognised(target))


def _recognised(target: TargetPlan) -> TargetPlan:
    return replace(target, steps=tuple(step for step in target.steps if isinstance(step, Recognise)))


def _is_copied(target: TargetPlan, pipeline: Pipeline) -> bool:
    """Say whether the pipeline has brought the whole copy."""
    assert target.migration_start is not None
    starts = {target.target.key: target.migration_start.recorded_at}
    reached = pipeline.progress([(target.target, HISTORY_FLOW)], starts)
    return reached[target.target.key, HISTORY_FLOW].caught_up


def clear(target: TargetPlan, opened: OpenedProject) -> None:
    """Drop what was made for the copy alone."""
    if opened.pipeline is not None:
        drop_clone(opened.spark, pinned_name(target.target))


def drop_clone(spark: SparkSession, clone: TableName) -> None:
    """Drop a clone that only a copy has read, if it's there."""
    with explaining("CLONE_NOT_DROPPED", clone=clone):
        spark.sql(f"DROP TABLE IF EXISTS {clone.sql}")


def _pin(target: TargetPlan, clone: TableName, spark: SparkSession, runner: Runner) -> None:
    """Clone the legacy table at the pinned version; done already is fine."""
    assert target.migration_start is not None
    copy = target.migration_start.copy
    runner.before(f"pinning {copy.table}@{copy.version} as {clone}")
    optional = " or set tableMigrationDetails.pinnedClone to false" if target.dataflow.target.cdc else ""
    with explaining(
        "CLONE_NOT_CREATED",
        target=target.target,
        table=copy.table,
        version=copy.version,
        clone=clone,
        optional=optional,
    ):
        _clone(spark, clone, f"CLONE {copy.table.sql} VERSION AS OF {copy.version}")
        cloned = _cloned_version(spark, clone)
    if cloned not in (None, copy.version):
        raise TableError(
            "CLONE_OF_OTHER_VERSION", clone=clone, cloned=cloned, target=target.target, version=copy.version
        )


def _clone(spark: SparkSession, clone: TableName, what: str) -> None:
    """Make a clone unless it's there.

    A deep one has files of its own, which no VACUUM of the legacy table takes, and may come from another
    catalog. Delta has it on Databricks alone.
    """
    create = f"CREATE TABLE IF NOT EXISTS {clone.sql}"
    try:
        spark.sql(f"{create} DEEP {what}")
    except SPARK_ERRORS as error:
        if catalog.condition(error) != _NO_SUCH_SYNTAX:
            raise
        spark.sql(f"{create} SHALLOW {what}")


def _cloned_version(spark: SparkSession, clone: TableName) -> int | None:
    """Return the version that a clone was made of; None where its history doesn't reach back that far."""
    commits = spark.sql(f"DESCRIBE HISTORY {clone.sql}").where("operation = 'CLONE'")
    versions = [row["operationParameters"].get("sourceVersion") for row in commits.collect()]
    return max((int(version) for version in versions if version is not None), default=None)
