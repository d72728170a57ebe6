"""Perform the steps of a job's transitions; facts for later steps are recorded before each change."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, assert_never

from tableferry.amounts import first_of
from tableferry.errors import Paused, Refused
from tableferry.fleet.access import fence
from tableferry.fleet.access.revoked_privileges import RevokedPrivileges
from tableferry.fleet.checks.preflight import first_finding
from tableferry.fleet.closure import leftovers, removal
from tableferry.fleet.commands import command
from tableferry.fleet.copies import (
    comparison,
    copy_removal,
    delta,
    iceberg,
    preparation,
    shared_files_comment,
)
from tableferry.fleet.copies.rewrite import rewritten_copy, writer
from tableferry.fleet.hive_copy import restoration
from tableferry.fleet.hive_tables import copy_locations
from tableferry.fleet.jobs import steps
from tableferry.fleet.jobs.findings import PauseFinding
from tableferry.fleet.jobs.job import Job, PauseReason, TargetFormat
from tableferry.fleet.jobs.names import Names
from tableferry.fleet.jobs.record import Rewrite
from tableferry.fleet.late_files import suspended_runs
from tableferry.fleet.late_files.file_record import FileRecord
from tableferry.fleet.late_files.settlement import LateFilesError, check_late_files
from tableferry.fleet.shadow_runs.run import HiveCopyChanged, PartitionsRemoved, shadow
from tableferry.fleet.shadow_runs.trial import try_shadow
from tableferry.fleet.warehouse import (
    definitions,
    job_tables,
    managed_tables,
    old_name_view,
    table_renames,
    target_versions,
    views,
)
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.hive import read_layout
from tableferry.progress import Task, task
from tableferry.spark.driver import track_jobs
from tableferry.spark.tables import TableName

_log = logging.getLogger(__name__)

Save = Callable[[Job], Job]
"""Saves a job and extends its claim; returns the job with its new revision."""

# A key of `JobRecord.closing`: the directories that closing keeps.
KEPT = "kept"

# The maximum number of recorded directories that couldn't be removed; they are in the same folder.
_NOTED = 100


class StepPaused(Paused):
    """A step needs a person's decision; the job waits with the finding's reason.

    Attributes:
        pause: The finding with which the job pauses.
        found: The key with which a person accepts exactly this finding.
    """

    def __init__(self, finding: PauseFinding, found: str = "") -> None:
        super().__init__(finding.condition or finding.text, **finding.parameters)
        self.pause, self.found = finding, found


class WrittenDuringBlock(Refused):
    """Another process wrote to the table while writes were blocked."""


def perform(step: steps.Step, job: Job, warehouse: Warehouse, save: Save) -> Job:
    """Perform one step of a claimed job, and return the job with new records; the caller saves it.

    A step is idempotent. A record that must exist before the change is saved with `save`.

    Raises:
        StepPaused: A person must decide.
        WrittenDuringBlock: The table changed while writes were blocked.
        TableferryError: Any other error that the user can fix.
    """
    with (
        task(_log, str(step), table=job.name, worker=job.claimed_by or "", level=logging.DEBUG) as running,
        track_jobs(warehouse.spark, running),
    ):
        return _perform(step, job, warehouse, save, running)


def _perform(step: steps.Step, job: Job, warehouse: Warehouse, save: Save, running: Task) -> Job:
    accept = job.record.accept
    match step:
        case steps.RepeatPreflight():
            if finding := first_finding(warehouse, job):
                raise StepPaused(finding)
        case steps.TryShadow(table):
            try_shadow(warehouse, table)
        case steps.PrepareCopy(source, target):
            with _pausing(PauseReason.ROWS_DIFFER, comparison.RowsDiffer):
                running.update("rows", preparation.prepare(warehouse, source, target))
            FileRecord.begin(warehouse, source)
        case steps.CompareAhead(table):
            with _pausing(PauseReason.ROWS_DIFFER, comparison.RowsDiffer):
                running.update("rows", preparation.compare_ahead(warehouse, table))
            FileRecord.begin(warehouse, table)
        case steps.RewriteAhead(target, hive, form):
            began = time.monotonic()
            folder = copy_locations.copies_folder(read_layout(warehouse, hive).location, form)
            rewritten = job.record.rewritten or Rewrite()
            if folder != rewritten.get("folder"):
                rewritten_copy.require_empty(warehouse, folder)
            job = save(job.with_record(rewritten={**rewritten, "folder": folder}))
            with _pausing(PauseReason.ROWS_DIFFER, comparison.RowsDiffer):
                running.update("rows", writer.write_before_block(warehouse, hive, target, form))
            seconds = round(time.monotonic() - began, 1)
            job = job.with_record(rewritten={**rewritten, "folder": folder, "seconds": seconds})
        case steps.RewriteRest(target, hive, form):
            running.update("partitions", writer.write_during_block(warehouse, hive, target, form))
        case steps.VerifyRewritten(target, hive, form):
            with _pausing(PauseReason.ROWS_DIFFER, comparison.RowsDiffer):
                running.update("rows", writer.require_rewritten_rows(warehouse, hive, target, form))
        case steps.BlockWrites(table):
            # Each run records the rights before it takes them; an earlier run may have taken only some.
            if rights := warehouse.access.rights_to_write(table):
                note = RevokedPrivileges(rights, table).note()
                job = save(job.with_record(rights=(*job.record.rights, note)))
            if noted := job.record.rights:
                warehouse.effect(partial(_take, warehouse, table, noted, Names.of(job)), of=())
            job = job.with_record(fence=dict(fence.mark(warehouse, table)))
        case steps.UnblockWrites(table):
            taken = [RevokedPrivileges.of(note) for note in (*job.record.withheld_rights, *job.record.rights)]
            applicable, others = _divide_rights(warehouse, table, taken, Names.of(job))
            for rights in reversed(applicable):
                warehouse.effect(partial(warehouse.access.give_back, table, rights), of=())
            if taken:
                # A suspended worker may take the rights again. If it does so before their record is deleted
                # here, they are given back below; otherwise that worker gives them back.
                job = save(job.with_record(rights=(), withheld_rights=_withheld(job, table, others)))
            for rights in reversed(applicable):
                warehouse.effect(partial(warehouse.access.give_back, table, rights), of=())
            job = job.with_record(fence={})
        case steps.CheckFence(table):
            if differences := fence.differences(warehouse, table, job.record.fence):
                raise WrittenDuringBlock(
                    "TABLE_WRITTEN_WHILE_BLOCKED",
                    table=table,
                    differences=differences,
                    command=command("resume", job.name),
                )
        case steps.RecordFiles(table):
            FileRecord.create(warehouse, table)
        case steps.CheckLate(target, hive, form, decide):
            watermark = job.shadow_watermark
            with _pausing(PauseReason.WRITTEN_LATE, LateFilesError):
                late_files_checked = check_late_files(
                    warehouse, target, hive, form, watermark, decide=decide, accept=accept
                )
            job = _with_late_file_check(job, hive, late_files_checked)
        case steps.MakeExternal(table):
            if managed_tables.is_managed(warehouse, table):
                job = save(job.with_record(was_managed=True))
                with _pausing(PauseReason.MANAGED_TABLE):
                    managed_tables.set_managed(warehouse, table, managed=False)
        case steps.MakeManaged(table):
            if job.record.was_managed:
                managed_tables.set_managed(warehouse, table, managed=True)
            job = job.with_record(was_managed=False)
        case steps.MakeTarget(source, target, form):
            make = iceberg.create_copy if form is TargetFormat.ICEBERG else delta.create_copy
            running.update("files", make(warehouse, source, target))
        case steps.CopyDefinition(source, target):
            # Each comment creates a version of a Delta table, so the watermark is the version after the last.
            watermark = definitions.carry(warehouse, source, target, job.target_format)
            job = replace(job, shadow_watermark=watermark)
        case steps.CopyAccess(source, target):
            warehouse.effect(lambda: warehouse.access.carry(source, target), of=())
        case steps.Verify(source, target):
            with _pausing(PauseReason.ROWS_DIFFER):
                running.update("rows", comparison.require_copy_has_same_rows(warehouse, source, target))
        case steps.VerifyShadow(target, hive):
            version = job.shadow_watermark
            try:
                with _pausing(PauseReason.ROWS_DIFFER):
                    rows = comparison.require_same_rows(warehouse, hive, target, right_version=version)
            except StepPaused:
                save(job.with_record(compare_all=True))
                raise
            running.update("rows", rows)
        case steps.Rename(table, to):
            table_renames.rename(warehouse, table, to, beside=Names.of(job).all)
        case steps.MakeView(source, target):
            old_name_view.create_view(warehouse, source, target)
            # The rename moved the Hive table's rights to its new name, but readers use the old name.
            hive = Names.of(job).hive
            warehouse.effect(lambda: warehouse.access.carry(hive, source), of=())
        case steps.CheckView(source, target):
            old_name_view.require_view_or_free_name(warehouse, source, target)
        case steps.DropView(source, target):
            old_name_view.drop_view(warehouse, source, target)
        case steps.AllowLogCleaning(table):
            rewritten_copy.allow_log_cleaning(warehouse, table)
        case steps.WriteCheckpoint(table):
            delta.write_checkpoint(warehouse, table)
        case steps.CheckViews(table):
            job = job.with_record(broken_views=tuple(views.list_unreadable_views(warehouse, table)))
        case steps.Shadow(target, hive, form):
            job_tables.require_own_table(warehouse, Names.of(job), target)
            with (
                _pausing(PauseReason.WRITTEN_LATE, LateFilesError),
                _pausing(PauseReason.PARTITIONS_REMOVED, PartitionsRemoved),
                _pausing(PauseReason.HIVE_COPY_CHANGED, HiveCopyChanged),
            ):
                shadowed = shadow(
                    warehouse,
                    target,
                    hive,
                    form,
                    job.shadow_watermark,
                    accept=accept,
                    compare_all=bool(job.record.compare_all),
                )
            running.update("partitions", len(shadowed.updates))
            running.update("rows", sum(part.rows or 0 for part in shadowed.updates))
            if shadowed.removed:
                _log.warning("%s: %s", job.name, shadowed.removed)
                job = job.with_record(removed_partitions=shadowed.removed)
            if shadowed.left_directories:
                job = _record_left_directories(job, shadowed.left_directories)
            job = _with_late_file_check(job, hive, shadowed.late_files_checked)
            job = replace(job, shadow_watermark=shadowed.watermark).with_record(accept="", compare_all=False)
        case steps.ShadowWritten(target, hive, form):
            if target_versions.current_version(warehouse, target, form) != job.shadow_watermark:
                return _perform(steps.Shadow(target, hive, form), job, warehouse, save, running)
        case steps.WarnOfSharedFiles(hive, target):
            shared_files_comment.add_warning(warehouse, hive, target)
        case steps.RestoreComment(table):
            shared_files_comment.restore_comment(warehouse, table)
        case steps.RestoreEntry(target, hive, form):
            restoration.restore_entry(warehouse, target, hive, form)
        case steps.RestoreHiveCopy(target, hive, form):
            restoration.restore_hive_copy(warehouse, target, hive, form, job.stg_format)
        case steps.AdoptTable(target, source, form):
            restoration.adopt_table(warehouse, source, target, form)
        case steps.DropEntry(table):
            restoration.drop_entry(warehouse, table, job.target_format)
        case steps.CheckSuspended(hive):
            suspended_runs.require_no_suspended_files(warehouse, hive)
        case steps.RemoveRewritten(target, hive, folder):
            if not rewritten_copy.remove_files(warehouse, target, hive, folder, job.target_format):
                job = _record_left_directories(job, [folder])
        case steps.DropCopy(target, hive, form):
            with _pausing(PauseReason.WRITTEN_WHILE_BLOCKED, copy_removal.CopyWrittenAfterSync):
                copy_removal.drop_copy(warehouse, hive, target, form, job.shadow_watermark, accept=accept)
            job = job.with_record(accept="")
        case steps.NoteLeftovers(target, hive, form):
            closing = job.record.closing
            if closing and not leftovers.is_recorded_table(warehouse, hive, leftovers.Leftovers.of(closing)):
                raise Refused(
                    "ARCHIVED_TABLE_REPLACED_DURING_CLOSE", table=hive, command=command("resume", job.name)
                )
            found = leftovers.find_leftovers(warehouse, target, hive, form)
            leftovers.require_no_dependents(warehouse, target, hive, form, found)
            if job.is_rewritten:
                leftovers.require_apart(warehouse, target, found)
            # The following steps can't be undone, so the job can't be reverted after this record.
            job = save(job.with_record(closing=found.note(), accept=""))
        case steps.DropArchived(target, hive, _):
            removal.drop(warehouse, target, hive, leftovers.Leftovers.of(job.record.closing))
        case steps.RemoveLeftovers(target, form, rewritten):
            found = leftovers.Leftovers.of(job.record.closing)
            # A pause may separate this step from the record by days.
            leftovers.require_alone(warehouse, target, Names.of(job).archived, found)
            removed = removal.remove(warehouse, target, form, found, rewritten=rewritten)
            running.update("files", removed.files)
            job = job.with_record(closing={**job.record.closing, KEPT: list(removed.kept)})
            job = _with_left(job, removed.left)
        case steps.AllowCleaning(table):
            found = leftovers.Leftovers.of(job.record.closing)
            removal.allow_cleaning(warehouse, table, Names.of(job).archived, found)
        case _:
            assert_never(step)
    return job


def _record_left_directories(job: Job, left: Sequence[str]) -> Job:
    """Record unused directories that this process can't remove, and log a warning."""
    _log.warning(
        "%s: no table reads %s any more, and this process can't remove them: the owner of the storage can "
        "remove them", job.name, first_of(left),
    )  # fmt: skip
    return _with_left(job, left)


def _with_left(job: Job, left: Sequence[str]) -> Job:
    every = [*job.record.left_directories, *left]
    return job.with_record(left_directories=tuple(dict.fromkeys(every))[-_NOTED:])


def _take(warehouse: Warehouse, table: TableName, noted: Iterable[Mapping[str, Any]], names: Names) -> None:
    for rights in _divide_rights(warehouse, table, map(RevokedPrivileges.of, noted), names)[0]:
        warehouse.access.take(table, rights)


def _divide_rights(
    warehouse: Warehouse, table: TableName, taken: Iterable[RevokedPrivileges], names: Names
) -> tuple[list[Mapping[str, Any]], list[RevokedPrivileges]]:
    """Divide rights into those that apply to a table, and those of a table in another catalog."""
    applicable, others = list[Mapping[str, Any]](), list[RevokedPrivileges]()
    for rights in taken:
        if rights.apply_to(table, warehouse.access, names):
            applicable.append(rights.rights)
        else:
            others.append(rights)
    return applicable, others


def _withheld(job: Job, table: TableName, others: Sequence[RevokedPrivileges]) -> tuple[dict[str, Any], ...]:
    """Return the records of rights that aren't given back, because they don't apply to the unblocked table.

    They aren't given back on their original table either. After the switch, that's the Hive copy, where new
    rows would bypass the new table; so they stay recorded until a revert unblocks the Hive table. After a
    revert, it's the copy, which is dropped next; so the record isn't needed any more.
    """
    if not others:
        return ()
    names = Names.of(job)
    sentence = "%s: rights to write that were taken from %s aren't given back on %s, whose catalog keeps none"
    if table == names.main:
        _log.info(sentence, job.name, names.target, table)
        return ()
    _log.warning(
        f"{sentence}: grant them there to its writers; a revert gives them back", job.name, names.main, table
    )
    return tuple(rights.note() for rights in others)


def _with_late_file_check(job: Job, hive: TableName, late_files_checked: bool) -> Job:
    """Record on a job that late files couldn't be determined; a complete check removes the record."""
    sentence = (
        f"late files can't be determined: {hive} has no record of the files at the switch, because an "
        "earlier version made the switch or the property tableferry.known_files was removed; compare its "
        "directories with the new table's files before you drop it"
    )
    updated = job.with_record(late_files_not_looked_for="" if late_files_checked else sentence)
    if not late_files_checked and updated != job:
        _log.warning("%s: %s", job.name, sentence)
    return updated


@contextmanager
def _pausing(reason: PauseReason, kind: type[Refused] = Refused) -> Iterator[None]:
    """Pause the job for this reason if an error of this kind is raised inside a ``with``."""
    try:
        yield
    except StepPaused:
        raise
    except kind as error:
        raise StepPaused(PauseFinding(reason, error), getattr(error, "found", "")) from error
