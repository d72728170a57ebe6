"""Gives a table that was taken over back to its old streams, which go on where the flows have stopped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tableferry.errors import Refused
from tableferry.pipelines import checkpoints
from tableferry.pipelines.identities import PROPERTY
from tableferry.pipelines.plans import Checkpoint, Facts, Plan, TargetPlan
from tableferry.pipelines.state import StateStore
from tableferry.spark.catalog import facts as table_facts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def check(plan: Plan, facts: Facts) -> None:
    """Make sure that every target can be given back.

    Raises:
        Refused: One can't; nothing was done.
    """
    refusals = [
        f"{target.target}: {why}" for target in plan.targets if (why := _why_not(plan, facts, target))
    ]
    if refusals:
        raise Refused("\n".join(refusals))


def undo(
    spark: SparkSession, store: StateStore, plan: Plan, target: TargetPlan, before: Callable[[str], None]
) -> None:
    """Move the old streams' checkpoints on, and forget the migration; can be repeated after a crash.

    Where old streams have gone on, and RESTORE hasn't undone it, they stay where they are further on. From a
    pipeline that hasn't run its flows they have nothing to catch up with, and their checkpoints stay as they
    are.
    ``before`` is called with a description right before each effect.
    """
    name, start = target.target, target.stored.migration_start
    before(f"recording in the state that {name} is given back")
    store.start_undo(name)
    if start is not None and not plan.in_pipeline:
        for folder in _old_checkpoints(plan, target):
            # A flow that has brought nothing has no offset of its own, and its old stream stays where it is.
            own = [
                store.checkpoint(name, target.stored.generation, flow.name)
                for flow in target.dataflow.streaming_flows
            ]
            query = checkpoints.query_id(folder)
            went_on = target.legacy_writes is not None and query in target.legacy_writes.batches
            batch = None if went_on else start.batches.get(query)
            before(f"moving {folder} to where the flows of {name} have stopped")
            checkpoints.move_on(folder, batch, own)
    table = table_facts(spark, name)
    if table and PROPERTY in table.properties:
        before(f"removing from {name} which flows fill it")
        spark.sql(f"ALTER TABLE {name.sql} UNSET TBLPROPERTIES IF EXISTS ('{PROPERTY}')")
    before(f"removing the state of {name}")
    store.forget(name)


def _why_not(plan: Plan, facts: Facts, target: TargetPlan) -> str:
    migration, stored = target.dataflow.migration, target.stored
    if migration is None or not migration.take_over:
        return (
            "it isn't taken over, so there is nothing to give back: the legacy table is as its own jobs left "
            "it, and the target can be dropped, with its folders in the state"
        )
    if stored.finished:
        return "its migration is finished, and where the old streams' checkpoints were isn't known any more"
    if stored.engine not in ("", plan.engine):
        return f"its flows run with --engine {stored.engine}, which alone knows how far they are: give that"
    if stored.undoing:
        return ""
    start = stored.migration_start
    if start is None:
        return "nothing of it was taken over yet, so its old streams can just go on"
    if plan.in_pipeline:
        return _why_not_from_a_pipeline(facts, target)
    for flow in target.dataflow.streaming_flows:
        if facts.checkpoints.get((target.dataflow.key, flow.name), Checkpoint()).pending:
            return f"{flow.name} stopped within a batch: run the project first"
    found = {checkpoints.query_id(folder) for folder in _old_checkpoints(plan, target)}
    if missing := start.batches.keys() - found:
        return (
            f"the checkpoint of the query {', '.join(sorted(missing))}, from which it was taken over, isn't "
            "in checkpointLocation any more: name it again"
        )
    return ""


def _why_not_from_a_pipeline(facts: Facts, target: TargetPlan) -> str:
    """Refuse to guess where the flows of a pipeline have stopped, whose checkpoints are its own."""
    tracking = target.stored.tracking
    if tracking is None:
        return "what is recorded of its start isn't whole: `tableferry pipelines prepare` first"
    ran = [
        flow.name
        for flow in target.dataflow.streaming_flows
        if flow.name in tracking.started
        or facts.checkpoints.get((target.dataflow.key, flow.name), Checkpoint()).started
    ]
    if not ran:
        return ""
    return (
        f"{', '.join(ran)} has run in the pipeline, which keeps its checkpoints to itself, so where an old "
        "stream would go on can't be read: pause what writes to the sources, let an update of the pipeline "
        "take all of them, take the spec out of it, start the old stream with a new checkpoint behind the "
        f"sources' versions or offsets of then, and remove the folders of {target.target} under {facts.state}"
    )


def _old_checkpoints(plan: Plan, target: TargetPlan) -> tuple[Path, ...]:
    assert target.dataflow.migration is not None
    return plan.project.checkpoints(target.dataflow.migration)
