"""Decides whether a target and its checkpoints are still those that its flows have filled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tableferry.amounts import counted
from tableferry.errors import Finding
from tableferry.errors.catalogue import as_sentence
from tableferry.pipelines.model.facts import Checkpoint
from tableferry.pipelines.model.flows import CdcSettings, Flow, Target
from tableferry.pipelines.model.identities import (
    REVIEWED,
    FlowIdentity,
    FlowSettings,
    ForeignWrites,
    Recorded,
    cdc_settings,
)
from tableferry.pipelines.model.plan import EngineKind
from tableferry.pipelines.model.steps import AcceptWrites
from tableferry.pipelines.model.target_state import Stored
from tableferry.pipelines.planning.context import (
    Findings,
    PlanningContext,
    add_note,
    plan_steps,
    refuse,
    refuse_all,
    warn,
)
from tableferry.spark.tables import TRANSACTION_RETENTION

_ENGINES = {
    "streaming": "the streaming engine",
    "databricks": "a pipeline on Databricks",
    "declarative": "a pipeline of Spark's own",
    "pipeline": "a pipeline",
}


def check_identity(context: PlanningContext) -> Findings:
    """Refuse a target where something was lost, replaced, or brought back from a backup, between two runs."""
    if context.stored.resetting or context.is_refreshed:
        return Findings()
    recorded_of_tables = (recorded for _, recorded in list_recorded_tables(context))
    if change := find_engine_change(context.stored, context.request.engine, recorded_of_tables):
        return refuse(
            "ENGINE_CHANGED",
            target=context.target,
            recorded=change.recorded,
            engine=change.engine,
            option=change.option,
            advice=_describe_rebuild(context),
        )
    if context.request.in_pipeline:
        # A pipeline keeps its checkpoints to itself: what shows of it is for `pipeline_tables`.
        return Findings()
    generation, newest = context.stored.generation, _find_copied_generation(context)
    if newest > generation:
        return refuse(
            "STATE_OLDER_THAN_COPY",
            target=context.target,
            copied=newest,
            known=generation,
            state=context.facts.state,
        )
    findings = _check_target_exists(context)
    for table, recorded in list_recorded_tables(context):
        findings += _check_table(context, table, recorded)
    return findings


def _describe_rebuild(context: PlanningContext) -> str:
    target, state = context.target, context.facts.state
    if not context.request.in_pipeline:
        return f"rebuild it with --full-refresh {target}"
    if context.stored.finished:
        return (
            f"drop {target} and its folder under {state}/checkpoints, and the pipeline fills it with the "
            "rows that its sources still have"
        )
    # Its baselines stay, for what has come since then is in no legacy table.
    return (
        f"drop {target} and its folders under {state}/tracking and {state}/checkpoints, and the pipeline "
        "fills it again from its baselines"
    )


def _check_target_exists(context: PlanningContext) -> Findings:
    tables, target = context.facts.tables, context.dataflow.target
    filled = context.stored.finished or context.stored.copied
    if not filled or target.name.key not in tables or tables[target.name.key] is not None:
        return Findings()
    remedy = f"rebuild it with --full-refresh {target.name}"
    if context.stored.finished and context.dataflow.migration:
        remedy = f"remove the folders of {target.name} under {context.facts.state}, to migrate it again"
    return refuse("TARGET_MISSING", location=target.location, table=target.name, advice=remedy)


@dataclass(frozen=True)
class EngineChange:
    """A target whose flows another engine has run.

    Attributes:
        recorded: The engine that has run them.
        engine: The engine that is to run them.
        option: The option that continues with the first one.
    """

    recorded: str
    engine: str
    option: str


def find_engine_change(
    stored: Stored, engine: EngineKind, recorded: Iterable[Recorded] = ()
) -> EngineChange | None:
    """Return the change if another engine has run a target's flows; None if this engine can continue."""
    runs = stored.engine
    if not runs:
        # A release that didn't record the engine wrote this, but each kind has left something of its own.
        in_pipeline = stored.tracking is not None and bool(stored.tracking.started)
        streamed = any(identities.has_checkpoints for identities in recorded)
        runs = "pipeline" if in_pipeline else "streaming" if streamed else ""
    if runs in ("", engine) or (runs == "pipeline" and engine != "streaming"):
        return None
    option = "the same --engine as before" if runs == "pipeline" else f"--engine {runs}"
    return EngineChange(_ENGINES[runs], as_sentence(_ENGINES[engine]).removesuffix("."), option)


def find_newest_generation(context: PlanningContext) -> int:
    """Return the newest generation that anything is recorded of, lost state included."""
    on_tables = (
        recorded.on_table.generation for _, recorded in list_recorded_tables(context) if recorded.on_table
    )
    return max(context.stored.generation, _find_copied_generation(context), *on_tables)


def list_recorded_tables(context: PlanningContext) -> Iterator[tuple[Target, Recorded]]:
    """Yield a target and its staging tables with what is recorded of them."""
    for table in context.dataflow.tables:
        if recorded := context.facts.recorded.get(table.name.key):
            yield table, recorded


def _find_copied_generation(context: PlanningContext) -> int:
    tracking = context.stored.tracking
    return (tracking.copied or 0) if tracking else 0


def collect_settings(context: PlanningContext, flow: Flow, cdc: CdcSettings | None) -> FlowSettings:
    """Return what a flow can't change once it has brought rows."""
    sources = {}
    for read in context.list_reads(flow):
        if not read.unseen:
            source = context.facts.tables.get(read.table.key)
            sources[read.table.key] = source.table_id if source else ""
    return FlowSettings(cdc_settings(cdc if flow.kind == "cdc" else None), sources)


def list_flows_into(context: PlanningContext, table: Target) -> Iterator[Flow]:
    """Return the streaming flows that fill one of a spec's tables."""
    return (flow for flow in context.dataflow.streaming_flows if flow.target.key == table.name.key)


def is_recorded(context: PlanningContext, flow: Flow, cdc: CdcSettings | None) -> bool:
    """Return whether a flow's identity, as it is now, is recorded both on its table and in the state."""
    now = collect_settings(context, flow, cdc)
    recorded = context.facts.recorded.get(flow.target.key)
    checkpoint = context.find_checkpoint(flow).id
    return bool(
        recorded
        and checkpoint
        and all(
            table
            and table.generation == context.stored.generation
            and (identity := _find_identity(table.flows, checkpoint))
            and not any(identity.changes(now))
            for table in (recorded.on_table, recorded.in_state)
        )
    )


def _check_table(context: PlanningContext, table: Target, recorded: Recorded) -> Findings:
    rebuild = f"rebuild it with --full-refresh {context.target}"
    on_table, in_state = recorded.on_table, recorded.in_state
    if in_state and in_state.table_id != recorded.table_id:
        return refuse(
            "TARGET_REPLACED",
            location=table.location,
            table=table.name,
            recorded=in_state.table_id,
            found=recorded.table_id,
            target=context.target,
        )
    if on_table and on_table.generation > context.stored.generation:
        return refuse(
            "STATE_OLDER_THAN_TABLE",
            location=table.location,
            table=table.name,
            refreshes=on_table.generation,
            known=context.stored.generation,
            state=context.facts.state,
            target=context.target,
        )
    set_back = recorded.set_back
    if set_back and set_back.version is None:
        return refuse(
            "EVENT_LOG_MISSING",
            location=table.location,
            change=set_back,
            table=table.name,
            version=set_back.left_at,
            target=context.target,
        )
    if set_back:
        return refuse(
            "TARGET_SET_BACK",
            location=table.location,
            change=set_back,
            table=table.name,
            version=set_back.left_at,
            target=context.target,
        )
    findings = _check_foreign_writes(context, table, recorded)
    identities: dict[str, FlowIdentity] = {}
    made_with: Mapping[str, str] | None = None
    for identity in (on_table, in_state):
        if identity and identity.generation == context.stored.generation:
            identities |= identity.flows
            made_with = identity.settings if made_with is None else made_with
    of_flows = Findings()
    for flow in list_flows_into(context, table):
        of_flows += context.check_ambiguous_rename(flow) + _check_flow(
            context, table, flow, identities, recorded
        )
    # What its flows brought says it better; before their first batch there is only what the copy rests on.
    return findings + (of_flows or check_table_settings(table, made_with, rebuild))


def _check_foreign_writes(context: PlanningContext, table: Target, recorded: Recorded) -> Findings:
    """Refuse a CDC target whose rows and events differ by what other processes removed."""
    findings = Findings()
    for writes in recorded.foreign_writes:
        findings += _check_foreign_write(context, table, writes)
    if recorded.foreign_writes and not findings.refusals:
        findings += plan_steps(AcceptWrites(context.target, context.stored.generation, recorded.versions))
    return findings


def _check_foreign_write(context: PlanningContext, table: Target, writes: ForeignWrites) -> Findings:
    of_target = writes.table == table.name
    written, rebuild = writes.table.plain_sql, f"rebuild it with --full-refresh {context.target}"
    if writes.left is None:
        rows = "events of the same keys" if of_target else "rows of the same keys"
        return refuse(
            "ROWS_MAYBE_REMOVED",
            location=table.location,
            writes=writes,
            before=writes.before,
            reason=writes.unreadable,
            other=writes.other,
            rows=rows,
            table=written,
            property=REVIEWED,
            last=writes.last,
            target=context.target,
        )
    if not writes.left:
        if writes.only_deletes or not of_target:
            return Findings()
        return warn("VALUES_CHANGED_BY_OTHERS", writes=writes, other=writes.other)
    if of_target:
        left = counted(writes.left, "key or row", "keys or rows")
        removed, left = "rows", f"events of {left}, which the next event of a key restores"
    else:
        left = counted(writes.left, "row")
        removed, left = "events", f"{left} of them, which no later event closes or replaces"
    statements = " ".join(f"{statement};" for statement in writes.statements)
    undo = f"undo it by RESTORE TABLE {written} TO VERSION AS OF {writes.before}"
    return refuse(
        "ROWS_REMOVED_BY_OTHERS",
        location=table.location,
        removed=removed,
        writes=writes,
        other=writes.other,
        left=left,
        statements=statements,
        advice=undo if writes.restorable else rebuild,
    )


def _check_flow(
    context: PlanningContext,
    table: Target,
    flow: Flow,
    identities: Mapping[str, FlowIdentity],
    recorded: Recorded,
) -> Findings:
    rebuild = f"rebuild it with --full-refresh {context.target}"
    checkpoint = context.find_checkpoint(flow)
    if checkpoint.offered is None:
        if recorded.batches.get(checkpoint.id, -1) >= 0:
            return _check_batches(context, table, flow, checkpoint, recorded)
        if lost := _find_lost_flow(context, flow, identities, recorded):
            return refuse(
                "FLOW_CHECKPOINT_MISSING",
                location=flow.location,
                lost=lost,
                flow=flow.name,
                table=table.name,
                state=context.facts.state,
                target=context.target,
            )
        return Findings()
    identity = _find_identity(identities, checkpoint.id)
    if identity is None:
        if flow.name not in identities:
            return Findings()
        return refuse(
            "FLOW_CHECKPOINT_REPLACED",
            location=flow.location,
            flow=flow.name,
            table=table.name,
            target=context.target,
        )
    return check_flow_settings(context, table, flow, identity, rebuild) + _check_batches(
        context, table, flow, checkpoint, recorded
    )


def check_flow_settings(
    context: PlanningContext, table: Target, flow: Flow, identity: FlowIdentity, rebuild: str
) -> Findings:
    """Refuse other settings than those that a flow has filled its table with."""
    return refuse_all(
        Finding(
            "FLOW_SETTINGS_CHANGED",
            location=flow.location,
            flow=flow.name,
            table=table.name,
            before=before,
            now=now,
            advice=rebuild,
        )
        for before, now in identity.changes(collect_settings(context, flow, table.cdc))
    )


def check_table_settings(table: Target, made_with: Mapping[str, str] | None, rebuild: str) -> Findings:
    """Refuse other settings than those that a table was made and its history copied with, if recorded."""
    if made_with is None:
        return Findings()
    now = FlowSettings(cdc_settings(table.cdc))
    return refuse_all(
        Finding(
            "TABLE_SETTINGS_CHANGED",
            location=table.location,
            table=table.name,
            before=before,
            now=after,
            advice=rebuild,
        )
        for before, after in FlowSettings(made_with).changes(now)
    )


def _find_lost_flow(
    context: PlanningContext, flow: Flow, identities: Mapping[str, FlowIdentity], recorded: Recorded
) -> str:
    """Name the flow whose checkpoint is gone and which a flow without a checkpoint is, or may be."""
    checkpoint_ids = context.list_checkpoint_ids()
    lost = [
        name
        for name, identity in identities.items()
        if identity.checkpoint not in checkpoint_ids
        and name not in context.dataflow.disabled
        and recorded.batches.get(identity.checkpoint) != -1
    ]
    if flow.name in lost:
        return flow.name
    if any(read.explicit is None for read in context.list_reads(flow)):
        in_spec = {flow.name for flow in context.dataflow.flows}
        return next((name for name in lost if name not in in_spec), "")
    return ""


def _check_batches(
    context: PlanningContext, table: Target, flow: Flow, checkpoint: Checkpoint, recorded: Recorded
) -> Findings:
    findings = Findings()
    newest = recorded.batches.get(checkpoint.id)
    if newest is None:
        return _check_forgotten_batches(context, table, flow, checkpoint)
    if checkpoint.offered is None or newest > checkpoint.offered:
        findings += refuse(
            "CHECKPOINT_OLDER_THAN_TARGET",
            location=flow.location,
            flow=flow.name,
            table=table.name,
            checkpoint=_describe_batch(checkpoint.offered),
            newest=newest,
            target=context.target,
        )
    brought = checkpoint.committed if not checkpoint.has_start_offset or checkpoint.committed != 1 else None
    if brought is not None and newest < brought:
        findings += refuse(
            "CHECKPOINT_AHEAD_OF_TARGET",
            location=flow.location,
            flow=flow.name,
            table=table.name,
            checkpoint=_describe_batch(brought),
            newest=_describe_batch(newest),
            target=context.target,
        )
    return findings


def _check_forgotten_batches(
    context: PlanningContext, table: Target, flow: Flow, checkpoint: Checkpoint
) -> Findings:
    """Decide for a table whose log and history have lost a stream's batches."""
    known = context.facts.tables.get(table.name.key)
    kept = known.properties.get(TRANSACTION_RETENTION, "") if known else ""
    if not kept or checkpoint.offered is None:
        return Findings()
    if not checkpoint.pending:
        return add_note(
            f"{table.name} remembers a stream's batches for {kept} ({TRANSACTION_RETENTION}), and neither "
            f"its log nor its history shows whether it has {_describe_batch(checkpoint.offered)} of "
            f"{flow.name}. The checkpoint records that it has"
        )
    number = checkpoint.offered
    return refuse(
        "BATCH_NOT_REMEMBERED",
        location=flow.location,
        table=table.name,
        flow=flow.name,
        kept=kept,
        property=TRANSACTION_RETENTION,
        batch=number,
        before=number - 1,
        state=context.facts.state,
    )


def _describe_batch(number: int | None) -> str:
    return "no batch" if number is None or number < 0 else f"batch {number}"


def _find_identity(identities: Mapping[str, FlowIdentity], checkpoint: str) -> FlowIdentity | None:
    """Find the flow that goes on from a checkpoint, whatever it was called then."""
    return next((identity for identity in identities.values() if identity.checkpoint == checkpoint), None)
