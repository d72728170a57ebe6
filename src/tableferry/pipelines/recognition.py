"""Decides whether a target and its checkpoints are still those that its flows have filled."""

from __future__ import annotations

from collections.abc import Mapping

from tableferry.pipelines.cases import Case
from tableferry.pipelines.flows import CdcSettings, Flow, Target
from tableferry.pipelines.identities import FlowIdentity, FlowSettings, Recorded
from tableferry.pipelines.plans import Checkpoint


def check(case: Case) -> None:
    """Refuse a target where something was lost, replaced, or brought back from a backup, between two runs."""
    if case.request.in_pipeline or case.stored.resetting or case.name.key in case.request.full_refresh:
        return
    if _newest_copy(case) > case.stored.generation:
        case.refusals.append(
            f"{case.name}: its history was copied after {_newest_copy(case)} full refreshes, and its "
            f"checkpoints know of {case.stored.generation}: restore {case.facts.state}, or rebuild it with "
            f"--full-refresh {case.name}"
        )
        return
    for table in (case.dataflow.target, *case.dataflow.staging):
        if recorded := case.facts.recorded.get(table.name.key):
            _check_table(case, table, recorded)


def newest_generation(case: Case) -> int:
    """Return the newest generation that anything is recorded of, lost state included."""
    tables = (case.dataflow.target, *case.dataflow.staging)
    found = [case.facts.recorded[one.name.key] for one in tables if one.name.key in case.facts.recorded]
    generations = (case.stored.generation, _newest_copy(case))
    return max([*generations, *(one.on_table.generation for one in found if one.on_table)])


def _newest_copy(case: Case) -> int:
    tracking = case.stored.tracking
    return (tracking.copied or 0) if tracking else 0


def settings(case: Case, flow: Flow, cdc: CdcSettings | None) -> FlowSettings:
    """Return what a flow can't change once it has brought rows."""
    sources = {}
    for read in case.follows(flow):
        if not read.unseen:
            found = case.facts.tables.get(read.table.key)
            sources[read.table.key] = found.table_id if found else ""
    if flow.kind != "cdc" or cdc is None:
        return FlowSettings({}, sources)
    given = {
        "keys": ", ".join(cdc.keys),
        "scd_type": str(cdc.scd_type),
        "sequence_by": cdc.sequence_by,
    }
    return FlowSettings(given, sources)


def is_recorded(case: Case, flow: Flow) -> bool:
    """Say whether a flow's identity is recorded in both places."""
    recorded = case.facts.recorded.get(flow.target.key)
    checkpoint = case.checkpoint(flow).id
    return bool(
        recorded
        and checkpoint
        and all(
            one and one.generation == case.stored.generation and _named(one.flows, checkpoint)
            for one in (recorded.on_table, recorded.in_state)
        )
    )


def _check_table(case: Case, table: Target, recorded: Recorded) -> None:
    refuse, rebuild = case.refusals.append, f"rebuild it with --full-refresh {case.name}"
    on_table, in_state = recorded.on_table, recorded.in_state
    if in_state and in_state.table_id != recorded.table_id:
        refuse(
            f"{table.place}: {table.name} was replaced since its flows began (the id of its log was "
            f"{in_state.table_id} and is {recorded.table_id}), so they would go on behind rows that it may "
            f"not have: restore the old table, or {rebuild}"
        )
        return
    if on_table and on_table.generation > case.stored.generation:
        refuse(
            f"{table.place}: {table.name} was refreshed {on_table.generation} times, and the state says "
            f"{case.stored.generation}: restore {case.facts.state}, or {rebuild}"
        )
        return
    if recorded.set_back is not None:
        version = "an older version" if recorded.set_back < 0 else f"version {recorded.set_back}"
        refuse(
            f"{table.place}: {table.name} was set back to {version} since its flows last ran, and their "
            f"checkpoints weren't, so rows are missing: restore version {recorded.left_at}, or {rebuild}"
        )
        return
    known: dict[str, FlowIdentity] = {}
    for one in (on_table, in_state):
        if one and one.generation == case.stored.generation:
            known |= one.flows
    for flow in case.live:
        if flow.target.key == table.name.key:
            _check_flow(case, table, flow, known, recorded)


def _check_flow(
    case: Case, table: Target, flow: Flow, known: Mapping[str, FlowIdentity], recorded: Recorded
) -> None:
    refuse, rebuild = case.refusals.append, f"rebuild it with --full-refresh {case.name}"
    checkpoint = case.checkpoint(flow)
    where = f"{flow.place}: "
    if checkpoint.offered is None:
        if recorded.batches.get(checkpoint.id, -1) >= 0:
            _check_batches(case, table, flow, checkpoint, recorded)
        elif lost := _lost(case, flow, known, recorded):
            refuse(
                f"{where}the checkpoint of {lost} is gone, so {flow.name} would bring rows again that "
                f"{table.name} has: restore {case.facts.state}, or {rebuild}"
            )
        return
    identity = _named(known, checkpoint.id)
    if identity is None:
        if flow.name in known:
            refuse(
                f"{where}the checkpoint of {flow.name} isn't the one that {table.name} was filled from: "
                f"restore that one, or {rebuild}"
            )
        return
    for was, is_now in identity.changes(settings(case, flow, table.cdc)):
        refuse(
            f"{where}{flow.name} has filled {table.name} with {was}, and the spec now says {is_now}: put "
            f"that back, or {rebuild}"
        )
    _check_batches(case, table, flow, checkpoint, recorded)


def _lost(case: Case, flow: Flow, known: Mapping[str, FlowIdentity], recorded: Recorded) -> str:
    """Name the flow whose checkpoint is gone and which a flow without a checkpoint is, or may be."""
    here = case.checkpoint_ids()
    gone = {
        name: one
        for name, one in known.items()
        if one.checkpoint not in here
        and name not in case.dataflow.disabled
        and recorded.batches.get(one.checkpoint) != -1
    }
    if flow.name in gone:
        return flow.name
    if any(read.explicit is None for read in case.follows(flow)):
        names = {one.name for one in case.dataflow.flows}
        return next((name for name in gone if name not in names), "")
    return ""


def _check_batches(case: Case, table: Target, flow: Flow, checkpoint: Checkpoint, recorded: Recorded) -> None:
    newest = recorded.batches.get(checkpoint.id)
    if newest is None:
        return
    if checkpoint.offered is None or newest > checkpoint.offered:
        case.refusals.append(
            f"{flow.place}: the checkpoint of {flow.name} is behind {table.name}: it knows of "
            f"{_batch(checkpoint.offered)}, and the table has batch {newest}, so new rows would be "
            "taken for those it has: restore the newer checkpoint, or rebuild the table with --full-refresh "
            f"{case.name}"
        )
    if checkpoint.committed is not None and newest < checkpoint.committed:
        case.refusals.append(
            f"{flow.place}: the checkpoint of {flow.name} is ahead of {table.name}: it has done "
            f"{_batch(checkpoint.committed)}, and the table has {_batch(newest)}, so rows are "
            f"missing: restore the newer table, or rebuild it with --full-refresh {case.name}"
        )


def _batch(number: int | None) -> str:
    return "no batch" if number is None or number < 0 else f"batch {number}"


def _named(flows: Mapping[str, FlowIdentity], checkpoint: str) -> FlowIdentity | None:
    """Find the flow that goes on from a checkpoint, whatever it was called then."""
    return next((one for one in flows.values() if one.checkpoint == checkpoint), None)
