"""The commands of pipeline migration as plain functions: plan, run, status, finish."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tableferry import files, session, verify
from tableferry.errors import Refused
from tableferry.pipelines import preparing
from tableferry.pipelines.flows import Project
from tableferry.pipelines.misfits import left_behind, too_wide
from tableferry.pipelines.opening import Opened, opened
from tableferry.pipelines.perform import (
    Before,
    NotRepresentable,
    Runner,
    not_representable,
    open_later,
    progress,
)
from tableferry.pipelines.pipeline import Pipeline
from tableferry.pipelines.plans import PHASES, Plan, TargetPlan
from tableferry.pipelines.streaming import FlowResult
from tableferry.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

_OVER = ("complete", "plain", "finished")


@dataclass(frozen=True)
class TargetReport:
    """What a run did to one target, and where it stands now.

    Attributes:
        plan: What was planned, decided anew after the run.
        results: What each flow did.
        verdict: How the copy compares with the legacy table, if it was made in this run.
    """

    plan: TargetPlan
    results: tuple[FlowResult, ...] = ()
    verdict: verify.Verdict | None = None


@dataclass(frozen=True)
class RunReport:
    """What one update did.

    Attributes:
        pipeline_id: The pipeline whose state was used.
        targets: In the order in which they were filled.
    """

    pipeline_id: str
    targets: tuple[TargetReport, ...]

    @property
    def ok(self) -> bool:
        """Whether every copy that was made equals its legacy table."""
        return all(one.verdict is None or one.verdict.matches for one in self.targets)


@dataclass(frozen=True)
class StatusReport:
    """Where each target stands: a plan that nobody performs."""

    plan: Plan

    @property
    def complete(self) -> bool:
        """Whether every migration of the project is complete."""
        return all(one.phase in _OVER for one in self.plan.targets)


@dataclass(frozen=True)
class FinishReport:
    """The targets whose migration was taken out, and whose was out already."""

    finished: tuple[TableName, ...]
    already: tuple[TableName, ...] = ()


def plan(
    project: Project | str | Path,
    spark: SparkSession,
    *,
    targets: Collection[str] = (),
    full_refresh: Collection[str] = (),
    adopt: bool = False,
    drop_history: bool = False,
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
        pipeline_id: The pipeline's id; by default TABLEFERRY_PIPELINE_ID, the running pipeline's own, or the
            project's name.
        environment: Which ``<environment>_substitutions`` file applies.
        pipeline: The declarative pipeline that runs the flows, unless `run` does.

    Raises:
        SpecError: The project's files are wrong.
        StateError: A state file can't be read.
        TableError: A table isn't a Delta table, or may not be read.
    """
    one = opened(
        project, spark, targets=targets, pipeline_id=pipeline_id, environment=environment, pipeline=pipeline
    )
    refreshed = one.keys(full_refresh)
    planned, _ = one.decided(refreshed, adopt=adopt, count_rows=True, drop_history=drop_history)
    return replace(planned, targets=tuple(_looked(target, spark) for target in planned.targets))


def _looked(target: TargetPlan, spark: SparkSession) -> TargetPlan:
    """Add what the tables' columns and rows show."""
    notes = filter(None, (open_later(target, spark), left_behind(target, spark)))
    return replace(
        target,
        notes=(*target.notes, *notes),
        refusals=(*target.refusals, *too_wide(target, spark)),
    )


def check(planned: Plan, spark: SparkSession) -> tuple[NotRepresentable, ...]:
    """Count and list, for every copy in a plan, the legacy rows that AUTO CDC can't express."""
    found = (not_representable(one, spark) for one in planned.targets if one.copy)
    return tuple(one for one in found if one is not None)


def run(
    project: Project | str | Path,
    spark: SparkSession,
    *,
    full_refresh: Collection[str] = (),
    targets: Collection[str] = (),
    adopt: bool = False,
    drop_history: bool = False,
    pipeline_id: str | None = None,
    environment: str | None = None,
    before: Before = lambda _: None,
) -> RunReport:
    """Make one update: copy what isn't copied, take every commit that is there, and stop.

    A run that died anywhere is gone on with by running again.

    Args:
        project: As for `plan`.
        spark: As for `plan`.
        full_refresh: Names of the targets whose data and checkpoints are dropped and rebuilt from the same
            history.
        targets: As for `plan`.
        adopt: As for `plan`.
        drop_history: As for `plan`.
        pipeline_id: As for `plan`.
        environment: As for `plan`.
        before: Called with a description right before each effect.

    Raises:
        Refused: The plan can't go on safely, or the state's volume isn't mounted here; nothing was written.
        Busy: Another process runs one of these targets.
        TableferryError: As for `plan`, or a flow failed.
    """
    one = opened(project, spark, targets=targets, pipeline_id=pipeline_id, environment=environment)
    for skipped in one.project.skipped:
        _log.warning("%s", skipped)
    if not files.is_mounted(one.store.volume):
        raise Refused(
            f"{one.store.volume} isn't mounted here, and from outside no run can lock it: start "
            "the pipeline or the job that the bundle deploys; plan, status and finish work from here"
        )
    refreshed = one.keys(full_refresh)
    runner = Runner(one.store, spark, before)
    place = f"{one.project.root}: pipeline_configs/global.json: spark_config"
    with session.settings(spark, one.project.spark_config, place):
        # What is refused or has nothing to do leaves no trace, so all is decided before anything is locked.
        planned, found = one.decided(refreshed, adopt=adopt, drop_history=drop_history)
        runner.validate(planned)
        if planned.steps or progress(planned, found):
            with one.locked() as runner.guard:
                if not one.hold(found, refreshed):
                    planned, found = one.decided(refreshed, adopt=adopt, drop_history=drop_history)
                    runner.validate(planned)
                runner.run(planned)
                if planned.steps:
                    planned, found = one.decided()
                runner.track(progress(planned, found))
    return _report(one, planned, runner)


def prepare(
    project: Project | str | Path,
    spark: SparkSession,
    *,
    pipeline: Pipeline,
    targets: Collection[str] = (),
    adopt: bool = False,
    pipeline_id: str | None = None,
    environment: str | None = None,
    before: Before = lambda _: None,
) -> RunReport:
    """Do what an update of a declarative pipeline can't do itself; run it before each update.

    It records where migrations begin, compares copies that the pipeline has made, and records how far all is.
    What it can't do yet is left for the next time.

    Args:
        project: As for `plan`.
        spark: As for `plan`.
        pipeline: The pipeline that runs the flows.
        targets: As for `plan`.
        adopt: As for `plan`.
        pipeline_id: As for `plan`.
        environment: As for `plan`.
        before: As for `run`.

    Raises:
        Refused: The plan can't go on safely; nothing was written.
        Busy: Another process prepares one of these targets.
        TableferryError: As for `plan`.
    """
    one = opened(
        project, spark, targets=targets, pipeline_id=pipeline_id, environment=environment, pipeline=pipeline
    )
    runner = Runner(one.store, spark, before)
    planned, found = one.decided(adopt=adopt)
    runner.validate(planned)
    if progress(planned, found, in_pipeline=True) or any(map(preparing.wanted, planned.targets)):
        with one.locked() as runner.guard:
            if not one.hold(found):
                planned, found = one.decided(adopt=adopt)
                runner.validate(planned)
            for target in planned.targets:
                preparing.prepare(target, pipeline, spark, runner)
            planned, found = one.decided()
            runner.track(progress(planned, found, in_pipeline=True))
    return _report(one, planned, runner)


def status(
    project: Project | str | Path,
    spark: SparkSession,
    *,
    targets: Collection[str] = (),
    pipeline_id: str | None = None,
    environment: str | None = None,
    pipeline: Pipeline | None = None,
) -> StatusReport:
    """Say for each target whether it's copying, waiting for which sources, or complete; writes nothing."""
    one = opened(
        project, spark, targets=targets, pipeline_id=pipeline_id, environment=environment, pipeline=pipeline
    )
    return StatusReport(one.decided(count_rows=True)[0])


def finish(
    project: Project | str | Path,
    spark: SparkSession,
    *,
    targets: Collection[str] = (),
    pipeline_id: str | None = None,
    environment: str | None = None,
    pipeline: Pipeline | None = None,
) -> FinishReport:
    """Take complete migrations out: their state files go, their data and their flows' checkpoints stay.

    Raises:
        Refused: A migration isn't complete; nothing was removed.
    """
    one = opened(
        project, spark, targets=targets, pipeline_id=pipeline_id, environment=environment, pipeline=pipeline
    )
    migrating = _finishable(one)
    if migrating:
        with one.locked() as guard:
            migrating = _finishable(one)
            for target in migrating:
                guard()
                one.store.finish(target.target)
                if pipeline is not None:
                    preparing.clear(target, pipeline, spark)
    return FinishReport(
        tuple(target.target for target in migrating if target.phase != "finished"),
        tuple(target.target for target in migrating if target.phase == "finished"),
    )


def _report(one: Opened, planned: Plan, runner: Runner) -> RunReport:
    return RunReport(
        one.store.pipeline_id,
        tuple(
            TargetReport(
                target,
                tuple(runner.results.get(target.target.key, ())),
                runner.verdicts.get(target.target.key),
            )
            for target in planned.targets
        ),
    )


def _finishable(one: Opened) -> tuple[TargetPlan, ...]:
    """Return the migrations that can be taken out; refuse if there is one that can't."""
    targets = one.decided()[0].targets
    migrating = tuple(
        target for target in targets if target.dataflow.migration or target.stored.migration_start
    )
    unfinished = [target for target in migrating if target.phase not in _OVER]
    if unfinished:
        raise Refused(
            "\n".join(
                f"{target.target}: its migration isn't complete ({PHASES[target.phase]}"
                + "".join(f"; {wait.table} {wait.why}" for wait in target.waits)
                + "): run the project until `tableferry pipelines status` says complete"
                for target in unfinished
            )
        )
    return migrating
