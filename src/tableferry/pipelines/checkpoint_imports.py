"""Decides which old stream's checkpoint each flow of a pipeline on Databricks imports, and what hinders it.

A table that a pipeline takes over isn't copied: the pipeline has it as an ordinary managed table
(``create_table``), and its flows go on from the old streams' checkpoints (``import_checkpoint``). Such a
checkpoint has a place for each source of its query, so that only a flow with that one source surely has it at
the same place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tableferry.pipelines import topics
from tableferry.pipelines.flows import DeltaSource, Flow, OtherSource
from tableferry.pipelines.planning_context import Findings, PlanningContext, noted, refused
from tableferry.pipelines.plans import NoHandOver, OldCheckpoint
from tableferry.pipelines.reads import Read
from tableferry.pipelines.resets import RESET_ALLOWED, allowed

_INSTEAD = "run the project with the streaming engine (tableferry pipelines run), or set mode to copy"
NOT_IN_SPARKS_OWN = (
    "mode takeOver goes on in the table itself, and a pipeline of Spark's own fills none but its own "
    f"(it has no create_table and no import_checkpoint): {_INSTEAD}"
)


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
        return Matches({}, refused(f"{context.migration.location}: {old.why}"))
    by_flow: dict[str, OldCheckpoint] = {}
    findings = Findings()
    for flow in context.dataflow.streaming_flows:
        found = _checkpoint_of(context, flow, old)
        if isinstance(found, OldCheckpoint):
            by_flow[flow.name] = found
        else:
            findings += refused(f"{flow.location}: {found}")
    if not findings:
        findings += _check_each_once(context, by_flow, old)
    return Matches(by_flow, findings)


def check_new(context: PlanningContext, matches: Matches) -> Findings:
    """Refuse a flow that the pipeline has run already, for which it imports nothing."""
    return refused(
        *(
            f"{flow.location}: the pipeline has run {flow.name} before, and imports a checkpoint only for a "
            "flow that has none: give it another name"
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
            f"{context.dataflow.target.location}: {context.target} has {RESET_ALLOWED}=true, and a full "
            "refresh would drop rows of the old streams that nothing brings again: take that out"
        )
    start = context.migration_start
    old = context.facts.old_checkpoints.get(context.target.key, ())
    if not imports(context) or start is None or isinstance(old, NoHandOver):
        return findings
    location = context.migration.location if context.migration else ""
    if missing := start.batches.keys() - {checkpoint.query for checkpoint in old}:
        findings += refused(
            f"{location}: the checkpoint of the query {', '.join(sorted(missing))}, from which "
            f"{context.target} was taken over, isn't in checkpointLocation any more: name it again until the "
            "migration is finished"
        )
    writes = context.facts.legacy_writes.get(context.target.key)
    since = f", from version {writes.first} of the table on" if writes and writes.first is not None else ""
    for checkpoint in old:
        if checkpoint.batch <= (taken := start.batches.get(checkpoint.query, checkpoint.batch)):
            continue
        findings += refused(
            f"{context.target}: its old stream has gone on since it was taken over ({checkpoint.folder} is "
            f"at batch {checkpoint.batch}, and was taken over at {taken}{since}), so rows may be there "
            "twice, or be missing: stop it; where the pipeline hasn't run its flows yet, `tableferry "
            "pipelines undo --engine databricks`, then prepare; else correct the rows by hand, and finish "
            "the migration"
        )
    return findings


def sure(context: PlanningContext, matches: Matches) -> Findings:
    """Say what is done, what isn't known of it, and what there is to do before."""
    findings = noted(
        *(
            f"{name} goes on from batch {old.batch} of {old.folder}, which the pipeline imports when it runs "
            "the flow for the first time: stop the old stream before, and keep that folder until the "
            "migration is finished"
            for name, old in matches.by_flow.items()
        ),
        f"{context.target} becomes a managed table of the pipeline (create_table, which is Beta): that its "
        "rows stay then is written nowhere and was not run on Databricks, so try it with a clone of the "
        "table and a copy of the checkpoint first",
    )
    for flow in context.dataflow.streaming_flows:
        for read in context.follows(flow):
            source, folder = _other_source(context, read), matches.by_flow[flow.name].folder
            if source and read.kafka is None:
                findings += noted(
                    f"nothing in {folder} shows that its stream reads what {read.view} does: make sure"
                )
    return findings


def _checkpoint_of(context: PlanningContext, flow: Flow, old: Sequence[OldCheckpoint]) -> OldCheckpoint | str:
    """Return a flow's checkpoint, or why it has none that is surely its own."""
    if context.dataflow.views[flow.view].mode == "batch":
        return f"{flow.view} is read as a batch: make it a stream (in SQL: STREAM(table)), or set once for it"
    reads = context.follows(flow)
    if len(reads) != 1:
        return (
            f"{flow.name} reads {len(reads)} sources, and a checkpoint has them in the order of the old "
            f"stream's query, which a flow needn't have: make it a flow for each source, or {_INSTEAD}"
        )
    (read,) = reads
    source = _other_source(context, read)
    if read.unseen and source is None:
        return f"{read.unseen}, so nobody can say whose checkpoint is its own: {_INSTEAD}"
    if not read.unseen and read.explicit is not None:
        return (
            f"{flow.name} goes on from a checkpoint, and {read.view} says where it starts: take "
            "startingVersion out of readerOptions"
        )
    fitting = [checkpoint for checkpoint in old if _fits(context, read, checkpoint)]
    if not fitting:
        return (
            f"none of the checkpoints is of a stream that reads {_what(read, source)}, so nothing says where "
            f"{flow.name} goes on: add it to checkpointLocation, or correct {flow.view}"
        )
    if len(fitting) > 1:
        folders = " and ".join(checkpoint.folder for checkpoint in fitting)
        return (
            f"{folders} may each be the checkpoint that {flow.name} goes on from, and a flow has one: leave "
            f"one of them, or {_INSTEAD}"
        )
    if fitting[0].sources != 1:
        return (
            f"the stream of {fitting[0].folder} reads {fitting[0].sources} sources, and {flow.name} one, so "
            f"that it would go on elsewhere: {_INSTEAD}"
        )
    offset = next(iter(fitting[0].tables.values()), None)
    if offset is not None and not offset.whole and not _reads_rows(context, read):
        return (
            f"the stream of {fitting[0].folder} stopped within version {offset.version} of {read.table}, and "
            f"{flow.view} may count the rows of a version otherwise: let the old stream take whole versions, "
            "stop it, and run again"
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
                f"{context.migration.location}: {' and '.join(flows)} would both go on from "
                f"{checkpoint.folder}, and bring its rows twice: leave one of them"
            )
        elif not flows:
            findings += refused(
                f"{context.migration.location}: no flow of {context.target} reads what the stream of "
                f"{checkpoint.folder} does, so what comes into that would be missing: add it to the spec, or "
                "leave its checkpoint out"
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
