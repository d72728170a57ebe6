"""The verbs of pipeline migration as plain functions: plan, run, status, finish."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from tableferry import files, verify
from tableferry.catalog import first_line
from tableferry.errors import Refused, StateError, TableferryError
from tableferry.pipelines import cdc, facts, spec
from tableferry.pipelines.decide import decide
from tableferry.pipelines.flows import DataFlow, Project
from tableferry.pipelines.perform import Before, Inexpressible, Runner, inexpressible, refusal
from tableferry.pipelines.plans import PHASES, Facts, Plan, Request, TargetPlan
from tableferry.pipelines.state import StateStore
from tableferry.pipelines.streaming import FlowResult
from tableferry.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
        return all(one.phase in ("complete", "plain", "finished") for one in self.plan.targets)


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
    pipeline_id: str | None = None,
    environment: str | None = None,
) -> Plan:
    """Decide what a run would do; writes nothing.

    Args:
        project: A folder with ``dataflows/`` and ``pipeline_configs/``, one spec file, or a loaded project.
        spark: Where the tables are.
        targets: Names of the target tables to plan; empty means all.
        full_refresh: Names of the targets to rebuild.
        adopt: Take over state that was recorded under another pipeline's id.
        pipeline_id: The pipeline's id; by default TABLEFERRY_PIPELINE_ID, the running pipeline's own, or the
            project's name.
        environment: Which ``<environment>_substitutions`` file applies.

    Raises:
        SpecError: The project's files are wrong.
        StateError: A state file can't be read.
        TableError: A table isn't a Delta table, or may not be read.
    """
    return _decided(
        _opened(project, spark, pipeline_id, environment), spark, targets, full_refresh, adopt, True
    )[0]


def check(planned: Plan, spark: SparkSession) -> tuple[Inexpressible, ...]:
    """Count and list, for every copy in a plan, the legacy rows that AUTO CDC can't express."""
    found = (inexpressible(one, spark) for one in planned.targets if one.copy)
    return tuple(one for one in found if one is not None)


def run(
    project: Project | str | Path,
    spark: SparkSession,
    *,
    full_refresh: Collection[str] = (),
    targets: Collection[str] = (),
    adopt: bool = False,
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
        pipeline_id: As for `plan`.
        environment: As for `plan`.
        before: Called with a description right before each effect.

    Raises:
        Refused: The plan can't go on safely; nothing was written.
        Busy: Another process runs one of these targets.
        TableferryError: As for `plan`, or a flow failed.
    """
    opened = _opened(project, spark, pipeline_id, environment)
    chosen = _chosen(opened.project, targets) or frozenset(
        one.target.name.key for one in opened.project.dataflows
    )
    names = [one.target.name for one in opened.project.dataflows if one.target.name.key in chosen]
    what = f"the migration of {names[0]}" if len(names) == 1 else f"the project {opened.project.name}"
    with (
        files.locked([opened.store.lock_file(name) for name in names], what),
        _settings(opened.project, spark),
    ):
        planned, found = _decided(opened, spark, targets, full_refresh, adopt, False)
        if planned.refusals:
            raise Refused("\n".join(planned.refusals))
        for one in check(planned, spark):
            if not one.left_out:
                raise Refused(refusal(one))
        runner = Runner(opened.store, spark, before)
        runner.run(planned)
        after = planned
        if planned.steps:
            after, found = _decided(opened, spark, targets, (), False, False)
        runner.track(after, found)
    return RunReport(
        opened.store.pipeline_id,
        tuple(TargetReport(one, tuple(runner.results.get(one.target.key, ())),
        runner.verdicts.get(one.target.key))
              for one in after.targets),
    )  # fmt: skip


def status(
    project: Project | str | Path,
    spark: SparkSession,
    *,
    targets: Collection[str] = (),
    pipeline_id: str | None = None,
    environment: str | None = None,
) -> StatusReport:
    """Say for each target whether it's copying, waiting for which sources, or complete; writes nothing."""
    return StatusReport(
        plan(project, spark, targets=targets, pipeline_id=pipeline_id, environment=environment)
    )


def finish(
    project: Project | str | Path,
    spark: SparkSession,
    *,
    targets: Collection[str] = (),
    pipeline_id: str | None = None,
    environment: str | None = None,
) -> FinishReport:
    """Take complete migrations out: their state files go, their data and their flows' checkpoints stay.

    Raises:
        Refused: A migration isn't complete; nothing was removed.
    """
    opened = _opened(project, spark, pipeline_id, environment)
    planned, _ = _decided(opened, spark, targets, (), False, False)
    migrating = [one for one in planned.targets if one.dataflow.migration or one.stored.beginning]
    unfinished = [one for one in migrating if one.phase not in ("complete", "plain", "finished")]
    if unfinished:
        raise Refused(
            "\n".join(
                f"{one.target}: its migration isn't complete ({PHASES[one.phase]}"
                + "".join(f"; {wait.table} {wait.why}" for wait in one.waits)
                + "): run the project until `tableferry pipelines status` says complete"
                for one in unfinished
            )
        )
    for one in migrating:
        opened.store.remove(one.target)
    return FinishReport(
        tuple(one.target for one in migrating if one.phase != "finished"),
        tuple(one.target for one in migrating if one.phase == "finished"),
    )


@dataclass(frozen=True)
class _Opened:
    project: Project
    store: StateStore


def _opened(
    project: Project | str | Path, spark: SparkSession, pipeline_id: str | None, environment: str | None
) -> _Opened:
    loaded = project if isinstance(project, Project) else spec.load(project, environment=environment)
    loaded = _registered(loaded, spark)
    if loaded.state_volume is None:
        raise StateError(
            f"{loaded.root}: pipeline_configs/global.json: table_migration_state_volume_path is missing: "
            "name the folder that holds state and checkpoints"
        )
    found = (
        pipeline_id
        or os.environ.get("TABLEFERRY_PIPELINE_ID")
        or _running_pipeline(spark)
        or _slug(loaded.name)
    )
    return _Opened(loaded, StateStore(Path(loaded.root, loaded.state_volume), found))


def _registered(project: Project, spark: SparkSession) -> Project:
    """Look up legacy tables in the catalog that ``catalogType`` names.

    Where there is no Unity Catalog, the metastore is the default catalog itself.
    """
    wants_metastore = [
        one for one in project.dataflows if one.migration and one.migration.catalog_type == "hms"
    ]
    if not wants_metastore or spark.catalog.currentCatalog() == "spark_catalog":
        return project

    def renamed(one: DataFlow) -> DataFlow:
        migration = one.migration
        if migration is None or migration.catalog_type != "hms" or len(migration.table.parts) != 2:
            return one
        table = TableName(("hive_metastore", *migration.table.parts))
        return replace(one, migration=replace(migration, table=table))

    return replace(project, dataflows=tuple(renamed(one) for one in project.dataflows))


def _running_pipeline(spark: SparkSession) -> str | None:
    try:
        return spark.conf.get("pipelines.id", None)
    except PySparkException:
        # Serverless compute refuses settings that it doesn't know.
        return None


def _slug(name: str) -> str:
    return re.sub(r"\W+", "-", name).strip("-").lower() or "project"


def _chosen(project: Project, names: Collection[str]) -> frozenset[str]:
    known = {one.target.name.key: one for one in project.dataflows}
    keys = {TableName.parse(name).key: name for name in names}
    unknown = [name for key, name in keys.items() if key not in known]
    if unknown:
        raise TableferryError(
            f"{', '.join(unknown)} is no target of {project.name}: its targets are "
            + ", ".join(str(one.target.name) for one in known.values())
        )
    return frozenset(keys)


def _decided(
    opened: _Opened,
    spark: SparkSession,
    targets: Collection[str],
    full_refresh: Collection[str],
    adopt: bool,
    count_rows: bool,
) -> tuple[Plan, Facts]:
    refreshed = _chosen(opened.project, full_refresh)
    found = facts.gather(opened.project, spark, opened.store, refreshed=refreshed, count_rows=count_rows)
    request = Request(
        opened.store.pipeline_id,
        datetime.now(UTC),
        cdc.log_name,
        refreshed,
        adopt,
        _chosen(opened.project, targets),
    )
    return decide(opened.project, found, request), found


@contextmanager
def _settings(project: Project, spark: SparkSession) -> Iterator[None]:
    """Apply the project's Spark settings for the length of a run."""
    wanted = {**project.spark_config}
    for one in project.dataflows:
        wanted |= one.target.spark_conf
    old: dict[str, str | None] = {}
    try:
        for key, value in wanted.items():
            try:
                old[key] = spark.conf.get(key, None)
                spark.conf.set(key, value)
            except PySparkException as error:
                raise TableferryError(
                    f"spark_config: {key} can't be set ({first_line(error)}): remove it"
                ) from error
        yield
    finally:
        for key, before in old.items():
            if before is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, before)
