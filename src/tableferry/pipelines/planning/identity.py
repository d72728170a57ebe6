"""Check whether a target, its flows' checkpoints and their settings are still the recorded ones.

A declarative pipeline owns its checkpoints and writes no table property. So `prepare` records the identities
of its tables in the state, and compares them before each update.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tableferry.amounts import counted
from tableferry.errors import Finding
from tableferry.errors.catalogue import as_sentence
from tableferry.pipelines.model.facts import Checkpoint
from tableferry.pipelines.model.flows import RESET_ALLOWED, Flow, Target, cdc_settings
from tableferry.pipelines.model.identities import (
    REVIEWED,
    FlowIdentity,
    FlowSettings,
    ForeignWrites,
    TableEvidence,
    TableIdentity,
)
from tableferry.pipelines.model.plan import EngineKind
from tableferry.pipelines.model.steps import RecordTableIdentity, RecordVersions
from tableferry.pipelines.model.target_state import TargetState
from tableferry.pipelines.planning.context import Findings, PlanningContext, add_note, plan_steps, refuse_all
from tableferry.spark.tables import TRANSACTION_RETENTION, TableName

_ENGINES = {
    "streaming": "the streaming engine",
    "databricks": "a pipeline on Databricks",
    "declarative": "a pipeline of Spark's own",
    "pipeline": "a pipeline",
}


def check_identity(context: PlanningContext) -> Findings:
    """Refuse a target if its table, checkpoints, settings or state were lost, replaced or restored.

    Rule 9: Identity is recorded: the target's table id, the checkpoint id of each flow, and its settings. A
    missing or changed one is refused with the way to continue, and so are a changed engine and rows or events
    that another process removed. Nothing is checked in a full refresh. `flow_start` gives a start only to a
    flow without a checkpoint.
    """
    if context.stored.resetting or context.is_refreshed:
        return Findings()
    recorded_of_tables = (recorded for _, recorded in context.list_recorded_tables())
    alternative = f" Or {_advise_on_engine(context)}."
    if change := find_engine_change(
        context.target, context.stored, context.request.engine, recorded_of_tables, alternative
    ):
        return refuse_all([change])
    if context.request.in_pipeline:
        return _check_in_pipeline(context)
    generation, newest = context.stored.generation, context.stored.copied_generation
    if newest > generation:
        return context.refuse("STATE_OLDER_THAN_COPY", copied=newest, known=generation)
    findings = _check_target_exists(context)
    for table, recorded in context.list_recorded_tables():
        findings += _check_table(context, table, recorded)
    return findings


def _advise_on_engine(context: PlanningContext) -> str:
    target, state = context.target, context.facts.state
    if not context.request.in_pipeline:
        return context.rebuild_advice
    if context.stored.finished:
        return (
            f"drop {target} and its folder under {state}/checkpoints, and the pipeline fills it with the "
            "rows that its sources still have"
        )
    # Its baselines stay, because the legacy table lacks the rows since then.
    return (
        f"drop {target} and its folders under {state}/tracking and {state}/checkpoints, and the pipeline "
        "fills it again from its baselines"
    )


def _check_target_exists(context: PlanningContext) -> Findings:
    tables, target = context.facts.tables, context.dataflow.target
    filled = context.stored.finished or context.stored.copied
    if not filled or target.name.key not in tables or tables[target.name.key] is not None:
        return Findings()
    remedy = context.rebuild_advice
    if context.stored.finished and context.dataflow.migration:
        remedy = f"remove the folders of {target.name} under {context.facts.state}, to migrate it again"
    return context.refuse("TARGET_MISSING", table=target, advice=remedy)


def find_engine_change(
    target: TableName,
    stored: TargetState,
    engine: EngineKind,
    recorded: Iterable[TableEvidence] = (),
    alternative: str = "",
) -> Finding | None:
    """Return a refusal if another engine has run a target's flows; None if this engine can continue.

    ``alternative`` is a sentence about what else the user can do.
    """
    runs = stored.engine
    if not runs:
        # State of an older version lacks the engine, but each engine leaves different records.
        in_pipeline = stored.tracking is not None and bool(stored.tracking.started)
        streamed = any(identities.has_checkpoints for identities in recorded)
        runs = "pipeline" if in_pipeline else "streaming" if streamed else ""
    if runs in ("", engine) or (runs == "pipeline" and engine != "streaming"):
        return None
    option = "the same --engine as before" if runs == "pipeline" else f"--engine {runs}"
    return Finding(
        "ENGINE_CHANGED",
        target=target,
        recorded=_ENGINES[runs],
        engine=as_sentence(_ENGINES[engine]).removesuffix("."),
        option=option,
        alternative=alternative,
    )


def find_unrecorded_settings(context: PlanningContext, flow: Flow) -> FlowSettings | None:
    """Return the settings to record before a flow's first rows; None if the table and the state record them.

    In a pipeline, `prepare` records them.
    """
    if context.request.in_pipeline:
        return None
    now = _collect_settings(context, flow)
    recorded = context.facts.table_evidence.get(flow.target.key)
    checkpoint = context.find_checkpoint(flow).id
    if not recorded or not checkpoint or context.fills_new_generation:
        return now
    for table in (recorded.property_identity, recorded.state_identity):
        if not table or table.generation != context.stored.generation:
            return now
        identity = _find_identity(table.flows, checkpoint)
        if not identity or any(identity.changes(now)):
            return now
    return None


def _collect_settings(context: PlanningContext, flow: Flow) -> FlowSettings:
    """Return the settings of a flow that can't change after its first batch."""
    tables = context.facts.tables
    sources = {
        read.table.key: source.table_id if (source := tables.get(read.table.key)) else ""
        for read in context.list_reads(flow)
        if not read.unmanaged
    }
    return FlowSettings(cdc_settings(context.find_table(flow).cdc if flow.kind == "cdc" else None), sources)


def _list_flows_into(context: PlanningContext, table: Target) -> Iterator[Flow]:
    """Return the streaming flows that fill one of a spec's tables."""
    return (flow for flow in context.dataflow.streaming_flows if flow.target.key == table.name.key)


def _check_table(context: PlanningContext, table: Target, recorded: TableEvidence) -> Findings:
    on_table, in_state = recorded.property_identity, recorded.state_identity
    if replaced := _check_table_id(context, table, recorded, context.rebuild_advice):
        return replaced
    if on_table and on_table.generation > context.stored.generation:
        return context.refuse(
            "STATE_OLDER_THAN_TABLE",
            table=table,
            refreshes=on_table.generation,
            known=context.stored.generation,
        )
    set_back = recorded.rollback
    if set_back:
        return context.refuse(
            "EVENT_LOG_MISSING" if set_back.version is None else "TARGET_SET_BACK",
            table=table,
            change=set_back,
            version=set_back.left_at,
        )
    findings = _check_foreign_writes(context, table, recorded)
    identities: dict[str, FlowIdentity] = {}
    table_settings: Mapping[str, str] | None = None
    for identity in (on_table, in_state):
        if identity and identity.generation == context.stored.generation:
            identities |= identity.flows
            table_settings = identity.settings if table_settings is None else table_settings
    of_flows = Findings()
    for flow in _list_flows_into(context, table):
        of_flows += context.check_ambiguous_rename(flow)
        of_flows += _check_flow(context, table, flow, identities, recorded)
    # A flow's finding is more exact; before the first batch only the settings of the copy are recorded.
    return findings + (of_flows or _check_table_settings(context, table, table_settings))


def _check_foreign_writes(context: PlanningContext, table: Target, recorded: TableEvidence) -> Findings:
    """Refuse a CDC target if another process removed only its rows or only their events."""
    findings = Findings()
    for writes in recorded.foreign_writes:
        findings += _check_foreign_write(context, table, writes)
    if recorded.foreign_writes and not findings.refusals:
        findings += plan_steps(RecordVersions(context.target, context.stored.generation, recorded.versions))
    return findings


def _check_foreign_write(context: PlanningContext, table: Target, writes: ForeignWrites) -> Findings:
    of_target = writes.table == table.name
    written = writes.table.plain_sql
    if writes.remaining is None:
        rows = "events of the same keys" if of_target else "rows of the same keys"
        return context.refuse(
            "ROWS_MAYBE_REMOVED",
            location=table.location,
            writes=writes,
            before=writes.before,
            reason=writes.unreadable,
            other=writes.counterpart,
            rows=rows,
            table=written,
            property=REVIEWED,
            last=writes.last,
        )
    if not writes.remaining:
        if writes.only_deletes or not of_target:
            return Findings()
        return context.warn("VALUES_CHANGED_BY_OTHERS", writes=writes, other=writes.counterpart)
    if of_target:
        left = counted(writes.remaining, "key or row", "keys or rows")
        removed, left = "rows", f"events of {left}, which the next event of a key restores"
    else:
        left = counted(writes.remaining, "row")
        removed, left = "events", f"{left} of them, which no later event closes or replaces"
    statements = " ".join(f"{statement};" for statement in writes.statements)
    undo = f"undo it by RESTORE TABLE {written} TO VERSION AS OF {writes.before}"
    return context.refuse(
        "ROWS_REMOVED_BY_OTHERS",
        location=table.location,
        removed=removed,
        writes=writes,
        other=writes.counterpart,
        left=left,
        statements=statements,
        advice=undo if writes.restorable else context.rebuild_advice,
    )


def _check_flow(
    context: PlanningContext,
    table: Target,
    flow: Flow,
    identities: Mapping[str, FlowIdentity],
    recorded: TableEvidence,
) -> Findings:
    checkpoint = context.find_checkpoint(flow)
    if checkpoint.offered is None:
        if recorded.batches.get(checkpoint.id, -1) >= 0:
            return _check_batches(context, table, flow, checkpoint, recorded)
        if lost := _find_lost_flow(context, flow, identities, recorded):
            return context.refuse("FLOW_CHECKPOINT_MISSING", flow=flow, lost=lost, table=table)
        return Findings()
    identity = _find_identity(identities, checkpoint.id)
    if identity:
        settings = _check_flow_settings(context, table, flow, identity)
        return settings + _check_batches(context, table, flow, checkpoint, recorded)
    if flow.name not in identities:
        return Findings()
    return context.refuse("FLOW_CHECKPOINT_REPLACED", flow=flow, table=table)


def _check_table_id(
    context: PlanningContext, table: Target, recorded: TableEvidence, rebuild: str
) -> Findings:
    """Refuse a table with another id than the recorded one; ``rebuild`` is the remedy."""
    in_state = recorded.state_identity
    if not in_state or in_state.table_id == recorded.table_id:
        return Findings()
    return context.refuse(
        "TARGET_REPLACED", table=table, recorded=in_state.table_id, found=recorded.table_id, advice=rebuild
    )


def _check_flow_settings(
    context: PlanningContext, table: Target, flow: Flow, identity: FlowIdentity
) -> Findings:
    """Refuse changed settings of a flow that has filled its table."""
    return refuse_all(
        context.finding("FLOW_SETTINGS_CHANGED", flow=flow, table=table, before=before, now=now)
        for before, now in identity.changes(_collect_settings(context, flow))
    )


def _check_table_settings(
    context: PlanningContext, table: Target, recorded: Mapping[str, str] | None
) -> Findings:
    """Refuse changed settings of a table that was created or copied with the recorded ones.

    ``recorded`` is None if an older version has created the table.
    """
    if recorded is None:
        return Findings()
    now = FlowSettings(cdc_settings(table.cdc))
    return refuse_all(
        context.finding("TABLE_SETTINGS_CHANGED", table=table, before=before, now=after)
        for before, after in FlowSettings(recorded).changes(now)
    )


def _find_lost_flow(
    context: PlanningContext, flow: Flow, identities: Mapping[str, FlowIdentity], recorded: TableEvidence
) -> str:
    """Return the name of the recorded flow with a lost checkpoint that a flow continues; empty if none.

    The flow itself has no checkpoint. It continues the recorded flow if it has its name or can be its rename.
    """
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
    context: PlanningContext, table: Target, flow: Flow, checkpoint: Checkpoint, recorded: TableEvidence
) -> Findings:
    findings = Findings()
    newest = recorded.batches.get(checkpoint.id)
    if newest is None:
        return _check_forgotten_batches(context, table, flow, checkpoint)
    if checkpoint.offered is None or newest > checkpoint.offered:
        findings += context.refuse(
            "CHECKPOINT_OLDER_THAN_TARGET",
            flow=flow,
            table=table,
            checkpoint=_describe_batch(checkpoint.offered),
            newest=newest,
        )
    # The first two batches of a flow that starts within a commit are empty: they only set its offset.
    is_empty_start = checkpoint.has_start_offset and checkpoint.committed == 1
    written = None if is_empty_start else checkpoint.committed
    if written is not None and newest < written:
        findings += context.refuse(
            "CHECKPOINT_AHEAD_OF_TARGET",
            flow=flow,
            table=table,
            checkpoint=_describe_batch(written),
            newest=_describe_batch(newest),
        )
    return findings


def _check_forgotten_batches(
    context: PlanningContext, table: Target, flow: Flow, checkpoint: Checkpoint
) -> Findings:
    """Refuse a pending batch if the table's log and history no longer show the stream's batches."""
    known = context.facts.tables.get(table.name.key)
    kept = known.properties.get(TRANSACTION_RETENTION, "") if known else ""
    if not kept or checkpoint.offered is None:
        return Findings()
    if not checkpoint.has_pending_batch:
        return add_note(
            f"{table.name} remembers a stream's batches for {kept} ({TRANSACTION_RETENTION}), and neither "
            f"its log nor its history shows whether it has {_describe_batch(checkpoint.offered)} of "
            f"{flow.name}. The checkpoint records that it has"
        )
    number = checkpoint.offered
    return context.refuse(
        "BATCH_NOT_REMEMBERED",
        flow=flow,
        table=table,
        kept=kept,
        property=TRANSACTION_RETENTION,
        batch=number,
        before=number - 1,
    )


def _describe_batch(number: int | None) -> str:
    return "no batch" if number is None or number < 0 else f"batch {number}"


def _find_identity(identities: Mapping[str, FlowIdentity], checkpoint: str) -> FlowIdentity | None:
    """Return the recorded flow that has a checkpoint; its name may be an earlier one."""
    return next((identity for identity in identities.values() if identity.checkpoint == checkpoint), None)


def _check_in_pipeline(context: PlanningContext) -> Findings:
    """Refuse a lost checkpoint, and a table or settings that differ from the recorded identity.

    While the pipeline loads its files, nothing is compared.
    """
    findings = _check_checkpoints(context)
    if _is_settled(context):
        for table, recorded in context.list_recorded_tables():
            findings += _check_pipeline_table(context, table, recorded)
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


def _check_pipeline_table(context: PlanningContext, table: Target, recorded: TableEvidence) -> Findings:
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
    if replaced := _check_table_id(context, table, recorded, advice):
        return replaced
    findings = Findings()
    for flow in _list_flows_into(context, table):
        identity = in_state.flows.get(flow.name)
        if identity and context.find_checkpoint(flow).has_started:
            findings += _check_flow_settings(context, table, flow, identity)
    return findings or _check_table_settings(context, table, in_state.settings)


def _build_identity(
    context: PlanningContext, table: Target, table_id: str, before: TableIdentity | None
) -> TableIdentity:
    """Return the identity to record for a table; a flow can change until its first batch."""
    flows = dict(before.flows) if before else {}
    for flow in _list_flows_into(context, table):
        if flow.name not in flows or not context.find_checkpoint(flow).has_started:
            now = _collect_settings(context, flow)
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
