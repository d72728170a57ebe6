"""Perform the steps of a job's transitions: one handler for each step, beside the code of its change."""

from __future__ import annotations

import logging
from typing import assert_never

from tableferry.fleet.access import fence, write_block
from tableferry.fleet.checks import preflight
from tableferry.fleet.closure import leftovers, removal
from tableferry.fleet.copies import comparison, copy_removal, delta, preparation, shared_files_comment
from tableferry.fleet.copies.rewrite import rewritten_copy, writer
from tableferry.fleet.hive_copy import restoration
from tableferry.fleet.jobs import steps
from tableferry.fleet.jobs.job import Job
from tableferry.fleet.late_files import file_record, settlement, suspended_runs
from tableferry.fleet.shadow_runs import trial
from tableferry.fleet.shadow_runs import update_hive_copy as shadow_run
from tableferry.fleet.warehouse import definitions, old_name_view, table_renames, views
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.step_run import Save, StepRun
from tableferry.progress import task
from tableferry.spark.driver import track_jobs

_log = logging.getLogger(__name__)


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
        return _handle(step, StepRun(job, warehouse, save, running))


def _handle(step: steps.Step, run: StepRun) -> Job:
    match step:
        case steps.RepeatPreflight():
            return preflight.repeat_preflight(step, run)
        case steps.TryShadow():
            return trial.try_shadow(step, run)
        case steps.PrepareCopy():
            return file_record.prepare_copy(step, run)
        case steps.CompareAhead():
            return file_record.compare_ahead(step, run)
        case steps.RewriteAhead():
            return writer.rewrite_ahead(step, run)
        case steps.RewriteRest():
            return writer.rewrite_rest(step, run)
        case steps.VerifyRewritten():
            return writer.verify_rewritten(step, run)
        case steps.RemoveRewritten():
            return rewritten_copy.remove_rewritten(step, run)
        case steps.BlockWrites():
            return write_block.block_writes(step, run)
        case steps.UnblockWrites():
            return write_block.unblock_writes(step, run)
        case steps.CheckFence():
            return fence.check_fence(step, run)
        case steps.RecordFiles():
            return file_record.record_files(step, run)
        case steps.CheckLate():
            return settlement.check_late(step, run)
        case steps.CheckSuspended():
            return suspended_runs.check_suspended(step, run)
        case steps.MakeExternal():
            return table_renames.make_external(step, run)
        case steps.MakeManaged():
            return table_renames.make_managed(step, run)
        case steps.MakeTarget():
            return preparation.make_target(step, run)
        case steps.CopyAccess():
            return definitions.copy_access(step, run)
        case steps.CopyDefinition():
            return definitions.copy_definition(step, run)
        case steps.Verify():
            return comparison.verify_copy(step, run)
        case steps.VerifyShadow():
            return comparison.verify_shadow(step, run)
        case steps.Rename():
            return table_renames.rename(step, run)
        case steps.MakeView():
            return old_name_view.make_view(step, run)
        case steps.CheckView():
            return old_name_view.check_view(step, run)
        case steps.DropView():
            return old_name_view.drop_view(step, run)
        case steps.WriteCheckpoint():
            return delta.write_checkpoint(step, run)
        case steps.CheckViews():
            return views.check_views(step, run)
        case steps.Shadow():
            return shadow_run.copy_changes(step, run)
        case steps.ShadowWritten():
            return shadow_run.copy_changes_if_written(step, run)
        case steps.WarnOfSharedFiles():
            return shared_files_comment.warn_of_shared_files(step, run)
        case steps.RestoreComment():
            return shared_files_comment.restore_comment(step, run)
        case steps.RestoreEntry():
            return restoration.restore_entry(step, run)
        case steps.RestoreHiveCopy():
            return restoration.restore_hive_copy(step, run)
        case steps.AdoptTable():
            return restoration.adopt_table(step, run)
        case steps.DropEntry():
            return restoration.drop_entry(step, run)
        case steps.DropCopy():
            return copy_removal.drop_copy(step, run)
        case steps.AllowLogCleaning():
            return rewritten_copy.allow_log_cleaning(step, run)
        case steps.NoteLeftovers():
            return leftovers.note_leftovers(step, run)
        case steps.DropArchived():
            return removal.drop_archived(step, run)
        case steps.RemoveLeftovers():
            return removal.remove_leftovers(step, run)
        case steps.AllowCleaning():
            return removal.allow_cleaning(step, run)
        case _:
            assert_never(step)
