"""Decide what a run does with each target of a project: the same facts give the same plan, without Spark.

The rules of a migration, each with the function that implements it:

1. A baseline is written once: `baseline.plan_migration_start`.
2. Each target owns its state: `baseline.adopt_state`.
3. A flow without a new commit is left out, never gated: `flow_start.plan_flows`.
4. The copy is pinned: `definitions.define_flows`.
5. History is exact: `cdc.unrepresentable_rows`, which reads rows, so it runs after planning.
6. The user's options stay: `flow_start.plan_flows`.
7. Versions can vanish: `flow_start.plan_flows`.
8. Done is reported, not guessed: `phase_of`.
9. Identity is recorded: `identity.check_identity`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from tableferry.pipelines.model.facts import Facts, UnknownHandOver
from tableferry.pipelines.model.flows import RESET_ALLOWED, DataFlow, Project
from tableferry.pipelines.model.phases import Phase
from tableferry.pipelines.model.plan import Plan, PlanRequest, TargetPlan
from tableferry.pipelines.model.steps import PlannedFlow
from tableferry.pipelines.model.target_state import TargetState
from tableferry.pipelines.planning import baseline, identity
from tableferry.pipelines.planning.context import Findings, PlanningContext, add_note
from tableferry.pipelines.planning.definitions import define_flows
from tableferry.pipelines.planning.engine_support import check_connect_client, check_engine
from tableferry.pipelines.planning.flow_start import plan_flows
from tableferry.pipelines.planning.full_refresh import (
    check_recorded_history,
    plan_full_refresh,
)


def decide(project: Project, facts: Facts, request: PlanRequest) -> Plan:
    """Decide what a run of the project does."""
    dataflows = in_order(project, facts)
    producers = {table.name.key: dataflow for dataflow in dataflows for table in dataflow.tables}
    filling = frozenset(
        table.name.key for dataflow in dataflows for table in dataflow.tables if table.snapshots is not None
    )
    plans = []
    for dataflow in dataflows:
        if not request.only or dataflow.key in request.only:
            stored = facts.states.get(dataflow.key, TargetState())
            plan = _target_plan(
                PlanningContext(dataflow, dataflows, producers, facts, request, filling, stored)
            )
            filling |= {step.target.key for step in plan.steps if isinstance(step, PlannedFlow)}
            plans.append(plan)
    return Plan(project, request.pipeline_id, tuple(plans), request.engine)


def in_order(project: Project, facts: Facts) -> tuple[DataFlow, ...]:
    """Order data flows so that each follows those whose targets it reads; cycles keep their order."""
    by_target = {dataflow.key: dataflow for dataflow in project.dataflows}
    into = {key: [(dataflow, flow) for flow in dataflow.flows] for key, dataflow in by_target.items()}
    return tuple(by_target[key] for key in facts.order_tables(into))


def _target_plan(context: PlanningContext) -> TargetPlan:
    """Plan a target: check its state, then its identity, then decide its start, its flows and its steps."""
    stored, findings = baseline.adopt_state(context)
    if findings.refusals:
        # Without the target's state, nothing else can be decided.
        return _result(context, "refused", findings)
    context = replace(context, stored=stored)
    if unsupported := baseline.check_take_over_in_pipeline(context) + check_connect_client(context):
        return _result(context, "refused", findings + unsupported)
    findings += baseline.adopt_renamed_target(context)
    if findings.refusals:
        return _result(context, "refused", findings)
    migration, is_finished = context.migration, _is_finished(context)
    if is_finished:
        findings += context.warn("MIGRATION_FINISHED")
        if context.is_refreshed:
            findings += context.refuse("REFRESH_OF_FINISHED_MIGRATION")
    if stored.undoing:
        return _result(context, "refused", findings + context.refuse("UNDO_OF_TARGET_UNFINISHED"))
    if cutover := stored.pending_cutover:
        if context.is_refreshed:
            return _result(
                context, "refused", findings + context.refuse("CUTOVER_UNFINISHED", name=cutover.name)
            )
        findings += context.warn("CUTOVER_UNFINISHED", name=cutover.name)
    elif stored.cutover:
        done = stored.cutover
        findings += add_note(f"{done.name} is a view of {context.target}; the legacy table is {done.renamed}")
        if context.is_refreshed:
            findings += add_note(f"readers of {done.name} see how the target is emptied and filled again")
    if migration and not stored.migration_start and (copies := baseline.list_uncopied_producers(context)):
        note = f"starts after {' and '.join(map(str, copies))} contains its copied history"
        return _result(context, "later", findings + add_note(note))
    findings += check_engine(context) + identity.check_identity(context)
    if migration:
        is_refused = bool(findings.refusals)
        start, start_findings = baseline.plan_migration_start(context, migration, stopped=is_refused)
        findings += start_findings
        if start is None:
            # Without a start, the positions of its flows aren't known.
            return _result(context, "new", findings)
        context = replace(context, migration_start=start)
    elif not is_finished:
        findings += check_recorded_history(context) + baseline.end_migration(context)
    return _flows_plan(context, findings)


def _flows_plan(context: PlanningContext, findings: Findings) -> TargetPlan:
    """Plan a target whose start is known: a full refresh, its flows, its phase and its definitions."""
    stored = context.stored
    generation, refresh_findings = plan_full_refresh(context)
    context = replace(context, generation=generation)
    flows, flow_findings = plan_flows(context)
    findings += refresh_findings + flow_findings
    if context.needs_copy:
        findings += baseline.check_pinned_legacy_table(context)
    findings += baseline.check_other_writers(context)
    # A migration that the spec has disabled keeps its state until `finish` if its hand-over was assumed.
    awaits_finish = (
        context.migration is None
        and not context.is_refreshed
        and baseline.is_assumed(context.dataflow, stored.migration_start)
    )
    phase: Phase = "plain"
    if context.migration or _is_finished(context) or awaits_finish:
        phase = phase_of(stored, [flow.action for flow in flows], copies=context.needs_copy)
    if phase == "differs":
        findings += _warn_of_difference(context)
    if context.request.in_pipeline:
        findings += identity.record_pipeline_identity(context)
    result = _result(context, phase, findings + define_flows(context, flows), flows)
    return replace(result, migration_start=stored.migration_start) if awaits_finish else result


def _is_finished(context: PlanningContext) -> bool:
    """Return whether the spec still has the migration that `finish` has removed from the state."""
    return context.dataflow.migration is not None and context.stored.finished


def _warn_of_difference(context: PlanningContext) -> Findings:
    remedy = f"--full-refresh {context.target}"
    if context.request.in_pipeline:
        remedy = (
            f"a full refresh of {context.target} by its pipeline, for which its tableProperties must set "
            f"{RESET_ALLOWED} to true"
        )
    return context.warn("COPY_DIFFERS", how=remedy)


def _result(
    context: PlanningContext, phase: Phase, findings: Findings, flows: tuple[PlannedFlow, ...] | None = None
) -> TargetPlan:
    """Return the plan of a target; without flows if it was refused before they were planned."""
    hand_over = context.facts.hand_overs.get(context.target.key)
    return TargetPlan(
        context.dataflow,
        "refused" if findings.refusals else phase,
        () if findings.refusals else findings.steps,
        flows or (),
        notes=tuple(dict.fromkeys(findings.notes)),
        warnings=tuple(dict.fromkeys(findings.warnings)),
        refusals=tuple(dict.fromkeys(findings.refusals)),
        migration_start=context.migration_start,
        state=context.stored,
        copy=flows is not None and context.needs_copy,
        generation=context.generation,
        legacy_writes=context.facts.legacy_writes.get(context.target.key),
        nearest=hand_over.nearest if isinstance(hand_over, UnknownHandOver) else None,
    )


def phase_of(stored: TargetState, actions: Collection[str], *, copies: bool) -> Phase:
    """Return the phase of a target with a migration.

    Rule 8: Done is reported, not guessed. A migration is complete if its copy was compared and each streaming
    flow has committed a batch.

    Args:
        stored: The recorded state.
        actions: The next action of each flow.
        copies: The history isn't copied yet, or must be copied again.
    """
    if stored.finished:
        return "finished"
    if stored.migration_start is None:
        return "new"
    if copies:
        return "copying"
    if stored.tracking and stored.tracking.verified == "differ":
        return "differs"
    return "waiting" if "wait" in actions else "ready" if "start" in actions else "complete"
