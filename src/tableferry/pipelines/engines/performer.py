"""Performs a plan: what is remembered first, then the flows, and after each copy its verdict."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import assert_never

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tableferry import verify
from tableferry.errors import (
    Busy,
    Failed,
    Finding,
    Refused,
    StateError,
    TableError,
    TableferryError,
    first_line,
)
from tableferry.pipelines.cdc import change_feed, scd2_history_events
from tableferry.pipelines.engines.port import apply_definitions
from tableferry.pipelines.engines.streaming.engine import FlowResult, StreamingEngine, flow_error
from tableferry.pipelines.handover import copied_sequences, copies
from tableferry.pipelines.model.facts import Facts
from tableferry.pipelines.model.flows import CdcSettings, DataFlow, Project, event_log_name
from tableferry.pipelines.model.identities import parse_identity_property
from tableferry.pipelines.model.plan import HISTORY_FLOW, Plan, TargetPlan
from tableferry.pipelines.model.steps import (
    AdoptRenamedState,
    AdoptState,
    DefineAutoCdc,
    RecordStart,
    RecordTableIdentity,
    RecordVersions,
    RemoveMigration,
    RenameFlow,
    ResetTarget,
    StateStep,
)
from tableferry.pipelines.model.target_state import MigrationStart, Tracking
from tableferry.pipelines.sources import views
from tableferry.pipelines.sources.column_mismatches import (
    find_narrow_copied_columns,
    find_unknown_compare_except,
)
from tableferry.pipelines.sources.rows import read_flow_rows
from tableferry.pipelines.sources.unrepresentable_rows import (
    count_unrepresentable_rows,
    create_refusal,
    find_rows_ending_in_future,
)
from tableferry.pipelines.state import run_once_flows
from tableferry.pipelines.state.lease import LeaseCheck, skip_lease_check
from tableferry.pipelines.state.store import StateStore
from tableferry.progress import Task, task
from tableferry.spark.catalog import SPARK_ERRORS, explaining, facts, schema_exists
from tableferry.spark.driver import track_jobs
from tableferry.spark.tables import TableFacts, TableName

_log = logging.getLogger(__name__)

Before = Callable[[str], None]

_NOT_THERE = "TABLE_OR_VIEW_NOT_FOUND"


class Runner:
    """Performs a plan: what is remembered first, then the flows, and after each copy its verdict.

    Attributes:
        results: What each flow did, by the target's key.
        verdicts: How each copy compares, by the target's key.
        guard: Raises Busy where another run has taken over; it's asked right before each effect.
    """

    def __init__(self, store: StateStore, spark: SparkSession, before: Before) -> None:
        self.store, self._spark = store, spark
        self._before = before
        self.check_lease: LeaseCheck = skip_lease_check
        self.results: dict[str, list[FlowResult]] = {}
        self.verdicts: dict[str, verify.Verdict] = {}

    def before(self, what: str) -> None:
        """Say what comes now to the log and to whoever asked for it, and make sure that it may be done."""
        _log.debug(what)
        self._before(what)
        self.check_lease(self._spark)

    def validate(self, planned: Plan) -> None:
        """Make sure that a plan can be performed, as far as that shows before anything is written.

        Raises:
            Refused: It can't go on safely.
            TableferryError: A view of a target that is started or rebuilt can't be read.
        """
        if planned.refusals:
            raise Refused.of(planned.refusals)
        for target in planned.targets:
            with task(_log, "check what a run needs", table=target.target, level=logging.DEBUG):
                self._validate_target(planned, target)

    def _validate_target(self, planned: Plan, target: TargetPlan) -> None:
        if (bad := count_unrepresentable_rows(target, self._spark)) and not bad.left_out:
            raise Refused.of([create_refusal(bad)])
        if note := find_rows_ending_in_future(target, self._spark):
            _log.warning("%s", note.one_line)
        if misfits := find_narrow_copied_columns(target, self._spark):
            raise Refused.of(misfits)
        if unknown := find_unknown_compare_except(target, self._spark):
            raise Refused.of([unknown])
        source = target.copied_history
        if source and source.cdc and planned.engine == "databricks":
            legacy = views.read_legacy_table(self._spark, source)
            scd2_history_events.check_sequence(legacy, source.cdc, source.migration.location)
        if any(isinstance(step, RecordStart | ResetTarget) for step in target.state_steps):
            self._validate_flows(planned.project, target.dataflow)
        if any(isinstance(step, ResetTarget) for step in target.state_steps):
            self._validate_copy(target)

    def _validate_copy(self, target: TargetPlan) -> None:
        """Read all that is to be copied again, before the rows that hold it are dropped."""
        source = target.copied_history
        if source is None:
            return
        try:
            views.read_legacy_table(self._spark, source).write.format("noop").mode("overwrite").save()
        except SPARK_ERRORS as error:
            raise TableError(
                "REFRESH_CANNOT_READ_COPY",
                location=source.migration.location,
                table=source.migration.table,
                version=source.version,
                target=target.target,
                reason=first_line(error),
            ) from error

    def _validate_flows(self, project: Project, dataflow: DataFlow) -> None:
        """Build what every flow brings, those that are left out included, without running it.

        A view of a table that the project has yet to make can't be built.
        """
        tables = {table.name.key: table for table in dataflow.tables}
        for table in dataflow.tables:
            if not schema_exists(self._spark, table.name):
                raise TableError("SCHEMA_OF_TARGET_MISSING", location=table.location, table=table.name)
        for flow in dataflow.flows:
            target = tables[flow.target.key]
            try:
                frame = read_flow_rows(self._spark, dataflow.views, flow, target, {}, as_batch=flow.once)
                if flow.kind == "cdc" and target.cdc:
                    frame = _events(frame, target.cdc, dataflow.file)
                # Only asking for the columns makes Spark Connect look at the expressions.
                frame.schema  # noqa: B018
            except (PySparkException, TableferryError) as error:
                produced = (table.name.table for spec in project.dataflows for table in spec.tables)
                if _NOT_THERE in str(error) and any(f"`{name}`" in str(error) for name in produced):
                    continue
                if isinstance(error, PySparkException):
                    raise flow_error(flow, error) from error
                raise

    def run(self, planned: Plan) -> None:
        """Perform a plan; what each flow did is in ``results``, how each copy compares in ``verdicts``."""
        for target in planned.targets:
            self.perform_state_steps(target)
        engine = StreamingEngine(self._spark, self.store, before=self.before)
        for target in planned.targets:
            apply_definitions(target.definitions, engine)
        by_target = {target.target.key: target for target in planned.targets}
        with task(_log, "run the flows", level=logging.DEBUG) as running:
            engine.update(lambda result: self._done(by_target[result.owner.key], result, running))

    def perform_state_steps(self, target: TargetPlan) -> None:
        """Perform the steps that change the state of a target."""
        for step in target.state_steps:
            self.before(str(step))
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
        # After this record, a run that follows a crash continues to drop.
        self.store.start_generation(step.target, step.generation)
        for table in step.tables:
            self._empty(table, step)
        self.before(f"dropping the checkpoints of {step.target}")
        self.store.end_reset(step.target, step.generation)

    def track(self, made: Iterable[tuple[MigrationStart, Tracking]]) -> None:
        """Write the progress that was made."""
        for migration_start, tracking in made:
            self.before(f"recording the progress of {migration_start.target}")
            self.store.record_progress(migration_start, tracking)

    def _empty(self, table: TableName, reset: ResetTarget) -> None:
        """Drop all rows of a table, if it's there, and keep out what earlier runs may still bring.

        A run that sleeps behind its guard, or in the middle of a write, may wake at any time.

        Raises:
            Busy: Another run has filled it meanwhile.
            TableError: They can't be dropped.
        """
        table_facts = facts(self._spark, table)
        if table_facts is None:
            return
        with explaining("ROWS_NOT_DROPPED", table=table):
            for writer in self._writers(table_facts, reset):
                self.before(f"ending what {writer} writes into {table}")
                run_once_flows.block_writer(self._spark, table, writer)
            if table.key in {event_log_name(other).key for other in reset.tables}:
                self.before(f"ending what others write into {table}")
                run_once_flows.fail_pending_writes(self._spark, table, reset.generation)
            self.before(f"dropping the rows of {table}")
            run_once_flows.delete_rows_once(self._spark, table, reset.target, reset.generation)

    def _writers(self, table: TableFacts, reset: ResetTarget) -> tuple[str, ...]:
        """Return the ids under which flows of the generation before have appended to a table."""
        before, key = reset.generation - 1, table.name.key
        try:
            in_state = self.store.read_identities(reset.target, before).get(key)
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
            run_once_flows.build_writer_id(reset.target, flow, before) for flow in reset.run_once.get(key, ())
        ]
        return tuple(dict.fromkeys([*streams, *once]))

    def _done(self, target: TargetPlan, result: FlowResult, running: Task) -> None:
        self.results.setdefault(target.target.key, []).append(result)
        running.update("flows", sum(map(len, self.results.values())))
        if result.flow.name == HISTORY_FLOW:
            self.compare(target)

    def compare(self, target: TargetPlan) -> None:
        """Compare a target that holds nothing but its copy with the legacy table, and record the verdict."""
        source, migration_start = target.history, target.migration_start
        assert source is not None
        assert migration_start is not None
        self.before(f"verifying the copy of {target.target}")
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
        self.before(f"recording that {target.target} is copied")
        self.store.record_progress(migration_start, tracking)


def _events(frame: DataFrame, settings: CdcSettings, file: str) -> DataFrame:
    try:
        return change_feed.build_feed_events(frame, settings)
    except TableError as error:
        raise error.at(file) from error


def progress(planned: Plan, facts: Facts) -> tuple[tuple[MigrationStart, Tracking], ...]:
    """Return how far each target is, where that isn't recorded yet.

    Of a pipeline it's recorded too which flows have started, for only their names tell them apart.
    """
    made = []
    for target in planned.targets:
        start, tracking = target.migration_start, target.state.tracking
        if not start or not target.state.migration_start or not target.dataflow.migration:
            continue
        old = tracking or Tracking({})
        seen = {key: source.version for key in start.baselines if (source := facts.tables.get(key))}
        started = {
            flow.flow.name for flow in target.flows if planned.in_pipeline and flow.action == "continue"
        }
        # What is taken over is there already.
        copied = target.generation if start.is_take_over else old.copied
        new = replace(
            old,
            current={**old.current, **seen},
            started=tuple(sorted({*old.started, *started})),
            copied=copied,
        )
        if new != tracking:
            made.append((start, new))
    return tuple(made)


def without_sequence(target: TargetPlan, spark: SparkSession) -> Finding | None:
    """Return a finding if the rows to copy have no sequence."""
    source = target.copied_history
    if (
        source is None
        or source.cdc is None
        or scd2_history_events.has_sequence(views.read_legacy_table(spark, source), source.cdc)
    ):
        return None
    known_before = (step.baseline_events for step in target.steps if isinstance(step, DefineAutoCdc))
    before = next(filter(None, known_before), None)
    if before is not None:
        try:
            copied_sequences.read_newest_events(spark, before, source.cdc, persist=False)
        except TableferryError:
            _log.debug("the events before the copy of %s can't be read", target.target, exc_info=True)
        else:
            return Finding(
                "COPY_TAKES_SEQUENCE_OF_EVENTS", table=source.migration.table, column=source.cdc.sequence_by
            )
    return Finding("COPY_WITHOUT_SEQUENCE", table=source.migration.table, column=source.cdc.sequence_by)
