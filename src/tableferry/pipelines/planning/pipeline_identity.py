"""Decides whether the tables that a declarative pipeline fills are still those that hold a copied history.

A pipeline keeps its checkpoints to itself, and writes no table property for us. So which tables hold a
history, and what their flows rest on, is recorded beside the state alone, by `prepare`, and compared each
time. While the pipeline's files are being loaded nobody can be asked, and nothing is recorded or refused.
"""

from __future__ import annotations

from tableferry.pipelines.model.facts import Checkpoint
from tableferry.pipelines.model.flows import Target
from tableferry.pipelines.model.identities import FlowIdentity, Recorded, TableIdentity, cdc_settings
from tableferry.pipelines.model.steps import Recognise
from tableferry.pipelines.planning.context import Findings, PlanningContext, plan_steps, refuse
from tableferry.pipelines.planning.full_refresh import RESET_ALLOWED
from tableferry.pipelines.planning.identity import (
    check_flow_settings,
    check_table_settings,
    collect_settings,
    list_flows_into,
)

_REFRESH = f"in full in its pipeline, for which its tableProperties must set {RESET_ALLOWED} to true"


def check_pipeline_identity(context: PlanningContext) -> Findings:
    """Refuse a checkpoint that is lost, and a table or settings that aren't those that were recorded."""
    findings = _check_checkpoints(context)
    if _is_settled(context):
        for table in context.dataflow.tables:
            if recorded := context.facts.recorded.get(table.name.key):
                findings += _check_table(context, table, recorded)
    return findings


def record_pipeline_identity(context: PlanningContext) -> Findings:
    """Let tables be known again, from when their copy is compared and before their live flows start."""
    findings = Findings()
    if not _is_settled(context):
        return findings
    for table in context.dataflow.tables:
        recorded = context.facts.recorded.get(table.name.key)
        if recorded and recorded.table_id:
            identity = _build_identity(context, table, recorded.table_id, recorded.in_state)
            if identity != recorded.in_state:
                findings += plan_steps(
                    Recognise(context.target, context.stored.generation, table.name, identity)
                )
    return findings


def _is_settled(context: PlanningContext) -> bool:
    """Say whether the target holds a history that was compared."""
    stored = context.stored
    if stored.finished:
        return True
    compared = stored.tracking is not None and stored.tracking.verified == "match"
    return stored.copied and compared


def _check_checkpoints(context: PlanningContext) -> Findings:
    """Refuse a flow without a checkpoint that has run; only a pipeline of Spark's own lets us look."""
    ran = context.stored.tracking.started if context.stored.tracking else ()
    findings = Findings()
    if context.request.engine != "declarative":
        return findings
    for flow in context.dataflow.streaming_flows:
        checkpoint = context.facts.checkpoints.get((context.target.key, flow.name))
        if flow.name in ran and checkpoint == Checkpoint():
            findings += refuse(
                "PIPELINE_CHECKPOINT_MISSING",
                location=flow.location,
                flow=flow.name,
                table=flow.target,
                target=context.target,
                advice=_REFRESH,
            )
    return findings


def _check_table(context: PlanningContext, table: Target, recorded: Recorded) -> Findings:
    state, in_state = context.facts.state, recorded.in_state
    document = f"the state.json of {context.target} under {state}/checkpoints"
    rebuild = f'remove "tables" from {document} and refresh it {_REFRESH}'
    anew = rebuild
    if context.stored.finished:
        # Nothing would bring its history.
        anew = f"remove the folder of {context.target} under {state}/checkpoints, to begin again"
    if recorded.table_id is None:
        is_made = in_state is not None or table.name.key == context.target.key
        return (
            refuse("PIPELINE_TABLE_MISSING", location=table.location, table=table.name, advice=anew)
            if is_made
            else Findings()
        )
    if in_state and recorded.table_id and in_state.table_id != recorded.table_id:
        return refuse(
            "PIPELINE_TABLE_REPLACED",
            location=table.location,
            table=table.name,
            recorded=in_state.table_id,
            found=recorded.table_id,
            advice=anew,
        )
    if in_state is None or not recorded.table_id:
        return Findings()
    findings = Findings()
    for flow in list_flows_into(context, table):
        identity = in_state.flows.get(flow.name)
        if identity and context.find_checkpoint(flow).started:
            findings += check_flow_settings(context, table, flow, identity, rebuild)
    return findings or check_table_settings(table, in_state.settings, rebuild)


def _build_identity(
    context: PlanningContext, table: Target, table_id: str, before: TableIdentity | None
) -> TableIdentity:
    """Return what is to be recorded of a table; flows that have brought nothing yet may still change."""
    flows = dict(before.flows) if before else {}
    for flow in list_flows_into(context, table):
        if flow.name not in flows or not context.find_checkpoint(flow).started:
            now = collect_settings(context, flow, table.cdc)
            flows[flow.name] = FlowIdentity(now.settings, now.sources)
    start = context.migration_start if table is context.dataflow.target else None
    made_with = before.settings if before else None
    return TableIdentity(
        table_id,
        context.stored.generation,
        flows,
        before.history if before else f"{start.copy.table}@{start.copy.version}" if start else "",
        cdc_settings(table.cdc) if made_with is None else made_with,
    )
