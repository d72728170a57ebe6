"""Decides where a target's migration begins: its baselines and its pinned copy, recorded once."""

from __future__ import annotations

from dataclasses import replace

from tableferry.pipelines.cases import Case
from tableferry.pipelines.flows import DataFlow, Migration
from tableferry.pipelines.reads import Read
from tableferry.pipelines.state import Baseline, MigrationStart, PinnedCopy, Stored
from tableferry.pipelines.steps import Adopt, Begin, Forget
from tableferry.tables import TableName


def adopt(case: Case) -> None:
    """Take over state that another pipeline recorded of the target, where the user asks for it."""
    stored, elsewhere = case.stored, case.stored.elsewhere
    found = case.facts.adoptable.get(case.name.key)
    if stored.migration_start:
        if (
            found
            and found.migration_start
            and found.migration_start.recorded_at == stored.migration_start.recorded_at
        ):
            # An adoption died here: the other pipeline's files say the same.
            case.steps.append(Adopt(case.name, elsewhere[0]))
            case.stored = replace(stored, tracking=stored.tracking or found.tracking)
        return
    if not elsewhere or not case.dataflow.migration:
        return
    others = ", ".join(elsewhere)
    if not case.request.adopt:
        case.refusals.append(
            f"{case.name}: its migration began under pipelineId={others}, not {case.request.pipeline_id}: "
            "run with --adopt to go on from there"
        )
    elif found is None:
        case.refusals.append(
            f"{case.name}: its state is recorded under several pipelines ({others}): keep the right one's "
            "folders under initial_versions and tracking, and remove the others"
        )
    else:
        case.steps.append(Adopt(case.name, elsewhere[0]))
        case.stored = replace(found, generation=stored.generation, resetting=stored.resetting)


def uncopied_producers(case: Case) -> tuple[TableName, ...]:
    """Targets of this project that the migration reads and whose own history isn't copied yet."""
    if not (case.dataflow.migration and case.dataflow.migration.auto_starting_versions):
        return ()
    found = {}
    for read in case.reads():
        maker = case.producers.get(read.table.key)
        if maker and maker is not case.dataflow and maker.migration and read.explicit is None:
            name = maker.target.name
            if not case.facts.stored.get(name.key, Stored()).copied:
                found[name.key] = name
    return tuple(found.values())


def migration_start(case: Case, migration: Migration) -> MigrationStart | None:
    """Return where the migration begins, as recorded or about to be; None where that's refused."""
    recorded = case.stored.migration_start
    if recorded:
        if recorded.copy.table.key != migration.table.key:
            case.refusals.append(
                f"{migration.place}: the migration of {case.name} began with {recorded.copy.table}, and the "
                f"spec now names {migration.table}: name the first one again"
            )
        return recorded
    legacy = case.facts.tables.get(migration.table.key)
    if migration.table.key == case.name.key:
        case.refusals.append(
            f"{migration.place}: {case.name} can't be copied into itself: name the legacy table"
        )
    elif legacy is None:
        case.refusals.append(
            f"{migration.place}: table {migration.table} doesn't exist: correct database and table"
        )
    if case.name.key in case.facts.filled and not case.refusals:
        case.refusals.append(
            f"{case.dataflow.target.place}: {case.name} already has data that this migration didn't bring: "
            "empty or drop it"
        )
    baselines: dict[str, Baseline] = {}
    if migration.auto_starting_versions:
        for read in case.reads():
            _add_baseline(case, baselines, read)
    if legacy is None or case.refusals:
        return None
    copy = PinnedCopy(migration.table, legacy.table_id, legacy.version)
    new = MigrationStart(case.request.pipeline_id, case.name, copy, baselines, case.request.now)
    case.steps.append(Begin(new))
    return new


def check_legacy(case: Case, migration: Migration, migration_start: MigrationStart) -> None:
    """Refuse a copy whose legacy table isn't the one that was pinned any more."""
    legacy = case.facts.tables.get(migration.table.key)
    if legacy is None:
        case.refusals.append(
            f"{migration.place}: table {migration.table} is gone and its history isn't in {case.name}: "
            "restore it"
        )
    elif (legacy.table_id or migration_start.copy.table_id) != migration_start.copy.table_id or (
        legacy.version < migration_start.copy.version
    ):
        case.refusals.append(
            f"{migration.place}: {migration.table} was dropped and made anew since its copy was pinned to "
            f"version {migration_start.copy.version}: restore the old table"
        )


def end(case: Case) -> None:
    """Look at state that outlived its migration: it may go once nothing depends on it."""
    if not case.stored.migration_start:
        if case.stored.elsewhere and not case.started:
            case.refusals.append(
                f"{case.dataflow.file}: the migration of {case.name} began under pipelineId="
                f"{', '.join(case.stored.elsewhere)} and is switched off before its flows have started: "
                "switch it on again, and run with --adopt"
            )
        return
    if case.copied and case.started:
        case.steps.append(Forget(case.name))
        case.notes.append("its migration is complete and switched off: its state files are removed")
    else:
        case.refusals.append(
            f"{case.dataflow.file}: tableMigrationDetails of {case.name} is switched off before the "
            "migration is complete: switch it on again until `tableferry pipelines status` says complete"
        )


def _add_baseline(case: Case, baselines: dict[str, Baseline], read: Read) -> None:
    if read.unseen:
        if read.explicit is None:
            case.refusals.append(f"{read.place}: {read.unseen}")
        return
    source = case.facts.tables.get(read.table.key)
    if source is None:
        maker = case.producers.get(read.table.key)
        if maker is None:
            case.refusals.append(
                f"{read.place}: table {read.table} doesn't exist: restore it, or correct the spec"
            )
        elif maker is not case.dataflow and read.explicit is None and not _starts_known(case, maker):
            case.refusals.append(
                f"{read.place}: {read.table} is made by this project and doesn't exist yet, so it can't be "
                f"known which of its rows {case.name} already holds: run the project once without this "
                f"migration, or {read.how} (0 = all its rows)"
            )
        return
    if case.makes(read):
        return
    known = baselines.get(read.table.key) or Baseline(read.table, source.table_id, source.version)
    views = known.views if read.view in known.views else (*known.views, read.view)
    baselines[read.table.key] = replace(known, views=views)


def _starts_known(case: Case, maker: DataFlow) -> bool:
    """Say whether all that will flow into another target comes after starts that the user gave."""
    reads = [read for flow in maker.flows for read in case.facts.follows(maker, flow)]
    return bool(reads) and all(read.explicit is not None for read in reads)
