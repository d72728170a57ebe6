"""Decides where flows go on in sources that have no versions: Kafka's topics, and files."""

from __future__ import annotations

from collections.abc import Mapping

from tableferry.errors import Finding
from tableferry.pipelines import auto_loader, seen_files, topics
from tableferry.pipelines.flows import Migration, OtherSource
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
            Finding(
                "TOPICS_OF_SEVERAL_STREAMS",
                location=read.location,
                table=migration.table,
                sources=sorted(found),
                view=read.view,
            )
        )
    if shared := _shared(context, read):
        return None, shared
    ((source_id, offset),) = found.items()
    held = context.facts.brokers.get(read.table.key)
    if not isinstance(held, KafkaRange):
        why = held or Finding("BROKER_NOT_ASKED", source=read.table)
        return None, refused(why.at(read.location))
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
        return None, refused(why.at(read.location))
    path = source.path or ""
    apart = {key: seen_files.outside(offset.seen, path) for key, offset in taken.items()}
    found = [key for key, outside in apart.items() if not outside]
    if not found:
        if known:
            return None, Findings()
        return None, refused(
            Finding(
                "FILES_OUTSIDE_FOLDER",
                location=read.location,
                table=migration.table,
                file=next(iter(apart.values())),
                folder=path,
            )
        )
    if len(found) > 1:
        return None, refused(
            Finding(
                "FILES_OF_SEVERAL_STREAMS",
                location=read.location,
                table=migration.table,
                count=len(found),
                folder=path,
                view=read.view,
            )
        )
    if shared := _shared(context, read):
        return None, shared
    offset = taken[found[0]]
    odd = next((file.readable for file in offset.seen if seen_files.has_pattern(file.readable)), "")
    if odd and not auto_loader.is_recursive(source.options):
        return None, refused(Finding("FILE_NAMES_ARE_PATTERNS", location=read.location, file=odd))
    return Baseline(read.table, found[0], offset.batch, within=str(offset)), Findings()


def check_held(read: Read, start: KafkaOffset, held: KafkaRange) -> Findings:
    """Refuse to go on at an offset that the broker doesn't hold any more."""
    if not (gone := held.gone(start)):
        return Findings()
    return refused(
        Finding(
            "OFFSETS_EXPIRED",
            location=read.location,
            source=read.table,
            partitions="; ".join(gone),
            how=read.how,
        )
    )


def no_file_hand_over(context: PlanningContext) -> Finding | None:
    """Return why no flow can be given the list of files that an old stream has read; None if one can."""
    if not context.request.in_pipeline and not context.facts.auto_loader:
        return None
    owner = "A pipeline" if context.request.in_pipeline else "Auto Loader"
    return Finding("FILE_LIST_NOT_IMPORTABLE", owner=owner)


def not_read(migration: Migration, read: Read) -> Findings:
    """Refuse a source of a flow that no old stream reads."""
    return refused(
        Finding(
            "SOURCE_NOT_READ_BY_OLD_STREAMS",
            location=read.location,
            table=migration.table,
            source=read.table,
            how=read.how,
        )
    )


def _shared(context: PlanningContext, read: Read) -> Findings:
    """Refuse a flow that reads other sources besides one that has a place of its own in a checkpoint."""
    for flow in context.dataflow.streaming_flows:
        if read in (reads := context.follows(flow)) and len(reads) > 1:
            return refused(
                Finding("SOURCES_SHARE_CHECKPOINT", location=read.location, flow=flow.name, source=read.table)
            )
    return Findings()
