"""Decides where each flow stands: it starts, goes on, has nothing new, or is left out until ready."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from tableferry.amounts import counted
from tableferry.errors import Finding
from tableferry.pipelines.model import topics
from tableferry.pipelines.model.facts import Checkpoint
from tableferry.pipelines.model.flows import DataFlow, Flow
from tableferry.pipelines.model.identities import FlowIdentity
from tableferry.pipelines.model.plan import FlowPlan, Wait
from tableferry.pipelines.model.reads import Read
from tableferry.pipelines.model.source_offsets import KafkaOffset
from tableferry.pipelines.model.steps import RenameFlow, Start
from tableferry.pipelines.model.target_state import Baseline, Stored
from tableferry.pipelines.planning.baseline import check_broker_range
from tableferry.pipelines.planning.context import (
    Findings,
    PlanningContext,
    add_note,
    plan_steps,
    refuse,
    refuse_all,
    warn,
)
from tableferry.spark.tables import TableFacts, TableName


@dataclass(frozen=True)
class _Position:
    """Where a flow stands in one of the tables that it follows.

    Attributes:
        ready: The flow can read it now.
        has_new_commits: It may have commits that the flow hasn't taken.
        starts: Where the stream starts, by the table's key; None goes on from the checkpoint.
        empty: It has no commit yet where the flow is to start.
        seed: Where within a commit the flow starts, as Spark writes it.
    """

    read: Read
    ready: bool = False
    has_new_commits: bool = False
    starts: Mapping[str, Start | None] = field(default_factory=dict)
    wait: Wait | None = None
    commit_wait: Wait | None = None
    seed: str = ""


def plan_flows(context: PlanningContext) -> tuple[tuple[FlowPlan, ...], Findings]:
    """Decide what happens to each flow of a target."""
    findings = (
        Findings()
        if context.fills_new_generation or context.request.in_pipeline
        else _continue_renamed_flows(context)
    )
    plans = []
    for flow in _sort_flows(context):
        checkpoint = Checkpoint() if context.fills_new_generation else context.find_checkpoint(flow)
        plan, new = _plan_flow(context, flow, checkpoint)
        if not flow.once and plan.action in ("start", "continue"):
            context = replace(context, filling=context.filling | {flow.target.key})
        plans.append(plan)
        findings += new
    return tuple(plans), findings


def _continue_renamed_flows(context: PlanningContext) -> Findings:
    """Let each flow that has another name now go on from the checkpoint that it had under the old one."""
    findings = Findings()
    continued: dict[str, str] = {}
    for flow in context.dataflow.flows:
        findings += context.check_ambiguous_rename(flow) + context.check_repeated_read(flow)
        old = context.find_old_name(flow)
        if old in continued:
            findings += refuse(
                "RENAMED_FLOW_CONTINUED_TWICE",
                location=flow.location,
                flow=flow.name,
                other=continued[old],
                old=old,
            )
        elif old:
            continued[old] = flow.name
            findings += plan_steps(RenameFlow(context.target, context.generation, old, flow.name))
    return findings


def _plan_flow(context: PlanningContext, flow: Flow, checkpoint: Checkpoint) -> tuple[FlowPlan, Findings]:
    in_pipeline, started = context.request.in_pipeline, checkpoint.started
    if flow.once:
        return FlowPlan(flow, "done" if checkpoint.done and not in_pipeline else "start"), Findings()
    if context.dataflow.views[flow.view].mode == "batch":
        return FlowPlan(flow, "wait"), refuse("FLOW_READS_BATCH", location=flow.location, view=flow.view)
    findings = Findings()
    positions = []
    for read in context.list_reads(flow):
        position, new = _find_position(context, read, checkpoint)
        positions.append(position)
        findings += new
        if position.ready:
            findings += _check_row_changes(context, flow, read)
    starts: dict[str, dict[str, Start | None]] = {}
    for position in positions:
        if position.starts:
            starts.setdefault(position.read.view, {}).update(position.starts)
    waits = [position.wait for position in positions if position.wait]
    empty = [position.commit_wait for position in positions if position.commit_wait]
    ready = started or any(position.ready for position in positions)
    if empty and (in_pipeline or not ready):
        # A pipeline can't start a source where there is no commit yet.
        waits = [*empty, *waits]
    if not started and context.migration and not waits:
        waits += _list_unrecorded_readers(context)
    if in_pipeline and not started:
        findings += _check_renamed_in_pipeline(context, flow)
    if in_pipeline and context.migration and not context.is_copied:
        # Only while nothing but the copy flows can the target be compared with the legacy table.
        waits.append(
            Wait(
                context.migration.table,
                None,
                None,
                Finding("LEGACY_TABLE_NOT_COPIED", source=context.migration.table),
            )
        )
    if waits:
        return FlowPlan(flow, "wait", starts, tuple(waits)), findings
    if (
        started
        and not checkpoint.pending
        and not in_pipeline
        and not any(position.has_new_commits for position in positions)
    ):
        return FlowPlan(flow, "idle", starts), findings
    if empty and not started:
        tables = ", ".join(str(wait.table) for wait in empty)
        findings += add_note(
            f"{flow.name} begins without {tables}, which has no commit after its baseline yet"
        )
    action: Literal["continue", "start"] = "continue" if started else "start"
    seed = "".join(position.seed for position in positions)
    return FlowPlan(flow, action, starts, ahead=bool(empty), seed=seed), findings


def _check_row_changes(context: PlanningContext, flow: Flow, read: Read) -> Findings:
    """Refuse a flow whose source has deleted or changed rows since the flow's position.

    Delta's stream of a table's rows fails at such a commit, unless reader options skip it.
    """
    change = context.facts.row_changes.get((context.target.key, flow.name, read.table.key))
    if change is None:
        return Findings()
    return refuse(
        "SOURCE_ROWS_CHANGED",
        location=read.location,
        flow=flow.name,
        source=read.table,
        version=change.version,
        operation=change.operation,
        rows="rows" if change.rows is None else counted(change.rows, "row"),
        next=change.version + 1,
    )


def _no_such_source(read: Read) -> Findings:
    return refuse("SOURCE_TABLE_MISSING", location=read.location, source=read.table)


def _find_position(
    context: PlanningContext, read: Read, checkpoint: Checkpoint
) -> tuple[_Position, Findings]:
    started = checkpoint.started
    if read.unseen:
        baseline = context.find_baseline(read)
        if baseline is None or (started and not context.request.in_pipeline):
            continues = started and read.without_versions
            goes_on: dict[str, Start | None] = {read.table.key: None} if continues else {}
            return _Position(read, ready=True, has_new_commits=True, starts=goes_on), Findings()
        return _find_kafka_position(context, read, baseline, started=started)
    source = context.facts.tables.get(read.table.key)
    if source is None and read.table.key not in context.producers:
        return _Position(read), _no_such_source(read)
    if source is None and not started and read.table.key not in context.filling:
        wait = Wait(read.table, None, None, Finding("SOURCE_NOT_CREATED", source=read.table))
        return _Position(read, wait=wait), Findings()
    if source and (recreated := _check_recreated(context, read, source, checkpoint)):
        return _Position(read), recreated
    start, findings = _find_start(context, read, source, started=started)
    continues = not context.request.in_pipeline and _can_resume_without_start(
        context, read, source, checkpoint, start
    )
    baseline = context.find_baseline(read)
    seed = baseline.within if baseline and not started and read.explicit is None else ""
    starts = {} if start is None else {read.table.key: None if continues or seed else start}
    if source and isinstance(start, int) and not checkpoint.has_read(source):
        if source.version < start:
            why = Finding("SOURCE_AT_BASELINE", source=read.table, version=source.version)
            wait = Wait(read.table, start - 1, source.version, why)
            return _Position(read, starts=starts, commit_wait=wait), findings
        findings += _check_readable(context, read, start)
    has_new_commits = source is None or _has_new_commits(context, read, source, checkpoint)
    return _Position(read, ready=True, has_new_commits=has_new_commits, starts=starts, seed=seed), findings


def _find_kafka_position(
    context: PlanningContext, read: Read, baseline: Baseline, *, started: bool
) -> tuple[_Position, Findings]:
    """Start where the old stream stopped: by a checkpoint, or, in a pipeline, by ``startingOffsets``."""
    position = _Position(read, ready=True, has_new_commits=True)
    if context.request.in_pipeline:
        position = replace(position, starts={read.table.key: baseline.within})
    else:
        position = replace(position, seed=baseline.within, starts={read.table.key: None})
    if started:
        return position, Findings()
    findings = Findings()
    if read.kafka is not None and topics.gives_start(read.kafka):
        findings += add_note(
            f"{read.view} goes on at the old stream's offsets, whatever its startingOffsets say"
        )
    held = context.facts.brokers.get(read.table.key)
    if held is None:
        return position, findings
    if isinstance(held, Finding):
        return position, findings + refuse_all([held.at(read.location)])
    return position, findings + check_broker_range(read, KafkaOffset.parse(baseline.within), held)


def _check_renamed_in_pipeline(context: PlanningContext, flow: Flow) -> Findings:
    """Refuse a flow that a pipeline would read from its start, if it may be a renamed flow."""
    ran = context.stored.tracking.started if context.stored.tracking else ()
    if context.stored.finished:
        # The finish removed the tracking.
        ran = tuple(dict.fromkeys(name for _, name, _ in _list_recorded_flows(context)))
    in_spec = {flow.name for flow in context.dataflow.flows} | context.dataflow.disabled
    gone = [name for name in ran if name not in in_spec]
    if not gone or flow.name in ran:
        return Findings()
    is_given = all(read.explicit is not None for read in context.list_reads(flow))
    if is_given or context.stored.finished:
        gone = [name for name in gone if _can_have_read(context, flow, name)]
        if not gone:
            return Findings()
    return refuse("PIPELINE_FLOW_RENAMED", location=flow.location, flow=flow.name, gone=gone, first=gone[0])


def _can_have_read(context: PlanningContext, flow: Flow, gone: str) -> bool:
    """Return whether a flow that the spec no longer has may have read a source of this flow into its table.

    It can't be determined while a pipeline is defined, which is after `prepare` has checked it.
    """
    reads = context.list_reads(flow)
    sources = (context.facts.tables.get(read.table.key) for read in reads if not read.unseen)
    ids = {source.table_id for source in sources if source}
    is_unseen = any(read.unseen for read in reads)
    if "" in ids:
        return False
    for table, name, identity in _list_recorded_flows(context):
        if name == gone:
            of_tables = set(identity.sources.values())
            same_source = bool(ids & of_tables) or (is_unseen and not of_tables)
            return table.key == flow.target.key and same_source
    # An earlier release recorded no sources.
    return bool(ids) or is_unseen


def _list_recorded_flows(context: PlanningContext) -> Iterator[tuple[TableName, str, FlowIdentity]]:
    """Yield the flows that `prepare` recorded, with the tables that they fill."""
    for table in context.dataflow.tables:
        recorded = context.facts.recorded.get(table.name.key)
        if recorded and recorded.in_state:
            for name, identity in recorded.in_state.flows.items():
                yield table.name, name, identity


def _has_new_commits(
    context: PlanningContext, read: Read, source: TableFacts, checkpoint: Checkpoint
) -> bool:
    offset = checkpoint.offsets.get(source.table_id)
    passed = offset is not None and offset.whole and source.version < offset.version
    return not passed or read.table.key in context.filling


def _sort_flows(context: PlanningContext) -> Iterable[Flow]:
    """Order flows so that staging tables are filled before they are read."""
    into: dict[str, list[tuple[DataFlow, Flow]]] = {}
    for flow in context.dataflow.flows:
        into.setdefault(flow.target.key, []).append((context.dataflow, flow))
    return [flow for key in context.facts.in_order(into) for _, flow in into[key]]


def _check_recreated(
    context: PlanningContext, read: Read, source: TableFacts, checkpoint: Checkpoint
) -> Findings:
    if not source.table_id:
        return Findings()
    baseline = context.find_baseline(read)
    recreated = (
        baseline.table_id != source.table_id
        if baseline
        else checkpoint.offsets and not checkpoint.others and source.table_id not in checkpoint.offsets
    )
    if not recreated:
        return Findings()
    return refuse(
        "SOURCE_RECREATED", location=read.location, source=read.table, target=context.target, how=read.how
    )


def _find_start(
    context: PlanningContext, read: Read, source: TableFacts | None, *, started: bool
) -> tuple[Start | None, Findings]:
    """Return where a stream starts; None where it starts at the table's own start."""
    migration, baseline = context.migration, context.find_baseline(read)
    if read.explicit == "latest":
        if baseline is None:
            return None, refuse("START_LATEST_WITHOUT_BASELINE", location=read.location)
        note = f"{read.view} starts behind the baseline of {read.table}, the latest then"
        return baseline.version + 1, add_note(note)
    if read.explicit is not None:
        note = f"{read.view} starts at {read.explicit} of {read.table}, as the spec says"
        return read.explicit, add_note(note)
    if migration is None or context.is_own_table(read):
        return None, Findings()
    if migration.auto_starting_versions and baseline is not None:
        return baseline.version + 1, Findings()
    if started or source is None:
        return None, Findings()
    if migration.auto_starting_versions:
        return None, refuse(
            "SOURCE_ADDED_AFTER_BASELINE",
            location=read.location,
            source=read.table,
            target=context.target,
            how=read.how,
        )
    rows = context.facts.rows.get(read.table.key)
    size = counted(source.version + 1, "commit") + (f", {rows:,} rows" if rows is not None else "")
    return None, warn("SOURCE_READ_FROM_START", view=read.view, source=read.table, size=size, how=read.how)


def _can_resume_without_start(
    context: PlanningContext,
    read: Read,
    source: TableFacts | None,
    checkpoint: Checkpoint,
    start: Start | None,
) -> bool:
    """Say whether a stream needs no start, which Spark would look for in a log that is cleaned by now.

    Before the second batch it asks for the first one again, which it knows by its start alone; without one it
    would read the whole table instead.
    """
    if source is not None and not checkpoint.has_read(source):
        return False
    if checkpoint.committed == 0 and isinstance(start, int):
        return context.facts.earliest.get(read.table.key, 0) > start
    return checkpoint.started


def _check_readable(context: PlanningContext, read: Read, start: int) -> Findings:
    earliest = context.facts.earliest.get(read.table.key, 0)
    if earliest <= start:
        return Findings()
    return refuse(
        "BASELINE_NOT_READABLE",
        location=read.location,
        source=read.table,
        version=start,
        earliest=earliest,
        how=read.how,
    )


def _list_unrecorded_readers(context: PlanningContext) -> Sequence[Wait]:
    """Wait until the migrations that read this target have recorded their starts."""
    if context.is_copied:
        return ()
    return [
        Wait(reader.target.name, None, None, Finding("READER_NOT_RECORDED", source=reader.target.name))
        for reader in context.list_readers()
        if reader.migration
        and reader.migration.auto_starting_versions
        and not context.facts.stored.get(reader.key, Stored()).migration_start
    ]
