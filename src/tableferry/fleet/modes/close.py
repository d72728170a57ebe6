"""Closes completed jobs: what is left of Hive's table is removed, some days after a person has asked for it.

`mark_to_close` and `unmark_to_close` are that person's; `close` is a mode like the others. Until it has noted
what it removes, the table can still be reverted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from tableferry.amounts import first_of
from tableferry.errors import Busy, Refused, TableError, TableferryError
from tableferry.fleet.closure import leftovers
from tableferry.fleet.closure.plan import closing_steps, mark_for_closing, remove_mark
from tableferry.fleet.jobs.job import Job
from tableferry.fleet.jobs.names import Names
from tableferry.fleet.modes.due import takes
from tableferry.fleet.modes.job_run import JobRun, reported
from tableferry.fleet.modes.performer import KEPT
from tableferry.fleet.modes.results import JobReport, ModeReport
from tableferry.fleet.modes.worker import Worker, run_worker
from tableferry.fleet.queue.store import Store
from tableferry.fleet.warehouse import job_tables
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.shared_directories import TableDirectories
from tableferry.fleet.warehouse.views import Views


@dataclass(frozen=True)
class Marking:
    """What became of one job that somebody wants to close, or doesn't any more.

    Attributes:
        job: The job as it is now.
        error: Why it stays as it was; empty otherwise.
    """

    job: Job
    error: str = ""


@dataclass(frozen=True)
class Leftover:
    """What is left of one archived table, and when it's removed.

    Attributes:
        left: What is left; None if that can't be found out, or nothing is.
        error: Why it can't be.
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
) -> list[Marking]:
    """Mark jobs to be closed from a time on; those of the queue's archive come back into the queue for it."""
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
) -> list[Marking]:
    """Take marks back; of a job whose closing has begun as long as its archived Hive table is there."""

    def edit(job: Job) -> Job:
        if job.record.closed is not None or not job.record.closing:
            return remove_mark(job)
        noted = leftovers.Leftovers.of(job.record.closing)
        there = leftovers.is_recorded_table(warehouse(), Names.of(job).archived, noted)
        return remove_mark(job, hive_exists=there)

    return [_edited(store, job, edit, now, by) for job in jobs]


def close(worker: Worker) -> ModeReport:
    """Close the jobs that are marked, and whose time has come.

    The new table stays as it is in each of its versions, with its files in the Hive table's directories.
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
        takes("close", worker.store, worker.clock),
        partial(reported, work=_close),
        dry_run_report,
    )


def look_at_leftovers(warehouse: Warehouse, jobs: Sequence[Job]) -> list[Leftover]:
    """Look at what is left of archived tables; nothing is changed."""
    warehouse = replace(warehouse, directories=TableDirectories(), views=Views())
    return [_looked(warehouse, job) for job in jobs]


def _marked(job: Job, at: datetime) -> Marking:
    try:
        return Marking(mark_for_closing(job, at))
    except Refused as error:
        return Marking(job, error.one_line)


def _close(run: JobRun) -> JobReport:
    for step in closing_steps(run.job, job_tables.list_job_tables(run.warehouse, Names.of(run.job))):
        run.perform(step)
    kept, left = run.job.record.closing.get(KEPT, ()), run.job.record.left_directories
    closed = {"at": run.clock().isoformat(timespec="seconds"), KEPT: list(kept)}
    run.end(replace(run.job, close_at=None).with_record(closed=closed, closing={}))
    if kept:
        run.did.append(f"{first_of(kept)} stay: {run.job.name} reads files there")
    if left:
        run.did.append(f"{first_of(left)} are left: closing didn't write them for Hive, or can't remove them")
    return JobReport(run.job, "done", tuple(run.did))


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


def _edited(store: Store, job: Job, edit: Callable[[Job], Job], now: datetime, by: str) -> Marking:
    """Edit a job as a person does; one that can't be edited stays as it is, and the others go on."""
    try:
        edited = edit(job)
        return Marking(store.edit(edited, now, by=by) if edited != job else job)
    except (Refused, Busy, TableError) as error:
        return Marking(job, error.one_line)
