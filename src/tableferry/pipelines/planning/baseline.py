"""Plan the start of a target's migration: the baselines of its sources and the pinned version of its copy."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import assert_never

from tableferry.errors import Finding
from tableferry.pipelines.model import topics
from tableferry.pipelines.model.facts import HandOver, UnknownHandOver
from tableferry.pipelines.model.flows import DataFlow, Migration
from tableferry.pipelines.model.identities import PROPERTY
from tableferry.pipelines.model.reads import Read
from tableferry.pipelines.model.source_offsets import describe_source
from tableferry.pipelines.model.steps import AdoptRenamedState, AdoptState, RecordStart, RemoveMigration
from tableferry.pipelines.model.target_state import Baseline, MigrationStart, PinnedCopy, TargetState
from tableferry.pipelines.model.topics import KafkaOffset, KafkaRange
from tableferry.pipelines.planning.context import Findings, PlanningContext, add_note, plan_steps, refuse_all
from tableferry.spark.tables import TableFacts, TableName


def adopt_state(context: PlanningContext) -> tuple[TargetState, Findings]:
    """Return the state of a target; with --adopt that of another pipeline, if the target has none.

    Rule 2: Each target owns its state. A pipeline that finds the state of another pipeline stops, and offers
    to adopt it; so does a target that was renamed (`adopt_renamed_target`).
    """
    stored, target = context.stored, context.target
    adoptable = context.facts.adoptable_states.get(target.key)
    if stored.migration_start:
        same = adoptable and adoptable.migration_start
        if adoptable and same and same.recorded_at == stored.migration_start.recorded_at:
            # A run stopped during the adoption, because both pipelines have the same migration start.
            adopted = replace(stored, tracking=stored.tracking or adoptable.tracking)
            return adopted, plan_steps(AdoptState(target, stored.elsewhere[0]))
        return stored, Findings()
    if not stored.elsewhere or not context.dataflow.migration:
        return stored, Findings()
    if not context.request.adopt:
        return stored, context.refuse(
            "STATE_OF_OTHER_PIPELINE", others=stored.elsewhere, pipeline=context.request.pipeline_id
        )
    if not adoptable:
        return stored, context.refuse("STATE_OF_SEVERAL_PIPELINES", others=stored.elsewhere)
    adopted = replace(adoptable, generation=stored.generation, resetting=stored.resetting)
    return adopted, plan_steps(AdoptState(target, stored.elsewhere[0]))


def adopt_renamed_target(context: PlanningContext) -> Findings:
    """Refuse a second migration of a legacy table; with --adopt continue that of the renamed target."""
    migration, target = context.dataflow.migration, context.target
    if not migration:
        return Findings()
    if folder := context.facts.renamed_state_folders.get(target.key):
        if context.facts.tables.get(target.key):
            return plan_steps(AdoptRenamedState(target, folder))
        return context.refuse(
            "RENAMED_TARGET_MISSING", location=migration.location, folder=folder, name=target.sql
        )
    legacy = context.facts.tables.get(migration.table.key)
    earlier = context.facts.unclaimed_state_folders.get(legacy.table_id) if legacy else None
    if not earlier or not context.stored.is_new:
        return Findings()
    return context.refuse("LEGACY_TABLE_MIGRATED_BEFORE", table=migration, folders=earlier)


def list_uncopied_producers(context: PlanningContext) -> tuple[TableName, ...]:
    """Return the targets that the migration reads and whose initial copy isn't complete."""
    if not (context.dataflow.migration and context.dataflow.migration.auto_starting_versions):
        return ()
    uncopied = {}
    for read in context.list_all_reads():
        producer = context.producers.get(read.table.key)
        if producer and producer is not context.dataflow and producer.migration and read.explicit is None:
            target = producer.target.name
            if not context.facts.states.get(target.key, TargetState()).copied:
                uncopied[target.key] = target
    return tuple(uncopied.values())


def plan_migration_start(
    context: PlanningContext, migration: Migration, *, stopped: bool
) -> tuple[MigrationStart | None, Findings]:
    """Return the recorded start of a migration, or plan to record it; None if the migration can't start.

    Rule 1: A baseline is written once. The first run records the version and the id of each source, and the
    version of the legacy table that the copy reads. No later run changes them.

    ``stopped`` means that an earlier check has refused the target.
    """
    target = context.target
    recorded = context.stored.migration_start
    if recorded:
        if recorded.copy.table.key == migration.table.key:
            return recorded, Findings()
        return recorded, context.refuse(
            "LEGACY_TABLE_CHANGED_IN_SPEC", table=migration, recorded=recorded.copy.table
        )
    legacy = context.facts.tables.get(migration.table.key)
    findings = _check_new_start(context, migration, legacy, stopped=stopped)
    found = context.facts.hand_overs.get(target.key)
    hand_over = found if isinstance(found, HandOver) else None
    unknown = found if isinstance(found, UnknownHandOver) else None
    if unknown and not migration.content_first:
        findings += refuse_all([unknown.why.at(migration.location)])
    elif not found and not findings and not stopped and _can_compare_rows(migration):
        return None, add_note("plan and run search for the hand-over point")
    if migration.hand_over == "explicit":
        findings += refuse_all(
            context.finding("EXPLICIT_START_MISSING", source=read)
            for read in context.list_all_reads()
            if read.explicit is None and not read.unmanaged
        )
    baselines: dict[str, Baseline] = {}
    if migration.auto_starting_versions:
        baselines, new = _collect_baselines(context, migration, hand_over)
        findings += new
    if hand_over and not findings:
        ids = {baseline.table_id for baseline in baselines.values()}
        findings += _check_old_sources(context, migration, hand_over, ids)
    if not legacy or findings or stopped:
        return None, findings
    hand_over = hand_over or HandOver(legacy.version, {}, {}, "assumed")
    if migration.take_over and hand_over.version != legacy.version:
        return None, context.refuse(
            "TAKE_OVER_OF_OLDER_VERSION",
            location=migration.location,
            version=legacy.version,
            hand_over=hand_over.version,
        )
    start = MigrationStart(
        context.request.pipeline_id,
        target,
        PinnedCopy(migration.table, legacy.table_id, hand_over.version),
        baselines,
        context.request.now,
        hand_over.batches,
        hand_over.certainty,
    )
    findings = plan_steps(RecordStart(start))
    if migration.hand_over == "explicit" or any(
        read.explicit is None and read.table.key in baselines for read in context.list_all_reads()
    ):
        findings += _report_evidence(context, migration, hand_over, unknown)
    return start, findings


def _check_new_start(
    context: PlanningContext, migration: Migration, legacy: TableFacts | None, *, stopped: bool
) -> Findings:
    """Refuse a start without a legacy table, and one whose target, flows or readers have begun before."""
    findings = Findings()
    if migration.table.key == context.target.key and not migration.take_over:
        findings += context.refuse("TARGET_IS_LEGACY_TABLE", location=migration.location)
    elif not legacy:
        findings += context.refuse("LEGACY_TABLE_MISSING", table=migration)
    if context.target.key in context.facts.nonempty_targets and not findings and not stopped:
        findings += context.refuse("TARGET_NOT_EMPTY", target=context.dataflow.target)
    return findings + _check_earlier_runs(context, migration) + _check_readers(context, migration)


def _collect_baselines(
    context: PlanningContext, migration: Migration, hand_over: HandOver | None
) -> tuple[dict[str, Baseline], Findings]:
    """Return the baselines of all sources by table key, each with the views that read the source."""
    baselines: dict[str, Baseline] = {}
    findings = Findings()
    for read in context.list_all_reads():
        found, new = _find_baseline(context, migration, read, hand_over)
        findings += new
        if found:
            baseline = baselines.get(read.table.key, found)
            views = tuple(dict.fromkeys((*baseline.views, read.view)))
            baselines[read.table.key] = replace(baseline, views=views)
    return baselines, findings


def _find_baseline(
    context: PlanningContext, migration: Migration, read: Read, hand_over: HandOver | None
) -> tuple[Baseline | None, Findings]:
    """Return the baseline of a source: where the old stream stopped, or else the current version."""
    if read.is_auto_loader:
        # The spec requires reader options that give the start.
        return None, Findings()
    if read.kafka is not None:
        return _find_kafka_baseline(context, migration, read, read.kafka, hand_over)
    source = context.facts.tables.get(read.table.key)
    findings = _check_source(context, read, source)
    if not source or read.unmanaged or context.is_own_table(read):
        return None, findings
    baseline = Baseline(read.table, source.table_id, source.version)
    if not hand_over:
        return baseline, findings
    if source.table_id not in hand_over.positions and read.explicit is None:
        findings += context.refuse("SOURCE_NOT_READ_BY_OLD_STREAMS", source=read, table=migration)
    version = hand_over.positions.get(source.table_id, source.version)
    return replace(baseline, version=version, within=hand_over.within.get(source.table_id, "")), findings


def _can_compare_rows(migration: Migration) -> bool:
    """Return whether a comparison of rows can find the hand-over point."""
    return migration.hand_over == "content" or (
        migration.hand_over == "checkpoint" and migration.content_fallback
    )


def _report_evidence(
    context: PlanningContext, migration: Migration, hand_over: HandOver, unknown: UnknownHandOver | None
) -> Findings:
    """Report the evidence for the hand-over point; ``unknown`` is why the rows don't prove it."""
    match hand_over.certainty:
        case "recorded":
            batches = " and ".join(f"batch {batch}" for batch in hand_over.batches.values())
            return add_note(
                f"the hand-over point is recorded by the old streams: {batches} of their checkpoints"
            )
        case "proved":
            return add_note(f"the hand-over point is proved: {hand_over.why}")
        case "assumed":
            if migration.hand_over == "explicit":
                return context.warn("HAND_OVER_ASSUMED_FROM_SPEC")
            if unknown:
                return context.warn("HAND_OVER_NOT_PROVED", reason=unknown.why.one_line)
            return context.warn("HAND_OVER_ASSUMED")
        case _:
            assert_never(hand_over.certainty)


def check_take_over_in_pipeline(context: PlanningContext) -> Findings:
    """Refuse a pipeline as the engine of a target that takes over the legacy table, now or earlier."""
    migration, stored = context.dataflow.migration, context.stored
    start = stored.migration_start
    wanted = migration is not None and migration.take_over
    recorded = stored.taken_over or (start is not None and start.is_take_over)
    if not context.request.in_pipeline or not (wanted or recorded):
        return Findings()
    location = migration.location if migration else context.dataflow.file
    return context.refuse("TAKE_OVER_IN_PIPELINE", location=location)


def check_other_writers(context: PlanningContext) -> Findings:
    """Refuse a target that was taken over and to which another process appends rows."""
    start, writes = context.migration_start, context.facts.legacy_writes.get(context.target.key)
    if not start or not start.is_take_over or not writes:
        return Findings()
    changed = {
        operation: seen
        for operation, seen in writes.foreign_commits.items()
        if operation not in writes.foreign_appends
    }
    findings = (
        context.warn("ROWS_CHANGED_SINCE_TAKE_OVER", writes=writes.describe(changed))
        if changed
        else Findings()
    )
    if writes.first is None:
        return findings
    writers = []
    if writes.batches:
        batches = " and ".join(f"batch {batch}" for batch in writes.batches.values())
        writers.append(f"its old stream (up to {batches})")
    if writes.foreign_appends:
        writers.append(f"another process ({writes.describe(writes.foreign_appends)})")
    again = "take the table over again: `tableferry pipelines undo`, then run"
    remedy = f"remove the duplicate rows, and {again}"
    if not writes.is_interleaved:
        remedy = (
            f"run RESTORE TABLE {context.target.sql} TO VERSION AS OF {writes.first - 1}. Or, if these rows "
            f"belong there, {again}"
        )
    return findings + context.refuse(
        "WRITTEN_SINCE_TAKE_OVER", writers=" and ".join(writers), version=writes.first, advice=remedy
    )


def check_pinned_legacy_table(context: PlanningContext) -> Findings:
    """Refuse a copy whose legacy table is missing, was recreated or restored to an older version."""
    migration, start = context.migration, context.migration_start
    if not migration or not start:
        return Findings()
    pinned = start.copy
    legacy = context.facts.tables.get(migration.table.key)
    if not legacy:
        return context.refuse("LEGACY_TABLE_MISSING_BEFORE_COPY", table=migration)
    if (legacy.table_id and legacy.table_id != pinned.table_id) or legacy.version < pinned.version:
        return context.refuse("LEGACY_TABLE_RECREATED", table=migration, version=pinned.version)
    return Findings()


def end_migration(context: PlanningContext) -> Findings:
    """Plan to remove the state of a migration that the spec has switched off, or refuse if that is too early.

    The copy must be complete, and each streaming flow must have started. A migration with an assumed
    hand-over gets a warning instead. State of another pipeline is refused while a flow hasn't started.
    """
    stored, target, file = context.stored, context.target, context.dataflow.file
    flows = context.dataflow.streaming_flows
    unstarted = next((flow for flow in flows if not context.find_checkpoint(flow).has_started), None)
    if not stored.migration_start:
        if not stored.elsewhere or not unstarted:
            return Findings()
        return context.check_ambiguous_rename(unstarted) + context.refuse(
            "MIGRATION_SWITCHED_OFF_ELSEWHERE", file=file, others=stored.elsewhere
        )
    incomplete = context.refuse("MIGRATION_SWITCHED_OFF", file=file)
    if not context.is_copied:
        return incomplete
    if unstarted:
        return context.check_ambiguous_rename(unstarted) + incomplete
    if is_assumed(context.dataflow, stored.migration_start) and not context.is_refreshed:
        return context.warn("ASSUMED_MIGRATION_SWITCHED_OFF")
    certainty = stored.migration_start.certainty
    note = f"its migration is complete ({certainty}) and switched off: the run removes its state files"
    return plan_steps(RemoveMigration(target)) + add_note(note)


def is_assumed(dataflow: DataFlow, start: MigrationStart | None) -> bool:
    """Return whether a migration started at a hand-over point that neither rows nor checkpoints prove.

    The recorded start decides, because the spec can have switched off the migration since then.
    """
    return start is not None and start.certainty == "assumed" and bool(dataflow.streaming_flows)


def _check_earlier_runs(context: PlanningContext, migration: Migration) -> Findings:
    """Refuse a start with flows that have run, because they would resume from their checkpoints."""
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
        # A full refresh isn't a remedy here, because it would drop the rows of the old streams.
        return context.refuse(
            "FLOWS_RAN_BEFORE_TAKE_OVER",
            location=migration.location,
            flows=ran,
            statement=f"ALTER TABLE {context.target.sql} UNSET TBLPROPERTIES IF EXISTS ('{PROPERTY}')",
        )
    return context.refuse("FLOWS_RAN_BEFORE_MIGRATION", location=migration.location, flows=ran)


def _check_readers(context: PlanningContext, migration: Migration) -> Findings:
    """Refuse a copy whose rows a reader with its own history would process as new rows.

    Such a reader started while this spec was skipped or had no migration.
    """
    findings = Findings()
    for reader in context.list_readers():
        stored = context.facts.states.get(reader.key, TargetState())
        if stored.migration_start or stored.finished:
            findings += context.refuse(
                "READER_WOULD_TAKE_HISTORY", location=migration.location, reader=reader.target.name
            )
    return findings


def _check_source(context: PlanningContext, read: Read, source: TableFacts | None) -> Findings:
    """Refuse a source without a recordable baseline, unless all its rows are new."""
    if read.unmanaged:
        return refuse_all([read.unmanaged.at(read.location)]) if read.explicit is None else Findings()
    producer = context.producers.get(read.table.key)
    if source or producer is context.dataflow:
        return Findings()
    if not producer:
        return context.refuse("SOURCE_TABLE_MISSING", source=read)
    if read.explicit is None and not _has_explicit_starts(context, producer):
        return context.refuse("PRODUCED_SOURCE_MISSING", source=read)
    return Findings()


def _check_old_sources(
    context: PlanningContext, migration: Migration, hand_over: HandOver, ids: Collection[str]
) -> Findings:
    """Refuse a migration whose flows leave out a source that fills the legacy table."""
    old_ids = hand_over.positions.keys() | hand_over.kafka.keys()
    return refuse_all(
        context.finding("OLD_SOURCE_NOT_FOLLOWED", table=migration, source=describe_source(source_id))
        for source_id in sorted(old_ids - set(ids))
    )


def _has_explicit_starts(context: PlanningContext, producer: DataFlow) -> bool:
    """Return whether every flow of another spec has an explicit start."""
    reads = [read for flow in producer.flows for read in context.facts.streamed_reads(producer, flow)]
    return bool(reads) and all(read.explicit is not None for read in reads)


def _find_kafka_baseline(
    context: PlanningContext,
    migration: Migration,
    read: Read,
    options: Mapping[str, str],
    hand_over: HandOver | None,
) -> tuple[Baseline | None, Findings]:
    """Return the offsets at which the old stream stopped; None if the spec gives the start.

    ``options`` are the reader options of the topics.
    """
    if read.explicit is not None:
        return None, Findings()
    old_offsets = hand_over.kafka if hand_over else {}
    found = {key: offset for key, offset in old_offsets.items() if topics.is_subscribed(options, offset)}
    if not found:
        known = topics.has_start(options)
        if known and not old_offsets:
            return None, Findings()
        return None, context.refuse("SOURCE_NOT_READ_BY_OLD_STREAMS", source=read, table=migration)
    if len(found) > 1:
        return None, context.refuse(
            "TOPICS_OF_SEVERAL_STREAMS",
            location=read.location,
            table=migration,
            sources=sorted(found),
            view=read.view,
        )
    if findings := _check_shared_checkpoint(context, read):
        return None, findings
    ((source_id, offset),) = found.items()
    available = context.facts.brokers.get(read.table.key)
    if not isinstance(available, KafkaRange):
        why = available or Finding("BROKER_NOT_ASKED", source=read.table)
        return None, refuse_all([why.at(read.location)])
    # The startingOffsets of a pipeline must name each partition.
    start = offset.add_partitions_of(available.first)
    baseline = Baseline(read.table, source_id, start.offset_sum, within=str(start))
    return baseline, check_broker_range(context, read, start, available)


def check_broker_range(
    context: PlanningContext, read: Read, start: KafkaOffset, available: KafkaRange
) -> Findings:
    """Refuse a start at offsets that the broker has deleted."""
    if not (expired := available.list_unreadable_partitions(start)):
        return Findings()
    return context.refuse("OFFSETS_EXPIRED", source=read, partitions="; ".join(expired))


def _check_shared_checkpoint(context: PlanningContext, read: Read) -> Findings:
    """Refuse a flow that reads topics together with other sources, because they would share a checkpoint."""
    for flow in context.dataflow.streaming_flows:
        if read in (reads := context.list_reads(flow)) and len(reads) > 1:
            return context.refuse("SOURCES_SHARE_CHECKPOINT", source=read, flow=flow)
    return Findings()
