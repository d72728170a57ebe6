"""The cutover of readers as plain functions: plan, perform, undo."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tableferry import workspace
from tableferry.access.unity_catalog import UnityAccess, is_in_unity_catalog
from tableferry.errors import Refused
from tableferry.pipelines import specs
from tableferry.pipelines.cutover.catalog_entries import SparkCatalog
from tableferry.pipelines.cutover.facts import CutoverNames
from tableferry.pipelines.cutover.findings import check_accepted
from tableferry.pipelines.cutover.gathering import gather_cutover, gather_undo
from tableferry.pipelines.cutover.lag import LegacyLag, read_lag
from tableferry.pipelines.cutover.performer import CutoverPerformer
from tableferry.pipelines.cutover.plan import CutoverPlan, decide_cutover, decide_undo
from tableferry.pipelines.engines.performer import Runner
from tableferry.pipelines.engines.port import EffectHook
from tableferry.pipelines.model.flows import Project
from tableferry.pipelines.planning.pipeline_port import Pipeline
from tableferry.pipelines.planning.project import OpenedProject, open_project
from tableferry.spark.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class CutoverReport:
    """The results of a cutover or its undo.

    Attributes:
        plan: The plan whose steps were performed; without steps, nothing was left to do.
        lag: After an undo: which source commits the legacy table lacks.
    """

    plan: CutoverPlan
    lag: LegacyLag | None = None


def plan_cutover(
    project: Project | str | Path,
    spark: SparkSession,
    target: str,
    *,
    undo: bool = False,
    accept: Collection[str] = (),
    pipeline_id: str | None = None,
    environment: str | None = None,
    pipeline: Pipeline | None = None,
) -> CutoverPlan:
    """Plan the cutover of a target's readers, or its undo, without writing.

    Findings about readers that prevent it are in `CutoverPlan.refusals`; they aren't raised. The notes of an
    undo state which source commits the legacy table lacks. The other arguments are those of `commands.plan`.

    Args:
        project: The project, as for `commands.plan`.
        spark: The session that reads the tables.
        target: The name of the target.
        undo: Plan the undo.
        accept: Names of the findings that don't prevent it, such as ``READERS_LOSE_COLUMNS``.
        pipeline_id: The pipeline's id.
        environment: The ``<environment>_substitutions`` file to apply.
        pipeline: The declarative pipeline that runs the flows.

    Raises:
        Refused: The target is unknown, or its migration allows no cutover or undo.
        InputError: ``accept`` names a finding that can't be accepted.
        TableferryError: As for `commands.plan`.
    """
    check_accepted(accept)
    opened = _open(project, spark, target, pipeline_id, environment, pipeline)
    if not undo:
        return _decide_cutover(opened, accept)
    plan = _decide_undo(opened)
    if plan.refusals:
        return plan
    legacy = plan.facts.legacy
    assert legacy is not None
    lag = _read_lag(opened, plan.facts.names, legacy.name)
    return replace(plan, notes=(*map(str, lag.sources), lag.advice))


def cut_over(
    project: Project | str | Path,
    spark: SparkSession,
    target: str,
    *,
    accept: Collection[str] = (),
    pipeline_id: str | None = None,
    environment: str | None = None,
    pipeline: Pipeline | None = None,
    before: EffectHook = lambda _: None,
) -> CutoverReport:
    """Cut a target's readers over: the legacy table's name becomes a view of the target.

    After a crash, the next call continues. If the view is outdated, it is replaced. The arguments are those
    of `plan_cutover`; ``before`` is called with a description before each effect.

    Raises:
        Refused: A finding prevents it; nothing was changed.
        Busy: Another process runs this target.
        TableferryError: As for `plan_cutover`, or a statement failed.
    """
    check_accepted(accept)
    opened = _open(project, spark, target, pipeline_id, environment, pipeline)
    plan = _decide_cutover(opened, accept)
    if not _require_allowed(plan).steps:
        return CutoverReport(plan)
    runner = Runner(opened.store, spark, before)
    with opened.lock_targets() as runner.check_lease:
        plan = _require_allowed(_decide_cutover(opened, accept))
        access = _open_access(spark, plan.facts.names.name)
        CutoverPerformer(SparkCatalog(spark), opened.store, access, runner.before_effect).perform(plan)
    return CutoverReport(plan)


def undo_cutover(
    project: Project | str | Path,
    spark: SparkSession,
    target: str,
    *,
    pipeline_id: str | None = None,
    environment: str | None = None,
    pipeline: Pipeline | None = None,
    before: EffectHook = lambda _: None,
) -> CutoverReport:
    """Undo a cutover: drop the view, and give the legacy table its old name again.

    The report states which source commits the legacy table lacks. The arguments are those of `cut_over`.

    Raises:
        Refused: No cutover is recorded, or the old name isn't the view any more; nothing was changed.
        Busy: Another process runs this target.
        TableferryError: A statement failed.
    """
    opened = _open(project, spark, target, pipeline_id, environment, pipeline)
    _require_allowed(_decide_undo(opened))
    runner = Runner(opened.store, spark, before)
    with opened.lock_targets() as runner.check_lease:
        plan = _require_allowed(_decide_undo(opened))
        CutoverPerformer(SparkCatalog(spark), opened.store, None, runner.before_effect).perform(plan)
    return CutoverReport(plan, _read_lag(opened, plan.facts.names, plan.facts.names.name))


def _open(
    project: Project | str | Path,
    spark: SparkSession,
    target: str,
    pipeline_id: str | None,
    environment: str | None,
    pipeline: Pipeline | None,
) -> OpenedProject:
    loaded = project if isinstance(project, Project) else specs.load(project, environment=environment)
    return open_project(loaded, spark, targets=(target,), pipeline_id=pipeline_id, pipeline=pipeline)


def _decide_cutover(opened: OpenedProject, accept: Collection[str]) -> CutoverPlan:
    spark = opened.spark
    (dataflow,) = opened.project.select_dataflows(opened.request.only)
    recorded = opened.store.read(dataflow.target.name).cutover
    name = recorded.name if recorded else dataflow.migration.table if dataflow.migration else None
    access = _open_access(spark, name) if name else None
    return decide_cutover(gather_cutover(opened, SparkCatalog(spark), access), accept)


def _read_lag(opened: OpenedProject, names: CutoverNames, current: TableName) -> LegacyLag:
    (dataflow,) = opened.project.select_dataflows(opened.request.only)
    start = opened.store.read(dataflow.target.name).migration_start
    return read_lag(opened.spark, opened.project, dataflow.migration, start, names, current)


def _decide_undo(opened: OpenedProject) -> CutoverPlan:
    return decide_undo(gather_undo(opened, SparkCatalog(opened.spark)))


def _require_allowed(plan: CutoverPlan) -> CutoverPlan:
    if plan.refusals:
        raise Refused.of(plan.refusals)
    return plan


def _open_access(spark: SparkSession, name: TableName) -> UnityAccess | None:
    """Return the access to the legacy table's catalog; None if it isn't in Unity Catalog."""
    if len(name.parts) != 3 or not is_in_unity_catalog(name.parts[0]):
        return None
    return UnityAccess(workspace.client(), lambda query: spark.sql(query).collect())
