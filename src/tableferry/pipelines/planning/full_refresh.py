"""Plan full refreshes, and protect tables from those of a declarative pipeline.

A full refresh drops rows and checkpoints, and writes the same history again. A pipeline truncates a table
before it reads. So its tables with a copied history are protected, as are their staging tables and the tables
of the pipeline that they read: otherwise rows would be written twice into a table that keeps its rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile

from tableferry.errors import Finding
from tableferry.pipelines.model.facts import Checkpoint, Facts
from tableferry.pipelines.model.flows import HISTORY_FLOW, DataFlow, Target, event_log_name
from tableferry.pipelines.model.steps import ResetTarget
from tableferry.pipelines.model.target_state import TargetState
from tableferry.pipelines.planning import identity
from tableferry.pipelines.planning.context import (
    Findings,
    PlanningContext,
    add_note,
    plan_steps,
    refuse,
    refuse_all,
)
from tableferry.spark.tables import TableName

RESET_ALLOWED = "pipelines.reset.allowed"
"""The table property that allows a pipeline to refresh the table in full; its default is true."""


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
        recorded = any(recorded.property_identity for _, recorded in identity.list_recorded_tables(context))
        filled = len(unstarted) < len(flows) or recorded
    if not stored.resetting and not (context.is_refreshed and filled):
        return stored.generation, findings
    if not stored.resetting:
        findings += _check_dropped_rows(context)
    if context.request.in_pipeline:
        findings += refuse("REFRESH_BY_PIPELINE", target=context.target, property=RESET_ALLOWED)
    generation = stored.generation if stored.resetting else identity.find_newest_generation(context) + 1
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


def _check_dropped_rows(context: PlanningContext) -> Findings:
    """Refuse to drop rows that can't be written again, or that another target would then read twice."""
    target = context.target
    findings = Findings()
    if context.migration and context.migration.take_over:
        location = context.migration.location
        findings += refuse("REFRESH_OF_TAKEN_OVER_TABLE", location=location, target=target)
    tables = context.dataflow.tables
    findings += refuse_all(
        Finding("REFRESH_OF_APPEND_ONLY_TABLE", location=table.location, table=table.name)
        for table in tables
        if table.properties.get("delta.appendOnly", "").lower() == "true"
    )
    findings += refuse_all(
        Finding("REFRESH_NOT_ALLOWED", location=table.location, table=table.name, property=RESET_ALLOWED)
        for table in tables
        if reset_allowed(table) is False
    )
    for reader in context.dataflows:
        if reader is context.dataflow or not any(
            target.key in context.facts.streamed_table_keys(reader, flow) for flow in reader.flows
        ):
            continue
        name = reader.target.name
        migration_start = context.facts.states.get(name.key, TargetState()).migration_start
        if migration_start and (baseline := migration_start.baselines.get(target.key)):
            findings += refuse(
                "REFRESH_REPEATS_ROWS_OF_MIGRATED_READER",
                target=target,
                reader=name,
                version=baseline.version + 1,
            )
        elif name.key not in context.request.full_refresh:
            findings += refuse("REFRESH_REPEATS_ROWS_OF_READER", target=target, reader=name)
    return findings


def check_recorded_history(context: PlanningContext) -> Findings:
    """Refuse to drop a copied history that can't be copied again."""
    history = recorded_history(context)
    if not context.is_refreshed or context.request.drop_history or not (history or context.stored.finished):
        return Findings()
    copied = f" (copied from {history})" if history else ""
    return refuse("REFRESH_DROPS_HISTORY", target=context.target, copied=copied)


def recorded_history(context: PlanningContext) -> str:
    """Return the table and version whose history the target contains; empty if it contains none."""
    recorded = context.facts.table_evidence.get(context.target.key)
    return recorded.property_identity.history if recorded and recorded.property_identity else ""


def reset_allowed(table: Target) -> bool | None:
    """Return whether the spec allows a pipeline to refresh a table in full; None if it sets nothing."""
    value = table.properties.get(RESET_ALLOWED)
    return None if value is None else value.lower() == "true"


def protected_tables(dataflows: Sequence[DataFlow], facts: Facts) -> frozenset[str]:
    """Return the `TableName.key` of each table whose ``pipelines.reset.allowed`` a pipeline sets to false.

    These are the tables of a target with a migration, also a finished one, and the project's tables that they
    read, directly or not. A table whose spec allows full refreshes is left out.
    """
    tables = {table.name.key: table for dataflow in dataflows for table in dataflow.tables}
    protected = {
        table.name.key
        for dataflow in dataflows
        if _has_history(dataflow, facts)
        for table in dataflow.tables
        if not reset_allowed(table)
    }
    while True:
        read = {
            key
            for key, _ in _read_by(protected, dataflows, facts)
            if key in tables and not reset_allowed(tables[key])
        }
        if read <= protected:
            return frozenset(protected)
        protected |= read


def check_reset_allowed(
    dataflow: DataFlow, protected: frozenset[str], dataflows: Sequence[DataFlow], facts: Facts
) -> tuple[Finding, ...]:
    """Return a finding for each table that may be refreshed in full, although a protected table reads it."""
    readers: Mapping[str, TableName] = dict(_read_by(protected, dataflows, facts))
    return tuple(
        Finding(
            "RESET_ALLOWED_CONTRADICTS_READER",
            location=table.location,
            table=table.name,
            property=RESET_ALLOWED,
            reader=readers[table.name.key],
        )
        for table in dataflow.tables
        if reset_allowed(table) and table.name.key in readers
    )


def _has_history(dataflow: DataFlow, facts: Facts) -> bool:
    stored = facts.states.get(dataflow.key, TargetState())
    return bool(dataflow.migration or stored.migration_start or stored.finished)


def _read_by(
    protected: Iterable[str], dataflows: Sequence[DataFlow], facts: Facts
) -> Iterable[tuple[str, TableName]]:
    """Yield each table that flows into protected tables read, with the protected table."""
    for dataflow in dataflows:
        for flow in dataflow.flows:
            if flow.target.key in protected:
                for key in facts.input_table_keys(dataflow, flow):
                    yield key, flow.target
