"""Prove that a target contains the rows of its legacy table and of the later source commits.

    a version of the legacy table whose positions in the sources are known
      + the rows that the flows produce from the source commits after these positions   ==   the target

The proof uses the newest such version that isn't ahead of the flows. So neither the old streams nor the flows
have to be paused.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tableferry import verify
from tableferry.errors import TableferryError
from tableferry.pipelines.handover import content_search, copies, expected_rows, stream_checkpoints
from tableferry.pipelines.handover.expected_rows import FlowOutput, RowsNotDerivableError
from tableferry.pipelines.handover.stream_checkpoints import Limits
from tableferry.pipelines.model import reads
from tableferry.pipelines.model.facts import Checkpoint, Facts, HandOver
from tableferry.pipelines.model.flows import DataFlow
from tableferry.pipelines.model.plan import Plan, TargetPlan
from tableferry.pipelines.model.target_state import MigrationStart
from tableferry.pipelines.model.topics import KafkaOffset
from tableferry.pipelines.sources.views import CommitRange
from tableferry.progress import task
from tableferry.spark.catalog import facts as table_facts
from tableferry.spark.driver import track_jobs
from tableferry.spark.tables import TableFacts, TableName

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Proof:
    """The comparison of a target with its legacy table and the later source commits.

    Attributes:
        verdict: The result; None if they can't be compared.
        why_not: The reason why they can't be compared, and the remedy.
        source_commits: The number of source commits that the flows have read and the legacy table lacks.
            Their rows were read from the sources.
        kafka_records: The same for records of Kafka.
        rows: The number of the target's rows.
        of_start: The legacy table was compared with the sources at the hand-over point; the target wasn't.
    """

    target: TableName
    verdict: verify.Verdict | None = None
    why_not: str = ""
    source_commits: int = 0
    kafka_records: int = 0
    rows: int = 0
    of_start: bool = False

    @property
    def proved(self) -> bool:
        """Whether both sides have the same rows."""
        return self.verdict is not None and self.verdict.matches

    @property
    def only_legacy_has_more(self) -> bool:
        """Whether the only difference is that the target, or the flows' output, lacks rows."""
        keys = self.verdict.keys if self.verdict else None
        return keys is not None and keys.source_only > 0 and not keys.target_only and not keys.different


def prove_target(spark: SparkSession, planned: Plan, target: TargetPlan, facts: Facts) -> Proof | None:
    """Compare a target with its legacy table; None if it has none.

    A table that was taken over is compared with its own version at that time. The plan's facts contain the
    positions of flows that Tableferry runs; those of a pipeline are assumed to have read everything.
    """
    migration = target.dataflow.migration
    if migration is None:
        return None
    try:
        return _compare(spark, planned, target, facts)
    except TableferryError as error:
        return Proof(target.target, why_not=error.one_line)


def prove_start(spark: SparkSession, target: TargetPlan) -> Proof:
    """Compare the pinned version of the legacy table with the rows that the flows produce from the sources.

    The sources are read up to their baselines, or up to a flow's ``startingVersion`` in the spec.
    """
    start, history = target.migration_start, target.history
    assert start is not None
    if history is None:
        why_not = f"{target.dataflow.file}: tableMigrationDetails are missing or switched off."
        return Proof(target.target, why_not=why_not, of_start=True)
    until = {key: baseline.version for key, baseline in start.baselines.items()}
    try:
        for flow in target.dataflow.flows:
            for read in reads.list_streamed_reads(target.dataflow.views, flow.view, {}):
                if isinstance(read.explicit, str):
                    raise RowsNotDerivableError(
                        "EXPLICIT_START_NOT_A_VERSION", view=read.view, start=read.explicit
                    )
                if read.explicit is not None:
                    until[read.table.key] = read.explicit - 1
        comparison = content_search.build_comparison(
            spark, target.dataflow, history.migration, history.version
        )
        with task(_log, "compare it with its sources", table=history.migration.table):
            verdict = comparison.compare(until)
    except TableferryError as error:
        return Proof(target.target, why_not=error.one_line, of_start=True)
    return Proof(target.target, verdict, rows=verdict.target.rows, of_start=True)


def _compare(spark: SparkSession, planned: Plan, target: TargetPlan, facts: Facts) -> Proof:
    start, history = target.migration_start, target.history
    if start is None or history is None or not target.state.copied:
        raise RowsNotDerivableError("HISTORY_NOT_COPIED")
    if cutover := target.state.pending_cutover:
        # The old name may be the view of the target, which equals the target.
        raise RowsNotDerivableError("CUTOVER_UNFINISHED", target=target.target, name=cutover.name)
    for flow in target.dataflow.flows:
        if flow.once or any(
            read.explicit is not None or (read.unmanaged and read.table.key not in start.baselines)
            for read in facts.streamed_reads(target.dataflow, flow)
        ):
            raise RowsNotDerivableError("FLOW_STARTS_WHERE_SPEC_SAYS", flow=flow.name)
    legacy, now = table_facts(spark, start.copy.table), table_facts(spark, target.target)
    if legacy is None or (legacy.table_id and legacy.table_id != start.copy.table_id):
        raise RowsNotDerivableError("LEGACY_TABLE_MISSING_FOR_PROOF", table=start.copy.table)
    if now is None:
        raise RowsNotDerivableError("TARGET_MISSING_FOR_PROOF")
    # A pipeline reports neither its positions nor the version of the target after its last update.
    version = None if planned.in_pipeline else now.version
    positions = (
        _read_newest_positions(start, facts)
        if planned.in_pipeline
        else _read_flow_positions(target, start, facts)
    )
    hand_over = _find_hand_over(spark, planned, target, facts, legacy, positions)
    lag = _Lag.between(start, hand_over, positions)
    if start.certainty == "proved" and target.dataflow.target.cdc and any(lag.commits.values()):
        for output in expected_rows.list_flow_outputs(spark, target.dataflow):
            output.check_no_skipped_commits(lag.commits)
        # The copied history is proved to consist of such rows, so all commits of the sources are compared.
        rows = copies.read_version(spark, target.target, version)
        excluded = history.migration.uncompared_columns
        comparison = content_search.Comparison.of_dataflow(
            spark, target.dataflow, rows, str(target.target), excluded
        )
        with task(_log, "compare it with its sources", table=target.target):
            verdict = comparison.compare({key: commits.stop for key, commits in lag.commits.items()})
        return Proof(target.target, verdict, rows=verdict.source.rows)
    to_source, to_target = _read_lag(spark, target.dataflow, lag)
    with (
        task(_log, f"compare it with {start.copy.table}", table=target.target) as running,
        track_jobs(spark, running),
    ):
        verdict = copies.compare_copy(
            spark,
            target.target,
            replace(history, version=hand_over.version),
            version,
            extra_source_rows=to_source,
            extra_target_rows=to_target,
            # The metadata columns differ in each job, such as the time when a row was loaded.
            dropped=[column.name for column in target.dataflow.target.metadata],
            unstable=copies.find_unstable_flow_columns(spark, target.dataflow),
        )
        row_count = verdict.target.rows - sum(frame.count() for frame in to_target)
        running.update("rows", row_count)
    return Proof(
        target.target,
        verdict,
        source_commits=lag.commit_count,
        kafka_records=lag.record_count,
        rows=row_count,
    )


def _find_hand_over(
    spark: SparkSession, planned: Plan, target: TargetPlan, facts: Facts, legacy: TableFacts, newest: Limits
) -> HandOver:
    """Return the version of the legacy table to compare, with its positions in the sources.

    It doesn't exceed `newest`, the flows' positions.

    Raises:
        StateError: An old stream's checkpoint can't be read.
        RowsNotDerivableError: The positions can't be determined.
    """
    start, migration = target.migration_start, target.dataflow.migration
    assert start is not None
    assert migration is not None
    pinned = _build_hand_over(start.copy.version, _list_baseline_positions(start))
    if start.is_take_over:
        for baseline in start.baselines.values():
            if baseline.within and not baseline.is_kafka:
                raise RowsNotDerivableError(
                    "OLD_STREAM_STOPPED_WITHIN_VERSION", table=baseline.table, version=baseline.version + 1
                )
        return pinned
    if start.batches:
        checkpoints = planned.project.list_checkpoint_folders(migration)
        if not checkpoints:
            raise RowsNotDerivableError("OLD_CHECKPOINTS_NOT_NAMED", location=migration.location)
        return stream_checkpoints.find_hand_over(spark, legacy, checkpoints, newest)
    at_newest = _build_hand_over(legacy.version, newest)
    if start.certainty != "proved":
        return at_newest
    if legacy.version == start.copy.version:
        return pinned
    # A batch job fills the legacy table, so its rows show the positions.
    tables = [source for key in start.baselines if (source := facts.tables.get(key))]
    sources = [replace(source, version=at_newest.positions[source.table_id]) for source in tables]
    found = content_search.find_hand_over(spark, target.dataflow, migration, legacy, sources)
    # If they don't, the newest versions are compared, which shows the difference.
    return found if isinstance(found, HandOver) else at_newest


def _build_hand_over(version: int, positions: Limits) -> HandOver:
    """Return the hand-over of a version of the legacy table at these positions."""
    versions = {key: position for key, position in positions.items() if isinstance(position, int)}
    offsets = {key: position for key, position in positions.items() if isinstance(position, KafkaOffset)}
    return HandOver(version, versions, {}, kafka=offsets)


@dataclass(frozen=True)
class _Lag:
    """The source commits and records that the flows have read and the legacy table lacks, by source key.

    Attributes:
        commits: From the last version whose rows the legacy table has to the last version that the flows
            read.
        offsets: The same for Kafka's topics.
    """

    commits: Mapping[str, range]
    offsets: Mapping[str, tuple[KafkaOffset, KafkaOffset]]

    @classmethod
    def between(cls, start: MigrationStart, hand_over: HandOver, positions: Limits) -> _Lag:
        commits, offsets = {}, {}
        for key, baseline in start.baselines.items():
            match positions[baseline.table_id]:
                case int() as version:
                    commits[key] = range(
                        hand_over.positions.get(baseline.table_id, baseline.version), version
                    )
                case KafkaOffset() as offset if baseline.table_id in hand_over.kafka:
                    offsets[key] = (hand_over.kafka[baseline.table_id], offset)
                case _:
                    raise RowsNotDerivableError("OLD_STREAM_CHANGED_SOURCES", table=baseline.table)
        return cls(commits, offsets)

    @property
    def commit_count(self) -> int:
        return sum(map(len, self.commits.values()))

    @property
    def record_count(self) -> int:
        return sum(start.count_offsets_until(end) for start, end in self.offsets.values())

    def includes(self, output: FlowOutput) -> bool:
        """Return whether a flow has read any of these commits and records."""
        records = (
            start.count_offsets_until(end) for key in output.topics for start, end in (self.offsets[key],)
        )
        return any(self.commits[key] for key in output.tables) or any(records)


def _read_newest_positions(start: MigrationStart, facts: Facts) -> Limits:
    """Return the newest version of each source, by the source's id; Kafka isn't supported."""
    if kafka := next((baseline for baseline in start.baselines.values() if baseline.is_kafka), None):
        raise RowsNotDerivableError("PIPELINE_POSITION_UNKNOWN", source=kafka.table)
    sources = {
        baseline.table_id: facts.tables.get(key) or baseline for key, baseline in start.baselines.items()
    }
    return {table_id: source.version for table_id, source in sources.items()}


def _read_flow_positions(target: TargetPlan, start: MigrationStart, facts: Facts) -> Limits:
    """Return the flows' position in each source, by the source's id."""
    positions: dict[str, int | KafkaOffset] = {}
    for flow in target.dataflow.flows:
        checkpoint = facts.checkpoints.get((target.dataflow.key, flow.name), Checkpoint())
        if checkpoint.offered is not None and not checkpoint.is_caught_up:
            raise RowsNotDerivableError("FLOW_STOPPED_WITHIN_COMMIT", flow=flow.name)
        # A flow that reads topics reads no other source.
        topics = [start.baselines.get(read.table.key) for read in facts.streamed_reads(target.dataflow, flow)]
        for baseline, position in zip(filter(None, topics), checkpoint.kafka.values(), strict=False):
            if positions.setdefault(baseline.table_id, position) != position:
                raise RowsNotDerivableError("FLOWS_APART", target=target.target)
        for table_id, offset in checkpoint.offsets.items():
            if positions.setdefault(table_id, offset.version - 1) != offset.version - 1:
                raise RowsNotDerivableError("FLOWS_APART", target=target.target)
    return {**_list_baseline_positions(start), **positions}


def _list_baseline_positions(start: MigrationStart) -> dict[str, int | KafkaOffset]:
    return {
        baseline.table_id: KafkaOffset.parse(baseline.within) if baseline.is_kafka else baseline.version
        for baseline in start.baselines.values()
    }


def _read_lag(spark: SparkSession, dataflow: DataFlow, lag: _Lag) -> tuple[list[DataFrame], list[DataFrame]]:
    """Return the rows to add to the legacy table and to the target, so that both have read the same commits.

    From change feeds and Kafka, the missing rows are read and added to the legacy table. From other sources,
    all rows as of the newer version are added to the legacy table, and those as of the older one to the
    target. So a row that both versions contain is added to both sides.
    """
    to_source: list[DataFrame] = []
    to_target: list[DataFrame] = []
    if not lag.commit_count and not lag.record_count:
        return to_source, to_target
    try:
        if dataflow.target.cdc:
            raise RowsNotDerivableError("TARGET_NOT_APPEND_ONLY", target=dataflow.target.name)
        for output in expected_rows.list_flow_outputs(spark, dataflow):
            if lag.includes(output):
                output.check_no_skipped_commits(lag.commits)
                spans = {
                    key: CommitRange(commits.stop, commits.start) for key, commits in lag.commits.items()
                }
                to_source.append(output.read_rows(spans, lag.offsets))
                if not output.reads_new_rows:
                    before = {key: CommitRange(commits.start) for key, commits in lag.commits.items()}
                    to_target.append(output.read_rows(before))
    except RowsNotDerivableError as error:
        raise RowsNotDerivableError("FLOWS_AHEAD_OF_OLD_STREAM", reason=error.sentence) from error
    return to_source, to_target
