"""Decides where a target's migration starts: its baselines and its pinned copy, recorded once."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import assert_never

from tableferry.pipelines import checkpoint_imports, other_baselines
from tableferry.pipelines.flows import DataFlow, Migration
from tableferry.pipelines.planning_context import Findings, PlanningContext, noted, planned, refused
from tableferry.pipelines.plans import HandOver, NoHandOver
from tableferry.pipelines.reads import Read
from tableferry.pipelines.source_offsets import described
from tableferry.pipelines.state import Baseline, MigrationStart, PinnedCopy, Stored
from tableferry.pipelines.steps import Adopt, AdoptRenamed, Begin, Forget
from tableferry.tables import TableFacts, TableName


def adopt(context: PlanningContext) -> tuple[Stored, Findings]:
    """Return the state to go on with: another pipeline's, where the user asks that it's taken over."""
    stored, target = context.stored, context.target
    adoptable = context.facts.adoptable.get(target.key)
    if stored.migration_start:
        same = adoptable and adoptable.migration_start
        if adoptable and same and same.recorded_at == stored.migration_start.recorded_at:
            # An adoption died here: the other pipeline's files say the same.
            adopted = replace(stored, tracking=stored.tracking or adoptable.tracking)
            return adopted, planned(Adopt(target, stored.elsewhere[0]))
        return stored, Findings()
    if not stored.elsewhere or not context.dataflow.migration:
        return stored, Findings()
    others = ", ".join(stored.elsewhere)
    if not context.request.adopt:
        return stored, refused(
            f"{target}: its migration began under pipelineId={others}, not {context.request.pipeline_id}: "
            "run with --adopt to go on from there"
        )
    if adoptable is None:
        return stored, refused(
            f"{target}: its state is recorded under several pipelines ({others}): keep the right one's "
            "folders under initial_versions and tracking, and remove the others"
        )
    adopted = replace(adoptable, generation=stored.generation, resetting=stored.resetting)
    return adopted, planned(Adopt(target, stored.elsewhere[0]))


def earlier_start(context: PlanningContext) -> Findings:
    """Refuse a second migration of a legacy table, or adopt the first one whose target was renamed."""
    migration, target, stored = context.migration, context.target, context.stored
    if migration is None or stored.migration_start or stored.elsewhere or stored.finished:
        return Findings()
    legacy = context.facts.tables.get(migration.table.key)
    earlier = context.facts.earlier.get(legacy.table_id) if legacy else None
    if not earlier:
        return Findings()
    if len(earlier) > 1 or not context.request.adopt:
        return refused(
            f"{migration.location}: a migration of {migration.table} has begun before, for a target that the "
            f"project no longer has, and another start would lose the rows since then. Its state is in the "
            f"folders {' and '.join(earlier)} under initial_versions, tracking and checkpoints in "
            f"{context.facts.state}: name that target again. If the table was renamed, run with --adopt. To "
            "migrate a second time on purpose, remove those of the first"
        )
    if context.facts.tables.get(target.key) is None:
        return refused(
            f"{migration.location}: {target} doesn't exist, and --adopt gives it the state of {earlier[0]}: "
            f"rename the table first (ALTER TABLE ... RENAME TO {target.sql})"
        )
    return planned(AdoptRenamed(target, earlier[0]))


def uncopied_producers(context: PlanningContext) -> tuple[TableName, ...]:
    """Targets of this project that the migration reads and whose own history isn't copied yet."""
    if not (context.dataflow.migration and context.dataflow.migration.auto_starting_versions):
        return ()
    uncopied = {}
    for read in context.reads():
        producer = context.producers.get(read.table.key)
        if producer and producer is not context.dataflow and producer.migration and read.explicit is None:
            target = producer.target.name
            if not context.facts.stored.get(target.key, Stored()).copied:
                uncopied[target.key] = target
    return tuple(uncopied.values())


def migration_start(
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
        return recorded, refused(
            f"{migration.location}: the migration of {target} began with {recorded.copy.table}, and the "
            f"spec now names {migration.table}: name the first one again"
        )
    findings = Findings()
    legacy = context.facts.tables.get(migration.table.key)
    if migration.take_over and context.request.engine == "declarative":
        findings += refused(f"{migration.location}: {checkpoint_imports.NOT_IN_SPARKS_OWN}")
    if migration.table.key == target.key and not migration.take_over:
        findings += refused(
            f"{migration.location}: {target} can't be copied into itself: name the legacy table"
        )
    elif legacy is None:
        findings += refused(
            f"{migration.location}: table {migration.table} doesn't exist: correct database and table"
        )
    if target.key in context.facts.filled and not findings and not stopped:
        findings += refused(
            f"{context.dataflow.target.location}: {target} already has data that this migration didn't "
            "bring: empty or drop it"
        )
    findings += _check_earlier_runs(context, migration) + _check_readers(context, migration)
    hand_over = context.facts.hand_overs.get(target.key)
    not_proved = ""
    if isinstance(hand_over, NoHandOver):
        if migration.content_first:
            not_proved = hand_over.why
        else:
            findings += refused(f"{migration.location}: {hand_over.why}")
        hand_over = None
    elif hand_over is None and not findings and not stopped and _is_looked_for(migration):
        return None, noted("the hand-over point is looked for by plan and run")
    imported = checkpoint_imports.match(context)
    findings += imported.findings or checkpoint_imports.check_new(context, imported)
    if migration.hand_over == "explicit":
        findings += refused(
            *(
                f"{read.location}: handOver explicit needs the start of {read.table}: {read.how}"
                for read in context.reads()
                if read.explicit is None and not read.unseen
            )
        )
    baselines: dict[str, Baseline] = {}
    if migration.auto_starting_versions:
        for read in context.reads():
            if read.without_versions:
                if not checkpoint_imports.imports(context):
                    found, new = other_baselines.baseline(context, migration, read, hand_over)
                    findings += new
                    if found:
                        baselines[read.table.key] = _read_by(baselines.get(read.table.key, found), read)
                continue
            source = context.facts.tables.get(read.table.key)
            findings += _check_source(context, read, source)
            if source and not read.unseen and not context.makes(read):
                version = hand_over.positions.get(source.table_id) if hand_over else source.version
                if version is None and read.explicit is None and not imported.findings:
                    findings += other_baselines.not_read(migration, read)
                first = Baseline(
                    read.table,
                    source.table_id,
                    source.version if version is None else version,
                    within=hand_over.within.get(source.table_id, "") if hand_over else "",
                )
                baselines[read.table.key] = _read_by(baselines.get(read.table.key, first), read)
    if hand_over and not findings:
        followed = {baseline.table_id for baseline in baselines.values()}
        taken = hand_over.positions.keys() | hand_over.kafka.keys() | hand_over.files.keys()
        findings += _check_followed(context, migration, taken - followed)
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
        return None, refused(
            f"{migration.location}: {target} is at version {legacy.version}, and only version "
            f"{hand_over.version} could be taken over: let the old streams take whole commits of their "
            "sources, stop them, and run again"
        )
    counts = migration.hand_over == "explicit" or any(
        read.explicit is None and read.table.key in baselines for read in context.reads()
    )
    findings = planned(Begin(start, hand_over.files))
    findings += _how_sure(context, hand_over, not_proved) if counts else Findings()
    return start, findings + (checkpoint_imports.sure(context, imported) if imported.by_flow else Findings())


def _is_looked_for(migration: Migration) -> bool:
    """Say whether rows may be compared to find where the old job hands over."""
    return migration.hand_over == "content" or (migration.hand_over == "checkpoint" and migration.or_content)


def _how_sure(context: PlanningContext, hand_over: HandOver, not_proved: str) -> Findings:
    """Name the evidence for the hand-over point; ``not_proved`` is why comparing rows didn't prove it."""
    match hand_over.certainty:
        case "recorded":
            batches = " and ".join(f"batch {batch}" for batch in hand_over.batches.values())
            return noted(
                f"the hand-over point is recorded by the old streams: {batches} of their checkpoints"
            )
        case "proved":
            return noted(f"the hand-over point is proved: {hand_over.why}")
        case "assumed":
            if context.dataflow.migration and context.dataflow.migration.hand_over == "explicit":
                return noted("the hand-over point is assumed: it's what the spec says; --check compares it")
            return noted(
                "the hand-over point is assumed: rows up to the baselines that the old jobs haven't taken "
                "yet are lost; "
                + (f"handOver auto doesn't prove it: {not_proved}" if not_proved else "--check compares it")
            )
        case _:
            assert_never(hand_over.certainty)


def check_old_streams(context: PlanningContext) -> Findings:
    """Refuse to write into a table that was taken over, and to which another process adds rows."""
    start, writes = context.migration_start, context.facts.legacy_writes.get(context.target.key)
    if context.request.in_pipeline:
        # Its flows may have the old streams' ids there, so that the table's log doesn't tell them apart.
        return checkpoint_imports.check(context)
    if start is None or not start.take_over or writes is None:
        return Findings()
    changed = {operation: seen for operation, seen in writes.others.items() if operation not in writes.added}
    findings = (
        noted(f"other processes changed rows since the take-over: {writes.named(changed)}")
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
            f"RESTORE TABLE {context.target.sql} TO VERSION AS OF {writes.first - 1}; or, if these rows "
            f"belong there, {again}"
        )
    return findings + refused(
        f"{context.target}: {' and '.join(writers)} has written to it since it was taken over, from version "
        f"{writes.first} on, so rows may be in it twice: stop that writer; then {remedy}"
    )


def check_legacy(context: PlanningContext) -> Findings:
    """Refuse a copy whose legacy table isn't the one that was pinned any more."""
    migration, start = context.migration, context.migration_start
    if migration is None or start is None:
        return Findings()
    pinned = start.copy
    legacy = context.facts.tables.get(migration.table.key)
    if legacy is None:
        return refused(
            f"{migration.location}: table {migration.table} is gone and its history isn't in "
            f"{context.target}: restore it"
        )
    if (legacy.table_id and legacy.table_id != pinned.table_id) or legacy.version < pinned.version:
        return refused(
            f"{migration.location}: {migration.table} was dropped and made anew since its copy was pinned to "
            f"version {pinned.version}: restore the old table"
        )
    return Findings()


def end(context: PlanningContext) -> Findings:
    """Look at state that outlived its migration: it may go once nothing depends on it."""
    stored, target, file = context.stored, context.target, context.dataflow.file
    flows = context.dataflow.streaming_flows
    unstarted = next((flow for flow in flows if not context.checkpoint(flow).started), None)
    if not stored.migration_start:
        if not stored.elsewhere or not unstarted:
            return Findings()
        return context.ambiguous(unstarted) + refused(
            f"{file}: the migration of {target} began under pipelineId="
            f"{', '.join(stored.elsewhere)} and is switched off before its flows have started: "
            "switch it on again, and run with --adopt"
        )
    incomplete = refused(
        f"{file}: tableMigrationDetails of {target} is switched off before the "
        "migration is complete: switch it on again until `tableferry pipelines status` says complete"
    )
    if not context.copied:
        return incomplete
    if unstarted:
        return context.ambiguous(unstarted) + incomplete
    if is_assumed(context.dataflow, stored.migration_start) and not context.refreshed:
        return noted(
            "its migration is complete (assumed) and switched off: compare the target with the old table, "
            "then `tableferry pipelines finish --accept-assumed` removes its state files"
        )
    certainty = stored.migration_start.certainty
    note = f"its migration is complete ({certainty}) and switched off: its state files are removed"
    return planned(Forget(target)) + noted(note)


def is_assumed(dataflow: DataFlow, start: MigrationStart | None) -> bool:
    """Return whether neither rows nor checkpoints show where the flows of a target start.

    The spec may have lost or switched off the migration since then: the start is what counts.
    """
    return start is not None and start.certainty == "assumed" and bool(dataflow.streaming_flows)


def _check_earlier_runs(context: PlanningContext, migration: Migration) -> Findings:
    """Refuse to begin with flows that have run before: they continue from their checkpoints."""
    if migration.take_over or context.refreshed or context.stored.resetting or context.request.in_pipeline:
        return Findings()
    ran = [
        flow.name
        for flow in context.dataflow.flows
        if (checkpoint := context.checkpoint(flow)).offered is not None or checkpoint.done
    ]
    if not ran:
        return Findings()
    target, single = context.target, len(ran) == 1
    return refused(
        f"{migration.location}: {' and '.join(ran)} {'has' if single else 'have'} run before the migration "
        f"of {target} began, so {'it' if single else 'they'} would continue there and not after the "
        f"baselines: empty {target}, then run with --full-refresh {target}"
    )


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
            findings += refused(
                f"{migration.location}: {name} has its own history and takes whatever comes into "
                f"{context.target} for new rows, and so this history: drop {name} and its state folders, and "
                f"migrate it anew behind {context.target}, or leave this history out"
            )
    return findings


def _read_by(baseline: Baseline, read: Read) -> Baseline:
    return replace(baseline, views=tuple(dict.fromkeys((*baseline.views, read.view))))


def _check_source(context: PlanningContext, read: Read, source: TableFacts | None) -> Findings:
    """Refuse a source of which no baseline can be recorded, unless all its rows are new."""
    if read.unseen:
        return refused(f"{read.location}: {read.unseen}") if read.explicit is None else Findings()
    producer = context.producers.get(read.table.key)
    if source or producer is context.dataflow:
        return Findings()
    if producer is None:
        return refused(f"{read.location}: table {read.table} doesn't exist: restore it, or correct the spec")
    if read.explicit is None and not _starts_known(context, producer):
        return refused(
            f"{read.location}: {read.table} is made by this project and doesn't exist yet, so it can't be "
            f"known which of its rows {context.target} already holds: run the project once without this "
            f"migration, or {read.how} (0 = all its rows)"
        )
    return Findings()


def _check_followed(context: PlanningContext, migration: Migration, missing: Collection[str]) -> Findings:
    """Refuse to leave a source behind that fills the legacy table."""
    return refused(
        *(
            f"{migration.location}: the old streams of {migration.table} read "
            + described(source_id)
            + f", which no flow of {context.target} follows, so what comes into it would be missing: add "
            "it to the spec, or leave its checkpoint out"
            for source_id in sorted(missing)
        )
    )


def _starts_known(context: PlanningContext, producer: DataFlow) -> bool:
    """Say whether all that will flow into another target comes after starts that the user gave."""
    reads = [read for flow in producer.flows for read in context.facts.follows(producer, flow)]
    return bool(reads) and all(read.explicit is not None for read in reads)
