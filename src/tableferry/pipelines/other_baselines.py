"""Decides where flows go on in sources that have no versions: Kafka's topics, and files."""

from __future__ import annotations

from collections.abc import Mapping

from tableferry.pipelines import auto_loader, seen_files, topics
from tableferry.pipelines.flows import BY_VERSION, Migration, OtherSource
from tableferry.pipelines.planning_context import Findings, PlanningContext, refused
from tableferry.pipelines.plans import HandOver
from tableferry.pipelines.reads import Read
from tableferry.pipelines.source_offsets import KafkaOffset, KafkaRange
from tableferry.pipelines.state import Baseline


def baseline(
    context: PlanningContext, migration: Migration, read: Read, hand_over: HandOver | None
) -> tuple[Baseline | None, Findings]:
    """Return where a flow goes on in topics or files, of which only an old stream's checkpoint can tell.

    None where the spec itself says it.
    """
    if read.kafka is not None:
        return _topic_baseline(context, migration, read, read.kafka, hand_over)
    assert read.files is not None
    return _file_baseline(context, migration, read, read.files, hand_over)


def _topic_baseline(
    context: PlanningContext,
    migration: Migration,
    read: Read,
    options: Mapping[str, str],
    hand_over: HandOver | None,
) -> tuple[Baseline | None, Findings]:
    if read.explicit is not None:
        return None, Findings()
    taken = hand_over.kafka if hand_over else {}
    found = {key: offset for key, offset in taken.items() if topics.subscribes(options, offset)}
    if not found:
        known = topics.gives_start(options)
        return None, Findings() if known and not taken else not_read(migration, read)
    if len(found) > 1:
        return None, refused(
            f"{read.location}: the old streams of {migration.table} read {' and '.join(sorted(found))}, "
            f"which {read.view} reads as one source: let a view of its own read each"
        )
    if shared := _shared(context, read):
        return None, shared
    ((source_id, offset),) = found.items()
    held = context.facts.brokers.get(read.table.key)
    if not isinstance(held, KafkaRange):
        why = held or f"the broker of {read.table} wasn't asked what it holds: run the project"
        return None, refused(f"{read.location}: {why}")
    # What a pipeline is given must name each partition.
    start = offset.completed(held.first)
    baseline = Baseline(read.table, source_id, start.records, within=str(start))
    return baseline, check_held(read, start, held)


def _file_baseline(
    context: PlanningContext,
    migration: Migration,
    read: Read,
    source: OtherSource,
    hand_over: HandOver | None,
) -> tuple[Baseline | None, Findings]:
    taken, known = hand_over.files if hand_over else {}, auto_loader.gives_start(source.options)
    if not taken:
        return None, Findings() if known else not_read(migration, read)
    if why := no_file_hand_over(context):
        return None, refused(f"{read.location}: {why}")
    path = source.path or ""
    apart = {key: seen_files.outside(offset.seen, path) for key, offset in taken.items()}
    found = [key for key, outside in apart.items() if not outside]
    if not found:
        if known:
            return None, Findings()
        return None, refused(
            f"{read.location}: the old stream of {migration.table} has read {next(iter(apart.values()))}, "
            f"which isn't under {path}, so that every file would come twice: name the folder as the old "
            "stream does"
        )
    if len(found) > 1:
        return None, refused(
            f"{read.location}: {len(found)} old streams of {migration.table} read files under {path}, which "
            f"{read.view} reads as one source: let a view of its own read each"
        )
    if shared := _shared(context, read):
        return None, shared
    offset = taken[found[0]]
    odd = next((file.readable for file in offset.seen if seen_files.has_pattern(file.readable)), "")
    if odd and not auto_loader.is_recursive(source.options):
        return None, refused(
            f"{read.location}: of files such as {odd}, whose names Spark takes for patterns, its file stream "
            "reads each several times where a batch has several: set recursiveFileLookup to true in "
            "readerOptions"
        )
    return Baseline(read.table, found[0], offset.batch, within=str(offset)), Findings()


def check_held(read: Read, start: KafkaOffset, held: KafkaRange) -> Findings:
    """Refuse to go on at an offset that the broker doesn't hold any more."""
    if not (gone := held.gone(start)):
        return Findings()
    return refused(
        f"{read.location}: {read.table} can't be read from where the old stream stopped: {'; '.join(gone)}: "
        "let the old stream go on and hand over at a newer batch, or bring what is gone by hand and "
        f"{read.how} behind it"
    )


def no_file_hand_over(context: PlanningContext) -> str:
    """Say why no flow can be given the list of files that an old stream has read; empty if one can."""
    if not context.request.in_pipeline and not context.facts.auto_loader:
        return ""
    where = "a pipeline keeps" if context.request.in_pipeline else "Auto Loader keeps"
    return (
        f"{where} which files are read in a checkpoint of its own, into which only Auto Loader itself could "
        "import the old stream's log: run the project with the streaming engine outside Databricks, or give "
        f"modifiedAfter in readerOptions and {BY_VERSION}"
    )


def not_read(migration: Migration, read: Read) -> Findings:
    """Refuse a source of a flow that no old stream reads."""
    return refused(
        f"{read.location}: the old streams of {migration.table} don't read {read.table}, so nobody knows "
        f"which of its rows the history holds: add the checkpoint of the one that does, or {read.how}"
    )


def _shared(context: PlanningContext, read: Read) -> Findings:
    """Refuse a flow that reads other sources besides one that has a place of its own in a checkpoint."""
    for flow in context.dataflow.streaming_flows:
        if read in (reads := context.follows(flow)) and len(reads) > 1:
            return refused(
                f"{read.location}: {flow.name} reads other sources besides {read.table}, and a checkpoint "
                "has a place for each, whose order nobody knows: let a flow of its own read each"
            )
    return Findings()
