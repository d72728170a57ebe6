"""Decides, from facts alone, what each target of a project needs next: same facts, same plan, and no Spark.

The rules: a baseline is recorded once (`migration_starts`); a live flow whose source hasn't moved past its
baseline is left out of the plan, never gated inside it (`positions`); the copy is pinned; what can't be known
is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tableferry.pipelines import migration_starts, recognition
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
from tableferry.pipelines.reads import views_behind
from tableferry.pipelines.state import MigrationStart, Stored
from tableferry.pipelines.steps import DefineAppend, DefineAutoCdc, DefineTable, DefineView, Reset, Start
from tableferry.tables import TableName

_STREAMING = "run the project with the streaming engine (tableferry pipelines run)"
# Spark 4.1 has no AUTO CDC; 4.2 has SCD type 1 alone, and not for the two flows that a migration needs.
NO_CDC = (
    "is a target of AUTO CDC, which a pipeline of Spark's own can't fill together with its history: "
    f"{_STREAMING}, or run it on Databricks"
)
NO_ONCE = f"runs once, which a flow in a pipeline of Spark's own can't: {_STREAMING}"


def decide(project: Project, facts: Facts, request: Request) -> Plan:
    """Decide what a run of the project does."""
    dataflows = in_order(project, facts)
    producers = {target.name.key: one for one in dataflows for target in (one.target, *one.staging)}
    filling: set[str] = set()
    plans = []
    for one in dataflows:
        key = one.target.name.key
        if not request.only or key in request.only:
            stored = facts.stored.get(key, Stored())
            plan = _target_plan(Case(one, dataflows, producers, facts, request, set(filling), stored))
            filling |= {
                step.flow.target.key for step in plan.steps if isinstance(step, DefineAppend | DefineAutoCdc)
            }
            plans.append(plan)
    return Plan(project, request.pipeline_id, tuple(plans), request.engine)


def in_order(project: Project, facts: Facts) -> tuple[DataFlow, ...]:
    """Order data flows so that each comes after those whose targets it reads; circles stay as they are."""
    by_target = {one.target.name.key: one for one in project.dataflows}
    into = {key: [(one, flow) for flow in one.flows] for key, one in by_target.items()}
    return tuple(by_target[key] for key in facts.in_order(into))


def _target_plan(case: Case) -> TargetPlan:
    migration_starts.adopt(case)
    migration = case.dataflow.migration
    finished = migration is not None and case.stored.finished
    if finished:
        migration = None
        case.notes.append("its migration is finished: remove tableMigrationDetails from the spec")
        if case.name.key in case.request.full_refresh:
            case.refusals.append(
                f"{case.name}: its migration is finished, so a full refresh would drop the copied history "
                "for good: take tableMigrationDetails out of the spec and add --drop-history if you mean that"
            )
    later = migration_starts.uncopied_producers(case) if migration and not case.stored.migration_start else ()
    if later:
        case.notes.append(f"begins once {_listed(later)} holds its copied history")
        return _result(case, "later", (), None)
    if case.request.engine == "declarative":
        _check_declarative(case)
    recognition.check(case)
    migration_start = migration_starts.migration_start(case, migration) if migration else None
    if migration is None and not finished:
        _check_history(case)
        migration_starts.end(case)
    if migration and migration_start is None:
        # Refused: where its flows start can't be judged without a migration start.
        return _result(case, "refused", (), None)
    generation = _reset(case)
    copy = migration is not None and not (case.copied and generation == case.stored.generation)
    # A pipeline runs a run-once flow once by itself, and must know it when it refreshes in full.
    defined = migration if copy or case.request.in_pipeline else None
    flows = flow_plans(case, migration, migration_start, generation)
    if copy and migration and migration_start:
        migration_starts.check_legacy(case, migration, migration_start)
    phase: Phase = "finished" if finished else _phase(case, flows, copy=copy) if migration else "plain"
    if phase == "differs":
        case.notes.append(
            "its copy differs from the legacy table: see what with `tableferry verify`, then rebuild it with "
            f"--full-refresh {case.name}"
        )
    _define(case, defined, migration_start, flows, generation)
    return _result(case, phase, flows, migration_start, copy=copy, generation=generation)


def _check_history(case: Case) -> None:
    """Refuse to drop history that nothing would bring back."""
    recorded = case.facts.recorded.get(case.name.key)
    history = recorded.on_table.history if recorded and recorded.on_table else ""
    wanted = case.name.key in case.request.full_refresh and not case.request.drop_history
    if wanted and (history or case.stored.finished):
        copied = f"copied from {history}, " if history else ""
        case.refusals.append(
            f"{case.name}: a full refresh would drop its history for good, {copied}for its migration is out "
            "of the spec: add --drop-history if you mean that, or put tableMigrationDetails back"
        )


def _check_declarative(case: Case) -> None:
    """Refuse what a pipeline of Spark's own can't do."""
    for table in (case.dataflow.target, *case.dataflow.staging):
        if table.cdc:
            case.refusals.append(f"{table.place}: {table.name} {NO_CDC}")
    for flow in case.dataflow.flows:
        if flow.once:
            case.refusals.append(f"{flow.place}: {flow.name} {NO_ONCE}")


def _phase(case: Case, flows: Sequence[FlowPlan], *, copy: bool) -> Phase:
    if case.stored.migration_start is None:
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
    migration_start: MigrationStart | None,
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
        migration_start,
        case.stored,
        copy,
        generation,
    )


def _reset(case: Case) -> int:
    """Plan a full refresh where one is asked for or was begun; return the generation that is filled."""
    stored = case.stored
    wanted = case.name.key in case.request.full_refresh
    newest = recognition.newest_generation(case)
    migration_start = (
        stored.migration_start is not None
        or any(case.checkpoint(flow) != Checkpoint() for flow in case.dataflow.flows)
        or any(
            case.facts.recorded[one.name.key].on_table
            for one in (case.dataflow.target, *case.dataflow.staging)
            if one.name.key in case.facts.recorded
        )
    )
    if not stored.resetting and not (wanted and migration_start):
        return stored.generation
    if not stored.resetting:
        _check_reset(case)
    if case.request.in_pipeline:
        case.refusals.append(
            f"{case.name}: its pipeline drops and rebuilds it: start an update of the pipeline with a full "
            f"refresh of {case.name}"
        )
    generation = stored.generation if stored.resetting else newest + 1
    tables = []
    for target in (case.dataflow.target, *case.dataflow.staging):
        tables.append(target.name)
        if target.cdc:
            tables.append(case.request.log_table(target.name))
    case.steps.append(Reset(case.name, tuple(tables), generation))
    case.notes.append("full refresh: readers outside this project that stream from it must be refreshed too")
    if stored.migration_start is None:
        case.notes.append("full refresh without a migration: only what its sources still hold comes back")
    return generation


def _check_reset(case: Case) -> None:
    """Refuse to drop rows that can't be dropped, or that another target would then take twice."""
    for table in (case.dataflow.target, *case.dataflow.staging):
        if table.properties.get("delta.appendOnly", "").lower() == "true":
            case.refusals.append(
                f"{table.place}: {table.name} has delta.appendOnly, so its rows can't be dropped for a full "
                "refresh: take the property off the spec and the table first"
            )
    for other in case.dataflows:
        name = other.target.name
        if other is case.dataflow or not any(
            case.name.key in case.facts.followed(other, flow) for flow in other.flows
        ):
            continue
        migration_start = case.facts.stored.get(name.key, Stored()).migration_start
        if migration_start and (baseline := migration_start.baselines.get(case.name.key)):
            case.refusals.append(
                f"{case.name}: a full refresh brings all its rows again, and {name}, which has its own "
                f"history and reads it from version {baseline.version + 1}, would take them twice: drop "
                f"{name} and its state folders, refresh, and migrate {name} anew"
            )
        elif name.key not in case.request.full_refresh:
            case.refusals.append(
                f"{case.name}: a full refresh brings all its rows again, and {name}, which streams from it, "
                f"would take them twice: add --full-refresh {name}"
            )


def _define(
    case: Case,
    copied: Migration | None,
    migration_start: MigrationStart | None,
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
        filled |= table is dataflow.target and migration_start is not None and copied is None
        live = any(not one.flow.once and one.flow.target.key == table.name.key for one in running)
        made = filled and not case.request.in_pipeline
        holds = _history(case, migration_start) if table is dataflow.target else ""
        case.steps.append(DefineTable(table, create=not made, once=not live, history=holds))
        if case.request.engine == "databricks":
            continue
        if not filled and (warned := [one.name for one in table.expectations if one.action == "warn"]):
            case.notes.append(f"expect rules only warn, and aren't counted here: {', '.join(warned)}")
        if table.cluster_auto and not filled:
            case.notes.append(f"clusterByAuto is for Databricks: elsewhere {table.name} isn't clustered")
        if table.row_filter and not filled:
            case.refusals.append(
                f"{table.place}: rowFilter can't be set outside a Databricks pipeline, and without it "
                f"{table.name} would show every row: run the project there, or take rowFilter out here"
            )
    if copied and migration_start:
        source = HistorySource(copied, migration_start.copy.version, dataflow.target.cdc)
        history_view = View(HISTORY_VIEW, "batch", source, copied.place)
        case.steps.append(DefineView(history_view, case.name, once=True))
        history = Flow(HISTORY_FLOW, "append", case.name, HISTORY_VIEW, place=copied.place)
        _fill(case, history, generation, once=True)
    starts: dict[str, dict[str, Start | None]] = {}
    for one in running:
        for name, of_view in one.starts.items():
            # A flow that goes on doesn't mind the start of another that shares its view and begins.
            begun_ones = {key: start for key, start in of_view.items() if start is not None}
            starts[name] = {**of_view, **starts.get(name, {}), **begun_ones}
    streamed = {
        name for one in running if not one.flow.once for name in views_behind(dataflow.views, one.flow.view)
    }
    defined: set[str] = set()
    for one in running:
        for name in views_behind(dataflow.views, one.flow.view):
            if name not in defined:
                defined.add(name)
                # A view that run-once flows share with live ones has the starts of those.
                own = starts.get(name, {})
                case.steps.append(DefineView(dataflow.views[name], case.name, own, once=name not in streamed))
        _fill(case, one.flow, generation, once=one.flow.once, ahead=one.ahead)


def _history(case: Case, migration_start: MigrationStart | None) -> str:
    """Name the table and version whose history the target holds, or will."""
    if migration_start:
        return f"{migration_start.copy.table}@{migration_start.copy.version}"
    recorded = case.facts.recorded.get(case.name.key)
    fresh = case.name.key in case.request.full_refresh or case.stored.resetting
    return recorded.on_table.history if recorded and recorded.on_table and not fresh else ""


def _fill(case: Case, flow: Flow, generation: int, *, once: bool, ahead: bool = False) -> None:
    target = next(
        one for one in (case.dataflow.target, *case.dataflow.staging) if one.name.key == flow.target.key
    )
    identify = None
    if not once and not case.request.in_pipeline:
        fresh = generation != case.stored.generation or case.stored.resetting
        if fresh or not recognition.is_recorded(case, flow):
            identify = recognition.settings(case, flow, target.cdc)
    if target.cdc and (flow.kind == "cdc" or flow.name == HISTORY_FLOW):
        cdc_flow = replace(flow, kind="cdc")
        case.steps.append(DefineAutoCdc(cdc_flow, case.name, generation, target.cdc, once, identify, ahead))
    else:
        case.steps.append(DefineAppend(flow, case.name, generation, once, identify, ahead))


def _listed(names: Iterable[TableName]) -> str:
    return " and ".join(str(name) for name in names)
