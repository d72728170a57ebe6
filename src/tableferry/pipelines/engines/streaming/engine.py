"""The streaming engine: Structured Streaming into Delta, one run at a time, on any Spark cluster."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable

from pyspark.sql import SparkSession

from tableferry.errors import Refused
from tableferry.formats.delta.commits import Commit, commits_after, counted, newest_version
from tableferry.pipelines.engines.port import EffectHook, FlowResult
from tableferry.pipelines.engines.streaming import table_creation
from tableferry.pipelines.engines.streaming.flow_errors import create_flow_error, is_overflow
from tableferry.pipelines.engines.streaming.flow_queries import FlowQueries
from tableferry.pipelines.engines.streaming.flow_rows import FlowRows
from tableferry.pipelines.engines.streaming.table_identities import TableIdentities
from tableferry.pipelines.model.flows import event_log_name
from tableferry.pipelines.model.steps import DefineSnapshots, DefineTable, DefineView, PlannedFlow
from tableferry.pipelines.state.store import StateStore
from tableferry.progress import Task, task
from tableferry.spark import session
from tableferry.spark.catalog import SPARK_ERRORS, exists, explaining
from tableferry.spark.driver import in_process

_log = logging.getLogger(__name__)

# Lets a stream start at a version that its source doesn't have yet; it reads nothing until then.
_FUTURE_START = {"spark.databricks.delta.changeDataFeed.timestampOutOfRange.enabled": "true"}


class StreamingEngine:
    """Runs the flows that are defined on it, in the order of their definitions."""

    def __init__(
        self, spark: SparkSession, store: StateStore, *, before_effect: EffectHook = lambda _: None
    ) -> None:
        self._spark, self._before_effect = spark, before_effect
        self._flows: list[PlannedFlow] = []
        self._rows = FlowRows(spark, store.pipeline_id)
        self._identities = TableIdentities(spark, store, before_effect)
        self._queries = FlowQueries(spark, store, self._rows, self._identities, before_effect)

    def define_table(self, definition: DefineTable) -> None:
        """Define a streaming table, which `run` creates if it's missing."""
        self._rows.tables[definition.target.name.key] = definition

    def define_view(self, definition: DefineView) -> None:
        """Define a view that the flows of its spec read."""
        self._rows.views.setdefault(definition.owner.key, {})[definition.view.name] = definition

    def define_flow(self, flow: PlannedFlow) -> None:
        """Define an append flow or an AUTO CDC flow, for `run`."""
        self._flows.append(flow)

    def define_snapshots(self, definition: DefineSnapshots) -> None:
        """Refuse a table of snapshots, whose spec `engine_support` skips."""
        raise Refused("SNAPSHOT_CDC_ONLY_ON_DATABRICKS", table=definition.target.name)

    def run(self, on_result: Callable[[FlowResult], None]) -> None:
        """Run every flow once: each processes all commits that exist, and stops.

        ``on_result`` is called after each flow, before the next one.

        Raises:
            TableferryError: A flow failed; those before it are done.
        """
        if self._flows:
            _activate_session(self._spark)
        for key in self._order_tables():
            flows = [flow for flow in self._flows if flow.target.key == key]
            table = self._rows.tables[key]
            was_created = self._create_table(table, flows)
            self._identities.record_table(table, flows[0], was_created=was_created)
        for flow in self._flows:
            on_result(self._run_flow(flow))
        self._identities.record_versions(self._flows)

    def _order_tables(self) -> Iterable[str]:
        """Order tables so that each can take its columns from those it reads: staging tables first."""
        owners = list(dict.fromkeys(flow.owner.key for flow in self._flows))

        def position(flow: PlannedFlow) -> tuple[int, bool]:
            return owners.index(flow.owner.key), flow.is_initial_copy

        return dict.fromkeys(flow.target.key for flow in sorted(self._flows, key=position))

    def _create_table(self, definition: DefineTable, flows: Iterable[PlannedFlow]) -> bool:
        """Create a table if it's missing, and return whether it was created."""
        target = definition.target
        if exists(self._spark, target.name):
            return False
        if not definition.create:
            raise Refused(
                "TARGET_MISSING",
                location=target.location,
                table=target.name,
                advice="rebuild it with --full-refresh",
            )
        columns = self._rows.list_table_columns(target, flows)
        self._before_effect(f"creating {target.name}")
        with (
            explaining("TABLE_NOT_CREATED", location=target.location, table=target.name),
            task(_log, "create the table", table=target.name),
        ):
            table_creation.create_tables(self._spark, target, columns)
        return True

    def _run_flow(self, flow: PlannedFlow) -> FlowResult:
        owner = self._rows.tables[flow.owner.key].target
        written = event_log_name(flow.target) if flow.cdc else flow.target
        future_start = _FUTURE_START if flow.starts_ahead else {}
        violations: Counter[str] = Counter()
        query_id = None
        try:
            with (
                session.settings(self._spark, owner.spark_conf, f"{owner.location}.sparkConf"),
                session.settings(self._spark, future_start, flow.location or flow.name),
                task(_log, _title(flow), table=flow.target) as running,
            ):
                version = newest_version(self._spark, written)
                if flow.once:
                    self._queries.run_once(flow, running, violations)
                else:
                    query_id = self._queries.run_stream(flow, running, violations)
                commits = _select_commits(
                    commits_after(self._spark, written, version), None if flow.cdc else query_id
                )
                rows = counted(commits, "numOutputRows")
                _count_commits(running, rows, commits)
                return FlowResult(flow, rows, violations)
        except SPARK_ERRORS as error:
            may_be_narrow = not flow.cdc and is_overflow(error)
            narrow = self._rows.find_narrow_columns(flow) if may_be_narrow else ()
            raise create_flow_error(flow.flow, error, narrow) from error


def _title(flow: PlannedFlow) -> str:
    if flow.is_initial_copy:
        return "copy the history"
    return f"run {flow.name} once" if flow.once else f"stream {flow.name}"


def _select_commits(commits: Iterable[Commit], query_id: str | None) -> tuple[Commit, ...]:
    """Select a flow's own commits: those of its streaming query, or all writes if it has none.

    Commits whose operation the log doesn't record are included.
    """
    return tuple(
        commit
        for commit in commits
        if not commit.operation
        or (commit.operation == "WRITE" if query_id is None else commit.parameters.get("queryId") == query_id)
    )


def _count_commits(running: Task, rows: int | None, commits: Iterable[Commit]) -> None:
    """Replace the counts of rows that were read by those that were committed, for the last log line."""
    running.counts = {what: count for what, count in running.counts.items() if what == "batches"}
    if rows is not None:
        running.update("rows", rows)
    files = [
        int(commit.metrics.get(metric, 0))
        for commit in commits
        for metric in ("numFiles", "numAddedFiles", "numTargetFilesAdded")
    ]
    running.update("files", sum(files))


def _activate_session(spark: SparkSession) -> None:
    """Make this thread's session the active one of its Java thread.

    Without an active session, Delta's catalog takes a table for a path (DELTA_INVALID_V1_TABLE_CALL in
    ``toTable``). Only the Python thread that created the session has one; in the other threads the first
    DataFrame activates it.
    """
    if in_process(spark):
        spark.createDataFrame([], "nothing INT")
