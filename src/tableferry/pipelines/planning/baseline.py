"""Decides where a target's migration starts: its baselines and its pinned copy, recorded once."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import assert_never

from tableferry.errors import Finding
from tableferry.pipelines.model import topics
from tableferry.pipelines.model.facts import HandOver, NoHandOver
from tableferry.pipelines.model.flows import DataFlow, Migration
from tableferry.pipelines.model.identities import PROPERTY
from tableferry.pipelines.model.reads import Read
from tableferry.pipelines.model.source_offsets import KafkaOffset, KafkaRange, described
from tableferry.pipelines.model.steps import Adopt, AdoptRenamed, Begin, Forget
from tableferry.pipelines.model.target_state import Baseline, MigrationStart, PinnedCopy, Stored
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


def adopt_state(context: PlanningContext) -> tuple[Stored, Findings]:
    """Return the state to go on with: another pipeline's, where the user asks that it's taken over."""
    stored, target = context.stored, context.target
    adoptable = context.facts.adoptable.get(target.key)
    if stored.migration_start:
        same = adoptable and adoptable.migration_start
        if adoptable and same and same.recorded_at == stored.migration_start.recorded_at:
            # An adoption died here: the other pipeline's files say the same.
            adopted = replace(stored, tracking=stored.tracking or adoptable.tracking)
            return adopted, plan_steps(Adopt(target, stored.elsewhere[0]))
        return stored, Findings()
    if not stored.elsewhere or not context.dataflow.migration:
        return stored, Findings()
    if not context.request.adopt:
        return stored, refuse(
            "STATE_OF_OTHER_PIPELINE",
            target=target,
            others=stored.elsewhere,
            pipeline=context.request.pipeline_id,
        )
    if adoptable is None:
        return stored, refuse("STATE_OF_SEVERAL_PIPELINES", target=target, others=stored.elsewhere)
    adopted = replace(adoptable, generation=stored.generation, resetting=stored.resetting)
    return adopted, plan_steps(Adopt(target, stored.elsewhere[0]))


def adopt_renamed_target(context: PlanningContext) -> Findings:
    """Refuse a second migration of a legacy table, or adopt the first one whose target was renamed."""
    migration, target, stored = context.migration, context.target, context.stored
    if migration is None or stored.migration_start or stored.elsewhere or stored.finished:
        return Findings()
    legacy = context.facts.tables.get(migration.table.key)
    earlier = context.facts.earlier.get(legacy.table_id) if legacy else None
    if not earlier:
        return Findings()
    if len(earlier) > 1 or not context.request.adopt:
        return refuse(
            "LEGACY_TABLE_MIGRATED_BEFORE",
            location=migration.location,
            table=migration.table,
            folders=earlier,
            state=context.facts.state,
        )
    if context.facts.tables.get(target.key) is None:
        return refuse(
            "RENAMED_TARGET_MISSING",
            location=migration.location,
            target=target,
            folder=earlier[0],
            name=target.sql,
        )
    return plan_steps(AdoptRenamed(target, earlier[0]))


def list_uncopied_producers(context: PlanningContext) -> tuple[TableName, ...]:
    """Targets of this project that the migration reads and whose own history isn't copied yet."""
    if not (context.dataflow.migration and context.dataflow.migration.auto_starting_versions):
        return ()
    uncopied = {}
    for read in context.list_all_reads():
        producer = context.producers.get(read.table.key)
        if producer and producer is not context.dataflow and producer.migration and read.explicit is None:
            target = producer.target.name
            if not context.facts.stored.get(target.key, Stored()).copied:
                uncopied[target.key] = target
    return tuple(uncopied.values())


def plan_migration_start(
    context: PlanningContext, migration: Migration, *, stopped: bool
) -> tuple[MigrationStart | None, Findings]:
    """Return where the migration starts, as recorded or about to be; None where that's refused.

    ``stopped`` means that the target is refused already.
    """
    target = context.target
    recorded = context.stored.migration_start
    if recorded:
        if recorded.copy.table.key == migration.table.key:
            return recorded, Findings()
        return recorded, refuse(
            "LEGACY_TABLE_CHANGED_IN_SPEC",
            location=migration.location,
            target=target,
            recorded=recorded.copy.table,
            table=migration.table,
        )
    findings = Findings()
    legacy = context.facts.tables.get(migration.table.key)
    if migration.table.key == target.key and not migration.take_over:
        findings += refuse("TARGET_IS_LEGACY_TABLE", location=migration.location, target=target)
    elif legacy is None:
        findings += refuse("LEGACY_TABLE_MISSING", location=migration.location, table=migration.table)
    if target.key in context.facts.filled and not findings and not stopped:
        findings += refuse("TARGET_NOT_EMPTY", location=context.dataflow.target.location, target=target)
    findings += _check_earlier_runs(context, migration) + _check_readers(context, migration)
    hand_over = context.facts.hand_overs.get(target.key)
    not_proved: Finding | None = None
    if isinstance(hand_over, NoHandOver):
        if migration.content_first:
            not_proved = hand_over.why
        else:
            findings += refuse_all([hand_over.why.at(migration.location)])
        hand_over = None
    elif hand_over is None and not findings and not stopped and _can_compare_rows(migration):
        return None, add_note("the hand-over point is looked for by plan and run")
    if migration.hand_over == "explicit":
        findings += refuse_all(
            Finding("EXPLICIT_START_MISSING", location=read.location, source=read.table, how=read.how)
            for read in context.list_all_reads()
            if read.explicit is None and not read.unseen
        )
    baselines: dict[str, Baseline] = {}
    if migration.auto_starting_versions:
        for read in context.list_all_reads():
            if read.files:
                # The spec requires that its own options say where it starts.
                continue
            if read.kafka is not None:
                found, new = _find_kafka_baseline(context, migration, read, read.kafka, hand_over)
                findings += new
                if found:
                    baselines[read.table.key] = _add_view(baselines.get(read.table.key, found), read)
                continue
            source = context.facts.tables.get(read.table.key)
            findings += _check_source(context, read, source)
            if source and not read.unseen and not context.is_own_table(read):
                version = hand_over.positions.get(source.table_id) if hand_over else source.version
                if version is None and read.explicit is None:
                    findings += _refuse_unread_source(migration, read)
                first = Baseline(
                    read.table,
                    source.table_id,
                    source.version if version is None else version,
                    within=hand_over.within.get(source.table_id, "") if hand_over else "",
                )
                baselines[read.table.key] = _add_view(baselines.get(read.table.key, first), read)
    if hand_over and not findings:
        followed = {baseline.table_id for baseline in baselines.values()}
        taken = hand_over.positions.keys() | hand_over.kafka.keys()
        findings += _check_old_sources(context, migration, taken - followed)
    if legacy is None or findings or stopped:
        return None, findings
    hand_over = hand_over or HandOver(legacy.version, {}, {}, "assumed")
    start = MigrationStart(
        context.request.pipeline_id,
        target,
        PinnedCopy(migration.table, legacy.table_id, hand_over.version),
        baselines,
        context.request.now,
        hand_over.batches,
        hand_over.certainty,
    )
    if migration.take_over and hand_over.version != legacy.version:
        return None, refuse(
            "TAKE_OVER_OF_OLDER_VERSION",
            location=migration.location,
            target=target,
            version=legacy.version,
            hand_over=hand_over.version,
        )
    counts = migration.hand_over == "explicit" or any(
        read.explicit is None and read.table.key in baselines for read in context.list_all_reads()
    )
    findings = plan_steps(Begin(start))
    findings += _report_evidence(context, hand_over, not_proved) if counts else Findings()
    return start, findings


def _can_compare_rows(migration: Migration) -> bool:
    """Say whether rows may be compared to find where the old job hands over."""
    return migration.hand_over == "content" or (migration.hand_over == "checkpoint" and migration.or_content)


def _report_evidence(context: PlanningContext, hand_over: HandOver, not_proved: Finding | None) -> Findings:
    """Name the evidence for the hand-over point; ``not_proved`` is why comparing rows didn't prove it."""
    match hand_over.certainty:
        case "recorded":
            batches = " and ".join(f"batch {batch}" for batch in hand_over.batches.values())
            return add_note(
                f"the hand-over point is recorded by the old streams: {batches} of their checkpoints"
            )
        case "proved":
            return add_note(f"the hand-over point is proved: {hand_over.why}")
        case "assumed":
            if context.dataflow.migration and context.dataflow.migration.hand_over == "explicit":
                return warn("HAND_OVER_ASSUMED_FROM_SPEC", target=context.target)
            if not_proved:
                return warn("HAND_OVER_NOT_PROVED", target=context.target, reason=not_proved.one_line)
            return warn("HAND_OVER_ASSUMED", target=context.target)
        case _:
            assert_never(hand_over.certainty)


def check_take_over_in_pipeline(context: PlanningContext) -> Findings:
    """Refuse a pipeline as the engine of a target that is, was or is to be taken over."""
    migration, stored = context.dataflow.migration, context.stored
    start = stored.migration_start
    wanted = migration is not None and migration.take_over
    recorded = stored.taken_over or (start is not None and start.take_over)
    if not context.request.in_pipeline or not (wanted or recorded):
        return Findings()
    location = migration.location if migration else context.dataflow.file
    return refuse("TAKE_OVER_IN_PIPELINE", location=location, target=context.target)


def check_other_writers(context: PlanningContext) -> Findings:
    """Refuse to write into a table that was taken over, and to which another process adds rows."""
    start, writes = context.migration_start, context.facts.legacy_writes.get(context.target.key)
    if start is None or not start.take_over or writes is None:
        return Findings()
    changed = {operation: seen for operation, seen in writes.others.items() if operation not in writes.added}
    findings = (
        warn("ROWS_CHANGED_SINCE_TAKE_OVER", target=context.target, writes=writes.named(changed))
        if changed
        else Findings()
    )
    if writes.first is None:
        return findings
    writers = []
    if writes.batches:
        batches = " and ".join(f"batch {batch}" for batch in writes.batches.values())
        writers.append(f"its old stream (up to {batches})")
    if writes.added:
        writers.append(f"another process ({writes.named(writes.added)})")
    again = "take the table over again: `tableferry pipelines undo`, then run"
    remedy = f"remove the rows that are in it twice, and {again}"
    if not writes.mixed:
        remedy = (
            f"run RESTORE TABLE {context.target.sql} TO VERSION AS OF {writes.first - 1}. Or, if these rows "
            f"belong there, {again}"
        )
    return findings + refuse(
        "WRITTEN_SINCE_TAKE_OVER",
        target=context.target,
        writers=" and ".join(writers),
        version=writes.first,
        advice=remedy,
    )


def check_pinned_legacy_table(context: PlanningContext) -> Findings:
    """Refuse a copy whose legacy table isn't the one that was pinned any more."""
    migration, start = context.migration, context.migration_start
    if migration is None or start is None:
        return Findings()
    pinned = start.copy
    legacy = context.facts.tables.get(migration.table.key)
    if legacy is None:
        return refuse(
            "LEGACY_TABLE_MISSING_BEFORE_COPY",
            location=migration.location,
            table=migration.table,
            target=context.target,
        )
    if (legacy.table_id and legacy.table_id != pinned.table_id) or legacy.version < pinned.version:
        return refuse(
            "LEGACY_TABLE_RECREATED",
            location=migration.location,
            table=migration.table,
            version=pinned.version,
        )
    return Findings()


def end_migration(context: PlanningContext) -> Findings:
    """Look at state that outlived its migration: it may go once nothing depends on it."""
    stored, target, file = context.stored, context.target, context.dataflow.file
    flows = context.dataflow.streaming_flows
    unstarted = next((flow for flow in flows if not context.find_checkpoint(flow).started), None)
    if not stored.migration_start:
        if not stored.elsewhere or not unstarted:
            return Findings()
        return context.check_ambiguous_rename(unstarted) + refuse(
            "MIGRATION_SWITCHED_OFF_ELSEWHERE", file=file, target=target, others=stored.elsewhere
        )
    incomplete = refuse("MIGRATION_SWITCHED_OFF", file=file, target=target)
    if not context.is_copied:
        return incomplete
    if unstarted:
        return context.check_ambiguous_rename(unstarted) + incomplete
    if is_assumed(context.dataflow, stored.migration_start) and not context.is_refreshed:
        return warn("ASSUMED_MIGRATION_SWITCHED_OFF", target=target)
    certainty = stored.migration_start.certainty
    note = f"its migration is complete ({certainty}) and switched off: its state files are removed"
    return plan_steps(Forget(target)) + add_note(note)


def is_assumed(dataflow: DataFlow, start: MigrationStart | None) -> bool:
    """Return whether neither rows nor checkpoints show where the flows of a target start.

    The spec may have lost or switched off the migration since then: the start is what counts.
    """
    return start is not None and start.certainty == "assumed" and bool(dataflow.streaming_flows)


def _check_earlier_runs(context: PlanningContext, migration: Migration) -> Findings:
    """Refuse to begin with flows that have run before: they continue from their checkpoints."""
    if context.is_refreshed or context.stored.resetting or context.request.in_pipeline:
        return Findings()
    ran = [
        flow.name
        for flow in context.dataflow.flows
        if (checkpoint := context.find_checkpoint(flow)).offered is not None or checkpoint.done
    ]
    if not ran:
        return Findings()
    if migration.take_over:
        # A full refresh would drop the rows of the old streams.
        return refuse(
            "FLOWS_RAN_BEFORE_TAKE_OVER",
            location=migration.location,
            flows=ran,
            target=context.target,
            state=context.facts.state,
            statement=f"ALTER TABLE {context.target.sql} UNSET TBLPROPERTIES IF EXISTS ('{PROPERTY}')",
        )
    return refuse("FLOWS_RAN_BEFORE_MIGRATION", location=migration.location, flows=ran, target=context.target)


def _check_readers(context: PlanningContext, migration: Migration) -> Findings:
    """Refuse to copy a history that a reader, which has its own already, would take for new rows.

    It began while this target's spec was skipped, or was without its migration.
    """
    findings = Findings()
    for reader in context.dataflows:
        name = reader.target.name
        stored = context.facts.stored.get(name.key, Stored())
        follows = any(
            read.table.key == context.target.key and read.explicit is None
            for flow in reader.streaming_flows
            for read in context.facts.follows(reader, flow)
        )
        if reader is not context.dataflow and follows and (stored.migration_start or stored.finished):
            findings += refuse(
                "READER_WOULD_TAKE_HISTORY", location=migration.location, reader=name, target=context.target
            )
    return findings


def _add_view(baseline: Baseline, read: Read) -> Baseline:
    return replace(baseline, views=tuple(dict.fromkeys((*baseline.views, read.view))))


def _check_source(context: PlanningContext, read: Read, source: TableFacts | None) -> Findings:
    """Refuse a source of which no baseline can be recorded, unless all its rows are new."""
    if read.unseen:
        return refuse_all([read.unseen.at(read.location)]) if read.explicit is None else Findings()
    producer = context.producers.get(read.table.key)
    if source or producer is context.dataflow:
        return Findings()
    if producer is None:
        return refuse("SOURCE_TABLE_MISSING", location=read.location, source=read.table)
    if read.explicit is None and not _has_explicit_starts(context, producer):
        return refuse(
            "PRODUCED_SOURCE_MISSING",
            location=read.location,
            source=read.table,
            target=context.target,
            how=read.how,
        )
    return Findings()


def _check_old_sources(context: PlanningContext, migration: Migration, missing: Collection[str]) -> Findings:
    """Refuse to leave a source behind that fills the legacy table."""
    return refuse_all(
        Finding(
            "OLD_SOURCE_NOT_FOLLOWED",
            location=migration.location,
            table=migration.table,
            source=described(source_id),
            target=context.target,
        )
        for source_id in sorted(missing)
    )


def _has_explicit_starts(context: PlanningContext, producer: DataFlow) -> bool:
    """Say whether all that will flow into another target comes after starts that the user gave."""
    reads = [read for flow in producer.flows for read in context.facts.follows(producer, flow)]
    return bool(reads) and all(read.explicit is not None for read in reads)


def _find_kafka_baseline(
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
        return None, Findings() if known and not taken else _refuse_unread_source(migration, read)
    if len(found) > 1:
        return None, refuse(
            "TOPICS_OF_SEVERAL_STREAMS",
            location=read.location,
            table=migration.table,
            sources=sorted(found),
            view=read.view,
        )
    if shared := _check_shared_checkpoint(context, read):
        return None, shared
    ((source_id, offset),) = found.items()
    held = context.facts.brokers.get(read.table.key)
    if not isinstance(held, KafkaRange):
        why = held or Finding("BROKER_NOT_ASKED", source=read.table)
        return None, refuse_all([why.at(read.location)])
    # What a pipeline is given must name each partition.
    start = offset.completed(held.first)
    return Baseline(read.table, source_id, start.records, within=str(start)), check_broker_range(
        read, start, held
    )


def check_broker_range(read: Read, start: KafkaOffset, held: KafkaRange) -> Findings:
    """Refuse to go on at an offset that the broker doesn't hold any more."""
    if not (gone := held.gone(start)):
        return Findings()
    return refuse(
        "OFFSETS_EXPIRED", location=read.location, source=read.table, partitions="; ".join(gone), how=read.how
    )


def _refuse_unread_source(migration: Migration, read: Read) -> Findings:
    """Refuse a source of a flow that no old stream reads."""
    return refuse(
        "SOURCE_NOT_READ_BY_OLD_STREAMS",
        location=read.location,
        table=migration.table,
        source=read.table,
        how=read.how,
    )


def _check_shared_checkpoint(context: PlanningContext, read: Read) -> Findings:
    """Refuse a flow that reads other sources besides one that has a place of its own in a checkpoint."""
    for flow in context.dataflow.streaming_flows:
        if read in (reads := context.list_reads(flow)) and len(reads) > 1:
            return refuse(
                "SOURCES_SHARE_CHECKPOINT", location=read.location, flow=flow.name, source=read.table
            )
    return Findings()
