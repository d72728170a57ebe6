"""Run one flow: write a batch once, or start a streaming query and await its end.

Each flow has its own checkpoint, and its stream runs with ``availableNow``. Delta's transaction identifiers
make appends exactly once: the streaming sink writes its query id and batch id, a run-once flow its name and
generation. CDC flows apply idempotent merges (see `cdc_batches`), so a batch can be repeated after a crash.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tableferry import amounts
from tableferry.pipelines.cdc import change_feed
from tableferry.pipelines.cdc.key_ranges import LogSize
from tableferry.pipelines.engines.port import EffectHook
from tableferry.pipelines.engines.streaming import cdc_batches
from tableferry.pipelines.engines.streaming.flow_errors import is_resumable
from tableferry.pipelines.model.flows import CdcSettings, Expectation, HistorySource
from tableferry.pipelines.model.steps import PlannedFlow
from tableferry.pipelines.sources import views
from tableferry.pipelines.sources.rows import apply_expectations, count_violations, list_counted_expectations
from tableferry.pipelines.state import checkpoints, run_once_flows
from tableferry.pipelines.state.store import StateStore
from tableferry.progress import Task
from tableferry.spark.catalog import SPARK_ERRORS
from tableferry.spark.driver import Size, track_jobs

if TYPE_CHECKING:
    from tableferry.pipelines.engines.streaming.flow_rows import FlowRows
    from tableferry.pipelines.engines.streaming.table_identities import TableIdentities

_log = logging.getLogger(__name__)

_ATTEMPTS = 5
# The name under which a stream counts the rows that violate an expectation.
_VIOLATIONS = "tableferry_broken"


@dataclass(frozen=True)
class FlowQueries:
    """The queries of one run."""

    spark: SparkSession
    store: StateStore
    rows: FlowRows
    identities: TableIdentities
    before_effect: EffectHook

    def run_once(self, flow: PlannedFlow, running: Task, violations: Counter[str]) -> None:
        """Write a flow's rows in one batch; add to ``violations`` how many violate each expectation."""
        observation = Observation()
        output = self.rows.read_output(flow, observation)
        with track_jobs(self.spark, running, partial(self._expected_size, flow)):
            if flow.cdc:
                copied = self.rows.read(flow) if flow.is_initial_copy else None
                cdc_batches.apply_events(
                    output, flow.target, flow.cdc, before_commit=self.before_effect, copied_rows=copied
                )
                self.rows.release_newest_events(flow)
            else:
                self.before_effect(f"rows of {flow.name} into {flow.target}")
                writer = run_once_flows.build_writer_id(flow.owner, flow.name, flow.generation)
                (
                    output.write.format("delta")
                    .mode("append")
                    .option("mergeSchema", "true")
                    .options(**run_once_flows.build_write_options(writer, 1))
                    .saveAsTable(flow.target.sql)
                )
        if not flow.is_initial_copy:
            if list_counted_expectations(flow.expectations):
                _add_violations(violations, observation.get)
            self.before_effect(f"marking {flow.name} done")
            checkpoints.mark_done(self._checkpoint(flow))

    def _expected_size(self, flow: PlannedFlow) -> Size:
        """Return how much a copy writes; unknown for a merge, which writes events."""
        source = self.rows.source(flow)
        if flow.cdc or not isinstance(source, HistorySource):
            return Size()
        rows = views.read_legacy_table(self.spark, source).count()
        (detail,) = self.spark.sql(f"DESCRIBE DETAIL {source.migration.table.sql}").collect()
        return Size(rows, detail["sizeInBytes"])

    def run_stream(self, flow: PlannedFlow, running: Task, violations: Counter[str]) -> str:
        """Process all commits that exist now, and return the query's id."""
        checkpoint = self._checkpoint(flow)
        if flow.unrecorded_settings is not None:
            table = self.rows.tables[flow.target.key]
            self.identities.record_flow(table, flow, checkpoint, flow.unrecorded_settings)
        if flow.start_offset:
            self.before_effect(f"starting the checkpoint of {flow.name} at the old stream's offset")
            checkpoints.write_start_offset(checkpoint, flow.start_offset)
        self.before_effect(f"stream {flow.name} into {flow.target}")
        for attempt in range(_ATTEMPTS):
            try:
                return self._stream(flow, running, violations)
            except SPARK_ERRORS as error:
                if attempt + 1 == _ATTEMPTS or not is_resumable(error):
                    raise
        raise AssertionError("unreachable")

    def _stream(self, flow: PlannedFlow, running: Task, violations: Counter[str]) -> str:
        # A merge reads its batch more than once, so the stream itself can't count violations.
        in_batches = bool(flow.cdc and list_counted_expectations(flow.expectations))
        writer = (
            self.rows.read(flow, None if flow.cdc else _VIOLATIONS, without_expectations=in_batches)
            .writeStream.trigger(availableNow=True)
            .option("checkpointLocation", str(self._checkpoint(flow)))
        )
        raised: list[BaseException] = []
        if flow.cdc:
            unapplied = flow.expectations if in_batches else ()
            apply_batch = self._batch_function(flow, flow.cdc, unapplied, raised, violations)
            query = writer.foreachBatch(apply_batch).start()
        else:
            self.rows.check_columns(flow)
            query = (
                writer.format("delta")
                .outputMode("append")
                .option("mergeSchema", "true")
                .toTable(flow.target.sql)
            )
        try:
            _await_end(query, running, violations)
        except SPARK_ERRORS:
            # The error of the batch's own code is the cause; Spark's wrapper has fewer details.
            if raised:
                raise raised[0] from None
            raise
        finally:
            query.stop()
        return str(query.id)

    def _batch_function(
        self,
        flow: PlannedFlow,
        settings: CdcSettings,
        expectations: tuple[Expectation, ...],
        raised: list[BaseException],
        violations: Counter[str],
    ) -> Callable[[DataFrame, int], None]:
        """Return a function for ``foreachBatch`` that applies the events of a batch to the target.

        The function applies ``expectations``, adds their violations, and appends its errors to ``raised``.
        """
        log_size = LogSize()

        def apply_batch(batch: DataFrame, number: int) -> None:
            try:
                if expectations:
                    _add_violations(violations, count_violations(batch, expectations))
                judged = apply_expectations(batch, expectations)
                cdc_batches.apply_events(
                    change_feed.build_feed_events(judged, settings),
                    flow.target,
                    settings,
                    before_commit=self.before_effect,
                    batch_number=number,
                    log_size=log_size,
                )
            except BaseException as error:
                raised.append(error)
                raise

        return apply_batch

    def _checkpoint(self, flow: PlannedFlow) -> Path:
        return self.store.checkpoint_folder(flow.owner, flow.generation, flow.name)


def _await_end(query: StreamingQuery, running: Task, violations: Counter[str]) -> None:
    """Wait until a stream ends, log each of its batches, and add its violations."""
    last = -1
    ended = False
    while not ended:
        ended = bool(query.awaitTermination(timeout=1))
        for progress in query.recentProgress:
            # Spark Connect clients lack the sum over all sources.
            rows = sum(int(source["numInputRows"]) for source in progress["sources"])
            batch = int(progress["batchId"])
            if batch <= last or not rows:
                continue
            last = batch
            _add_violations(violations, _observed_violations(progress))
            fields = {
                "event": "batch",
                "table": running.table,
                "step": running.step,
                "batch": batch,
                "rows": rows,
            }
            _log.info(
                "%s: batch %d read %s", running.title, batch, amounts.counted(rows, "row"), extra=fields
            )
            earlier = running.counts
            for what, more in (("batches", 1), ("rows", rows)):
                running.update(what, more + (earlier[what].done if what in earlier else 0))


def _observed_violations(progress: Any) -> dict[str, Any]:
    """Return the number of violations of each expectation in a batch."""
    metrics = dict(progress["observedMetrics"]).get(_VIOLATIONS)
    if metrics is None:
        return {}
    counts: dict[str, Any] = metrics.asDict()
    if isinstance(counts.get("values"), list):
        # Through Spark Connect the row contains the values and the schema of another row.
        names = [column["name"] for column in metrics["schema"]["fields"]]
        return dict(zip(names, counts["values"], strict=True))
    return counts


def _add_violations(violations: Counter[str], counts: Mapping[str, Any]) -> None:
    # The count over no rows is NULL.
    violations.update({name: count for name, count in counts.items() if count})
