"""Compares targets with their legacy tables at the end, wherever the old streams and the new flows are then.

    legacy table, as of a version of which it's known how far into the sources it reaches
      + what the flows made of the commits behind that   ==   the target

The newest such version that reaches no further than the flows is taken, so that neither side is paused. Where
both have taken the same, the two tables are compared as they are.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tableferry import verify
from tableferry.errors import TableferryError
from tableferry.pipelines.handover import content_search, copies, expected_rows, stream_checkpoints
from tableferry.pipelines.handover.expected_rows import Brought, NotKnownError, Whole
from tableferry.pipelines.handover.stream_checkpoints import Limits
from tableferry.pipelines.model import reads
from tableferry.pipelines.model.facts import Checkpoint, Facts, HandOver, NoHandOver
from tableferry.pipelines.model.flows import DataFlow
from tableferry.pipelines.model.plan import Plan, TargetPlan
from tableferry.pipelines.model.source_offsets import KafkaOffset
from tableferry.pipelines.model.target_state import MigrationStart
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
    """Whether a target holds what its legacy table holds, and what came behind it.

    Attributes:
        verdict: How they compare; None where they can't be.
        why_not: Why they can't be compared, and how they can.
        behind: How many commits of the sources the flows have taken that the legacy table lacks; their rows
            were read from the sources.
        records: How many records of Kafka they have taken that the legacy table lacks, likewise.
        rows: How many rows the target holds.
        of_start: The legacy table was compared with the sources at the hand-over, and not the target.
    """

    target: TableName
    verdict: verify.Verdict | None = None
    why_not: str = ""
    behind: int = 0
    records: int = 0
    rows: int = 0
    of_start: bool = False

    @property
    def proved(self) -> bool:
        """Whether they hold the same rows."""
        return self.verdict is not None and self.verdict.matches

    @property
    def only_legacy_has_more(self) -> bool:
        """Whether they differ, and the target, or what the flows would have made, only lacks rows."""
        keys = self.verdict.keys if self.verdict else None
        return keys is not None and keys.source_only > 0 and not keys.target_only and not keys.different


def prove(spark: SparkSession, planned: Plan, target: TargetPlan, facts: Facts) -> Proof | None:
    """Compare a target with its legacy table; None if it has none.

    A table that was taken over is compared with its own version of then. How far a pipeline's flows are in
    such a table isn't known.

    Args:
        spark: Where they are.
        planned: The project's plan.
        target: One of its targets.
        facts: What the plan was decided from. Where Tableferry runs the flows, their checkpoints say how far
            they are; a pipeline's are taken to be as far as the sources.
    """
    migration = target.dataflow.migration
    if migration is None:
        return None
    try:
        return _prove(spark, planned, target, facts)
    except TableferryError as error:
        return Proof(target.target, why_not=error.one_line)


def prove_start(spark: SparkSession, target: TargetPlan) -> Proof:
    """Compare the legacy table, as it is copied, with what the flows make of its sources.

    They are read up to the baselines, or to where the spec itself says that a flow starts.
    """
    start, history = target.migration_start, target.history
    assert start is not None
    if history is None:
        why_not = f"{target.dataflow.file}: tableMigrationDetails are missing or switched off."
        return Proof(target.target, why_not=why_not, of_start=True)
    until = {key: baseline.version for key, baseline in start.baselines.items()}
    try:
        for flow in target.dataflow.flows:
            for read in reads.followed(target.dataflow.views, flow.view, {}):
                if isinstance(read.explicit, str):
                    raise NotKnownError("EXPLICIT_START_NOT_A_VERSION", view=read.view, start=read.explicit)
                if read.explicit is not None:
                    until[read.table.key] = read.explicit - 1
        comparison = content_search.of_legacy(spark, target.dataflow, history.migration, history.version)
        with task(_log, "compare it with its sources", table=history.migration.table):
            verdict = comparison.at(until)
    except TableferryError as error:
        return Proof(target.target, why_not=error.one_line, of_start=True)
    return Proof(target.target, verdict, rows=verdict.target.rows, of_start=True)


def _prove(spark: SparkSession, planned: Plan, target: TargetPlan, facts: Facts) -> Proof:
    start, history = target.migration_start, target.history
    if start is None or history is None or not target.stored.copied:
        raise NotKnownError("HISTORY_NOT_COPIED")
    for flow in target.dataflow.flows:
        if flow.once or any(
            read.explicit is not None or (read.unseen and read.table.key not in start.baselines)
            for read in facts.follows(target.dataflow, flow)
        ):
            raise NotKnownError("FLOW_STARTS_WHERE_SPEC_SAYS", flow=flow.name)
    legacy, now = table_facts(spark, start.copy.table), table_facts(spark, target.target)
    if legacy is None or (legacy.table_id and legacy.table_id != start.copy.table_id):
        raise NotKnownError("LEGACY_TABLE_MISSING_FOR_PROOF", table=start.copy.table)
    if now is None:
        raise NotKnownError("TARGET_MISSING_FOR_PROOF")
    # A pipeline tells neither how far it is nor which version it left the target at.
    version = None if planned.in_pipeline else now.version
    taken = _newest(start, facts) if planned.in_pipeline else _taken(target, start, facts)
    versions = {key: reached for key, reached in taken.items() if isinstance(reached, int)}
    offsets = {key: reached for key, reached in taken.items() if isinstance(reached, KafkaOffset)}
    hand_over = HandOver(legacy.version, versions, {}, kafka=offsets)
    if start.take_over:
        hand_over = _taken_over(start)
    elif start.batches:
        checkpoints = planned.project.checkpoints(history.migration)
        if not checkpoints:
            raise NotKnownError("OLD_CHECKPOINTS_NOT_NAMED", location=history.migration.location)
        hand_over = stream_checkpoints.hand_over(spark, legacy, checkpoints, taken)
    elif start.certainty == "proved":
        # Where the rows tell nothing, the tables are compared as they are, which shows what differs.
        found = _by_content(spark, target, legacy, facts, versions)
        hand_over = found if isinstance(found, HandOver) else hand_over
    lacking = _Lacking.of(start, hand_over, taken)
    if start.certainty == "proved" and target.dataflow.target.cdc and any(lacking.commits.values()):
        for output in expected_rows.brought(spark, target.dataflow):
            output.check_skipped(lacking.commits)
        until = {key: commits.stop for key, commits in lacking.commits.items()}
        return _from_sources(spark, target, until, version)
    more, more_in_target = _lacking(spark, target.dataflow, lacking)
    with (
        task(_log, f"compare it with {start.copy.table}", table=target.target) as running,
        track_jobs(spark, running),
    ):
        verdict = copies.compared(
            spark,
            target.target,
            replace(history, version=hand_over.version),
            version,
            more=more,
            more_in_target=more_in_target,
            # Each job says for itself when it has loaded a row.
            without=[column.name for column in target.dataflow.target.metadata],
            unstable=copies.unstable_of_flows(spark, target.dataflow),
        )
        rows = verdict.target.rows - sum(frame.count() for frame in more_in_target)
        running.update("rows", rows)
    return Proof(
        target.target,
        verdict,
        behind=lacking.commit_count,
        records=lacking.records,
        rows=rows,
    )


def _taken_over(start: MigrationStart) -> HandOver:
    """Return the version at which a table was taken over, with the sources' versions and offsets of then.

    Raises:
        NotKnownError: The old stream stopped within a commit.
    """
    bases = start.baselines.values()
    for base in bases:
        if base.within and not base.of_kafka:
            raise NotKnownError(
                "OLD_STREAM_STOPPED_WITHIN_VERSION", table=base.table, version=base.version + 1
            )
    return HandOver(
        start.copy.version,
        {base.table_id: base.version for base in bases if not base.of_kafka},
        start.batches,
        kafka={base.table_id: KafkaOffset.parse(base.within) for base in bases if base.of_kafka},
    )


def _from_sources(
    spark: SparkSession, target: TargetPlan, until: Mapping[str, int], version: int | None
) -> Proof:
    """Compare with what the flows make of all commits, where the copied history was proved to be made so."""
    settings, label = target.dataflow.target.cdc, str(target.target)
    rows = copies.rows_of(spark, target.target, version)
    migration = target.dataflow.migration
    excluded = (
        *(migration.compare_except if migration else ()),
        *copies.unstable_of_flows(spark, target.dataflow),
    )
    comparison = content_search.Comparison(Whole.of(spark, target.dataflow), settings, rows, label, excluded)
    with task(_log, "compare it with its sources", table=target.target):
        verdict = comparison.at(until)
    return Proof(target.target, verdict, rows=verdict.source.rows)


def _by_content(
    spark: SparkSession, target: TargetPlan, legacy: TableFacts, facts: Facts, taken: Mapping[str, int]
) -> HandOver | NoHandOver:
    """Find how far into the sources the table reaches that a batch job fills."""
    start, migration = target.migration_start, target.dataflow.migration
    assert start is not None
    assert migration is not None
    if legacy.version == start.copy.version:
        return HandOver(
            legacy.version, {base.table_id: base.version for base in start.baselines.values()}, {}
        )
    tables = [source for key in start.baselines if (source := facts.tables.get(key))]
    sources = [replace(source, version=taken[source.table_id]) for source in tables]
    return content_search.find(spark, target.dataflow, migration, legacy, sources)


@dataclass(frozen=True)
class _Lacking:
    """What the flows have taken that the legacy table lacks, by the key of the source.

    Attributes:
        commits: From the last commit that the legacy table has to the last that the flows have taken.
        offsets: The same for Kafka's topics.
    """

    commits: Mapping[str, range]
    offsets: Mapping[str, tuple[KafkaOffset, KafkaOffset]]

    @classmethod
    def of(cls, start: MigrationStart, hand_over: HandOver, taken: Limits) -> _Lacking:
        commits, offsets = {}, {}
        for key, base in start.baselines.items():
            match taken[base.table_id]:
                case int() as version:
                    commits[key] = range(hand_over.positions.get(base.table_id, base.version), version)
                case KafkaOffset() as offset if base.table_id in hand_over.kafka:
                    offsets[key] = (hand_over.kafka[base.table_id], offset)
                case _:
                    raise NotKnownError("OLD_STREAM_CHANGED_SOURCES", table=base.table)
        return cls(commits, offsets)

    @property
    def commit_count(self) -> int:
        return sum(map(len, self.commits.values()))

    @property
    def records(self) -> int:
        return sum(start.behind(end) for start, end in self.offsets.values())

    def lacks(self, flow: Brought) -> bool:
        """Say whether any of that is a flow's."""
        records = (start.behind(end) for key in flow.topics for start, end in (self.offsets[key],))
        return any(self.commits[key] for key in flow.tables) or any(records)


def _newest(start: MigrationStart, facts: Facts) -> Limits:
    if kafka := next((base for base in start.baselines.values() if base.of_kafka), None):
        raise NotKnownError("PIPELINE_POSITION_UNKNOWN", source=kafka.table)
    sources = {base.table_id: facts.tables.get(key) or base for key, base in start.baselines.items()}
    return {table_id: source.version for table_id, source in sources.items()}


def _taken(target: TargetPlan, start: MigrationStart, facts: Facts) -> Limits:
    """Return how far into each source the flows are, by the source's id."""
    taken: dict[str, int | KafkaOffset] = {}
    for flow in target.dataflow.flows:
        checkpoint = facts.checkpoints.get((target.dataflow.key, flow.name), Checkpoint())
        if checkpoint.offered is not None and not checkpoint.caught_up:
            raise NotKnownError("FLOW_STOPPED_WITHIN_COMMIT", flow=flow.name)
        # A flow that reads topics reads nothing else.
        topics = [start.baselines.get(read.table.key) for read in facts.follows(target.dataflow, flow)]
        for base, reached in zip(filter(None, topics), checkpoint.kafka.values(), strict=False):
            if taken.setdefault(base.table_id, reached) != reached:
                raise NotKnownError("FLOWS_APART", target=target.target)
        for table_id, offset in checkpoint.offsets.items():
            if taken.setdefault(table_id, offset.version - 1) != offset.version - 1:
                raise NotKnownError("FLOWS_APART", target=target.target)
    return {**_baselines(start), **taken}


def _baselines(start: MigrationStart) -> dict[str, int | KafkaOffset]:
    return {
        base.table_id: KafkaOffset.parse(base.within) if base.of_kafka else base.version
        for base in start.baselines.values()
    }


def _lacking(
    spark: SparkSession, dataflow: DataFlow, lacking: _Lacking
) -> tuple[list[DataFrame], list[DataFrame]]:
    """Return what the flows made of what the legacy table lacks, as rows to be added on each side.

    What a change feed or Kafka brought is read from there. Of other sources, all rows as of the newer
    version are added to the legacy table, and as of the older one to the target: what both hold makes no
    difference.
    """
    more: list[DataFrame] = []
    more_in_target: list[DataFrame] = []
    if not lacking.commit_count and not lacking.records:
        return more, more_in_target
    try:
        if dataflow.target.cdc:
            raise NotKnownError("TARGET_NOT_APPEND_ONLY", target=dataflow.target.name)
        for flow in expected_rows.brought(spark, dataflow):
            if lacking.lacks(flow):
                flow.check_skipped(lacking.commits)
                spans = {key: CommitRange(lag.stop, lag.start) for key, lag in lacking.commits.items()}
                more.append(flow.rows(spans, lacking.offsets))
                if not flow.new_rows:
                    before = {key: CommitRange(lag.start) for key, lag in lacking.commits.items()}
                    more_in_target.append(flow.rows(before))
    except NotKnownError as error:
        raise NotKnownError("FLOWS_AHEAD_OF_OLD_STREAM", reason=error.sentence) from error
    return more, more_in_target
