"""Decides, from facts alone, what each target of a project needs next: same facts, same plan, and no Spark.

The rules: a baseline is recorded once (`beginnings`); a live flow whose source hasn't moved past its baseline
is left out of the plan, never gated inside it (`positions`); the copy is pinned; what can't be known is asked
for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter

from tableferry.pipelines import beginnings
from tableferry.pipelines.cases import Case
from tableferry.pipelines.flows import DataFlow, Flow, HistorySource, Migration, Project, View
from tableferry.pipelines.plans import (
    HISTORY_FLOW,
    HISTORY_VIEW,
    Checkpoint,
    Facts,
    FlowPlan,
    Phase,
    Plan,
    Request,
    TargetPlan,
)
from tableferry.pipelines.positions import flow_plans
from tableferry.pipelines.reads import Read, views_behind
from tableferry.pipelines.state import Beginning, Stored
from tableferry.pipelines.steps import DrawAppend, DrawCdc, DrawTable, DrawView, Reset
from tableferry.tables import TableName


def decide(project: Project, facts: Facts, request: Request) -> Plan:
    """Decide what a run of the project does."""
    ordered = in_order(project, facts.reads)
    producers = {target.name.key: one for one in ordered for target in (one.target, *one.staging)}
    filling: set[str] = set()
    plans = []
    for one in ordered:
        key = one.target.name.key
        if not request.only or key in request.only:
            stored = facts.stored.get(key, Stored())
            plan = _target_plan(Case(one, ordered, producers, facts, request, set(filling), stored))
            filling |= {step.flow.target.key for step in plan.steps if isinstance(step, DrawAppend | DrawCdc)}
            plans.append(plan)
    return Plan(project, request.pipeline_id, tuple(plans))


def in_order(project: Project, reads: Mapping[tuple[str, str], Sequence[Read]]) -> tuple[DataFlow, ...]:
    """Order data flows so that each comes after those whose targets it reads; circles stay as they are."""
    by_target = {one.target.name.key: one for one in project.dataflows}
    needs = {
        key: {read.table.key for flow in one.flows for read in reads.get((key, flow.name), ())}
        & by_target.keys() - {key}
        for key, one in by_target.items()
    }
    try:
        return tuple(by_target[key] for key in TopologicalSorter(needs).static_order())
    except CycleError:
        return project.dataflows


def _target_plan(case: Case) -> TargetPlan:
    beginnings.adopt(case)
    migration = case.dataflow.migration
    finished = migration is not None and beginnings.finished(case)
    if finished:
        migration = None
        case.notes.append("its migration is finished: remove tableMigrationDetails from the spec")
    later = beginnings.uncopied_producers(case) if migration and not case.stored.beginning else ()
    if later:
        case.notes.append(f"begins once {_listed(later)} holds its copied history")
        return _result(case, "later", (), None)
    begun = beginnings.beginning(case, migration) if migration else None
    if migration is None and not finished:
        beginnings.end(case)
    if migration and begun is None:
        # Refused: where its flows start can't be judged without a beginning.
        return _result(case, "refused", (), None)
    generation = _reset(case)
    copy = migration is not None and not (case.copied and generation == case.stored.generation)
    flows = flow_plans(case, migration, begun, generation)
    if copy and migration and begun:
        beginnings.check_legacy(case, migration, begun)
    phase: Phase = "finished" if finished else _phase(case, flows, copy=copy) if migration else "plain"
    if phase == "differs":
        case.notes.append(
            "its copy differs from the legacy table: see what with `tableferry verify`, then rebuild it with "
            f"--full-refresh {case.name}"
        )
    _draw(case, migration if copy else None, begun, flows, generation)
    return _result(case, phase, flows, begun, copy=copy, generation=generation)


def _phase(case: Case, flows: Sequence[FlowPlan], *, copy: bool) -> Phase:
    if case.stored.beginning is None:
        return "new"
    if copy:
        return "copying"
    if case.stored.tracking and case.stored.tracking.verified == "differ":
        return "differs"
    actions = {flow.action for flow in flows}
    return "waiting" if "wait" in actions else "ready" if "start" in actions else "complete"


def _result(
    case: Case,
    phase: Phase,
    flows: tuple[FlowPlan, ...],
    begun: Beginning | None,
    *,
    copy: bool = False,
    generation: int = 0,
) -> TargetPlan:
    refused = bool(case.refusals)
    return TargetPlan(
        case.dataflow,
        "refused" if refused else phase,
        () if refused else tuple(case.steps),
        flows,
        tuple(dict.fromkeys(case.notes)),
        tuple(dict.fromkeys(case.refusals)),
        begun,
        case.stored,
        copy,
        generation,
    )


def _reset(case: Case) -> int:
    """Plan a full refresh where one is asked for or was begun; return the generation that is filled."""
    stored = case.stored
    wanted = case.name.key in case.request.full_refresh
    begun = stored.beginning is not None or any(
        case.checkpoint(flow) != Checkpoint() for flow in case.dataflow.flows
    )
    if not stored.resetting and not (wanted and begun):
        return stored.generation
    generation = stored.generation + (0 if stored.resetting else 1)
    tables = []
    for target in (case.dataflow.target, *case.dataflow.staging):
        tables.append(target.name)
        if target.cdc:
            tables.append(case.request.log_table(target.name))
    case.steps.append(Reset(case.name, tuple(tables), generation))
    case.notes.append("full refresh: readers that stream from it must be refreshed too")
    if stored.beginning is None:
        case.notes.append("full refresh without a migration: only what its sources still hold comes back")
    return generation


def _draw(
    case: Case,
    copied: Migration | None,
    begun: Beginning | None,
    flows: Sequence[FlowPlan],
    generation: int,
) -> None:
    running = [one for one in flows if one.action in ("start", "continue")]
    if not running and not copied:
        return
    dataflow = case.dataflow
    for table in (*dataflow.staging, dataflow.target):
        into = [one for one in flows if one.flow.target.key == table.name.key]
        filled = any(one.action in ("continue", "idle", "done") for one in into)
        filled |= table is dataflow.target and begun is not None and copied is None
        case.steps.append(DrawTable(table, create=not filled))
        if table.cluster_auto and not filled:
            case.notes.append(f"clusterByAuto is for Databricks: elsewhere {table.name} isn't clustered")
        if table.row_filter and not filled and not case.request.row_filters:
            case.refusals.append(
                f"{table.place}: rowFilter can't be set outside a Databricks pipeline, and without it "
                f"{table.name} would show every row: run the project there, or take rowFilter out here"
            )
    if copied and begun:
        source = HistorySource(copied, begun.copy.version, dataflow.target.cdc)
        case.steps.append(DrawView(View(HISTORY_VIEW, "batch", source, copied.place), once=True))
        history = Flow(HISTORY_FLOW, "append", case.name, HISTORY_VIEW, place=copied.place)
        _fill(case, history, generation, once=True)
    drawn: set[str] = set()
    for one in running:
        for name in views_behind(dataflow.views, one.flow.view):
            if name not in drawn:
                drawn.add(name)
                view = DrawView(dataflow.views[name], one.starts.get(name, {}), once=one.flow.once)
                case.steps.append(view)
        _fill(case, one.flow, generation, once=one.flow.once)


def _fill(case: Case, flow: Flow, generation: int, *, once: bool) -> None:
    target = next(
        one for one in (case.dataflow.target, *case.dataflow.staging) if one.name.key == flow.target.key
    )
    if target.cdc and (flow.kind == "cdc" or flow.name == HISTORY_FLOW):
        case.steps.append(DrawCdc(replace(flow, kind="cdc"), case.name, generation, target.cdc, once))
    else:
        case.steps.append(DrawAppend(flow, case.name, generation, once))


def _listed(names: Iterable[TableName]) -> str:
    return " and ".join(str(name) for name in names)
