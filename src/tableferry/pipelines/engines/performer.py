"""Perform a plan that `plan_validation` has checked: state changes, flows, comparisons of copies."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from typing import assert_never

from pyspark.sql import SparkSession

from tableferry import verify
from tableferry.errors import (
    Busy,
    Failed,
    StateError,
)
from tableferry.pipelines.engines.port import EffectHook, FlowResult, RunnableEngine, apply_definitions
from tableferry.pipelines.handover import copies
from tableferry.pipelines.model.facts import Facts
from tableferry.pipelines.model.flows import event_log_name
from tableferry.pipelines.model.identities import parse_identity_property
from tableferry.pipelines.model.plan import Plan, TargetPlan
from tableferry.pipelines.model.steps import (
    AdoptRenamedState,
    AdoptState,
    RecordStart,
    RecordTableIdentity,
    RecordVersions,
    RemoveMigration,
    RenameFlow,
    ResetTarget,
    StateStep,
)
from tableferry.pipelines.model.target_state import MigrationStart, Tracking
from tableferry.pipelines.state import run_once_flows
from tableferry.pipelines.state.lease import LeaseCheck, skip_lease_check
from tableferry.pipelines.state.store import StateStore
from tableferry.progress import Task, task
from tableferry.spark.catalog import explaining, facts
from tableferry.spark.driver import track_jobs
from tableferry.spark.tables import TableFacts, TableName

_log = logging.getLogger(__name__)


class Runner:
    """Performs a plan: first the changes of the state, then the flows, and the comparison after each copy.

    Attributes:
        check_lease: Raises `Busy` if another run has taken over the targets.
        results: The results of the flows, by the target's key.
        verdicts: The results of the comparisons of copies, by the target's key.
    """

    def __init__(self, store: StateStore, spark: SparkSession, on_effect: EffectHook) -> None:
        self.store, self._spark = store, spark
        self._on_effect = on_effect
        self.check_lease: LeaseCheck = skip_lease_check
        self.results: dict[str, list[FlowResult]] = {}
        self.verdicts: dict[str, verify.Verdict] = {}

    def before_effect(self, effect: str) -> None:
        """Report an effect to the log and the caller, then check the lease: call it right before the effect.

        Raises:
            Busy: Another run has taken over the targets.
        """
        _log.debug(effect)
        self._on_effect(effect)
        self.check_lease(self._spark)

    def run(self, planned: Plan, engine: RunnableEngine) -> None:
        """Perform a plan, with its flows on an engine; fill ``results`` and ``verdicts``."""
        for target in planned.targets:
            self.perform_state_steps(target)
        for target in planned.targets:
            apply_definitions(target.definitions, engine)
        by_target = {target.target.key: target for target in planned.targets}
        with task(_log, "run the flows", level=logging.DEBUG) as running:
            engine.run(lambda result: self._record_result(by_target[result.flow.owner.key], result, running))

    def perform_state_steps(self, target: TargetPlan) -> None:
        """Perform the steps that change the state of a target."""
        for step in target.state_steps:
            self.before_effect(str(step))
            with task(_log, str(step), table=target.target):
                self._perform(step)

    def _perform(self, step: StateStep) -> None:
        match step:
            case AdoptState():
                self.store.adopt(step.target, step.pipeline_id)
            case AdoptRenamedState():
                self.store.adopt_renamed(step.target, step.folder)
            case RecordStart():
                if not self.store.record_start(step.migration_start):
                    raise Busy("MIGRATION_STARTED_BY_ANOTHER_RUN", target=step.migration_start.target)
            case ResetTarget():
                self._reset(step)
            case RenameFlow():
                self.store.rename_flow(step.target, step.generation, step.old, step.new)
            case RemoveMigration():
                self.store.finish(step.target)
            case RecordTableIdentity():
                self.store.record_table_identity(step.target, step.generation, step.table, step.identity)
            case RecordVersions():
                self.store.record_versions(step.target, step.generation, step.versions)
            case _:
                assert_never(step)

    def _reset(self, step: ResetTarget) -> None:
        # If the run crashes after this record, the next one continues the reset.
        self.store.start_generation(step.target, step.generation)
        for table in step.tables:
            self._delete_rows(table, step)
        self.before_effect(f"dropping the checkpoints of {step.target}")
        self.store.end_reset(step.target, step.generation)

    def _delete_rows(self, table: TableName, reset: ResetTarget) -> None:
        """Delete all rows of a table if it exists, and block pending writes of earlier runs.

        An earlier run may have passed its lease check, or be in the middle of a write, and continue later.

        Raises:
            Busy: Another run has filled the table since.
            TableError: The rows can't be deleted.
        """
        table_facts = facts(self._spark, table)
        if table_facts is None:
            return
        with explaining("ROWS_NOT_DROPPED", table=table):
            for writer in self._list_writers(table_facts, reset):
                self.before_effect(f"blocking writes of {writer} to {table}")
                run_once_flows.block_writer(self._spark, table, writer)
            if table.key in {event_log_name(other).key for other in reset.tables}:
                self.before_effect(f"failing pending writes to {table}")
                run_once_flows.fail_pending_writes(self._spark, table, reset.generation)
            self.before_effect(f"dropping the rows of {table}")
            run_once_flows.delete_rows_once(self._spark, table, reset.target, reset.generation)

    def _list_writers(self, table: TableFacts, reset: ResetTarget) -> tuple[str, ...]:
        """List the ids under which flows of the previous generation have appended to a table."""
        generation, key = reset.generation - 1, table.name.key
        try:
            in_state = self.store.read_identities(reset.target, generation).get(key)
        except StateError:
            # A full refresh is the remedy for state that can't be read.
            in_state = None
        streams = [
            flow.checkpoint
            for identity in (in_state, parse_identity_property(table))
            for flow in (identity.flows.values() if identity else ())
            if flow.checkpoint and not flow.settings
        ]
        once = [
            run_once_flows.build_writer_id(reset.target, flow, generation)
            for flow in reset.run_once.get(key, ())
        ]
        return tuple(dict.fromkeys([*streams, *once]))

    def _record_result(self, target: TargetPlan, result: FlowResult, running: Task) -> None:
        self.results.setdefault(target.target.key, []).append(result)
        running.update("flows", sum(map(len, self.results.values())))
        if result.flow.is_initial_copy:
            self.compare_copy(target)

    def compare_copy(self, target: TargetPlan) -> None:
        """Compare a target right after its copy with the legacy table, and record the verdict."""
        source, migration_start = target.history, target.migration_start
        assert source is not None
        assert migration_start is not None
        self.before_effect(f"verifying the copy of {target.target}")
        with (
            explaining(
                "COPY_NOT_COMPARABLE",
                Failed,
                location=source.migration.location,
                target=target.target,
                table=source.migration.table,
            ),
            task(_log, "compare the copy with the legacy table", table=target.target) as running,
            track_jobs(self._spark, running),
        ):
            verdict = copies.compare_copy(self._spark, target.target, source)
            running.update("rows", verdict.source.rows)
        self.verdicts[target.target.key] = verdict
        tracking = Tracking(
            {key: baseline.version for key, baseline in migration_start.baselines.items()},
            target.generation,
            verdict.source.rows,
            "match" if verdict.matches else "differ",
        )
        self.before_effect(f"recording that {target.target} is copied")
        self.store.record_progress(migration_start, tracking)

    def record_progress(self, changed: Iterable[tuple[MigrationStart, Tracking]]) -> None:
        """Record the result of `find_unrecorded_progress`."""
        for migration_start, tracking in changed:
            self.before_effect(f"recording the progress of {migration_start.target}")
            self.store.record_progress(migration_start, tracking)


def find_unrecorded_progress(planned: Plan, facts: Facts) -> tuple[tuple[MigrationStart, Tracking], ...]:
    """Return the progress of each target whose record is older.

    In a pipeline it includes the flows that have started, because only their names identify them.
    """
    changed = []
    for target in planned.targets:
        start, tracking = target.migration_start, target.state.tracking
        if not start or not target.state.migration_start or not target.dataflow.migration:
            continue
        recorded = tracking or Tracking({})
        versions = {key: source.version for key in start.baselines if (source := facts.tables.get(key))}
        started = {flow.name for flow in target.flows if planned.in_pipeline and flow.action == "continue"}
        current = replace(
            recorded,
            current={**recorded.current, **versions},
            started=tuple(sorted({*recorded.started, *started})),
            # A table that was taken over needs no copy.
            copied=target.generation if start.is_take_over else recorded.copied,
        )
        if current != tracking:
            changed.append((start, current))
    return tuple(changed)
