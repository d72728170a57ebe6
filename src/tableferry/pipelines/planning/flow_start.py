"""Plan each flow of a target: start, continue, leave idle, or leave out until its sources are ready."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from tableferry.amounts import counted
from tableferry.errors import Finding
from tableferry.pipelines.model import topics
from tableferry.pipelines.model.facts import Checkpoint
from tableferry.pipelines.model.flows import DataFlow, Flow, Start
from tableferry.pipelines.model.identities import FlowIdentity
from tableferry.pipelines.model.phases import Action
from tableferry.pipelines.model.reads import Read
from tableferry.pipelines.model.steps import PlannedFlow, RenameFlow, SourceWait
from tableferry.pipelines.model.target_state import Baseline, TargetState
from tableferry.pipelines.model.topics import KafkaOffset
from tableferry.pipelines.planning.baseline import check_broker_range
from tableferry.pipelines.planning.context import Findings, PlanningContext, add_note, plan_steps, refuse_all
from tableferry.pipelines.planning.identity import find_unrecorded_settings
from tableferry.spark.tables import TableFacts


@dataclass(frozen=True)
class _Position:
    """The position of a flow in one of its sources.

    Attributes:
        ready: The flow can read the source now.
        has_new_commits: The source may have commits that the flow hasn't processed.
        starts: The start of the stream by table key; None resumes from the checkpoint.
        wait: The reason why the flow can't start.
        commit_wait: The wait for the source's first commit after the baseline.
        seed: The offset within a commit at which the flow starts, as Spark writes it.
    """

    read: Read
    ready: bool = False
    has_new_commits: bool = False
    starts: Mapping[str, Start | None] = field(default_factory=dict)
    wait: SourceWait | None = None
    commit_wait: SourceWait | None = None
    seed: str = ""


def plan_flows(context: PlanningContext) -> tuple[tuple[PlannedFlow, ...], Findings]:
    """Plan the flows of a target, in the order in which they run."""
    findings = (
        Findings()
        if context.fills_new_generation or context.request.in_pipeline
        else _continue_renamed_flows(context)
    )
    plans = []
    for flow in _sort_flows(context):
        checkpoint = Checkpoint() if context.fills_new_generation else context.find_checkpoint(flow)
        plan, new = _plan_flow(context, flow, checkpoint)
        if not flow.once and plan.is_running:
            context = replace(context, filling=context.filling | {flow.target.key})
        plans.append(plan)
        findings += new
    return tuple(plans), findings


def _continue_renamed_flows(context: PlanningContext) -> Findings:
    """Plan that each renamed flow resumes from the checkpoint that it has under its old name."""
    findings = Findings()
    continued: dict[str, str] = {}
    for flow in context.dataflow.flows:
        findings += context.check_ambiguous_rename(flow) + context.check_repeated_read(flow)
        old = context.find_old_name(flow)
        if old in continued:
            findings += context.refuse(
                "RENAMED_FLOW_CONTINUED_TWICE", flow=flow, other=continued[old], old=old
            )
        elif old:
            continued[old] = flow.name
            findings += plan_steps(RenameFlow(context.target, context.generation, old, flow.name))
    return findings


def _plan_flow(context: PlanningContext, flow: Flow, checkpoint: Checkpoint) -> tuple[PlannedFlow, Findings]:
    """Return whether a flow starts, continues, is idle, waits or is done, and where its streams start.

    Rule 3: Omit, never gate. A new flow is left out of the run while it can't start. Reading an empty view
    (``WHERE 1=0``) instead would move the stream past rows that it never wrote. One source with a commit
    after its baseline is enough; in a pipeline, each source needs one. A missing source, an uncopied legacy
    table, and a reader without a recorded start also keep a flow waiting.
    """
    in_pipeline, started = context.request.in_pipeline, checkpoint.has_started
    planned = partial(
        PlannedFlow,
        flow,
        context.find_table(flow),
        context.target,
        context.generation,
        streamed=not flow.once,
    )
    if flow.once:
        action: Action = "done" if checkpoint.done and not in_pipeline else "start"
        return planned(action), Findings()
    if context.dataflow.views[flow.view].mode == "batch":
        return planned("wait"), context.refuse("FLOW_READS_BATCH", location=flow.location, view=flow.view)
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
    commit_waits = [position.commit_wait for position in positions if position.commit_wait]
    ready = started or any(position.ready for position in positions)
    if commit_waits and (in_pipeline or not ready):
        # A pipeline can't start a stream at a version that doesn't exist yet.
        waits = [*commit_waits, *waits]
    if not started and context.migration and not waits:
        waits += _list_unrecorded_readers(context)
    if in_pipeline and not started:
        findings += _check_renamed_in_pipeline(context, flow)
    if in_pipeline and context.migration and not context.is_copied:
        # The target equals the legacy table only until the first live flow starts.
        legacy = context.migration.table
        waits.append(SourceWait(legacy, Finding("LEGACY_TABLE_NOT_COPIED", source=legacy)))
    if waits:
        return planned("wait", starts=starts, waits=tuple(waits)), findings
    has_work = checkpoint.has_pending_batch or any(position.has_new_commits for position in positions)
    if started and not in_pipeline and not has_work:
        return planned("idle", starts=starts), findings
    if commit_waits and not started:
        tables = ", ".join(str(wait.table) for wait in commit_waits)
        findings += add_note(
            f"{flow.name} begins without {tables}, which has no commit after its baseline yet"
        )
    plan = planned(
        "continue" if started else "start",
        starts=starts,
        starts_ahead=bool(commit_waits),
        start_offset="".join(position.seed for position in positions),
        unrecorded_settings=find_unrecorded_settings(context, flow),
    )
    return plan, findings


def _check_row_changes(context: PlanningContext, flow: Flow, read: Read) -> Findings:
    """Refuse a flow whose source has deleted or changed rows after the flow's position.

    A Delta stream fails at such a commit, unless reader options skip it.
    """
    change = context.facts.row_changes.get((context.target.key, flow.name, read.table.key))
    if not change:
        return Findings()
    return context.refuse(
        "SOURCE_ROWS_CHANGED",
        source=read,
        flow=flow,
        version=change.version,
        operation=change.operation,
        rows="rows" if change.rows is None else counted(change.rows, "row"),
        next=change.version + 1,
    )


def _find_position(
    context: PlanningContext, read: Read, checkpoint: Checkpoint
) -> tuple[_Position, Findings]:
    started = checkpoint.has_started
    if read.unmanaged:
        baseline = context.find_baseline(read)
        if not baseline or (started and not context.request.in_pipeline):
            resumes = started and read.is_versionless
            resumed: dict[str, Start | None] = {read.table.key: None} if resumes else {}
            return _Position(read, ready=True, has_new_commits=True, starts=resumed), Findings()
        return _find_kafka_position(context, read, baseline, started=started)
    source = context.facts.tables.get(read.table.key)
    if not source and read.table.key not in context.producers:
        return _Position(read), context.refuse("SOURCE_TABLE_MISSING", source=read)
    if not source and not started and read.table.key not in context.filling:
        wait = SourceWait(read.table, Finding("SOURCE_NOT_CREATED", source=read.table))
        return _Position(read, wait=wait), Findings()
    if source and (recreated := _check_recreated(context, read, source, checkpoint)):
        return _Position(read), recreated
    start, findings = _find_start(context, read, source, started=started)
    resumes = not context.request.in_pipeline and _can_resume_without_start(
        context, read, source, checkpoint, start
    )
    baseline = context.find_baseline(read)
    seed = baseline.within if baseline and not started and read.explicit is None else ""
    starts = {} if start is None else {read.table.key: None if resumes or seed else start}
    if source and isinstance(start, int) and not checkpoint.has_read(source):
        if source.version < start:
            why = Finding("SOURCE_AT_BASELINE", source=read.table, version=source.version)
            wait = SourceWait(read.table, why, start - 1, source.version)
            return _Position(read, starts=starts, commit_wait=wait), findings
        findings += _check_readable(context, read, start)
    offset = checkpoint.offsets.get(source.table_id) if source else None
    is_processed = source and offset and offset.whole and source.version < offset.version
    has_new_commits = not is_processed or read.table.key in context.filling
    return _Position(read, ready=True, has_new_commits=has_new_commits, starts=starts, seed=seed), findings


def _find_kafka_position(
    context: PlanningContext, read: Read, baseline: Baseline, *, started: bool
) -> tuple[_Position, Findings]:
    """Start at the old stream's offsets: from a checkpoint, or in a pipeline from ``startingOffsets``."""
    position = _Position(read, ready=True, has_new_commits=True)
    if context.request.in_pipeline:
        position = replace(position, starts={read.table.key: baseline.within})
    else:
        position = replace(position, seed=baseline.within, starts={read.table.key: None})
    if started:
        return position, Findings()
    findings = Findings()
    if read.kafka is not None and topics.has_start(read.kafka):
        findings += add_note(f"{read.view} starts at the old stream's offsets, not at its startingOffsets")
    available = context.facts.brokers.get(read.table.key)
    if not available:
        return position, findings
    if isinstance(available, Finding):
        return position, findings + refuse_all([available.at(read.location)])
    return position, findings + check_broker_range(
        context, read, KafkaOffset.parse(baseline.within), available
    )


def _check_renamed_in_pipeline(context: PlanningContext, flow: Flow) -> Findings:
    """Refuse a flow that a pipeline would start, if the flow could be a renamed one that has run."""
    recorded: dict[str, tuple[str, FlowIdentity]] = {}
    for table, evidence in context.list_recorded_tables():
        for name, known in evidence.state_identity.flows.items() if evidence.state_identity else ():
            recorded.setdefault(name, (table.name.key, known))
    ran = context.stored.tracking.started if context.stored.tracking else ()
    if context.stored.finished:
        # The finish removed the tracking.
        ran = tuple(recorded)
    in_spec = {flow.name for flow in context.dataflow.flows} | context.dataflow.disabled
    gone = [name for name in ran if name not in in_spec]
    if context.stored.finished or all(read.explicit is not None for read in context.list_reads(flow)):
        gone = [name for name in gone if _can_have_read(context, flow, recorded.get(name))]
    if not gone or flow.name in ran:
        return Findings()
    return context.refuse("PIPELINE_FLOW_RENAMED", flow=flow, gone=gone, first=gone[0])


def _can_have_read(context: PlanningContext, flow: Flow, recorded: tuple[str, FlowIdentity] | None) -> bool:
    """Return whether a removed flow could have read a source of this flow into the same table.

    A pipeline that loads its files doesn't know the ids of tables; `prepare` has made this check before it.
    ``recorded`` is the key of the removed flow's table, and its identity. An older version of Tableferry
    recorded neither.
    """
    reads = context.list_reads(flow)
    sources = (context.facts.tables.get(read.table.key) for read in reads if not read.unmanaged)
    ids = {source.table_id for source in sources if source}
    is_unseen = any(read.unmanaged for read in reads)
    if "" in ids:
        return False
    if recorded is None:
        return bool(ids) or is_unseen
    table, identity = recorded
    old_ids = set(identity.sources.values())
    return table == flow.target.key and (bool(ids & old_ids) or (is_unseen and not old_ids))


def _sort_flows(context: PlanningContext) -> Iterable[Flow]:
    """Order flows so that a staging table is filled before a flow reads it."""
    into: dict[str, list[tuple[DataFlow, Flow]]] = {}
    for flow in context.dataflow.flows:
        into.setdefault(flow.target.key, []).append((context.dataflow, flow))
    return [flow for key in context.facts.order_tables(into) for _, flow in into[key]]


def _check_recreated(
    context: PlanningContext, read: Read, source: TableFacts, checkpoint: Checkpoint
) -> Findings:
    if not source.table_id:
        return Findings()
    baseline = context.find_baseline(read)
    recreated = (
        baseline.table_id != source.table_id
        if baseline
        else checkpoint.offsets
        and not checkpoint.has_untracked_sources
        and source.table_id not in checkpoint.offsets
    )
    if not recreated:
        return Findings()
    return context.refuse("SOURCE_RECREATED", source=read)


def _find_start(
    context: PlanningContext, read: Read, source: TableFacts | None, *, started: bool
) -> tuple[Start | None, Findings]:
    """Return the start of a stream; None reads the whole source.

    Rule 6: The user's options stay. An explicit start has priority over the baseline, and a note reports it.
    A source that was added after the baseline needs an explicit start.
    """
    migration, baseline = context.migration, context.find_baseline(read)
    if read.explicit == "latest":
        if not baseline:
            return None, context.refuse("START_LATEST_WITHOUT_BASELINE", location=read.location)
        note = f"{read.view} starts after the baseline of {read.table}, which was its latest version"
        return baseline.version + 1, add_note(note)
    if read.explicit is not None:
        note = f"{read.view} starts at {read.explicit} of {read.table}, as the spec states"
        return read.explicit, add_note(note)
    if not migration or context.is_own_table(read):
        return None, Findings()
    if migration.auto_starting_versions and baseline:
        return baseline.version + 1, Findings()
    if started or not source:
        return None, Findings()
    if migration.auto_starting_versions:
        return None, context.refuse("SOURCE_ADDED_AFTER_BASELINE", source=read)
    rows = context.facts.rows.get(read.table.key)
    size = counted(source.version + 1, "commit") + (f", {rows:,} rows" if rows is not None else "")
    return None, context.warn("SOURCE_READ_FROM_START", view=read.view, source=read, size=size)


def _can_resume_without_start(
    context: PlanningContext,
    read: Read,
    source: TableFacts | None,
    checkpoint: Checkpoint,
    start: Start | None,
) -> bool:
    """Return whether a stream resumes from its checkpoint alone.

    Spark searches for a given start in the log, which can be cleaned by then. Until the second batch Spark
    still needs the start, because it would read the whole table without it.
    """
    if source and not checkpoint.has_read(source):
        return False
    if checkpoint.committed == 0 and isinstance(start, int):
        return context.facts.earliest.get(read.table.key, 0) > start
    return checkpoint.has_started


def _check_readable(context: PlanningContext, read: Read, start: int) -> Findings:
    """Refuse a start at a version that the source can't be read from.

    Rule 7: Versions can vanish. If the log of the version after the baseline was cleaned, or the source was
    recreated (`_check_recreated`), the plan refuses and states how to continue.
    """
    earliest = context.facts.earliest.get(read.table.key, 0)
    if earliest <= start:
        return Findings()
    return context.refuse("BASELINE_NOT_READABLE", source=read, version=start, earliest=earliest)


def _list_unrecorded_readers(context: PlanningContext) -> Sequence[SourceWait]:
    """Wait until the migrations that read this target have recorded their starts."""
    if context.is_copied:
        return ()
    return [
        SourceWait(reader.target.name, Finding("READER_NOT_RECORDED", source=reader.target.name))
        for reader in context.list_readers()
        if reader.migration
        and reader.migration.auto_starting_versions
        and not context.facts.states.get(reader.key, TargetState()).migration_start
    ]
