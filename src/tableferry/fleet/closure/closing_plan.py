"""Decide which jobs can be closed, and plan the steps of closing a completed job; without Spark.

    completed ─ fleet close TABLE ─> marked (close_at) ─ the window is over ─> closing (a note) ─> closed

Until the leftovers are noted, the mark can be removed and the job reverted. After the note, both are possible
only while the archived Hive table exists: first the mark is removed, then the job is reverted.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from tableferry.errors import Refused
from tableferry.fleet.commands import command
from tableferry.fleet.jobs.job import Job, State, TargetFormat
from tableferry.fleet.jobs.names import Names
from tableferry.fleet.jobs.pauses import resume_command
from tableferry.fleet.jobs.step_plan import Existing, Kind, target_kind
from tableferry.fleet.jobs.steps import (
    AllowCleaning,
    CheckLate,
    DropArchived,
    NoteLeftovers,
    RemoveLeftovers,
    Step,
)


def closing_steps(job: Job, existing: Existing) -> tuple[Step, ...]:
    """Return the remaining steps of a job's closing.

    Raises:
        Refused: Another process renamed, dropped or created one of the job's tables after the archive.
    """
    names, form = Names.of(job), job.target_format
    kind = existing.get(names.target)
    if kind is not target_kind(job):
        raise Refused(
            "NEW_TABLE_GONE_BEFORE_CLOSE",
            table=names.target,
            actual=f"is {kind.description}" if kind else "doesn't exist",
            expected=target_kind(job).description,
            archived=names.archived,
            resume=command("resume", job.name),
            revert=_revert_commands(job),
        )
    # Users may create a view or a table of another format with the free name. If it's in the job's
    # directories, the check of overlapping tables finds it. With `old_name: table` the name isn't free.
    if names.hive != names.main and existing.get(names.hive) is Kind.HIVE:
        raise Refused(
            "HIVE_TABLE_RECREATED_BEFORE_CLOSE",
            table=names.hive,
            archived=names.archived,
            command=command("resume", job.name),
        )
    if existing.get(names.archived) not in (None, Kind.HIVE):
        raise Refused(
            "ARCHIVED_NAME_TAKEN",
            table=names.archived,
            kind=existing[names.archived].description,
            command=command("resume", job.name),
        )
    steps: list[Step] = []
    if names.archived in existing:
        # Files that are written after this check aren't found any more.
        steps.append(CheckLate(names.target, names.archived, form))
    if names.archived in existing or not job.record.closing:
        steps.append(NoteLeftovers(names.target, names.archived, form))
    if names.archived in existing:
        steps.append(DropArchived(names.target, names.archived, job.is_rewritten))
    steps.append(RemoveLeftovers(names.target, form, job.is_rewritten))
    if form is TargetFormat.ICEBERG:
        # The last step, because expired snapshots may then remove files that Hive reads.
        steps.append(AllowCleaning(names.target))
    return tuple(steps)


def _revert_commands(job: Job) -> str:
    """Return the commands that revert a job that is marked for closing or is being closed."""
    revert = command("revert --from-archive", job.name)
    return f"{command('close --undo', job.name)}, then {revert}" if job.record.closing else revert


def check_closable(job: Job) -> None:
    """Check that a job can be marked for closing.

    Raises:
        Refused: It can't be marked.
    """
    if closed := job.record.closed:
        raise Refused("JOB_CLOSED", table=job.name, date=closed["at"][:10])
    if job.state is not State.HIVE_DROPPED or job.desired_state is not State.HIVE_DROPPED:
        raise Refused("JOB_NOT_ARCHIVED", table=job.name, state=job.state, command=command("show", job.name))
    if job.migration_paused:
        raise Refused("JOB_PAUSED", table=job.name, reason=job.pause_reason, command=resume_command(job))
    if job.in_process:
        raise Refused("JOB_NOT_COMPLETED", table=job.name)
    if job.comm_level3_date is None:
        raise Refused("JOB_NOT_NOTIFIED", table=job.name)


def mark_for_closing(job: Job, at: datetime) -> Job:
    """Return a job that is marked for closing at or after a time.

    Raises:
        Refused: It can't be marked.
    """
    check_closable(job)
    return replace(job, close_at=at)


def remove_mark(job: Job, *, hive_exists: bool = False) -> Job:
    """Return a job without its mark for closing.

    Args:
        job: The job.
        hive_exists: Whether the archived Hive table was found, which the closing removes first.

    Raises:
        Refused: Something may have been removed already.
    """
    check_not_closed(job, hive_exists=hive_exists)
    return replace(job, close_at=None).with_record(closing={})


def check_not_closed(job: Job, *, hive_exists: bool = False) -> None:
    """Check by its record that a job isn't closed, and that its closing has removed nothing.

    A job that is only marked for closing passes.

    Args:
        job: The job.
        hive_exists: Whether the archived Hive table was found. The closing removes it first, so it
            has removed nothing then. False if the table is missing or wasn't looked for.

    Raises:
        Refused: The job is closed, or its closing may have removed something.
    """
    archived = Names.of(job).archived
    if closed := job.record.closed:
        raise Refused("JOB_CLOSED_FINALLY", table=job.name, date=closed["at"][:10], archived=archived)
    if job.record.closing and not hive_exists:
        undo = command("close --undo", job.name)
        raise Refused("JOB_BEING_CLOSED", table=job.name, archived=archived, command=undo)
