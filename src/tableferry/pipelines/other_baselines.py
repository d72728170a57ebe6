"""Decide at which offsets of Kafka's topics the flows of a migration start."""

from __future__ import annotations

from collections.abc import Mapping

from tableferry.errors import Finding
from tableferry.pipelines import topics
from tableferry.pipelines.flows import Migration
from tableferry.pipelines.planning_context import Findings, PlanningContext, refused
from tableferry.pipelines.plans import HandOver
from tableferry.pipelines.reads import Read
from tableferry.pipelines.source_offsets import KafkaOffset, KafkaRange
from tableferry.pipelines.state import Baseline


def baseline(
    context: PlanningContext,
    migration: Migration,
    read: Read,
    options: Mapping[str, str],
    hand_over: HandOver | None,
) -> tuple[Baseline | None, Findings]:
    """Return the offsets at which an old stream hands topics over; None if the spec gives the start.

    ``options`` are those with which the topics are read.
    """
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
    return Baseline(read.table, source_id, start.records, within=str(start)), check_held(read, start, held)


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
