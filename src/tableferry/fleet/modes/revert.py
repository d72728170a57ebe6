"""The reverter: the Hive table gets its name back, with every row that was written since."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from tableferry.errors import Refused, TableError
from tableferry.fleet.job import Job, PauseReason, State
from tableferry.fleet.job_run import dry_run_report, run_job
from tableferry.fleet.modes.worker import Worker, run_worker
from tableferry.fleet.queue.selections import named, to_revert
from tableferry.fleet.reports import ModeReport
from tableferry.fleet.transitions import BACK, REVERT_TO
from tableferry.tables import TableName


def revert(worker: Worker, tables: Iterable[TableName] = (), *, from_archive: bool = False) -> ModeReport:
    """Start to revert these tables, and go on with all that are being reverted.

    Args:
        worker: Who does it.
        tables: Which to start with; each with catalog and schema.
        from_archive: Whether jobs that are completed, or archived, may be reverted too.

    Raises:
        TableError: A table has no job.
        Refused: A table can't be reverted now, or here; none of them was started.
    """
    tables = tuple(tables)
    reverting = [
        _reverting(job, from_archive=from_archive) for job in _jobs(worker, tables, from_archive=from_archive)
    ]
    worker.warehouse.check_formats(job.target_format for job in reverting)
    if worker.dry_run:
        return ModeReport(tuple(dry_run_report(job, worker.warehouse, BACK) for job in reverting))
    for job in reverting:
        worker.store.edit(job, worker.clock())
    return run_worker(
        worker,
        "revert",
        to_revert,
        partial(run_job, transitions=BACK),
        partial(dry_run_report, warehouse=worker.warehouse, transitions=BACK),
    )


def _jobs(worker: Worker, tables: tuple[TableName, ...], *, from_archive: bool) -> list[Job]:
    """Find the tables' jobs, in the archive too."""
    jobs = {job.name: job for job in worker.store.jobs(named(tables))} if tables else {}
    missing = [table for table in tables if table not in jobs]
    if missing and from_archive:
        archived = {job.name: job for job in worker.store.archived(named(missing))}
        if not worker.dry_run and archived:
            back = worker.store.unarchive([job.task_id for job in archived.values()], worker.clock())
            archived = {job.name: job for job in back}
        jobs |= archived
        missing = [table for table in missing if table not in jobs]
    if missing:
        where = "or in the archive" if from_archive else "(--from-archive looks there too)"
        raise TableError(
            f"{missing[0]} has no job in the queue {where}: tableferry fleet list shows all jobs"
        )
    return [jobs[table] for table in tables]


def _reverting(job: Job, *, from_archive: bool) -> Job:
    """Return the job as the reverter takes it."""
    if job.pair in BACK:
        return replace(job, migration_paused=False, pause_reason=PauseReason.NONE.value)
    if job.state is State.HIVE_DROPPED and not from_archive:
        raise Refused(f"the probation of {job.name} is over: --from-archive reverts it all the same")
    resting = job.state is job.desired_state or job.migration_paused or job.state is State.READY
    if not resting or job.state not in REVERT_TO:
        raise Refused(
            f"{job.name} is at {job.state} on its way to {job.desired_state}, and not on probation: wait "
            "until it is, or pause it first (tableferry fleet pause)"
        )
    return replace(
        job,
        desired_state=REVERT_TO[job.state],
        in_process=True,
        to_be_processed=False,
        migration_paused=False,
        pause_reason=PauseReason.NONE.value,
    )
