"""The commands of pipeline migration as plain functions: plan, run, status, verify, undo, finish."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from tableferry.errors import SessionError
from tableferry.pipelines import specs
from tableferry.pipelines.engines.databricks.pipeline import DatabricksPipeline
from tableferry.pipelines.engines.plan_validation import find_missing_sequence
from tableferry.pipelines.engines.port import EffectHook
from tableferry.pipelines.finished_migrations import finish_with_proofs, finish_without_spark
from tableferry.pipelines.handover.proofs import Proof, prove_start
from tableferry.pipelines.model.facts import Facts
from tableferry.pipelines.model.flows import Project
from tableferry.pipelines.model.plan import DEFAULT_LOOK_BACK, LookBack, Plan, TargetPlan
from tableferry.pipelines.model.steps import RecordStart
from tableferry.pipelines.pinned_clones import drop_clone, estimate_pinned_clone
from tableferry.pipelines.planning.pipeline_port import Pipeline
from tableferry.pipelines.planning.project import open_project, open_state, target_keys
from tableferry.pipelines.reports import FinishReport, RunReport, StatusReport, UndoReport, VerifyReport
from tableferry.pipelines.sources.copy_findings import (
    UnrepresentableRows,
    count_unrepresentable_rows,
    find_lost_rules,
    find_narrow_copied_columns,
    find_rows_ending_in_future,
)
from tableferry.pipelines.update import Update
from tableferry.spark.driver import in_process
from tableferry.spark.local_metastore import LocalMetastore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tableferry.pipelines.planning.project import OpenedProject


def plan(
    project: Project | str | Path,
    spark: SparkSession,
    *,
    targets: Collection[str] = (),
    full_refresh: Collection[str] = (),
    adopt: bool = False,
    drop_history: bool = False,
    look_back: LookBack | None = None,
    pipeline_id: str | None = None,
    environment: str | None = None,
    pipeline: Pipeline | None = None,
) -> Plan:
    """Plan a run, or an update of a pipeline, without writing.

    Findings that prevent the run are in `Plan.refusals`; they aren't raised.

    Args:
        project: A folder with ``dataflows/`` and ``pipeline_configs/``, one spec file, or a loaded project.
        spark: The session that reads the tables.
        targets: Names of the target tables to plan; empty means all.
        full_refresh: Names of the targets to rebuild.
        adopt: Adopt state that was recorded under another pipeline's id.
        drop_history: Rebuild also finished migrations, without their copied history.
        look_back: The number of source versions, or the time of the oldest one, with which a legacy table is
            compared to find the hand-over point; by default 100 versions.
        pipeline_id: The pipeline's id; by default TABLEFERRY_PIPELINE_ID, the running pipeline's own, or the
            project's name.
        environment: The ``<environment>_substitutions`` file to apply.
        pipeline: The declarative pipeline that runs the flows, unless `run` does.

    Raises:
        SpecError: The project's files are wrong.
        StateError: The project names no state volume, or a state file can't be read.
        Refused: A target doesn't exist, or one to refresh isn't among the chosen ones.
        TableError: A table isn't a Delta table, or may not be read.
    """
    opened = open_project(
        _load(project, environment),
        spark,
        targets=targets,
        full_refresh=full_refresh,
        adopt=adopt,
        drop_history=drop_history,
        look_back=look_back or DEFAULT_LOOK_BACK,
        through_connect=not in_process(spark),
        pipeline_id=pipeline_id,
        pipeline=pipeline,
    )
    planned, facts = opened.decide_plan(for_report=True)
    return replace(
        planned,
        targets=tuple(
            _with_clone_estimate(_with_row_findings(target, facts, spark), opened)
            for target in planned.targets
        ),
    )


def _with_clone_estimate(target: TargetPlan, opened: OpenedProject) -> TargetPlan:
    estimate = estimate_pinned_clone(target, opened)
    return replace(target, notes=(*target.notes, f"pinned clone: {estimate}")) if estimate else target


def _with_row_findings(target: TargetPlan, facts: Facts, spark: SparkSession) -> TargetPlan:
    """Add the findings on the columns and rows of the tables."""
    migration = target.dataflow.migration
    legacy = facts.tables.get(migration.table.key) if migration else None
    found = (
        find_rows_ending_in_future(target, spark),
        find_lost_rules(target, legacy, spark),
        find_missing_sequence(target, spark),
    )
    return replace(
        target,
        warnings=(*target.warnings, *(finding for finding in found if finding is not None)),
        refusals=(*target.refusals, *find_narrow_copied_columns(target, spark, facts.tables)),
    )


def check(planned: Plan, spark: SparkSession) -> tuple[UnrepresentableRows, ...]:
    """Count the legacy rows that AUTO CDC can't represent, for each copy in a plan."""
    counted = (count_unrepresentable_rows(target, spark) for target in planned.targets)
    return tuple(rows for rows in counted if rows is not None)


def check_start(planned: Plan, spark: SparkSession) -> tuple[Proof, ...]:
    """Compare the legacy table with its sources for every migration that starts at an assumed hand-over."""
    starting = (target for target in planned.targets if any(isinstance(s, RecordStart) for s in target.steps))
    return tuple(
        prove_start(spark, target)
        for target in starting
        if target.migration_start and target.migration_start.certainty == "assumed"
    )


def run(
    project: Project | str | Path,
    spark: SparkSession,
    *,
    full_refresh: Collection[str] = (),
    targets: Collection[str] = (),
    adopt: bool = False,
    drop_history: bool = False,
    look_back: LookBack | None = None,
    pipeline_id: str | None = None,
    environment: str | None = None,
    before: EffectHook = lambda _: None,
) -> RunReport:
    """Run one update: copy the history, process all commits of the sources, and stop.

    After a crash, the next run continues. The arguments are those of `plan`. A full refresh drops the data
    and checkpoints of its targets, and copies the same history again. ``before`` is called with a
    description before each effect.

    Raises:
        Refused: A finding prevents the run, or the state's volume isn't mounted here; nothing was written.
        Busy: Another process runs one of these targets.
        TableferryError: As for `plan`, or a flow failed.
    """
    opened = open_project(
        _load(project, environment),
        spark,
        targets=targets,
        full_refresh=full_refresh,
        adopt=adopt,
        drop_history=drop_history,
        look_back=look_back or DEFAULT_LOOK_BACK,
        through_connect=not in_process(spark),
        pipeline_id=pipeline_id,
    )
    return Update(opened, before).run()


def prepare(
    project: Project | str | Path,
    spark: SparkSession,
    *,
    pipeline: Pipeline,
    targets: Collection[str] = (),
    adopt: bool = False,
    look_back: LookBack | None = None,
    pipeline_id: str | None = None,
    environment: str | None = None,
    before: EffectHook = lambda _: None,
) -> RunReport:
    """Prepare the next update of a declarative pipeline.

    It performs what the update can't do itself: it records, adopts or ends migrations, creates and drops
    pinned clones, compares copies that the pipeline has completed, and records progress. Call it before each
    update, because a copy is compared after the update that completes it. `pipeline` is required. The other
    arguments are those of `plan` and `run`.

    Raises:
        Refused: A finding prevents the update; nothing was written.
        Busy: Another process prepares one of these targets.
        TableferryError: As for `plan`.
    """
    opened = open_project(
        _load(project, environment),
        spark,
        targets=targets,
        adopt=adopt,
        look_back=look_back or DEFAULT_LOOK_BACK,
        pipeline_id=pipeline_id,
        pipeline=pipeline,
    )
    return Update(opened, before).prepare()


def status(
    project: Project | str | Path,
    spark: SparkSession | LocalMetastore,
    *,
    targets: Collection[str] = (),
    pipeline_id: str | None = None,
    environment: str | None = None,
    pipeline: Pipeline | None = None,
) -> StatusReport:
    """Report the phase and progress of each target, and the findings of a plan that reads no rows.

    Nothing is written. ``spark`` may be a local metastore from `session.metastore`. The other arguments mean
    the same as those of `plan`.

    Raises:
        TableferryError: As for `plan`.
        NeedsSpark: The metastore and the tables' logs aren't sufficient: pass a session.
    """
    session = cast("SparkSession", spark)
    opened = open_project(
        _load(project, environment), session, targets=targets, pipeline_id=pipeline_id, pipeline=pipeline
    )
    return StatusReport(opened.decide_plan(for_report=True)[0])


def verify(
    project: Project | str | Path,
    spark: SparkSession,
    *,
    targets: Collection[str] = (),
    pipeline_id: str | None = None,
    environment: str | None = None,
    pipeline: Pipeline | None = None,
) -> VerifyReport:
    """Compare each target with its legacy table, without writing.

    If the hand-over is from old streams' checkpoints, neither the streams nor the flows need to stop: rows
    that only the flows have processed are read from the sources. Otherwise, the old jobs must have processed
    all rows that the flows have. The arguments are those of `plan`.
    """
    opened = open_project(
        _load(project, environment), spark, targets=targets, pipeline_id=pipeline_id, pipeline=pipeline
    )
    return Update(opened).verify()


def undo(
    project: Project | str | Path,
    spark: SparkSession,
    *,
    targets: Collection[str] = (),
    pipeline_id: str | None = None,
    environment: str | None = None,
    before: EffectHook = lambda _: None,
) -> UndoReport:
    """Return tables that were taken over to their old streams, which continue after the flows' last commits.

    The old streams' checkpoints are advanced, and the migration's state and checkpoints are removed. The
    arguments are those of `plan` and `run`.

    Raises:
        Refused: A target wasn't taken over, or can't be returned; nothing was written.
        Busy: Another process runs one of these targets.
    """
    opened = open_project(_load(project, environment), spark, targets=targets, pipeline_id=pipeline_id)
    return Update(opened, before).undo()


def finish(
    project: Project | str | Path,
    spark: SparkSession | None = None,
    *,
    targets: Collection[str] = (),
    pipeline_id: str | None = None,
    environment: str | None = None,
    pipeline: Pipeline | None = None,
    verify: bool = True,
    accept_assumed: bool = False,
) -> FinishReport:
    """Finish complete migrations: remove their state files, and keep their data and flows' checkpoints.

    If the hand-over is from old streams' checkpoints, the target is first compared with the rows of these
    streams, unless ``verify`` is False. If the hand-over was assumed, the legacy table is compared with its
    sources at the baselines, unless ``accept_assumed`` is True. A pipeline on Databricks is finished without
    a comparison, and needs no ``spark``. The other arguments are those of `plan`.

    Raises:
        Refused: A migration isn't complete, its target differs from the rows of the old streams, or an
            assumed hand-over is neither proved nor accepted; nothing was removed.
        TableferryError: A session is required, but was not passed.
    """
    if pipeline is not None and pipeline.kind == "databricks":
        loaded, store = open_state(
            _load(project, environment), spark, pipeline_id=pipeline_id, pipeline=pipeline
        )
        if spark is None and isinstance(pipeline, DatabricksPipeline):
            drop = pipeline.drop_table
        else:
            drop = partial(drop_clone, _given(spark))
        only = target_keys(loaded, targets)
        return finish_without_spark(loaded, store, pipeline, drop, only, accept_assumed=accept_assumed)
    spark = _given(spark)
    opened = open_project(
        _load(project, environment), spark, targets=targets, pipeline_id=pipeline_id, pipeline=pipeline
    )
    return finish_with_proofs(Update(opened), verify=verify, accept_assumed=accept_assumed)


def _load(project: Project | str | Path, environment: str | None) -> Project:
    return project if isinstance(project, Project) else specs.load(project, environment=environment)


def _given(spark: SparkSession | None) -> SparkSession:
    if spark is None:
        raise SessionError("FINISH_NEEDS_SPARK")
    return spark
