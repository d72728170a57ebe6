"""Gives a table that was taken over back to its old streams, which go on where the flows have stopped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tableferry.errors import Finding, Refused
from tableferry.pipelines.model.facts import Checkpoint, Facts
from tableferry.pipelines.model.identities import PROPERTY
from tableferry.pipelines.model.plan import Plan, TargetPlan
from tableferry.pipelines.state import checkpoints
from tableferry.pipelines.state.store import StateStore
from tableferry.spark.catalog import facts as table_facts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def check_undo(plan: Plan, facts: Facts) -> None:
    """Make sure that every target can be given back.

    Raises:
        Refused: One can't; nothing was done.
    """
    refusals = [why for target in plan.targets if (why := _why_not(plan, facts, target))]
    if refusals:
        raise Refused.of(refusals)


def undo_take_over(
    spark: SparkSession, store: StateStore, plan: Plan, target: TargetPlan, before: Callable[[str], None]
) -> None:
    """Move the old streams' checkpoints on, and forget the migration; can be repeated after a crash.

    Where old streams have gone on, and RESTORE hasn't undone it, they stay where they are further on.
    ``before`` is called with a description right before each effect.
    """
    name, start = target.target, target.stored.migration_start
    before(f"recording in the state that {name} is given back")
    store.start_undo(name)
    if start is not None:
        for folder in _old_checkpoints(plan, target):
            # A flow that has brought nothing has no offset of its own, and its old stream stays where it is.
            own = [
                store.checkpoint(name, target.stored.generation, flow.name)
                for flow in target.dataflow.streaming_flows
            ]
            query = checkpoints.read_query_id(folder)
            went_on = target.legacy_writes is not None and query in target.legacy_writes.batches
            batch = None if went_on else start.batches.get(query)
            before(f"moving {folder} to where the flows of {name} have stopped")
            checkpoints.advance_offsets(folder, batch, own)
    table = table_facts(spark, name)
    if table and PROPERTY in table.properties:
        before(f"removing from {name} which flows fill it")
        spark.sql(f"ALTER TABLE {name.sql} UNSET TBLPROPERTIES IF EXISTS ('{PROPERTY}')")
    before(f"removing the state of {name}")
    store.forget(name)


def _why_not(plan: Plan, facts: Facts, target: TargetPlan) -> Finding | None:
    migration, stored, name = target.dataflow.migration, target.stored, target.target
    if migration is None or not migration.take_over:
        return Finding("NOT_TAKEN_OVER", target=name)
    if stored.finished:
        return Finding("UNDO_AFTER_FINISH", target=name)
    if stored.engine not in ("", plan.engine):
        return Finding("UNDO_BY_OTHER_ENGINE", target=name, engine=stored.engine)
    if stored.undoing:
        return None
    start = stored.migration_start
    if start is None:
        return Finding("NOTHING_TAKEN_OVER_YET", target=name)
    for flow in target.dataflow.streaming_flows:
        if facts.checkpoints.get((target.dataflow.key, flow.name), Checkpoint()).pending:
            return Finding("UNDO_WITHIN_BATCH", target=name, flow=flow.name)
    found = {checkpoints.read_query_id(folder) for folder in _old_checkpoints(plan, target)}
    if missing := start.batches.keys() - found:
        return Finding("UNDO_CHECKPOINT_NOT_NAMED", target=name, queries=sorted(missing))
    return None


def _old_checkpoints(plan: Plan, target: TargetPlan) -> tuple[Path, ...]:
    assert target.dataflow.migration is not None
    return plan.project.checkpoints(target.dataflow.migration)
