"""The commands of pipeline migration as plain functions: plan, run, status, verify, undo, finish."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from tableferry.errors import SessionError
from tableferry.pipelines.databricks_finish import finish_without_spark
from tableferry.pipelines.engines.databricks.pipeline import DatabricksPipeline
from tableferry.pipelines.engines.performer import Before, without_sequence
from tableferry.pipelines.handover.proofs import Proof, prove_start
from tableferry.pipelines.model.facts import Facts
from tableferry.pipelines.model.flows import Project
from tableferry.pipelines.model.plan import LOOK_BACK, LookBack, Plan, TargetPlan
from tableferry.pipelines.model.steps import RecordStart
from tableferry.pipelines.planning.pipeline_port import Pipeline
from tableferry.pipelines.planning.project import open_project, open_state, target_keys
from tableferry.pipelines.preparation import drop_clone
from tableferry.pipelines.reports import FinishReport, RunReport, StatusReport, UndoReport, VerifyReport
from tableferry.pipelines.sources.column_mismatches import find_lost_rules, find_narrow_copied_columns
from tableferry.pipelines.sources.unrepresentable_rows import (
    UnrepresentableRows,
    count_unrepresentable_rows,
    find_rows_ending_in_future,
)
from tableferry.pipelines.update import Update
from tableferry.spark.driver import in_process
from tableferry.spark.local_metastore import LocalMetastore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
    """Decide what a run would do, or what an update of a pipeline would; writes nothing.

    Args:
        project: A folder with ``dataflows/`` and ``pipeline_configs/``, one spec file, or a loaded project.
        spark: Where the tables are.
        targets: Names of the target tables to plan; empty means all.
        full_refresh: Names of the targets to rebuild.
        adopt: Take over state that was recorded under another pipeline's id.
        drop_history: Rebuild finished migrations too, whose history doesn't come back.
        look_back: With how many moments of its sources a legacy table is compared at most, or with
            those since which time, where that is to find the hand-over point; by default 100.
        pipeline_id: The pipeline's id; by default TABLEFERRY_PIPELINE_ID, the running pipeline's own, or the
            project's name.
        environment: Which ``<environment>_substitutions`` file applies.
        pipeline: The declarative pipeline that runs the flows, unless `run` does.

    Raises:
        SpecError: The project's files are wrong.
        StateError: A state file can't be read.
        TableError: A table isn't a Delta table, or may not be read.
    """
    opened = open_project(
        project, spark, targets=targets, pipeline_id=pipeline_id, environment=environment, pipeline=pipeline
    )
    planned, facts = opened.decided(
        opened.keys(full_refresh),
        adopt=adopt,
        count_rows=True,
        drop_history=drop_history,
        look_back=look_back or LOOK_BACK,
        through_connect=not in_process(spark),
    )
    return replace(
        planned, targets=tuple(_with_row_findings(target, facts, spark) for target in planned.targets)
    )


def _with_row_findings(target: TargetPlan, facts: Facts, spark: SparkSession) -> TargetPlan:
    """Add the findings on the columns and rows of the tables."""
    migration = target.dataflow.migration
    legacy = facts.tables.get(migration.table.key) if migration else None
    found = (
        find_rows_ending_in_future(target, spark),
        find_lost_rules(target, legacy, spark),
        without_sequence(target, spark),
    )
    return replace(
        target,
        warnings=(*target.warnings, *(finding for finding in found if finding is not None)),
        refusals=(*target.refusals, *find_narrow_copied_columns(target, spark)),
    )


def check(planned: Plan, spark: SparkSession) -> tuple[UnrepresentableRows, ...]:
    """Count and list, for every copy in a plan, the legacy rows that AUTO CDC can't represent."""
    counted = (count_unrepresentable_rows(target, spark) for target in planned.targets)
    return tuple(rows for rows in counted if rows is not None)


def check_start(planned: Plan, spark: SparkSession) -> tuple[Proof, ...]:
    """Compare, for every migration that a plan starts on an assumption, the legacy table with its sources."""
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
    before: Before = lambda _: None,
) -> RunReport:
    """Make one update: copy what isn't copied, take every commit that is there, and stop.

    A run that died anywhere is gone on with by running again. The arguments are those of `plan`; the data and
    checkpoints of what is rebuilt are dropped, and its history is the same again. ``before`` is called with a
    description right before each effect.

    Raises:
        Refused: The plan can't go on safely, or the state's volume isn't mounted here; nothing was written.
        Busy: Another process runs one of these targets.
        TableferryError: As for `plan`, or a flow failed.
    """
    opened = open_project(project, spark, targets=targets, pipeline_id=pipeline_id, environment=environment)
    refreshed = opened.keys(full_refresh)
    update = Update(
        opened,
        before,
        refreshed=refreshed,
        adopt=adopt,
        drop_history=drop_history,
        look_back=look_back or LOOK_BACK,
        through_connect=not in_process(spark),
    )
    return update.run()


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
    before: Before = lambda _: None,
) -> RunReport:
    """Do what an update of a declarative pipeline can't do itself; run it before each update.

    It records where migrations start, compares copies that the pipeline has made, and records how far all is.
    What it can't do yet is left for the next time. The arguments are those of `plan` and `run`.

    Raises:
        Refused: The plan can't go on safely; nothing was written.
        Busy: Another process prepares one of these targets.
        TableferryError: As for `plan`.
    """
    opened = open_project(
        project, spark, targets=targets, pipeline_id=pipeline_id, environment=environment, pipeline=pipeline
    )
    return Update(opened, before, adopt=adopt, look_back=look_back or LOOK_BACK).prepare()


def status(
    project: Project | str | Path,
    spark: SparkSession | LocalMetastore,
    *,
    targets: Collection[str] = (),
    pipeline_id: str | None = None,
    environment: str | None = None,
    pipeline: Pipeline | None = None,
) -> StatusReport:
    """Say for each target whether it's copying, waiting for which sources, or complete; writes nothing.

    In place of a session it takes what `session.metastore` opens, and returns the same report or none. The
    other arguments are those of `plan`.

    Raises:
        NeedsSpark: The metastore and the tables' logs don't say all: pass a session.
    """
    session = cast("SparkSession", spark)
    opened = open_project(
        project, session, targets=targets, pipeline_id=pipeline_id, environment=environment, pipeline=pipeline
    )
    return StatusReport(opened.decided(count_rows=True)[0])


def verify(
    project: Project | str | Path,
    spark: SparkSession,
    *,
    targets: Collection[str] = (),
    pipeline_id: str | None = None,
    environment: str | None = None,
    pipeline: Pipeline | None = None,
) -> VerifyReport:
    """Compare each target with its legacy table, as far as the old streams and the flows are; writes nothing.

    Where old streams said where they hand over, neither they nor the flows need to stop: what the flows have
    taken and the old streams haven't is read from the sources. Otherwise the old jobs must have taken what
    the flows have. The arguments are those of `plan`.
    """
    opened = open_project(
        project, spark, targets=targets, pipeline_id=pipeline_id, environment=environment, pipeline=pipeline
    )
    return Update(opened).verify()


def undo(
    project: Project | str | Path,
    spark: SparkSession,
    *,
    targets: Collection[str] = (),
    pipeline_id: str | None = None,
    environment: str | None = None,
    before: Before = lambda _: None,
) -> UndoReport:
    """Give tables that were taken over back to their old streams, which go on where the flows have stopped.

    The old streams' checkpoints are moved on, and the migration's state and checkpoints are removed. The
    arguments are those of `plan` and `run`.

    Raises:
        Refused: A target wasn't taken over, or can't be given back; nothing was done.
        Busy: Another process runs one of these targets.
    """
    opened = open_project(project, spark, targets=targets, pipeline_id=pipeline_id, environment=environment)
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
    """Take complete migrations out: remove their state files, and keep their data and flows' checkpoints.

    A target whose hand-over an old stream recorded is compared with that stream's rows first, unless
    ``verify`` is False. Where the hand-over was assumed, the legacy table is compared with its sources at
    the baselines; ``accept_assumed`` finishes such a migration without that. The other arguments are those of
    `plan`. A pipeline on Databricks is finished without ``spark``, and without a comparison.

    Raises:
        Refused: A migration isn't complete, its target differs from what the old streams wrote, or neither
            rows nor ``accept_assumed`` vouch for an assumed hand-over; nothing was removed.
        TableferryError: There is no session, and no pipeline on Databricks.
    """
    if pipeline is not None and pipeline.kind == "databricks":
        loaded, store = open_state(
            project, spark, pipeline_id=pipeline_id, environment=environment, pipeline=pipeline
        )
        if spark is None and isinstance(pipeline, DatabricksPipeline):
            drop = pipeline.drop_table
        else:
            drop = partial(drop_clone, _given(spark))
        only = target_keys(loaded, targets)
        return finish_without_spark(loaded, store, pipeline, drop, only, accept_assumed=accept_assumed)
    spark = _given(spark)
    opened = open_project(
        project, spark, targets=targets, pipeline_id=pipeline_id, environment=environment, pipeline=pipeline
    )
    return Update(opened).finish(verify=verify, accept_assumed=accept_assumed)


def _given(spark: SparkSession | None) -> SparkSession:
    if spark is None:
        raise SessionError("FINISH_NEEDS_SPARK")
    return spark
