"""Plan the definitions of one target's tables, views and flows, from the actions planned for its flows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Literal

from tableferry.pipelines.model.flows import (
    HISTORY_FLOW,
    HISTORY_VIEW,
    RESET_ALLOWED,
    CdcSettings,
    DataFlow,
    Flow,
    HistorySource,
    Migration,
    Start,
    Target,
    View,
)
from tableferry.pipelines.model.plan import pinned_clone_name
from tableferry.pipelines.model.reads import list_upstream_views
from tableferry.pipelines.model.steps import (
    BaselineEvents,
    DefineSnapshots,
    DefineTable,
    DefineView,
    PlannedFlow,
)
from tableferry.pipelines.model.target_state import MigrationStart
from tableferry.pipelines.planning.context import Findings, PlanningContext, add_note, plan_steps
from tableferry.pipelines.planning.full_refresh import (
    check_reset_allowed,
    find_protected_tables,
    recorded_history,
)


def define_flows(context: PlanningContext, flows: Sequence[PlannedFlow]) -> Findings:
    """Plan the definitions of the tables, views and flows that a run needs."""
    # A pipeline starts a run-once flow only once, but must define it for a full refresh.
    migration = context.migration if context.needs_copy or context.request.in_pipeline else None
    copied = None if migration and migration.take_over else migration
    running = [plan for plan in flows if plan.is_running]
    from_snapshots = [table for table in context.dataflow.tables if table.snapshots is not None]
    if not running and not copied and not from_snapshots:
        return Findings()
    findings = _define_tables(context, flows, has_copy=copied is not None)
    if copied and context.migration_start:
        findings += _define_copy(context, copied, context.migration_start)
    for table in from_snapshots:
        read = table.snapshots.source if table.snapshots else ""
        if isinstance(read, str):
            findings += plan_steps(
                *(DefineView(view, context.target) for view in _list_views(context.dataflow, read))
            )
        findings += plan_steps(DefineSnapshots(table, context.target))
    starts = _collect_starts(running)
    streamed = {
        view.name
        for plan in running
        if not plan.once
        for view in _list_views(context.dataflow, plan.flow.view)
    }
    defined: set[str] = set()
    for plan in running:
        for view in _list_views(context.dataflow, plan.flow.view):
            if view.name not in defined:
                defined.add(view.name)
                # A view that run-once and streaming flows share has the starts of the streaming flows.
                view_starts, once = starts.get(view.name, {}), view.name not in streamed
                findings += plan_steps(DefineView(view, context.target, view_starts, once=once))
        findings += plan_steps(plan)
    return findings


def _list_views(dataflow: DataFlow, name: str) -> Iterator[View]:
    """Yield a view and the views that it reads, in the order of their definition."""
    return (dataflow.views[view] for view in list_upstream_views(dataflow.views, name))


def _define_tables(context: PlanningContext, flows: Sequence[PlannedFlow], *, has_copy: bool) -> Findings:
    dataflow, findings = context.dataflow, Findings()
    protected: frozenset[str] = frozenset()
    if context.request.in_pipeline:
        protected = find_protected_tables(context)
        findings += check_reset_allowed(context, protected)
    for table in sorted(dataflow.tables, key=lambda table: table not in dataflow.staging):
        is_target = table is dataflow.target
        filled = any(
            plan.action in ("continue", "idle", "done") for plan in flows if plan.target.key == table.name.key
        )
        filled |= is_target and context.migration_start is not None and not has_copy
        history = _name_history(context) if is_target else ""
        if table.name.key in protected:
            table = replace(table, properties={**table.properties, RESET_ALLOWED: "false"})
        create = not filled or context.request.in_pipeline
        findings += plan_steps(DefineTable(table, create=create, history=history))
        if context.request.engine != "databricks" and not filled:
            findings += _check_properties(context, table)
    return findings


def _define_copy(context: PlanningContext, migration: Migration, start: MigrationStart) -> Findings:
    """Define the run-once flow of the initial copy.

    Rule 4: The copy is pinned. It reads the recorded version of the legacy table, so that a full refresh
    writes the same history again.
    """
    cdc = context.dataflow.target.cdc
    # On Spark's own pipelines each flow is a stream, and so is the source of AUTO CDC on Databricks.
    streams = {"declarative": True, "databricks": bool(cdc) and migration.pinned_clone, "streaming": False}
    clone = pinned_clone_name(context.target) if streams[context.request.engine] else None
    source = HistorySource(migration, start.copy.version, cdc, clone)
    view = View(HISTORY_VIEW, "batch", source, migration.location)
    kind: Literal["append", "cdc"] = "cdc" if cdc else "append"
    flow = Flow(HISTORY_FLOW, kind, context.target, HISTORY_VIEW, once=True, location=migration.location)
    copy = PlannedFlow(
        flow,
        context.dataflow.target,
        context.target,
        context.generation,
        "start",
        is_initial_copy=True,
        streamed=clone is not None,
        baseline_events=_find_events_before(context, cdc),
    )
    return plan_steps(DefineView(view, context.target, once=True), copy)


def _check_properties(context: PlanningContext, table: Target) -> Findings:
    """Note properties that have no effect outside Databricks, and refuse properties that protect rows."""
    findings = Findings()
    warned = [rule.name for rule in table.expectations if rule.action == "warn"]
    if warned and context.request.engine == "declarative":
        findings += add_note(f"expect rules only warn, and aren't counted here: {', '.join(warned)}")
    if table.cluster_auto:
        findings += add_note(f"clusterByAuto is for Databricks: elsewhere {table.name} isn't clustered")
    if table.row_filter:
        findings += context.refuse("ROW_FILTER_NOT_OUTSIDE_DATABRICKS", table=table)
    return findings


def _collect_starts(running: Iterable[PlannedFlow]) -> dict[str, dict[str, Start | None]]:
    """Return the starts of the streams by view and table key."""
    starts: dict[str, dict[str, Start | None]] = {}
    for plan in running:
        for view, view_starts in plan.starts.items():
            # A flow that resumes ignores the start of a new flow on the same view.
            new = {table: start for table, start in view_starts.items() if start is not None}
            starts[view] = {**view_starts, **starts.get(view, {}), **new}
    return starts


def _name_history(context: PlanningContext) -> str:
    """Return the legacy table and version that the history comes from, as ``table@version``; or empty."""
    if start := context.migration_start:
        return f"{start.copy.table}@{start.copy.version}"
    return "" if context.is_refreshed or context.stored.resetting else recorded_history(context)


def _find_events_before(context: PlanningContext, cdc: CdcSettings | None) -> BaselineEvents | None:
    """Return the events up to the baselines, which give the copied rows their sequences; None if they can't.

    A truncate event is newer than every row without a sequence, so it would apply to all of them.
    """
    start = context.migration_start
    if not start or start.certainty == "assumed" or context.request.in_pipeline:
        return None
    if (
        cdc is None
        or cdc.scd_type != 1
        or cdc.apply_as_truncates
        or any(read.explicit is not None for read in context.list_all_reads())
    ):
        return None
    baselines = start.baselines.values()
    if any(baseline.is_kafka or baseline.within for baseline in baselines):
        return None
    return BaselineEvents(
        context.dataflow, {key: baseline.version for key, baseline in start.baselines.items()}
    )
