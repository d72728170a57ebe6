"""Decides which old stream's checkpoint each flow of a pipeline on Databricks imports, and what hinders it.

A table that a pipeline takes over isn't copied: the pipeline has it as an ordinary managed table
(``create_table``), and its flows go on from the old streams' checkpoints (``import_checkpoint``). Such a
checkpoint has a place for each source of its query, so that only a flow with that one source surely has it at
the same place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tableferry.errors import Finding
from tableferry.pipelines import topics
from tableferry.pipelines.flows import DeltaSource, Flow, OtherSource
from tableferry.pipelines.planning_context import Findings, PlanningContext, refused, warned
from tableferry.pipelines.plans import NoHandOver, OldCheckpoint
from tableferry.pipelines.reads import Read
from tableferry.pipelines.resets import RESET_ALLOWED, allowed


@dataclass(frozen=True)
class Matches:
    """The checkpoint that each flow imports, by the flow's name."""

    by_flow: Mapping[str, OldCheckpoint]
    findings: Findings = field(default_factory=Findings)


def is_managed(context: PlanningContext) -> bool:
    """Say whether a pipeline fills the target as a table that was there before it."""
    taken_over = context.migration is not None and context.migration.take_over
    in_databricks = context.request.engine == "databricks"
    return in_databricks and (taken_over or context.stored.taken_over)


def imports(context: PlanningContext) -> bool:
    """Say whether the target's flows import checkpoints; once its migration is finished they have."""
    return is_managed(context) and context.migration is not None


def match(context: PlanningContext) -> Matches:
    """Find the checkpoint of each streaming flow: that of the only stream that reads what it reads."""
    if not imports(context):
        return Matches({})
    assert context.migration is not None
    old = context.facts.old_checkpoints.get(context.target.key, ())
    if isinstance(old, NoHandOver):
        return Matches({}, refused(old.why.at(context.migration.location)))
    by_flow: dict[str, OldCheckpoint] = {}
    findings = Findings()
    for flow in context.dataflow.streaming_flows:
        found = _checkpoint_of(context, flow, old)
        if isinstance(found, OldCheckpoint):
            by_flow[flow.name] = found
        else:
            findings += refused(found.at(flow.location))
    if not findings:
        findings += _check_each_once(context, by_flow, old)
    return Matches(by_flow, findings)


def check_new(context: PlanningContext, matches: Matches) -> Findings:
    """Refuse a flow that the pipeline has run already, for which it imports nothing."""
    return refused(
        *(
            Finding("IMPORTING_FLOW_ALREADY_RAN", location=flow.location, flow=flow.name)
            for flow in context.dataflow.streaming_flows
            if flow.name in matches.by_flow and context.checkpoint(flow).started
        )
    )


def check(context: PlanningContext) -> Findings:
    """Refuse what would lose or double rows of a table that is, or was, taken over by a pipeline."""
    findings = Findings()
    if not is_managed(context):
        return findings
    if allowed(context.dataflow.target):
        findings += refused(
            Finding(
                "RESET_ALLOWED_OF_TAKEN_OVER_TABLE",
                location=context.dataflow.target.location,
                target=context.target,
                property=RESET_ALLOWED,
            )
        )
    start = context.migration_start
    old = context.facts.old_checkpoints.get(context.target.key, ())
    if not imports(context) or start is None or isinstance(old, NoHandOver):
        return findings
    location = context.migration.location if context.migration else ""
    if missing := start.batches.keys() - {checkpoint.query for checkpoint in old}:
        findings += refused(
            Finding(
                "IMPORTED_CHECKPOINT_NOT_NAMED",
                location=location,
                queries=sorted(missing),
                target=context.target,
            )
        )
    writes = context.facts.legacy_writes.get(context.target.key)
    since = f", from version {writes.first} of the table on" if writes and writes.first is not None else ""
    for checkpoint in old:
        if checkpoint.batch <= (taken := start.batches.get(checkpoint.query, checkpoint.batch)):
            continue
        findings += refused(
            Finding(
                "OLD_STREAM_CONTINUED",
                target=context.target,
                folder=checkpoint.folder,
                batch=checkpoint.batch,
                taken=taken,
                since=since,
            )
        )
    return findings


def sure(context: PlanningContext, matches: Matches) -> Findings:
    """Say what is done, what isn't known of it, and what there is to do before."""
    findings = warned(
        *(
            Finding("CHECKPOINT_WILL_BE_IMPORTED", flow=name, batch=old.batch, folder=old.folder)
            for name, old in matches.by_flow.items()
        ),
        Finding("MANAGED_TABLE_IS_BETA", target=context.target),
    )
    for flow in context.dataflow.streaming_flows:
        for read in context.follows(flow):
            source, folder = _other_source(context, read), matches.by_flow[flow.name].folder
            if source and read.kafka is None:
                findings += warned(Finding("IMPORTED_SOURCE_NOT_SHOWN", folder=folder, view=read.view))
    return findings


def _checkpoint_of(
    context: PlanningContext, flow: Flow, old: Sequence[OldCheckpoint]
) -> OldCheckpoint | Finding:
    """Return a flow's checkpoint, or why it has none that is surely its own."""
    if context.dataflow.views[flow.view].mode == "batch":
        return Finding("IMPORTING_VIEW_IS_BATCH", view=flow.view)
    reads = context.follows(flow)
    if len(reads) != 1:
        return Finding("IMPORTING_FLOW_WITH_SEVERAL_SOURCES", flow=flow.name, count=len(reads))
    (read,) = reads
    source = _other_source(context, read)
    if read.unseen and source is None:
        return Finding("IMPORTING_FLOW_WITH_HIDDEN_SOURCE", flow=flow.name, reason=read.unseen.sentence)
    if not read.unseen and read.explicit is not None:
        return Finding("IMPORTING_FLOW_WITH_START", flow=flow.name, view=read.view)
    fitting = [checkpoint for checkpoint in old if _fits(context, read, checkpoint)]
    if not fitting:
        return Finding("NO_CHECKPOINT_FOR_FLOW", source=_what(read, source), flow=flow.name, view=flow.view)
    if len(fitting) > 1:
        folders = [checkpoint.folder for checkpoint in fitting]
        return Finding("SEVERAL_CHECKPOINTS_FOR_FLOW", flow=flow.name, folders=folders)
    if fitting[0].sources != 1:
        return Finding(
            "OLD_STREAM_WITH_SEVERAL_SOURCES",
            folder=fitting[0].folder,
            count=fitting[0].sources,
            flow=flow.name,
        )
    offset = next(iter(fitting[0].tables.values()), None)
    if offset is not None and not offset.whole and not _reads_rows(context, read):
        return Finding(
            "OLD_STREAM_STOPPED_WITHIN_VERSION_OF",
            folder=fitting[0].folder,
            version=offset.version,
            source=read.table,
            view=flow.view,
        )
    return fitting[0]


def _check_each_once(
    context: PlanningContext, by_flow: Mapping[str, OldCheckpoint], old: Sequence[OldCheckpoint]
) -> Findings:
    assert context.migration is not None
    findings = Findings()
    for checkpoint in old:
        flows = [name for name, its in by_flow.items() if its == checkpoint]
        if len(flows) > 1:
            findings += refused(
                Finding(
                    "CHECKPOINT_IMPORTED_TWICE",
                    location=context.migration.location,
                    flows=flows,
                    folder=checkpoint.folder,
                )
            )
        elif not flows:
            findings += refused(
                Finding(
                    "OLD_STREAM_NOT_FOLLOWED",
                    location=context.migration.location,
                    target=context.target,
                    folder=checkpoint.folder,
                )
            )
    return findings


def _fits(context: PlanningContext, read: Read, old: OldCheckpoint) -> bool:
    """Say whether a flow's source is, as far as a checkpoint shows it, one of its stream's."""
    if not read.unseen:
        return _table_id(context, read) in old.tables
    source = _other_source(context, read)
    if source is None or len(old.tables) == old.sources:
        return False
    if read.kafka is None:
        return len(old.kafka) < old.sources - len(old.tables)
    return any(topics.subscribes(read.kafka, offset) for offset in old.kafka.values())


def _table_id(context: PlanningContext, read: Read) -> str:
    """Return the id of a table, which a pipeline that is being defined may not tell, as it was recorded."""
    if baseline := context.baseline(read):
        return baseline.table_id
    source = context.facts.tables.get(read.table.key)
    return source.table_id if source else ""


def _other_source(context: PlanningContext, read: Read) -> OtherSource | None:
    view = context.dataflow.views.get(read.view)
    return view.source if view and isinstance(view.source, OtherSource) else None


def _reads_rows(context: PlanningContext, read: Read) -> bool:
    source = context.dataflow.views[read.view].source
    return isinstance(source, DeltaSource) and not source.change_feed


def _what(read: Read, source: OtherSource | None) -> str:
    return f"what {read.view} does ({source.format})" if source else str(read.table)
