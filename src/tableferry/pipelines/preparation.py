"""Preparation of a declarative pipeline's update: record starts, create pinned clones, compare copies."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tableferry.errors import TableError
from tableferry.pipelines.model.flows import HISTORY_FLOW
from tableferry.pipelines.model.plan import Plan, TargetPlan, pinned_clone_name
from tableferry.pipelines.model.steps import RecordTableIdentity, RemoveMigration
from tableferry.pipelines.model.target_state import PinnedCopy
from tableferry.pipelines.planning.pipeline_port import Pipeline
from tableferry.spark import catalog
from tableferry.spark.catalog import SPARK_ERRORS, explaining
from tableferry.spark.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tableferry.pipelines.engines.performer import Runner
    from tableferry.pipelines.planning.project import OpenedProject

_NO_SUCH_SYNTAX = "PARSE_SYNTAX_ERROR"


def has_preparation_steps(target: TargetPlan, opened: OpenedProject) -> bool:
    """Return whether a target needs a state change, a pinned clone or the comparison of its copy."""
    return bool(target.state_steps) or target.copy or _is_clone_missing(target, opened)


def _is_clone_missing(target: TargetPlan, opened: OpenedProject) -> bool:
    return target.clone is not None and not catalog.exists(opened.spark, target.clone)


def prepare_targets(plan: Plan, opened: OpenedProject, runner: Runner) -> None:
    """Perform each target's state steps, create or drop its pinned clone, and compare its completed copy.

    The verdicts are in `Runner.verdicts`. After a comparison, the identities of the tables are recorded.

    Raises:
        TableError: A clone can't be created or dropped.
        Failed: A copy can't be compared.
        Busy: Another run has taken over the targets.
    """
    for target in plan.targets:
        runner.perform_state_steps(target)
        if any(isinstance(step, RemoveMigration) for step in target.state_steps):
            drop_pinned_clone(target, opened)
        if target.clone and (target.copy or _is_clone_missing(target, opened)):
            _create_pinned_clone(target, target.clone, opened.spark, runner)
        if target.copy and opened.pipeline and _is_copied(target, opened.pipeline):
            runner.compare_copy(target)
    if runner.verdicts:
        # The next update may start flows, so the identities of the compared tables are recorded before it.
        decided, _ = opened.after_run.decide_plan()
        for target in decided.targets:
            steps = tuple(step for step in target.steps if isinstance(step, RecordTableIdentity))
            runner.perform_state_steps(replace(target, steps=steps))


def _is_copied(target: TargetPlan, pipeline: Pipeline) -> bool:
    """Return whether the pipeline has completed the initial copy."""
    assert target.migration_start is not None
    starts = {target.target.key: target.migration_start.recorded_at}
    progress = pipeline.read_progress([(target.target, HISTORY_FLOW)], starts)
    return progress[target.target.key, HISTORY_FLOW].is_caught_up


def drop_pinned_clone(target: TargetPlan, opened: OpenedProject) -> None:
    """Drop the clone of a target's legacy table, which exists only in a declarative pipeline."""
    if opened.pipeline is not None:
        drop_clone(opened.spark, pinned_clone_name(target.target))


def drop_clone(spark: SparkSession, clone: TableName) -> None:
    """Drop a pinned clone if it exists."""
    with explaining("CLONE_NOT_DROPPED", clone=clone):
        spark.sql(f"DROP TABLE IF EXISTS {clone.sql}")


def _create_pinned_clone(target: TargetPlan, clone: TableName, spark: SparkSession, runner: Runner) -> None:
    """Clone the legacy table at the pinned version, unless the clone exists.

    Raises:
        TableError: The clone can't be created, or it is of another version.
    """
    assert target.migration_start is not None
    copy = target.migration_start.copy
    runner.before_effect(f"cloning {copy.table}@{copy.version} as {clone}")
    optional = " or set tableMigrationDetails.pinnedClone to false" if target.dataflow.target.cdc else ""
    with explaining(
        "CLONE_NOT_CREATED",
        target=target.target,
        table=copy.table,
        version=copy.version,
        clone=clone,
        optional=optional,
    ):
        _create_clone(spark, clone, copy)
        cloned = _read_cloned_version(spark, clone)
    if cloned not in (None, copy.version):
        raise TableError(
            "CLONE_OF_OTHER_VERSION", clone=clone, cloned=cloned, target=target.target, version=copy.version
        )


def _create_clone(spark: SparkSession, clone: TableName, copy: PinnedCopy) -> None:
    """Create a deep clone, or a shallow one where Delta lacks DEEP CLONE: outside Databricks.

    VACUUM of the legacy table can't delete a deep clone's files. Its source may be in another catalog.
    """
    create, table, version = f"CREATE TABLE IF NOT EXISTS {clone.sql}", copy.table, copy.version
    try:
        spark.sql(f"{create} DEEP CLONE {table.sql} VERSION AS OF {version}")
    except SPARK_ERRORS as error:
        if catalog.condition(error) != _NO_SUCH_SYNTAX:
            raise
        spark.sql(f"{create} SHALLOW CLONE {table.sql} VERSION AS OF {version}")


def _read_cloned_version(spark: SparkSession, clone: TableName) -> int | None:
    """Return the version that a clone was created from; None if its history has lost that commit."""
    commits = spark.sql(f"DESCRIBE HISTORY {clone.sql}").where("operation = 'CLONE'")
    versions = [row["operationParameters"].get("sourceVersion") for row in commits.collect()]
    return max((int(version) for version in versions if version is not None), default=None)
