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
from functools import partial
from typing import TYPE_CHECKING, assert_never

from tableferry import verify
from tableferry.activity import activity
from tableferry.catalog import facts as table_facts
from tableferry.driver import following
from tableferry.errors import TableferryError
from tableferry.pipelines import copies, old_streams, sql
from tableferry.pipelines.flows import (
    DataFlow,
    DeltaSource,
    Flow,
    HistorySource,
    JoinSource,
    OtherSource,
    PythonSource,
    SqlSource,
)
from tableferry.pipelines.plans import Checkpoint, Facts, HandOver, Plan, TargetPlan
from tableferry.pipelines.reads import views_behind
from tableferry.pipelines.rows import flow_rows
from tableferry.pipelines.state import MigrationStart
from tableferry.pipelines.views import Span
from tableferry.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger(__name__)

_SAME = "stop the old stream, run the project once more, and then both have taken the same"
_SKIPPING = ("skipchangecommits", "ignorechanges", "ignoredeletes")


@dataclass(frozen=True)
class Proof:
    """Whether a target holds what its legacy table holds, and what came behind it.

    Attributes:
        verdict: How they compare; None where they can't be.
        why_not: Why they can't be compared, and how they can.
        behind: How many commits of the sources the flows have taken that the legacy table lacks; their rows
            were read from the sources.
        rows: How many rows the target holds.
    """

    target: TableName
    verdict: verify.Verdict | None = None
    why_not: str = ""
    behind: int = 0
    rows: int = 0

    @property
    def proved(self) -> bool:
        """Whether they hold the same rows."""
        return self.verdict is not None and self.verdict.matches


class _NotProvableError(Exception):
    """Says why a target can't be compared, and how it can."""


def prove(
    spark: SparkSession, planned: Plan, target: TargetPlan, facts: Facts, *, only_recorded: bool = False
) -> Proof | None:
    """Compare a target with its legacy table; None if it has no migration.

    Args:
        spark: Where they are.
        planned: The project's plan.
        target: One of its targets.
        facts: What the plan was decided from. Where Tableferry runs the flows, their checkpoints say how far
            they are; a pipeline's are taken to be as far as the sources.
        only_recorded: Leave out a migration whose hand-over point isn't recorded by old streams.
    """
    start = target.migration_start
    if target.dataflow.migration is None or (only_recorded and not (start and start.batches)):
        return None
    try:
        return _prove(spark, planned, target, facts)
    except (_NotProvableError, TableferryError) as error:
        return Proof(target.target, why_not=str(error))


def _prove(spark: SparkSession, planned: Plan, target: TargetPlan, facts: Facts) -> Proof:
    start, history = target.migration_start, target.history
    if start is None or history is None or not target.stored.copied:
        raise _NotProvableError("its history isn't copied yet: run the project first")
    for flow in target.dataflow.flows:
        if flow.once or any(read.explicit is not None for read in facts.follows(target.dataflow, flow)):
            raise _NotProvableError(
                f"{flow.name} brings rows from where the spec says, which the legacy table may lack: compare "
                "the two with `tableferry verify`"
            )
    legacy, now = table_facts(spark, start.copy.table), table_facts(spark, target.target)
    if legacy is None or (legacy.table_id and legacy.table_id != start.copy.table_id):
        raise _NotProvableError(f"{start.copy.table} is gone: restore it, for nothing else says what it held")
    if now is None:
        raise _NotProvableError("it's gone: restore it, or rebuild it with --full-refresh")
    taken = _newest(start, facts) if planned.in_pipeline else _taken(target, start, facts)
    hand_over = HandOver(legacy.version, taken, {})
    if start.batches:
        checkpoints = planned.project.checkpoints(history.migration)
        if not checkpoints:
            raise _NotProvableError(
                "the checkpoints of the old streams aren't in its spec any more: name them again in "
                f"checkpointLocation ({history.migration.location})"
            )
        hand_over = old_streams.hand_over(spark, legacy, checkpoints, taken)
    spans = {
        key: Span(taken[baseline.table_id], hand_over.positions.get(baseline.table_id, baseline.version))
        for key, baseline in start.baselines.items()
    }
    more, more_in_target = _behind(spark, target, facts, spans)
    with (
        activity(_log, f"compare it with {start.copy.table}", table=target.target) as running,
        following(spark, running),
    ):
        verdict = copies.compared(
            spark,
            target.target,
            replace(history, version=hand_over.version),
            None if planned.in_pipeline else now.version,
            more=more,
            more_in_target=more_in_target,
        )
        rows = verdict.target.rows - sum(frame.count() for frame in more_in_target)
        running.count("rows", rows)
    behind = sum(span.until - span.after for span in spans.values())
    return Proof(target.target, verdict, behind=behind, rows=rows)


def _newest(start: MigrationStart, facts: Facts) -> Mapping[str, int]:
    sources = {base.table_id: facts.tables.get(key) or base for key, base in start.baselines.items()}
    return {table_id: source.version for table_id, source in sources.items()}


def _taken(target: TargetPlan, start: MigrationStart, facts: Facts) -> Mapping[str, int]:
    """Return the last commit of each source that the flows have taken, by the source's table id."""
    taken: dict[str, int] = {}
    for flow in target.dataflow.flows:
        checkpoint = facts.checkpoints.get((target.dataflow.key, flow.name), Checkpoint())
        if checkpoint.offered is not None and not checkpoint.caught_up:
            raise _NotProvableError(f"{flow.name} stopped within a commit: run the project first")
        for table_id, offset in checkpoint.offsets.items():
            if taken.setdefault(table_id, offset.version - 1) != offset.version - 1:
                raise _NotProvableError(
                    "its flows have taken different commits of a source: run the project first"
                )
    return {**{base.table_id: base.version for base in start.baselines.values()}, **taken}


def _behind(
    spark: SparkSession, target: TargetPlan, facts: Facts, spans: Mapping[str, Span]
) -> tuple[list[DataFrame], list[DataFrame]]:
    """Return the rows that the flows made of commits behind the legacy table's, to be added on each side.

    What a change feed brought is read from there. Of other sources, all rows as of the one version are added
    to the target, and as of the other to the legacy table: what both hold makes no difference.
    """
    dataflow = target.dataflow
    more: list[DataFrame] = []
    more_in_target: list[DataFrame] = []
    for flow in dataflow.flows:
        followed = facts.followed(dataflow, flow)
        if all(spans[key].after == spans[key].until for key in followed & spans.keys()):
            continue
        if dataflow.target.cdc or flow.target.key != dataflow.key:
            raise _NotProvableError(
                f"the flows have taken commits that the old stream hasn't, of which {flow.name} makes more "
                f"than rows to append: {_SAME}"
            )
        change_feed = _reads_change_feed(dataflow, flow)
        rows = partial(flow_rows, spark, dataflow.views, flow, dataflow.target.expectations, {}, once=True)
        more.append(rows(spans=spans))
        if not change_feed:
            more_in_target.append(rows(spans={key: Span(span.after) for key, span in spans.items()}))
    return more, more_in_target


def _reads_change_feed(dataflow: DataFlow, flow: Flow) -> bool:
    """Say whether all that a flow follows is change feeds, or all of it is rows."""
    kinds = set()
    for name in views_behind(dataflow.views, flow.view):
        view = dataflow.views[name]
        match view.source:
            case _ if view.mode == "batch":
                continue
            case DeltaSource() as source:
                sources = [source]
            case JoinSource(sides):
                sources = [side.source for side in sides if side.mode == "stream"]
            case SqlSource(statement):
                sources = []
                if any(r.streamed and r.parts[-1] not in dataflow.views for r in sql.references(statement)):
                    kinds.add(False)
            case PythonSource() | OtherSource() | HistorySource():
                raise _NotProvableError(
                    "the flows have taken commits that the old stream hasn't, and which rows they made of "
                    f"these isn't known of {name}: {_SAME}"
                )
            case _:
                assert_never(view.source)
        for source in sources:
            if any(option.lower() in _SKIPPING for option in source.options):
                raise _NotProvableError(
                    f"the flows have taken commits that the old stream hasn't, and {name} skips some: {_SAME}"
                )
            kinds.add(source.change_feed)
    if len(kinds) > 1:
        raise _NotProvableError(
            f"the flows have taken commits that the old stream hasn't, and {flow.name} reads change feeds "
            f"and rows together: {_SAME}"
        )
    return kinds == {True}
