"""Decides, from facts alone, what each target of a project needs next: same facts, same plan, and no Spark.

The rules: a baseline is recorded once (`migration_starts`); a streaming flow whose source hasn't moved past
its baseline is left out of the plan, never gated inside it (`positions`); the copy is pinned; what can't be
known is asked for.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from tableferry.errors import Finding
from tableferry.pipelines.model.facts import Facts, UnknownHandOver
from tableferry.pipelines.model.flows import AUTO_LOADER, DataFlow, Project, ReaderSource
from tableferry.pipelines.model.phases import Phase
from tableferry.pipelines.model.plan import Plan, PlannedFlow, PlanRequest, TargetPlan
from tableferry.pipelines.model.steps import FlowDefinition
from tableferry.pipelines.model.target_state import TargetState
from tableferry.pipelines.planning import baseline, identity, pipeline_identity
from tableferry.pipelines.planning.context import (
    Findings,
    PlanningContext,
    add_note,
    refuse,
    refuse_all,
    warn,
)
from tableferry.pipelines.planning.definitions import define_flows
from tableferry.pipelines.planning.flow_start import plan_flows
from tableferry.pipelines.planning.full_refresh import (
    RESET_ALLOWED,
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
            filling |= {step.flow.target.key for step in plan.steps if isinstance(step, FlowDefinition)}
            plans.append(plan)
    return Plan(project, request.pipeline_id, tuple(plans), request.engine)


def in_order(project: Project, facts: Facts) -> tuple[DataFlow, ...]:
    """Order data flows so that each comes after those whose targets it reads; circles stay as they are."""
    by_target = {dataflow.key: dataflow for dataflow in project.dataflows}
    into = {key: [(dataflow, flow) for flow in dataflow.flows] for key, dataflow in by_target.items()}
    return tuple(by_target[key] for key in facts.order_tables(into))


def _target_plan(context: PlanningContext) -> TargetPlan:
    stored, findings = baseline.adopt_state(context)
    if findings.refusals:
        # Nothing else can be decided without the target's state.
        return _result(context, "refused", findings)
    context = replace(context, stored=stored)
    if impossible := baseline.check_take_over_in_pipeline(context) + _check_connect(context):
        return _result(context, "refused", findings + impossible)
    if earlier := baseline.adopt_renamed_target(context):
        return _result(context, "new", findings + earlier)
    migration = context.migration
    finished = context.dataflow.migration is not None and stored.finished
    if finished:
        findings += _check_finished(context)
    if stored.undoing:
        findings += refuse("UNDO_OF_TARGET_UNFINISHED", target=context.target)
        return _result(context, "refused", findings)
    later = baseline.list_uncopied_producers(context) if migration and not stored.migration_start else ()
    if later:
        findings += add_note(f"begins once {' and '.join(map(str, later))} holds its copied history")
        return _result(context, "later", findings)
    if context.request.engine == "declarative":
        findings += _check_declarative(context.dataflow)
    findings += _check_auto_loader(context) + identity.check_identity(context)
    if context.request.in_pipeline:
        findings += pipeline_identity.check_pipeline_identity(context)
    if migration:
        stopped = bool(findings.refusals)
        start, new = baseline.plan_migration_start(context, migration, stopped=stopped)
        findings += new
        if start is None:
            # Where its flows start can't be judged without a migration start.
            return _result(context, "new", findings)
        context = replace(context, migration_start=start)
    elif not finished:
        findings += check_recorded_history(context) + baseline.end_migration(context)
    awaits_finish = (
        migration is None
        and not context.is_refreshed
        and baseline.is_assumed(context.dataflow, stored.migration_start)
    )
    generation, new = plan_full_refresh(context)
    context = replace(context, generation=generation)
    findings += new
    flows, new = plan_flows(context)
    findings += new
    if context.needs_copy:
        findings += baseline.check_pinned_legacy_table(context)
    findings += baseline.check_other_writers(context)
    phase: Phase = "plain"
    if migration or finished or awaits_finish:
        phase = phase_of(context.stored, [flow.action for flow in flows], copies=context.needs_copy)
    if phase == "differs":
        how = (
            f"a full refresh of {context.target} by its pipeline, for which its tableProperties must set "
            f"{RESET_ALLOWED} to true"
            if context.request.in_pipeline
            else f"--full-refresh {context.target}"
        )
        findings += warn("COPY_DIFFERS", target=context.target, how=how)
    if context.request.in_pipeline:
        findings += pipeline_identity.record_pipeline_identity(context)
    result = _result(context, phase, findings + define_flows(context, flows), flows)
    return replace(result, migration_start=stored.migration_start) if awaits_finish else result


def _result(
    context: PlanningContext, phase: Phase, findings: Findings, flows: tuple[PlannedFlow, ...] | None = None
) -> TargetPlan:
    """Return the plan of a target, without flows where it ends before these are decided."""
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


def _check_finished(context: PlanningContext) -> Findings:
    findings = warn("MIGRATION_FINISHED", target=context.target)
    if context.is_refreshed:
        findings += refuse("REFRESH_OF_FINISHED_MIGRATION", target=context.target)
    return findings


def _check_auto_loader(context: PlanningContext) -> Findings:
    """Refuse views of Auto Loader outside Databricks."""
    if context.facts.auto_loader:
        return Findings()
    return refuse_all(
        Finding("AUTO_LOADER_ONLY_ON_DATABRICKS", location=view.location, view=view.name)
        for view in context.dataflow.views.values()
        if isinstance(view.source, ReaderSource) and view.source.format == AUTO_LOADER
    )


def _check_declarative(dataflow: DataFlow) -> Findings:
    """Refuse what a pipeline of Spark's own can't do.

    Spark 4.1 has no AUTO CDC; 4.2 has only SCD type 1, and not for the two flows that a migration needs.
    """
    return refuse_all(
        [
            *(
                Finding("AUTO_CDC_NOT_IN_SPARKS_OWN", location=table.location, table=table.name)
                for table in dataflow.tables
                if table.cdc
            ),
            *(
                Finding("ONCE_NOT_IN_SPARKS_OWN", location=f"{flow.location}: {flow.name}")
                for flow in dataflow.flows
                if flow.once
            ),
        ]
    )


def _check_connect(context: PlanningContext) -> Findings:
    """Refuse streaming CDC flows of a Spark Connect client, which can't fold their batches."""
    if context.request.in_pipeline or not context.request.through_connect:
        return Findings()
    return refuse_all(
        Finding("STREAMING_CDC_THROUGH_CONNECT", location=flow.location, flow=flow.name, target=flow.target)
        for flow in context.dataflow.streaming_flows
        if flow.kind == "cdc"
    )


def phase_of(stored: TargetState, actions: Collection[str], *, copies: bool) -> Phase:
    """Return where a target with a migration stands.

    ``actions`` is what happens to its flows next; ``copies`` means that its history has yet to be copied, or
    is to be copied again.
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
