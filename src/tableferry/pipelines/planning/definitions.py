"""Defines, from decisions made, the tables, views and flows of one target's run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tableferry.pipelines.model.flows import CdcSettings, Flow, HistorySource, Target, View
from tableferry.pipelines.model.plan import HISTORY_FLOW, HISTORY_VIEW, EngineKind, FlowPlan, pinned_name
from tableferry.pipelines.model.reads import views_behind
from tableferry.pipelines.model.steps import (
    DefineAppend,
    DefineAutoCdc,
    DefineSnapshots,
    DefineTable,
    DefineView,
    EventsBefore,
    FlowDefinition,
    Start,
)
from tableferry.pipelines.planning import identity
from tableferry.pipelines.planning.context import (
    Findings,
    PlanningContext,
    add_note,
    plan_steps,
    refuse,
    refuse_all,
)
from tableferry.pipelines.planning.full_refresh import (
    RESET_ALLOWED,
    check_reset_allowed,
    protected_tables,
    recorded_history,
)


def define_flows(context: PlanningContext, flows: Sequence[FlowPlan]) -> Findings:
    """Define the tables, views and flows of a run, from what happens to each flow."""
    dataflow, migration_start = context.dataflow, context.migration_start
    # A pipeline runs a run-once flow once by itself, and must know it when it refreshes in full.
    copied = context.migration if context.needs_copy or context.request.in_pipeline else None
    if copied and copied.take_over:
        copied = None
    running = [plan for plan in flows if plan.action in ("start", "continue")]
    findings = Findings()
    from_snapshots = [table for table in dataflow.tables if table.snapshots is not None]
    if not running and not copied and not from_snapshots:
        return findings
    kept: frozenset[str] = frozenset()
    if context.request.in_pipeline:
        kept = protected_tables(context.dataflows, context.facts)
        findings += refuse_all(check_reset_allowed(dataflow, kept, context.dataflows, context.facts))
    for table in sorted(dataflow.tables, key=lambda table: table not in dataflow.staging):
        into = [plan for plan in flows if plan.flow.target.key == table.name.key]
        filled = any(plan.action in ("continue", "idle", "done") for plan in into)
        filled |= table is dataflow.target and migration_start is not None and copied is None
        create = not filled or context.request.in_pipeline
        history = _name_history(context) if table is dataflow.target else ""
        if table.name.key in kept:
            table = replace(table, properties={**table.properties, RESET_ALLOWED: "false"})
        findings += plan_steps(DefineTable(table, create=create, history=history))
        if context.request.engine != "databricks" and not filled:
            findings += _check_properties(table, context.request.engine)
    if copied and migration_start:
        cdc, clone = dataflow.target.cdc, pinned_name(context.target)
        # A flow of a pipeline of Spark's own is a stream, and so is what AUTO CDC reads on Databricks.
        streams = {"declarative": True, "databricks": bool(cdc) and copied.pinned_clone, "streaming": False}
        source = HistorySource(
            copied, migration_start.copy.version, cdc, clone if streams[context.request.engine] else None
        )
        view = View(HISTORY_VIEW, "batch", source, copied.location)
        flow = Flow(HISTORY_FLOW, "append", context.target, HISTORY_VIEW, location=copied.location)
        findings += plan_steps(
            DefineView(view, context.target, once=True),
            _define_flow(context, flow, FlowPlan(flow, "start"), once=True),
        )
    for table in from_snapshots:
        read = table.snapshots.source if table.snapshots else ""
        if isinstance(read, str):
            behind = views_behind(dataflow.views, read)
            findings += plan_steps(*(DefineView(dataflow.views[name], context.target) for name in behind))
        findings += plan_steps(DefineSnapshots(table, context.target))
    starts = _collect_starts(running)
    streamed = {
        name
        for plan in running
        if not plan.flow.once
        for name in views_behind(dataflow.views, plan.flow.view)
    }
    defined: set[str] = set()
    for plan in running:
        for name in views_behind(dataflow.views, plan.flow.view):
            if name not in defined:
                defined.add(name)
                # A view that run-once flows share with streaming ones has the starts of those.
                view_starts = starts.get(name, {})
                once = name not in streamed
                findings += plan_steps(
                    DefineView(dataflow.views[name], context.target, view_starts, once=once)
                )
        findings += plan_steps(_define_flow(context, plan.flow, plan, once=plan.flow.once))
    return findings


def _check_properties(table: Target, engine: EngineKind) -> Findings:
    """Say which properties of a table mean nothing outside Databricks, and refuse those that protect rows."""
    findings = Findings()
    warned = [rule.name for rule in table.expectations if rule.action == "warn"]
    if warned and engine == "declarative":
        findings += add_note(f"expect rules only warn, and aren't counted here: {', '.join(warned)}")
    if table.cluster_auto:
        findings += add_note(f"clusterByAuto is for Databricks: elsewhere {table.name} isn't clustered")
    if table.row_filter:
        findings += refuse("ROW_FILTER_NOT_OUTSIDE_DATABRICKS", location=table.location, table=table.name)
    return findings


def _collect_starts(running: Iterable[FlowPlan]) -> dict[str, dict[str, Start | None]]:
    """Return where the streams of each view start, by table."""
    starts: dict[str, dict[str, Start | None]] = {}
    for plan in running:
        for view, view_starts in plan.starts.items():
            # A flow that goes on doesn't mind the start of a new one that shares its view.
            new = {table: start for table, start in view_starts.items() if start is not None}
            starts[view] = {**view_starts, **starts.get(view, {}), **new}
    return starts


def _name_history(context: PlanningContext) -> str:
    """Name the table and version whose history the target holds, or will."""
    if start := context.migration_start:
        return f"{start.copy.table}@{start.copy.version}"
    return "" if context.is_refreshed or context.stored.resetting else recorded_history(context)


def _define_flow(context: PlanningContext, flow: Flow, plan: FlowPlan, *, once: bool) -> FlowDefinition:
    table = next(table for table in context.dataflow.tables if table.name.key == flow.target.key)
    recorded = not context.fills_new_generation and identity.is_recorded(context, flow, table.cdc)
    needs_identity = not once and not context.request.in_pipeline and not recorded
    identify = identity.collect_settings(context, flow, table.cdc) if needs_identity else None
    start = (plan.ahead, plan.seed)
    if table.cdc and (flow.kind == "cdc" or flow.name == HISTORY_FLOW):
        cdc_flow = replace(flow, kind="cdc")
        common = (context.target, context.generation, table.cdc, once, identify, *start)
        before = _find_events_before(context, table.cdc) if flow.name == HISTORY_FLOW else None
        return DefineAutoCdc(cdc_flow, *common, before)
    return DefineAppend(flow, context.target, context.generation, once, identify, *start)


def _find_events_before(context: PlanningContext, cdc: CdcSettings) -> EventsBefore | None:
    """Return the events that tell how new copied rows are.

    A truncate is newer than every row without a sequence, so its events can't tell it of some rows alone.
    """
    start = context.migration_start
    if start is None or start.certainty == "assumed" or context.request.in_pipeline:
        return None
    if (
        cdc.scd_type != 1
        or cdc.apply_as_truncates
        or any(read.explicit is not None for read in context.list_all_reads())
    ):
        return None
    baselines = start.baselines.values()
    if any(baseline.of_kafka or baseline.within for baseline in baselines):
        return None
    return EventsBefore(
        context.dataflow, {key: baseline.version for key, baseline in start.baselines.items()}
    )
