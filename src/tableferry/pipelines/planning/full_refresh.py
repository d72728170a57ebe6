"""Plan full refreshes, and protect tables from those of a declarative pipeline.

A full refresh drops rows and checkpoints, and writes the same history again. A pipeline truncates a table
before it reads. So its tables with a copied history are protected, as are their staging tables and the tables
of the pipeline that they read: otherwise rows would be written twice into a table that keeps its rows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import takewhile

from tableferry.pipelines.model.facts import Checkpoint
from tableferry.pipelines.model.flows import HISTORY_FLOW, RESET_ALLOWED, event_log_name
from tableferry.pipelines.model.steps import ResetTarget
from tableferry.pipelines.model.target_state import TargetState
from tableferry.pipelines.planning.context import Findings, PlanningContext, add_note, plan_steps, refuse_all
from tableferry.spark.tables import TableName


def plan_full_refresh(context: PlanningContext) -> tuple[int, Findings]:
    """Plan a full refresh that is requested or was interrupted.

    Returns:
        The generation that the flows fill, and the findings with the step that drops the one before.
    """
    stored, flows = context.stored, context.dataflow.flows
    findings = Findings()
    filled = stored.migration_start is not None
    if not filled:
        unstarted = list(takewhile(lambda flow: context.find_checkpoint(flow) == Checkpoint(), flows))
        for flow in unstarted:
            findings += context.check_ambiguous_rename(flow)
        recorded = any(recorded.property_identity for _, recorded in context.list_recorded_tables())
        filled = len(unstarted) < len(flows) or recorded
    if not stored.resetting and not (context.is_refreshed and filled):
        return stored.generation, findings
    if not stored.resetting:
        findings += _check_dropped_rows(context)
    if context.request.in_pipeline:
        findings += context.refuse("REFRESH_BY_PIPELINE", property=RESET_ALLOWED)
    generation = stored.generation if stored.resetting else _find_newest_generation(context) + 1
    tables = []
    for table in context.dataflow.tables:
        tables.append(table.name)
        if table.cdc:
            tables.append(event_log_name(table.name))
    run_once = {context.target.key: [HISTORY_FLOW]}
    for flow in flows:
        if flow.once:
            run_once.setdefault(flow.target.key, []).append(flow.name)
    names = {key: tuple(flow_names) for key, flow_names in run_once.items()}
    findings += plan_steps(ResetTarget(context.target, tuple(tables), generation, names))
    findings += add_note(
        "full refresh: readers outside this project that stream from it must be refreshed too"
    )
    if stored.migration_start is None:
        findings += add_note(
            "full refresh without a migration: only rows that its sources still contain are written again"
        )
    return generation, findings


def _find_newest_generation(context: PlanningContext) -> int:
    """Return the newest generation that the state, the tracking or a table records."""
    on_tables = (
        recorded.property_identity.generation
        for _, recorded in context.list_recorded_tables()
        if recorded.property_identity
    )
    return max(context.stored.generation, context.stored.copied_generation, *on_tables)


def _check_dropped_rows(context: PlanningContext) -> Findings:
    """Refuse to drop rows that can't be written again, or that another target would then read twice."""
    target = context.target
    findings = Findings()
    if context.migration and context.migration.take_over:
        location = context.migration.location
        findings += context.refuse("REFRESH_OF_TAKEN_OVER_TABLE", location=location)
    tables = context.dataflow.tables
    findings += refuse_all(
        context.finding("REFRESH_OF_APPEND_ONLY_TABLE", table=table)
        for table in tables
        if table.properties.get("delta.appendOnly", "").lower() == "true"
    )
    findings += refuse_all(
        context.finding("REFRESH_NOT_ALLOWED", table=table, property=RESET_ALLOWED)
        for table in tables
        if table.is_reset_allowed is False
    )
    for reader in context.dataflows:
        if reader is context.dataflow or not any(
            target.key in context.facts.streamed_table_keys(reader, flow) for flow in reader.flows
        ):
            continue
        name = reader.target.name
        migration_start = context.facts.states.get(name.key, TargetState()).migration_start
        if migration_start and (baseline := migration_start.baselines.get(target.key)):
            findings += context.refuse(
                "REFRESH_REPEATS_ROWS_OF_MIGRATED_READER", reader=name, version=baseline.version + 1
            )
        elif name.key not in context.request.full_refresh:
            findings += context.refuse("REFRESH_REPEATS_ROWS_OF_READER", reader=name)
    return findings


def check_recorded_history(context: PlanningContext) -> Findings:
    """Refuse to drop a copied history that can't be copied again."""
    history = recorded_history(context)
    if not context.is_refreshed or context.request.drop_history or not (history or context.stored.finished):
        return Findings()
    copied = f" (copied from {history})" if history else ""
    return context.refuse("REFRESH_DROPS_HISTORY", copied=copied)


def recorded_history(context: PlanningContext) -> str:
    """Return the table and version whose history the target contains; empty if it contains none."""
    recorded = context.facts.table_evidence.get(context.target.key)
    return recorded.property_identity.history if recorded and recorded.property_identity else ""


def find_protected_tables(context: PlanningContext) -> frozenset[str]:
    """Return the `TableName.key` of each table whose ``pipelines.reset.allowed`` a pipeline sets to false.

    These are the tables of a target with a migration, also a finished one, and the project's tables that they
    read, directly or not. A table whose spec allows full refreshes is left out.
    """
    tables = {table.name.key: table for dataflow in context.dataflows for table in dataflow.tables}
    protected: set[str] = set()
    for dataflow in context.dataflows:
        stored = context.facts.states.get(dataflow.key, TargetState())
        if dataflow.migration or stored.migration_start or stored.finished:
            protected |= {table.name.key for table in dataflow.tables if not table.is_reset_allowed}
    while True:
        read = _find_readers(context, protected).keys() & tables.keys() - protected
        added = {key for key in read if not tables[key].is_reset_allowed}
        if not added:
            return frozenset(protected)
        protected |= added


def check_reset_allowed(context: PlanningContext, protected: frozenset[str]) -> Findings:
    """Refuse each table that may be refreshed in full, although a protected table reads it."""
    readers = _find_readers(context, protected)
    return refuse_all(
        context.finding(
            "RESET_ALLOWED_CONTRADICTS_READER",
            table=table,
            property=RESET_ALLOWED,
            reader=readers[table.name.key],
        )
        for table in context.dataflow.tables
        if table.is_reset_allowed and table.name.key in readers
    )


def _find_readers(context: PlanningContext, protected: Collection[str]) -> Mapping[str, TableName]:
    """Return the protected table that reads a table, by the key of each table that one reads."""
    return {
        key: flow.target
        for dataflow in context.dataflows
        for flow in dataflow.flows
        if flow.target.key in protected
        for key in context.facts.input_table_keys(dataflow, flow)
    }
