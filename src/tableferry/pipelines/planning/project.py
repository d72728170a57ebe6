"""Open a project for a command: its specs, state, pipeline id and chosen targets."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tableferry import storage
from tableferry.errors import Refused, SpecError, StateError
from tableferry.pipelines.model.facts import Facts
from tableferry.pipelines.model.flows import DataFlow, Project
from tableferry.pipelines.model.plan import EngineKind, LookBack, Plan, PlanRequest
from tableferry.pipelines.planning.decide import decide
from tableferry.pipelines.planning.engine_support import select_runnable_specs
from tableferry.pipelines.planning.facts import Gatherer, rename_legacy_tables
from tableferry.pipelines.planning.pipeline_port import Pipeline
from tableferry.pipelines.state.lease import LeaseCheck, TargetLeases, skip_lease_check
from tableferry.pipelines.state.store import StateStore
from tableferry.progress import task
from tableferry.spark.catalog import current_catalog
from tableferry.spark.local_metastore import LocalMetastore
from tableferry.spark.tables import DEFAULT_CATALOG, TableName

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class OpenedProject:
    """A project with its state.

    Attributes:
        request: The options of its plans.
        pipeline: The pipeline that runs the flows; None if Tableferry runs them.
    """

    project: Project
    store: StateStore
    spark: SparkSession
    request: PlanRequest
    pipeline: Pipeline | None = None

    @property
    def after_run(self) -> OpenedProject:
        """The project without the options that a run has carried out."""
        request = self.request
        plain = PlanRequest(request.pipeline_id, request.now, only=request.only, engine=request.engine)
        return replace(self, request=plain)

    def decide_plan(self, *, for_report: bool = False) -> tuple[Plan, Facts]:
        """Return the plan of a run, and the facts from which it was decided.

        ``for_report`` adds facts for people, such as row counts.
        """
        while True:
            with task(_log, "read sources and targets", level=logging.DEBUG):
                facts = self._gatherer.gather(for_report=for_report)
            project = rename_legacy_tables(self.project, facts.states)
            planned = decide(project, facts, replace(self.request, now=datetime.now(UTC)))
            if not planned.refusals or self.has_current_facts(facts):
                return planned, facts
            # Another process ran in between, so the facts are from different times.

    def has_current_facts(self, facts: Facts) -> bool:
        """Return whether the recorded state is the same as when the facts were gathered."""
        return self._gatherer.is_current(facts)

    @property
    def _gatherer(self) -> Gatherer:
        return Gatherer(self.project, self.spark, self.store, self.request, self.pipeline)

    @contextmanager
    def lock_targets(self) -> Iterator[LeaseCheck]:
        """Lock the targets, and return the check that the lease is still valid.

        Raises:
            Busy: Another process has locked one of them.
        """
        names = [dataflow.target.name for dataflow in self.project.select_dataflows(self.request.only)]
        locked = f"the migration of {names[0]}" if len(names) == 1 else f"the project {self.project.name}"
        shared = self.project.state_shared
        with storage.locked([self.store.lock_file(name) for name in names], locked):
            if storage.is_shared(self.store.volume) if shared is None else shared:
                leases = TargetLeases(names, locked, self.store.volume / "checkpoints")
                with leases.acquire(self.spark):
                    yield leases.check
            else:
                yield skip_lease_check


def open_project(
    project: Project,
    spark: SparkSession,
    *,
    targets: Collection[str] = (),
    full_refresh: Collection[str] = (),
    adopt: bool = False,
    drop_history: bool = False,
    look_back: LookBack = 0,
    through_connect: bool = False,
    pipeline_id: str | None = None,
    pipeline: Pipeline | None = None,
) -> OpenedProject:
    """Open a project. The arguments are those of `commands.plan` and of `PlanRequest`.

    Raises:
        SpecError: The engine can't run the project's migrations.
        StateError: The project names no state volume.
        TableferryError: A target doesn't exist, or one to refresh isn't chosen.
    """
    loaded, store = open_state(project, spark, pipeline_id=pipeline_id, pipeline=pipeline)
    only = target_keys(loaded, targets)
    refreshed = target_keys(loaded, full_refresh)
    if only and refreshed - only:
        raise Refused("REFRESHED_TARGET_NOT_CHOSEN", targets=", ".join(sorted(refreshed - only)))
    request = PlanRequest(
        store.pipeline_id,
        datetime.now(UTC),
        refreshed,
        adopt,
        only,
        engine_of(pipeline),
        drop_history,
        through_connect,
        look_back,
    )
    return OpenedProject(_registered(loaded, spark), store, spark, request, pipeline)


def open_state(
    project: Project,
    spark: SparkSession | None,
    *,
    pipeline_id: str | None = None,
    pipeline: Pipeline | None = None,
) -> tuple[Project, StateStore]:
    """Return the project with the specs that the engine can run, and the store of its state.

    The state isn't read. ``spark`` is only needed for the id of the running pipeline. ``pipeline_id`` and
    ``pipeline`` mean the same as in `commands.plan`.

    Raises:
        SpecError: The engine can't run the project's migrations.
        StateError: The project names no state volume.
    """
    loaded = select_runnable_specs(project, engine_of(pipeline))
    if loaded.state_volume is None:
        raise StateError("STATE_VOLUME_NOT_CONFIGURED", project=loaded.root)
    name = (
        pipeline_id
        or os.environ.get("TABLEFERRY_PIPELINE_ID")
        or (_running_pipeline(spark) if spark and not isinstance(spark, LocalMetastore) else None)
        or re.sub(r"\W+", "-", loaded.name).strip("-").lower()
        or "project"
    )
    return loaded, StateStore(Path(loaded.root, loaded.state_volume), name, engine_of(pipeline))


def engine_of(pipeline: Pipeline | None) -> EngineKind:
    """Return the engine that runs a project's flows."""
    return pipeline.kind if pipeline else "streaming"


def _registered(project: Project, spark: SparkSession) -> Project:
    """Qualify legacy tables with the catalog of their ``catalogType``.

    Without Unity Catalog, the Hive metastore is the default catalog.
    """
    migrations = [dataflow.migration for dataflow in project.dataflows if dataflow.migration]
    if all(migration.catalog_type != "hms" for migration in migrations):
        return project
    if current_catalog(spark) == DEFAULT_CATALOG:
        return project

    def in_metastore(dataflow: DataFlow) -> DataFlow:
        migration = dataflow.migration
        if migration is None or migration.catalog_type != "hms" or migration.take_over:
            return dataflow
        if len(migration.table.parts) != 2:
            return dataflow
        table = TableName(("hive_metastore", *migration.table.parts))
        return replace(dataflow, migration=replace(migration, table=table))

    return replace(project, dataflows=tuple(map(in_metastore, project.dataflows)))


def _running_pipeline(spark: SparkSession) -> str | None:
    try:
        return spark.conf.get("pipelines.id", None)
    except PySparkException:
        # Serverless compute refuses settings that it doesn't know.
        return None


def target_keys(project: Project, names: Collection[str]) -> frozenset[str]:
    """Return the keys of targets by their names.

    Raises:
        SpecError: The spec of a target was skipped.
        TableferryError: A target doesn't exist.
    """
    targets = {dataflow.key: dataflow.target.name for dataflow in project.dataflows}
    keys = {TableName.parse(name).key: name for name in names}
    unknown = [name for key, name in keys.items() if key not in targets]
    if skipped := [spec for spec in project.skipped if spec.target and spec.target.key in keys]:
        raise SpecError("INVALID_SPEC", problems=[problem for spec in skipped for problem in spec.problems])
    if unknown:
        raise Refused(
            "UNKNOWN_TARGET", unknown=unknown, project=project.name, targets=[*map(str, targets.values())]
        )
    return frozenset(keys)
