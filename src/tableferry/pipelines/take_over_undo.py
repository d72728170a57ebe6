"""Undo of a take-over: the old streams resume at the offsets that the flows have reached."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tableferry.errors import Finding, Refused
from tableferry.pipelines.engines.port import EffectHook
from tableferry.pipelines.model.facts import Checkpoint, Facts
from tableferry.pipelines.model.identities import PROPERTY
from tableferry.pipelines.model.plan import Plan, TargetPlan
from tableferry.pipelines.state import checkpoints
from tableferry.pipelines.state.store import StateStore
from tableferry.spark.catalog import facts as table_facts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def check_undo(plan: Plan, facts: Facts) -> None:
    """Check that the take-over of every target can be undone.

    Raises:
        Refused: A take-over can't be undone; nothing was changed.
    """
    refusals = [finding for target in plan.targets if (finding := _find_undo_blocker(plan, facts, target))]
    if refusals:
        raise Refused.of(refusals)


def undo_take_over(
    spark: SparkSession, store: StateStore, plan: Plan, target: TargetPlan, before_effect: EffectHook
) -> None:
    """Let the old streams resume where the flows stopped; can be repeated after a crash.

    The undo is recorded first. Then the streams' checkpoints are advanced to the offsets of the flows, and
    the table's property, the state and the checkpoints of the flows are removed. Call `check_undo` before,
    with the targets locked.

    For an old stream that has written after the take-over, the offsets of its newest batch count too, unless
    RESTORE removed those writes.
    """
    name, start = target.target, target.state.migration_start
    before_effect(f"recording in the state that the take-over of {name} is being undone")
    store.start_undo(name)
    if start is not None:
        for folder in _list_old_checkpoints(plan, target):
            # A flow without a batch has no offsets, so its old stream stays at its newest batch.
            flow_checkpoints = [
                store.checkpoint_folder(name, target.state.generation, flow.name)
                for flow in target.dataflow.streaming_flows
            ]
            query = checkpoints.read_query_id(folder)
            has_written = target.legacy_writes is not None and query in target.legacy_writes.batches
            batch = None if has_written else start.batches.get(query)
            before_effect(f"advancing {folder} to the offsets of the flows of {name}")
            checkpoints.advance_offsets(folder, batch, flow_checkpoints)
    table = table_facts(spark, name)
    if table and PROPERTY in table.properties:
        before_effect(f"removing the property {PROPERTY} from {name}")
        spark.sql(f"ALTER TABLE {name.sql} UNSET TBLPROPERTIES IF EXISTS ('{PROPERTY}')")
    before_effect(f"removing the state of {name}")
    store.remove(name)


def _find_undo_blocker(plan: Plan, facts: Facts, target: TargetPlan) -> Finding | None:
    migration, stored, name = target.dataflow.migration, target.state, target.target
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
        if facts.checkpoints.get((target.dataflow.key, flow.name), Checkpoint()).has_pending_batch:
            return Finding("UNDO_WITHIN_BATCH", target=name, flow=flow.name)
    found = {checkpoints.read_query_id(folder) for folder in _list_old_checkpoints(plan, target)}
    if missing := start.batches.keys() - found:
        return Finding("UNDO_CHECKPOINT_NOT_NAMED", target=name, queries=sorted(missing))
    return None


def _list_old_checkpoints(plan: Plan, target: TargetPlan) -> tuple[Path, ...]:
    assert target.dataflow.migration is not None
    return plan.project.list_checkpoint_folders(target.dataflow.migration)
