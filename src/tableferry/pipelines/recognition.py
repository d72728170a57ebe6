"""Decides whether a target and its checkpoints are still those that its flows have filled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tableferry.pipelines.flows import CdcSettings, Flow, Target
from tableferry.pipelines.identities import FlowIdentity, FlowSettings, Recorded
from tableferry.pipelines.planning_context import Findings, PlanningContext, refused
from tableferry.pipelines.plans import Checkpoint


def check(context: PlanningContext) -> Findings:
    """Refuse a target where something was lost, replaced, or brought back from a backup, between two runs."""
    if context.request.in_pipeline or context.stored.resetting or context.refreshed:
        return Findings()
    generation, newest = context.stored.generation, _newest_copy(context)
    if newest > generation:
        return refused(
            f"{context.target}: its history was copied after {newest} full refreshes, and its "
            f"checkpoints know of {generation}: restore {context.facts.state}, or rebuild it with "
            f"--full-refresh {context.target}"
        )
    findings = Findings()
    for table, recorded in all_recorded(context):
        findings += _check_table(context, table, recorded)
    return findings


def newest_generation(context: PlanningContext) -> int:
    """Return the newest generation that anything is recorded of, lost state included."""
    on_tables = (recorded.on_table.generation for _, recorded in all_recorded(context) if recorded.on_table)
    return max(context.stored.generation, _newest_copy(context), *on_tables)


def all_recorded(context: PlanningContext) -> Iterator[tuple[Target, Recorded]]:
    """Yield a target and its staging tables with what is recorded of them."""
    for table in context.dataflow.tables:
        if recorded := context.facts.recorded.get(table.name.key):
            yield table, recorded


def _newest_copy(context: PlanningContext) -> int:
    tracking = context.stored.tracking
    return (tracking.copied or 0) if tracking else 0


def settings(context: PlanningContext, flow: Flow, cdc: CdcSettings | None) -> FlowSettings:
    """Return what a flow can't change once it has brought rows."""
    sources = {}
    for read in context.follows(flow):
        if not read.unseen:
            source = context.facts.tables.get(read.table.key)
            sources[read.table.key] = source.table_id if source else ""
    if flow.kind != "cdc" or cdc is None:
        return FlowSettings({}, sources)
    cdc_settings = {
        "keys": ", ".join(cdc.keys),
        "scd_type": str(cdc.scd_type),
        "sequence_by": cdc.sequence_by,
    }
    return FlowSettings(cdc_settings, sources)


def is_recorded(context: PlanningContext, flow: Flow) -> bool:
    """Say whether a flow's identity is recorded both on its table and in the state."""
    recorded = context.facts.recorded.get(flow.target.key)
    checkpoint = context.checkpoint(flow).id
    return bool(
        recorded
        and checkpoint
        and all(
            table
            and table.generation == context.stored.generation
            and _with_checkpoint(table.flows, checkpoint)
            for table in (recorded.on_table, recorded.in_state)
        )
    )


def _check_table(context: PlanningContext, table: Target, recorded: Recorded) -> Findings:
    rebuild = f"rebuild it with --full-refresh {context.target}"
    on_table, in_state = recorded.on_table, recorded.in_state
    if in_state and in_state.table_id != recorded.table_id:
        return refused(
            f"{table.place}: {table.name} was replaced since its flows began (the id of its log was "
            f"{in_state.table_id} and is {recorded.table_id}), so they would go on behind rows that it may "
            f"not have: restore the old table, or {rebuild}"
        )
    if on_table and on_table.generation > context.stored.generation:
        return refused(
            f"{table.place}: {table.name} was refreshed {on_table.generation} times, and the state says "
            f"{context.stored.generation}: restore {context.facts.state}, or {rebuild}"
        )
    if recorded.set_back is not None:
        version = "an older version" if recorded.set_back < 0 else f"version {recorded.set_back}"
        return refused(
            f"{table.place}: {table.name} was set back to {version} since its flows last ran, and their "
            f"checkpoints weren't, so rows are missing: restore version {recorded.left_at}, or {rebuild}"
        )
    identities: dict[str, FlowIdentity] = {}
    for identity in (on_table, in_state):
        if identity and identity.generation == context.stored.generation:
            identities |= identity.flows
    findings = Findings()
    for flow in context.dataflow.streaming_flows:
        if flow.target.key == table.name.key:
            findings += context.ambiguous(flow) + _check_flow(context, table, flow, identities, recorded)
    return findings


def _check_flow(
    context: PlanningContext,
    table: Target,
    flow: Flow,
    identities: Mapping[str, FlowIdentity],
    recorded: Recorded,
) -> Findings:
    rebuild = f"rebuild it with --full-refresh {context.target}"
    checkpoint = context.checkpoint(flow)
    if checkpoint.offered is None:
        if recorded.batches.get(checkpoint.id, -1) >= 0:
            return _check_batches(context, table, flow, checkpoint, recorded)
        if lost := _lost(context, flow, identities, recorded):
            return refused(
                f"{flow.place}: the checkpoint of {lost} is gone, so {flow.name} would bring rows again that "
                f"{table.name} has: restore {context.facts.state}, or {rebuild}"
            )
        return Findings()
    identity = _with_checkpoint(identities, checkpoint.id)
    if identity is None:
        if flow.name not in identities:
            return Findings()
        return refused(
            f"{flow.place}: the checkpoint of {flow.name} isn't the one that {table.name} was filled from: "
            f"restore that one, or {rebuild}"
        )
    changes = (
        f"{flow.place}: {flow.name} has filled {table.name} with {before}, and the spec now says {now}: put "
        f"that back, or {rebuild}"
        for before, now in identity.changes(settings(context, flow, table.cdc))
    )
    return refused(*changes) + _check_batches(context, table, flow, checkpoint, recorded)


def _lost(
    context: PlanningContext, flow: Flow, identities: Mapping[str, FlowIdentity], recorded: Recorded
) -> str:
    """Name the flow whose checkpoint is gone and which a flow without a checkpoint is, or may be."""
    checkpoint_ids = context.checkpoint_ids()
    lost = [
        name
        for name, identity in identities.items()
        if identity.checkpoint not in checkpoint_ids
        and name not in context.dataflow.disabled
        and recorded.batches.get(identity.checkpoint) != -1
    ]
    if flow.name in lost:
        return flow.name
    if any(read.explicit is None for read in context.follows(flow)):
        in_spec = {flow.name for flow in context.dataflow.flows}
        return next((name for name in lost if name not in in_spec), "")
    return ""


def _check_batches(
    context: PlanningContext, table: Target, flow: Flow, checkpoint: Checkpoint, recorded: Recorded
) -> Findings:
    findings = Findings()
    newest = recorded.batches.get(checkpoint.id)
    if newest is None:
        return findings
    if checkpoint.offered is None or newest > checkpoint.offered:
        findings += refused(
            f"{flow.place}: the checkpoint of {flow.name} is behind {table.name}: it knows of "
            f"{_batch(checkpoint.offered)}, and the table has batch {newest}, so new rows would be "
            "taken for those it has: restore the newer checkpoint, or rebuild the table with --full-refresh "
            f"{context.target}"
        )
    if checkpoint.committed is not None and newest < checkpoint.committed:
        findings += refused(
            f"{flow.place}: the checkpoint of {flow.name} is ahead of {table.name}: it has done "
            f"{_batch(checkpoint.committed)}, and the table has {_batch(newest)}, so rows are "
            f"missing: restore the newer table, or rebuild it with --full-refresh {context.target}"
        )
    return findings


def _batch(number: int | None) -> str:
    return "no batch" if number is None or number < 0 else f"batch {number}"


def _with_checkpoint(identities: Mapping[str, FlowIdentity], checkpoint: str) -> FlowIdentity | None:
    """Find the flow that goes on from a checkpoint, whatever it was called then."""
    return next((identity for identity in identities.values() if identity.checkpoint == checkpoint), None)
