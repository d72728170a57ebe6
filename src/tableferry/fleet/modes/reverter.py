"""The reverter: give the Hive table its name back, with all rows that were written since the switch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial

from tableferry.errors import Busy, Refused, TableError
from tableferry.fleet.closure.closing_plan import check_not_closed
from tableferry.fleet.commands import command
from tableferry.fleet.jobs.hand_changes import Acceptance
from tableferry.fleet.jobs.job import Job, PauseReason, State
from tableferry.fleet.jobs.transitions import BACK, REVERT_TO
from tableferry.fleet.modes.due import select_claimable
from tableferry.fleet.modes.job_run import dry_run_report, run_job
from tableferry.fleet.modes.results import JobReport, ModeReport
from tableferry.fleet.modes.worker import Worker, run_worker
from tableferry.fleet.queue.changes import ClaimLost
from tableferry.fleet.queue.selections import named
from tableferry.spark.tables import TableName


def revert(
    worker: Worker, tables: Iterable[TableName] = (), *, from_archive: bool = False, by: str = ""
) -> ModeReport:
    """Start to revert these tables, and resume all reverts in progress.

    Args:
        worker: The worker.
        tables: The tables whose revert starts; each with catalog and schema.
        from_archive: Whether completed and archived jobs may be reverted too.
        by: The person who requested the revert, for the jobs' events.

    Raises:
        TableError: A table has no job.
        Refused: A table can't be reverted now, or from here; no revert was started.
        Busy: Another worker has claimed one of the jobs; no revert was started.
    """
    tables = tuple(tables)
    queued, archived = _jobs(worker, tables, from_archive=from_archive)
    # All jobs are checked before the first change.
    now = worker.clock()
    reverting = [_prepare_revert(job, now, from_archive=from_archive) for job in (*queued, *archived)]
    if reverting:
        worker.open_warehouse().check_formats(job.target_format for job in reverting)
    if worker.dry_run:
        planned = [dry_run_report(job, worker.open_warehouse(), BACK) for job in reverting]
        named_too = {job.task_id for job in reverting}
        others = [report for report in _resume_reverts(worker).jobs if report.job.task_id not in named_too]
        return ModeReport((*planned, *others))
    if archived:
        back = worker.store.unarchive([job.task_id for job in archived], now)
        reverting = [_prepare_revert(job, now, from_archive=True) for job in (*queued, *back)]
    taken = [report for job in reverting if (report := _start(worker, job, by)) is not None]
    return ModeReport((*taken, *_resume_reverts(worker).jobs))


def _resume_reverts(worker: Worker) -> ModeReport:
    """Resume all reverts in progress."""
    return run_worker(
        worker,
        "revert",
        select_claimable("revert", worker.store, worker.clock),
        partial(run_job, transitions=BACK),
        partial(dry_run_report, transitions=BACK),
    )


def _start(worker: Worker, job: Job, by: str) -> JobReport | None:
    """Start to revert a table; return a report if another process changed the job first."""
    try:
        worker.store.edit(job, worker.clock(), by=by)
    except ClaimLost as error:
        return JobReport(job, "failed", (), error.one_line)
    return None


def _jobs(
    worker: Worker, tables: tuple[TableName, ...], *, from_archive: bool
) -> tuple[Sequence[Job], Sequence[Job]]:
    """Find the tables' jobs in the queue, and the missing ones in the archive."""
    queued = worker.store.jobs(named(tables)) if tables else []
    missing = list(set(tables) - {job.name for job in queued})
    archived = worker.store.archived(named(missing)) if missing and from_archive else []
    missing = sorted(set(missing) - {job.name for job in archived})
    if missing:
        raise TableError("JOB_NOT_FOUND" if from_archive else "JOB_NOT_IN_QUEUE", text=missing[0])
    return queued, archived


def _prepare_revert(job: Job, now: datetime, *, from_archive: bool) -> Job:
    """Return the job in the state in which its revert starts."""
    if job.claimed_by is not None and job.lease_until is not None and job.lease_until > now:
        until = f"{job.lease_until:%Y-%m-%d %H:%M} UTC"
        raise Busy("JOB_CLAIMED", table=job.name, worker=job.claimed_by, until=until)
    check_not_closed(job)
    job = job.without_failures()
    if job.record.found == Acceptance.GIVE_UP_NEW_TABLE:
        # The pause named the lost rows, and this command is its remedy.
        job = job.with_record(accept=Acceptance.GIVE_UP_NEW_TABLE.value, found="")
    if job.pair in BACK:
        return replace(job, migration_paused=False, pause_reason=PauseReason.NONE.value)
    if job.state is State.HIVE_DROPPED and not from_archive:
        raise Refused(
            "JOB_PROBATION_OVER", table=job.name, command=command("revert --from-archive", job.name)
        )
    if job.state is State.UNDEFINED:
        raise Refused("JOB_NOT_BEGUN", table=job.name, command=command("pause", job.name))
    if job.state is State.ICEBERG_DROPPED:
        raise Refused("JOB_REVERTED", table=job.name)
    # A job may wait for its wave before the archive; a worker that archives it has claimed it.
    resting = job.state in (job.desired_state, State.READY, State.WRITES_UNBLOCKED) or job.migration_paused
    if not resting or job.state not in REVERT_TO:
        raise Refused(
            "JOB_NOT_ON_PROBATION",
            table=job.name,
            state=job.state,
            desired_state=job.desired_state,
            command=command("pause", job.name),
        )
    return replace(
        job,
        desired_state=REVERT_TO[job.state],
        in_process=True,
        to_be_processed=False,
        migration_paused=False,
        pause_reason=PauseReason.NONE.value,
        close_at=None,
    )
