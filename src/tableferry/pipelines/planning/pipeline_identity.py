"""Check whether the tables that a declarative pipeline fills are still those that contain the copied history.

The pipeline owns its checkpoints and writes no table property. So `prepare` records the identities in the
state, and compares them before each update. While the pipeline loads its files, nothing is compared.
"""

from __future__ import annotations

from tableferry.pipelines.model.facts import Checkpoint
from tableferry.pipelines.model.flows import RESET_ALLOWED, Target, cdc_settings
from tableferry.pipelines.model.identities import FlowIdentity, TableEvidence, TableIdentity
from tableferry.pipelines.model.steps import RecordTableIdentity
from tableferry.pipelines.planning.context import Findings, PlanningContext, plan_steps
from tableferry.pipelines.planning.identity import (
    check_flow_settings,
    check_table_id,
    check_table_settings,
    collect_settings,
    list_flows_into,
)


def check_pipeline_identity(context: PlanningContext) -> Findings:
    """Refuse a lost checkpoint, and a table or settings that differ from the recorded identity."""
    findings = _check_checkpoints(context)
    if _is_settled(context):
        for table, recorded in context.list_recorded_tables():
            findings += _check_table(context, table, recorded)
    return findings


def record_pipeline_identity(context: PlanningContext) -> Findings:
    """Record the identity of each table after the comparison of the copy, before its live flows start."""
    findings = Findings()
    if not _is_settled(context):
        return findings
    for table, recorded in context.list_recorded_tables():
        if recorded.table_id:
            identity = _build_identity(context, table, recorded.table_id, recorded.state_identity)
            if identity != recorded.state_identity:
                findings += plan_steps(
                    RecordTableIdentity(context.target, context.stored.generation, table.name, identity)
                )
    return findings


def _is_settled(context: PlanningContext) -> bool:
    """Return whether the target contains a history that was compared with the legacy table."""
    stored = context.stored
    if stored.finished:
        return True
    compared = stored.tracking is not None and stored.tracking.verified == "match"
    return stored.copied and compared


def _check_checkpoints(context: PlanningContext) -> Findings:
    """Refuse a flow that has run and has no checkpoint; only a pipeline of Spark's own shows checkpoints."""
    ran = context.stored.tracking.started if context.stored.tracking else ()
    findings = Findings()
    if context.request.engine != "declarative":
        return findings
    for flow in context.dataflow.streaming_flows:
        checkpoint = context.facts.checkpoints.get((context.target.key, flow.name))
        if flow.name in ran and checkpoint == Checkpoint():
            findings += context.refuse(
                "PIPELINE_CHECKPOINT_MISSING", flow=flow, table=flow.target, property=RESET_ALLOWED
            )
    return findings


def _check_table(context: PlanningContext, table: Target, recorded: TableEvidence) -> Findings:
    in_state, advice = recorded.state_identity, context.rebuild_advice
    if context.stored.finished:
        # A refresh wouldn't restore the history.
        folder = f"the folder of {context.target} under {context.facts.state}/checkpoints"
        advice = f"remove {folder}, to begin again"
    if recorded.table_id is None:
        if in_state or table.name.key == context.target.key:
            return context.refuse("TARGET_MISSING", table=table, advice=advice)
        return Findings()
    if not in_state or not recorded.table_id:
        return Findings()
    if replaced := check_table_id(context, table, recorded, advice):
        return replaced
    findings = Findings()
    for flow in list_flows_into(context, table):
        identity = in_state.flows.get(flow.name)
        if identity and context.find_checkpoint(flow).has_started:
            findings += check_flow_settings(context, table, flow, identity)
    return findings or check_table_settings(context, table, in_state.settings)


def _build_identity(
    context: PlanningContext, table: Target, table_id: str, before: TableIdentity | None
) -> TableIdentity:
    """Return the identity to record for a table; a flow can change until its first batch."""
    flows = dict(before.flows) if before else {}
    for flow in list_flows_into(context, table):
        if flow.name not in flows or not context.find_checkpoint(flow).has_started:
            now = collect_settings(context, flow, table.cdc)
            flows[flow.name] = FlowIdentity(now.settings, now.sources)
    start = context.migration_start if table is context.dataflow.target else None
    recorded_settings = before.settings if before else None
    return TableIdentity(
        table_id,
        context.stored.generation,
        flows,
        before.history if before else f"{start.copy.table}@{start.copy.version}" if start else "",
        cdc_settings(table.cdc) if recorded_settings is None else recorded_settings,
    )
