"""Decides where each live flow stands: it starts, goes on, has nothing new, or is left out until ready."""

from __future__ import annotations

from collections.abc import Iterable

from tableferry.pipelines.cases import Case
from tableferry.pipelines.flows import DataFlow, Flow, Migration
from tableferry.pipelines.plans import Checkpoint, FlowPlan, Wait
from tableferry.pipelines.reads import Read
from tableferry.pipelines.state import Baseline, MigrationStart, Stored
from tableferry.pipelines.steps import RenameFlow, Start
from tableferry.tables import TableFacts


def flow_plans(
    case: Case, migration: Migration | None, migration_start: MigrationStart | None, generation: int
) -> tuple[FlowPlan, ...]:
    """Decide what happens to each flow of a target.

    Args:
        case: The target.
        migration: Its migration, unless there is none or it's finished.
        migration_start: Where the migration begins.
        generation: The generation that the flows fill.
    """
    fresh = generation != case.stored.generation or case.stored.resetting
    if not fresh and not case.request.in_pipeline:
        _rename(case, generation)
    return tuple(_flow_plan(case, flow, migration, migration_start, fresh=fresh) for flow in _in_order(case))


def _rename(case: Case, generation: int) -> None:
    continued: dict[str, str] = {}
    for flow in case.dataflow.flows:
        if case.facts.checkpoints.get((case.name.key, flow.name), Checkpoint()) != Checkpoint():
            continue
        old = case.renamed(flow)[0]
        if old in continued:
            case.refusals.append(
                f"{flow.place}: {flow.name} and {continued[old]} are new, and both read what {old} did, "
                "which the spec no longer has: give the one that continues it that name"
            )
        elif old:
            continued[old] = flow.name
            case.steps.append(RenameFlow(case.name, generation, old, flow.name))


def _flow_plan(
    case: Case,
    flow: Flow,
    migration: Migration | None,
    migration_start: MigrationStart | None,
    *,
    fresh: bool,
) -> FlowPlan:
    checkpoint = Checkpoint() if fresh else case.checkpoint(flow)
    if flow.once:
        return FlowPlan(flow, "done" if checkpoint.done and not case.request.in_pipeline else "start")
    if case.dataflow.views[flow.view].mode == "batch":
        case.refusals.append(
            f"{flow.place}: {flow.view} is read as a batch: make it a stream (in SQL: STREAM(table)), or set "
            "once for the flow"
        )
        return FlowPlan(flow, "wait")
    started = checkpoint.started
    starts: dict[str, dict[str, Start | None]] = {}
    waits: list[Wait] = []
    empty: list[Wait] = []
    ready = started
    idle = started and not checkpoint.pending and not case.request.in_pipeline
    for read in case.follows(flow):
        if read.unseen:
            idle, ready = False, True
            continue
        source = case.facts.tables.get(read.table.key)
        if source is None and read.table.key not in case.producers:
            case.refusals.append(
                f"{read.place}: table {read.table} doesn't exist: restore it, or correct the spec"
            )
            continue
        if source is None and not started and read.table.key not in case.filling:
            waits.append(Wait(read.table, None, None, "isn't made yet"))
            continue
        baseline = migration_start.baselines.get(read.table.key) if migration_start else None
        if source and _recreated(case, read, source, baseline, checkpoint):
            continue
        start = _start(case, read, migration, baseline, source, started=started)
        begins = source is not None and isinstance(start, int) and not checkpoint.has_read(source)
        if source and isinstance(start, int) and begins and source.version < start:
            empty.append(Wait(read.table, start - 1, source.version, "has no commit after its baseline"))
        else:
            ready = True
            idle = idle and source is not None and not _has_news(case, read, source, checkpoint)
            if isinstance(start, int) and begins:
                _check_readable(case, read, start)
        if start is not None:
            goes_on = not case.request.in_pipeline and _goes_on(case, read, source, checkpoint, start)
            starts.setdefault(read.view, {})[read.table.key] = None if goes_on else start
    if empty and (case.request.in_pipeline or not ready):
        # A pipeline can't begin a source where there is no commit yet.
        waits = [*empty, *waits]
    if not started and migration and not waits:
        waits += _held(case)
    if case.request.in_pipeline and not started:
        _check_name(case, flow)
    if case.request.in_pipeline and migration and not case.copied:
        # Only while nothing but the copy flows can the target be compared with the legacy table.
        waits.append(Wait(migration.table, None, None, "isn't copied and compared yet"))
    if waits:
        return FlowPlan(flow, "wait", starts, tuple(waits))
    if idle:
        return FlowPlan(flow, "idle", starts)
    case.filling.add(flow.target.key)
    if empty and not started:
        tables = ", ".join(str(wait.table) for wait in empty)
        case.notes.append(f"{flow.name} begins without {tables}, which has no commit after its baseline yet")
    return FlowPlan(flow, "continue" if started else "start", starts, ahead=bool(empty))


def _check_name(case: Case, flow: Flow) -> None:
    """Refuse a flow that a pipeline would read from its start, where it may go on from another one."""
    ran = case.stored.tracking.started if case.stored.tracking else ()
    known = {one.name for one in case.dataflow.flows} | case.dataflow.disabled
    gone = [name for name in ran if name not in known]
    if gone and flow.name not in ran and any(read.explicit is None for read in case.follows(flow)):
        case.refusals.append(
            f"{flow.place}: {flow.name} is new, and {', '.join(gone)}, which the pipeline has run, isn't in "
            "the spec any more: the pipeline keeps a flow's checkpoint under its name, so the rows behind "
            f"the baseline would come twice: name it {gone[0]} again, or give readerOptions.startingVersion"
        )


def _has_news(case: Case, read: Read, source: TableFacts, checkpoint: Checkpoint) -> bool:
    offset = checkpoint.offsets.get(source.table_id)
    passed = offset is not None and offset.whole and source.version < offset.version
    return not passed or read.table.key in case.filling


def _in_order(case: Case) -> Iterable[Flow]:
    """Order flows so that staging tables are filled before they are read."""
    into: dict[str, list[tuple[DataFlow, Flow]]] = {}
    for flow in case.dataflow.flows:
        into.setdefault(flow.target.key, []).append((case.dataflow, flow))
    return [flow for key in case.facts.in_order(into) for _, flow in into[key]]


def _recreated(
    case: Case, read: Read, source: TableFacts, baseline: Baseline | None, checkpoint: Checkpoint
) -> bool:
    if not source.table_id:
        return False
    anew = baseline is not None and baseline.table_id != source.table_id
    known = not checkpoint.offsets or checkpoint.others or source.table_id in checkpoint.offsets
    if anew or (not known and baseline is None):
        case.refusals.append(
            f"{read.place}: {read.table} was dropped and made anew since {case.name} last knew it, so no "
            "version of it means what it meant: restore the old table, or finish this source and add the "
            f"new one as a source of its own: {read.how} (0 = all of it)"
        )
        return True
    return False


def _start(
    case: Case,
    read: Read,
    migration: Migration | None,
    baseline: Baseline | None,
    source: TableFacts | None,
    *,
    started: bool,
) -> Start | None:
    """Return where a stream starts; None where it starts at the table's own start."""
    if read.explicit == "latest":
        if baseline is not None:
            case.notes.append(f"{read.view} starts behind the baseline of {read.table}, the latest then")
            return baseline.version + 1
        case.refusals.append(
            f"{read.place}: startingVersion latest is looked up anew at every start, so commits between two "
            "runs would be lost: give a number"
        )
        return None
    if read.explicit is not None:
        case.notes.append(f"{read.view} starts at {read.explicit} of {read.table}, as the spec says")
        return read.explicit
    if migration is None or case.makes(read):
        return None
    if not migration.auto_starting_versions:
        if not started and source is not None:
            rows = case.facts.rows.get(read.table.key)
            case.notes.append(
                f"warning: {read.view} reads {read.table} from its start ({source.version + 1} commits"
                + (f", {rows:,} rows" if rows is not None else "")
                + "), for no startingVersion is given: rows that the copy already has come twice"
            )
        return None
    if baseline is not None:
        return baseline.version + 1
    if source is not None and not started:
        case.refusals.append(
            f"{read.place}: {read.table} joined after the migration of {case.name} began, so nobody knows "
            f"where it must start: {read.how} (0 = all of it)"
        )
    return None


def _goes_on(case: Case, read: Read, source: TableFacts | None, checkpoint: Checkpoint, start: Start) -> bool:
    """Say whether a stream needs no start, which Spark would look for in a log that is cleaned by now.

    Before the second batch it asks for the first one again, which it knows by its start alone; without one it
    would read the whole table instead.
    """
    if source is not None and not checkpoint.has_read(source):
        return False
    if checkpoint.committed == 0 and isinstance(start, int):
        return case.facts.earliest.get(read.table.key, 0) > start
    return checkpoint.started


def _check_readable(case: Case, read: Read, start: int) -> None:
    earliest = case.facts.earliest.get(read.table.key, 0)
    if earliest > start:
        case.refusals.append(
            f"{read.place}: {read.table} can't be read from version {start} any more (the oldest is "
            f"{earliest}): {read.how} and bring what lies between by hand, or restore the log"
        )


def _held(case: Case) -> list[Wait]:
    """Wait until migrations that read this target have recorded where they begin."""
    if case.copied:
        return []
    held = []
    for other in case.dataflows:
        name = other.target.name
        reads = (read for flow in other.flows for read in case.facts.follows(other, flow))
        if (
            other is not case.dataflow
            and other.migration
            and other.migration.auto_starting_versions
            and case.facts.stored.get(name.key, Stored()).migration_start is None
            and any(read.table.key == case.name.key and read.explicit is None for read in reads)
        ):
            held.append(Wait(name, None, None, "must record where it begins first"))
    return held
