"""Decides what closing a completed job still has to do, and what may be closed: pure.

    completed ─ fleet close TABLE ─> marked (close_at) ─ the window is over ─> closing (a note) ─> closed

As long as nothing is noted, the mark can be taken back and the job reverted. From the note on the Hive table
may be gone at any moment, so neither is possible any more.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from tableferry.errors import Refused
from tableferry.fleet.commands import command
from tableferry.fleet.job import CLOSED, CLOSING, Job, State, TargetFormat
from tableferry.fleet.naming import Names
from tableferry.fleet.pausing import resume_command
from tableferry.fleet.plan import Existing, Kind, target_kind
from tableferry.fleet.steps import (
    AllowCleaning,
    CheckLate,
    DropArchived,
    NoteLeftovers,
    RemoveLeftovers,
    Step,
)


def closing_steps(job: Job, existing: Existing) -> tuple[Step, ...]:
    """Return the steps that are left of a job's closing.

    Raises:
        Refused: The tables aren't as the archive leaves them: somebody else renamed or dropped one.
    """
    names, form = Names.of(job), job.target_format
    kind = existing.get(names.target)
    if kind is not target_kind(job):
        actual = f"is {kind.words}" if kind else "doesn't exist"
        raise Refused(
            f"{names.target} {actual}, and {target_kind(job).words} is needed there, because it has to have "
            f"all rows when {names.archived} is dropped: restore it and {command('resume', job.name)}, or "
            f"revert to {names.archived}: {_back(job)}"
        )
    # A view, or a table of another format, that people made under the free name isn't Hive's: should one lie
    # in these directories all the same, it's found with the other neighbours. So is a Hive table, where that
    # name was to be free.
    if names.hive != names.main and existing.get(names.hive) is Kind.HIVE:
        raise Refused(
            f"{names.hive} is there again, and would read files that are to be removed: drop it, or give it "
            f"the name {names.archived} back, and resume the job"
        )
    if existing.get(names.archived) not in (None, Kind.HIVE):
        raise Refused(
            f"{names.archived} is {existing[names.archived].words}, and was a Hive table: somebody made "
            "another one of its name; rename it, and resume the job"
        )
    steps: list[Step] = []
    if names.archived in existing:
        # Whoever comes later than this has written to directories that nobody looks at any more.
        steps.append(CheckLate(names.target, names.archived, form))
    if names.archived in existing or CLOSING not in job.record:
        steps.append(NoteLeftovers(names.target, names.archived, form))
    if names.archived in existing:
        steps.append(DropArchived(names.target, names.archived, job.is_rewritten))
    steps.append(RemoveLeftovers(names.target, form, job.is_rewritten))
    if form is TargetFormat.ICEBERG:
        # Last, for until then an expired snapshot could take a file that Hive reads.
        steps.append(AllowCleaning(names.target))
    return tuple(steps)


def _back(job: Job) -> str:
    """Return the commands that revert a job which is marked to be closed, or is being closed."""
    revert = command("revert --from-archive", job.name)
    return f"{command('close --undo', job.name)}, then {revert}" if CLOSING in job.record else revert


def why_not_closed(job: Job) -> str:
    """Say why a job can't be marked to be closed; nothing if it can."""
    if closed := job.record.get(CLOSED):
        return f"was closed on {closed['at'][:10]}"
    if job.state is not State.HIVE_DROPPED or job.desired_state is not State.HIVE_DROPPED:
        return f"is at {job.state}, and not archived yet: {command('show', job.name)} says what comes next"
    if job.migration_paused:
        return f"is paused ({job.pause_reason}): see to that, and {resume_command(job)}"
    if job.in_process:
        return "is archived, but not completed yet: run tableferry fleet preprocess"
    if job.comm_level3_date is None:
        return "is archived, but its people haven't been told yet: run tableferry fleet communicate"
    return ""


def marked(job: Job, at: datetime) -> Job:
    """Return a job as it is to be closed, no earlier than at a time.

    Raises:
        Refused: It can't be.
    """
    if why := why_not_closed(job):
        raise Refused(f"{job.name} {why}")
    return replace(job, close_at=at)


def unmarked(job: Job, *, hive_is_there: bool = False) -> Job:
    """Return a job as it is when nobody wants to close it any more.

    Args:
        job: The job.
        hive_is_there: Whether somebody has looked, and the archived Hive table is there: it goes first.

    Raises:
        Refused: Something may have been removed already.
    """
    if why := why_final(job, hive_is_there=hive_is_there):
        raise Refused(f"{job.name} {why}")
    return replace(job, close_at=None).noted(**{CLOSING: None})


def why_final(job: Job, *, hive_is_there: bool = False) -> str:
    """Say why a job can't go back to before its closing; nothing if it can."""
    names = Names.of(job)
    if closed := job.record.get(CLOSED):
        return f"was closed on {closed['at'][:10]}: {names.archived} is gone, and what Hive read with it"
    if CLOSING in job.record and not hive_is_there:
        return (
            f"is being closed, and {names.archived} may be gone already: tableferry fleet close goes on, and "
            f"as long as that table is there, {command('close --undo', job.name)} takes it back"
        )
    return ""
