"""Close completed jobs: remove the leftovers of the Hive table some days after a person requested it.

A person uses `mark_to_close` and `unmark_to_close`; a scheduled job runs the mode `close`. The table can be
reverted until `close` has recorded the files and directories that it removes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from tableferry.amounts import first_of
from tableferry.errors import Busy, Refused, TableError, TableferryError
from tableferry.fleet.closure import leftovers
from tableferry.fleet.closure.closing_plan import closing_steps, mark_for_closing, remove_mark
from tableferry.fleet.closure.removal import KEPT
from tableferry.fleet.jobs.job import Job
from tableferry.fleet.jobs.names import Names
from tableferry.fleet.modes.due import select_claimable
from tableferry.fleet.modes.job_run import JobRun, run_and_report
from tableferry.fleet.modes.results import JobReport, ModeReport
from tableferry.fleet.modes.worker import Worker, run_worker
from tableferry.fleet.queue.store import Store
from tableferry.fleet.warehouse import job_tables
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.shared_directories import TableDirectories
from tableferry.fleet.warehouse.views import Views


@dataclass(frozen=True)
class MarkResult:
    """The result of marking a job to be closed, or of removing the mark.

    Attributes:
        job: The job after the change.
        error: Why the job can't be changed; empty if it was changed or had nothing to change.
    """

    job: Job
    error: str = ""


@dataclass(frozen=True)
class Leftover:
    """The leftovers of one archived table.

    Attributes:
        job: The table's job.
        left: The leftovers; None if there are none or they can't be determined.
        error: Why they can't be determined; may be empty.
    """

    job: Job
    left: leftovers.LeftoverStatus | None = None
    error: str = ""


def mark_to_close(
    store: Store,
    queued: Sequence[Job],
    archived: Sequence[Job],
    at: datetime,
    now: datetime,
    by: str,
    *,
    dry_run: bool = False,
) -> list[MarkResult]:
    """Mark jobs to be closed from a time on; archived jobs return to the queue."""
    tried = [_marked(job, at) for job in (*queued, *archived)]
    if dry_run:
        return tried
    may = {marking.job.task_id for marking in tried if not marking.error}
    coming = [job.task_id for job in archived if job.task_id in may]
    back = store.unarchive(coming, now) if coming else ()
    jobs = [job for job in (*queued, *back) if job.task_id in may]
    refused = [marking for marking in tried if marking.error]
    return [*refused, *(_edited(store, job, partial(mark_for_closing, at=at), now, by) for job in jobs)]


def unmark_to_close(
    store: Store, jobs: Iterable[Job], now: datetime, by: str, warehouse: Callable[[], Warehouse]
) -> list[MarkResult]:
    """Remove the marks of jobs to be closed, and return the result of each, in order.

    After a close has begun, this is possible while the recorded archived Hive table exists. A job without a
    mark stays as it is, without an error.

    Args:
        store: The queue.
        jobs: The jobs.
        now: The time of the change.
        by: The person whom the event names.
        warehouse: Returns the warehouse; called only for a job whose close has begun. If it fails, the marks
            of earlier jobs stay removed.
    """

    def edit(job: Job) -> Job:
        if job.record.closed is not None or not job.record.closing:
            return remove_mark(job)
        noted = leftovers.Leftovers.of(job.record.closing)
        exists = leftovers.is_recorded_table(warehouse(), Names.of(job).archived, noted)
        return remove_mark(job, hive_exists=exists)

    return [_edited(store, job, edit, now, by) for job in jobs]


def close(worker: Worker) -> ModeReport:
    """Close the marked jobs whose time has passed.

    All versions of the new table stay readable, and its files stay in the Hive table's directories.
    """

    def dry_run_report(job: Job, warehouse: Warehouse) -> JobReport:
        try:
            steps = closing_steps(job, job_tables.list_job_tables(warehouse, Names.of(job)))
        except TableferryError as error:
            return JobReport(job, "paused", (), error.one_line)
        return JobReport(job, "planned", tuple(map(str, steps)))

    return run_worker(
        worker.with_new_listings(),
        "close",
        select_claimable("close", worker.store, worker.clock),
        partial(run_and_report, work=_close),
        dry_run_report,
    )


def list_leftovers(warehouse: Warehouse, jobs: Sequence[Job]) -> list[Leftover]:
    """List the leftovers of archived tables; nothing is changed."""
    warehouse = replace(warehouse, directories=TableDirectories(), views=Views())
    return [_looked(warehouse, job) for job in jobs]


def _marked(job: Job, at: datetime) -> MarkResult:
    try:
        return MarkResult(mark_for_closing(job, at))
    except Refused as error:
        return MarkResult(job, error.one_line)


def _close(run: JobRun) -> JobReport:
    for step in closing_steps(run.job, job_tables.list_job_tables(run.warehouse, Names.of(run.job))):
        run.perform(step)
    kept, left = run.job.record.closing.get(KEPT, ()), run.job.record.left_directories
    closed = {"at": run.clock().isoformat(timespec="seconds"), KEPT: list(kept)}
    run.end(replace(run.job, close_at=None).with_record(closed=closed, closing={}))
    if kept:
        run.actions.append(f"{first_of(kept)} stay: {run.job.name} reads files there")
    if left:
        run.actions.append(
            f"{first_of(left)} are left: the job didn't write them, or this process can't remove them"
        )
    return JobReport(run.job, "done", tuple(run.actions))


def _looked(warehouse: Warehouse, job: Job) -> Leftover:
    if job.record.closed is not None:
        return Leftover(job)
    names = Names.of(job)
    try:
        return Leftover(
            job, leftovers.read_status(warehouse, names.target, names.archived, job.target_format)
        )
    except TableferryError as error:
        return Leftover(job, error=error.one_line)


def _edited(store: Store, job: Job, edit: Callable[[Job], Job], now: datetime, by: str) -> MarkResult:
    """Edit a job; a job that can't be edited stays unchanged, and its report contains the error."""
    try:
        edited = edit(job)
        return MarkResult(store.edit(edited, now, by=by) if edited != job else job)
    except (Refused, Busy, TableError) as error:
        return MarkResult(job, error.one_line)
