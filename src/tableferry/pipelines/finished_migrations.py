"""Finish of complete migrations: their state is removed; data and the flows' checkpoints stay.

If a pipeline on Databricks runs the flows, `finish_without_spark` reads only state files and the pipeline's
event log, so it needs the workspace's API and no Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from tableferry import storage
from tableferry.errors import Finding, Refused
from tableferry.pipelines import pinned_clones
from tableferry.pipelines.handover import proofs
from tableferry.pipelines.handover.proofs import Proof
from tableferry.pipelines.model.facts import Facts
from tableferry.pipelines.model.flows import DataFlow, Project
from tableferry.pipelines.model.phases import OVER, phase_label
from tableferry.pipelines.model.plan import Plan, TargetPlan, pinned_clone_name
from tableferry.pipelines.model.target_state import TargetState
from tableferry.pipelines.planning.baseline import is_assumed
from tableferry.pipelines.planning.decide import phase_of
from tableferry.pipelines.planning.identity import find_engine_change
from tableferry.pipelines.planning.pipeline_port import Pipeline
from tableferry.pipelines.reports import FinishReport
from tableferry.pipelines.state.store import StateStore
from tableferry.spark.catalog import parallel_dict
from tableferry.spark.tables import TableName

if TYPE_CHECKING:
    from tableferry.pipelines.update import Update


def finish_with_proofs(update: Update, *, verify: bool, accept_assumed: bool) -> FinishReport:
    """Finish complete migrations: drop their pinned clones and remove their state.

    ``verify`` compares the rows of recorded and assumed hand-overs. ``accept_assumed`` also finishes assumed
    ones without a comparison.

    Raises:
        Refused: Nothing was removed: a migration is incomplete or unconfirmed, or rows differ.
        Busy: Another run has the lease; some targets may be finished.
    """
    compared: tuple[Proof, ...] = ()
    plan, facts = update.decide(_check_complete)
    if _list_migrating(plan):
        with update.locked(plan, facts, _check_complete) as (plan, facts):
            if verify:
                compared = tuple(_prove_targets(update, plan, facts, accept_assumed=accept_assumed))
            _check_proofs(plan, compared, accept_assumed=accept_assumed)
            for target in _list_migrating(plan):
                update.runner.check_lease(update.opened.spark)
                # The clone goes first: without state, no run finds it.
                pinned_clones.drop_pinned_clone(target, update.opened)
                update.opened.store.finish(target.target)
    targets = _list_migrating(plan)
    finished = [target for target in targets if target.phase != "finished"]
    proved = {proof.target for proof in compared if proof.proved}
    return FinishReport(
        tuple(target.target for target in finished),
        tuple(target.target for target in targets if target.phase == "finished"),
        compared,
        tuple(
            (target.target, "proved" if target.target in proved else target.migration_start.certainty)
            for target in finished
            if target.migration_start
        ),
    )


def _list_migrating(plan: Plan) -> tuple[TargetPlan, ...]:
    """Return the targets that have, or had, a migration."""
    return tuple(
        target for target in plan.targets if target.dataflow.migration or target.state.migration_start
    )


def _check_complete(plan: Plan) -> None:
    refusals = [
        Finding("CUTOVER_UNFINISHED", target=target.target, name=cutover.name)
        for target in plan.targets
        if (cutover := target.state.pending_cutover)
    ]
    refusals += [
        Finding(
            "MIGRATION_NOT_COMPLETE",
            target=target.target,
            reason="; ".join([phase_label(target.phase), *(wait.why.sentence for wait in target.waits)]),
        )
        for target in _list_migrating(plan)
        if target.phase not in OVER
    ]
    if refusals:
        raise Refused.of(refusals)


def _prove_targets(update: Update, plan: Plan, facts: Facts, *, accept_assumed: bool) -> Iterator[Proof]:
    """Compare the targets whose hand-over wasn't proved at the start."""
    spark = update.opened.spark
    for target in _list_migrating(plan):
        start = target.migration_start
        if start is None or target.phase == "finished" or start.certainty == "proved":
            continue
        if start.certainty == "recorded":
            if proof := proofs.prove_target(spark, plan, target, facts):
                yield proof
        elif is_assumed(target.dataflow, start) and not accept_assumed:
            proof = proofs.prove_start(spark, target)
            if not proof.proved:
                # The old job may have caught up with the flows.
                now = proofs.prove_target(spark, plan, target, facts)
                proof = now if now and now.proved else proof
            yield proof


def _check_proofs(plan: Plan, compared: Collection[Proof], *, accept_assumed: bool) -> None:
    """Refuse rows that differ from what the old streams wrote, and assumed hand-overs without a proof."""
    refusals = [
        Finding("TARGET_NOT_PROVED", target=proof.target, reason=proof.why_not)
        if proof.why_not
        else Finding("TARGET_DIFFERS", target=proof.target)
        for proof in compared
        if not proof.proved and not proof.of_start
    ]
    if not refusals and not accept_assumed:
        by_target = {proof.target: proof for proof in compared}
        for target in _list_migrating(plan):
            proof = by_target.get(target.target)
            if target.phase == "finished" or (proof and proof.proved):
                continue
            if is_assumed(target.dataflow, target.migration_start):
                reason = _why_not_proved(proof)
                refusals.append(Finding("ASSUMED_HAND_OVER_NOT_PROVED", target=target.target, reason=reason))
    if refusals:
        raise Refused.of(refusals)


def _why_not_proved(proof: Proof | None) -> str:
    if proof is None or proof.verdict is None:
        return f"no rows prove it ({proof.why_not if proof else '--no-verify'})"
    legacy, sources = proof.verdict.source_label, proof.verdict.target_label
    if proof.only_legacy_has_more:
        return f"{legacy} has all rows made of {sources}, and others that the flows may have written again"
    return f"{legacy} lacks rows made of {sources}, so the target may lack them"


def finish_without_spark(
    project: Project,
    store: StateStore,
    pipeline: Pipeline,
    drop: Callable[[TableName], None],
    only: Collection[str] = (),
    *,
    accept_assumed: bool = False,
) -> FinishReport:
    """Remove the state of complete migrations, and the pinned clones of their legacy tables.

    Args:
        project: The project.
        store: The state of its targets.
        pipeline: The pipeline that runs its flows.
        drop: Drops a table if it exists.
        only: The keys of the targets to finish; empty for all.
        accept_assumed: Finish migrations whose hand-over was assumed too. This function compares no rows.

    Raises:
        Refused: A migration isn't complete, or its hand-over was assumed; nothing was removed.
        TableferryError: A clone can't be dropped; its migration isn't finished.
    """
    chosen = project.select_dataflows(only)
    migrating = _read_migrating(chosen, store)
    _check_states(migrating.values(), pipeline, accept_assumed=accept_assumed)
    if migrating:
        with storage.locked([store.lock_file(name) for name in migrating], f"the project {project.name}"):
            current = _read_migrating(chosen, store)
            if current != migrating:
                migrating = current
                _check_states(migrating.values(), pipeline, accept_assumed=accept_assumed)
            for name, (dataflow, _) in migrating.items():
                # The clone goes first: without state, no run finds it.
                if dataflow.target.cdc:
                    drop(pinned_clone_name(name))
                store.finish(name)
    finished = {name: stored for name, (_, stored) in migrating.items() if not stored.finished}
    starts = {name: stored.migration_start for name, stored in finished.items()}
    return FinishReport(
        tuple(finished),
        tuple(name for name in migrating if name not in finished),
        certainties=tuple((name, start.certainty) for name, start in starts.items() if start),
    )


def _read_migrating(
    dataflows: Collection[DataFlow], store: StateStore
) -> Mapping[TableName, tuple[DataFlow, TargetState]]:
    """Return the data flows that have, or had, a migration, with their state."""
    states = parallel_dict(store.read, {dataflow.key: dataflow.target.name for dataflow in dataflows})
    return {
        dataflow.target.name: (dataflow, stored)
        for dataflow in dataflows
        if (stored := states[dataflow.key]).migration_start or dataflow.migration
    }


def _check_states(
    migrating: Collection[tuple[DataFlow, TargetState]], pipeline: Pipeline, *, accept_assumed: bool
) -> None:
    """Refuse migrations that aren't complete, that another engine runs, or whose hand-over was assumed."""
    refusals = _find_incomplete(migrating, pipeline)
    if not refusals and not accept_assumed:
        refusals = [
            Finding("ASSUMED_HAND_OVER_NOT_COMPARED", target=dataflow.target.name)
            for dataflow, stored in migrating
            if not stored.finished and is_assumed(dataflow, stored.migration_start)
        ]
    if refusals:
        raise Refused.of(refusals)


def _find_incomplete(
    migrating: Collection[tuple[DataFlow, TargetState]], pipeline: Pipeline
) -> list[Finding]:
    """Return a refusal for each migration that isn't complete, or that another engine runs."""
    unrecorded = {
        dataflow.target.name: _list_unrecorded_flows(dataflow, stored) for dataflow, stored in migrating
    }
    starts = {
        dataflow.key: stored.migration_start.recorded_at
        for dataflow, stored in migrating
        if stored.migration_start
    }
    flows = [(name, flow) for name, names in unrecorded.items() for flow in names]
    progress = pipeline.read_progress(flows, starts) if flows else {}
    refusals = []
    for dataflow, stored in migrating:
        name = dataflow.target.name
        waiting = [flow for flow in unrecorded[name] if not progress[name.key, flow].has_started]
        phase = phase_of(stored, ["start" for _ in waiting], copies=not stored.copied or stored.resetting)
        if change := find_engine_change(name, stored, pipeline.kind):
            refusals.append(change)
            continue
        if cutover := stored.pending_cutover:
            refusals.append(Finding("CUTOVER_UNFINISHED", target=name, name=cutover.name))
            continue
        if phase in OVER:
            continue
        why = [phase_label(phase), *(f"{flow} hasn't run yet" for flow in waiting)]
        if stored.elsewhere and not stored.migration_start:
            why.append(f"it began under pipelineId={', '.join(stored.elsewhere)}")
        refusals.append(Finding("PIPELINE_MIGRATION_NOT_COMPLETE", target=name, reason="; ".join(why)))
    return refusals


def _list_unrecorded_flows(dataflow: DataFlow, stored: TargetState) -> list[str]:
    """Return the streaming flows of a running migration that its state doesn't report as started."""
    if stored.migration_start is None or stored.finished:
        return []
    ran = stored.tracking.started if stored.tracking else ()
    return [flow.name for flow in dataflow.streaming_flows if flow.name not in ran]
