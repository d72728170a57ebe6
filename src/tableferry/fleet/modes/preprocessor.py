"""The preprocessor: check the tables of new jobs, and start the archive of tables after probation."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial

from tableferry.amounts import counted
from tableferry.errors import Refused
from tableferry.fleet.checks.catalog_checks import name_taken_finding
from tableferry.fleet.checks.preflight import preflight
from tableferry.fleet.commands import command
from tableferry.fleet.jobs.findings import PauseFinding
from tableferry.fleet.jobs.job import Job, PauseReason, State
from tableferry.fleet.jobs.names import Names
from tableferry.fleet.modes.due import select_claimable
from tableferry.fleet.modes.job_run import JobRun, run_and_report
from tableferry.fleet.modes.results import JobReport, ModeReport, Outcome
from tableferry.fleet.modes.worker import Worker, run_worker
from tableferry.fleet.queue.schema import jobs
from tableferry.fleet.queue.store import Store
from tableferry.fleet.settings import FleetSettings
from tableferry.fleet.warehouse import hive, job_tables
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.shared_directories import TableDirectories
from tableferry.progress import task

_log = logging.getLogger(__name__)


def preprocess(worker: Worker) -> ModeReport:
    """Fill in owners, users and format of new jobs; end expired probations; end completed jobs."""
    directories = TableDirectories()

    def preprocessed(job: Job, warehouse: Warehouse) -> Job:
        return _preprocessed(job, warehouse, worker.settings, directories, worker.store)

    def check_table(run: JobRun) -> JobReport:
        worker = run.job.claimed_by or ""
        with task(_log, "check the table", table=run.job.name, worker=worker, level=logging.DEBUG):
            run.end(preprocessed(run.job, run.warehouse))
        outcome: Outcome = "paused" if run.job.migration_paused else "done"
        return JobReport(run.job, outcome, (_summary(run.job),))

    def dry_run_report(job: Job, warehouse: Warehouse) -> JobReport:
        return JobReport(job, "planned", (_summary(preprocessed(job, warehouse)),))

    return run_worker(
        worker,
        "preprocess",
        select_claimable("preprocess", worker.store, worker.clock),
        partial(run_and_report, work=check_table),
        dry_run_report,
    )


def _preprocessed(
    job: Job, warehouse: Warehouse, settings: FleetSettings, directories: TableDirectories, store: Store
) -> Job:
    """Return a new job with its table's owners, size and findings, or any other job in its next state."""
    match job.state:
        case State.WRITES_UNBLOCKED:
            return replace(job, desired_state=State.HIVE_DROPPED)
        case State.HIVE_DROPPED:
            return replace(job, in_process=False)
    table = hive.facts(warehouse, job.name)
    if table is None:
        return job.paused(PauseReason.TABLE_NOT_FOUND)
    job = replace(
        job,
        stg_format=table.format,
        tbl_owners=job.tbl_owners or warehouse.access.owners(job.name),
        downstream_users=job.downstream_users or warehouse.access.downstream_users(job.name),
    )
    seen = preflight(warehouse, job, directories)
    job = replace(job, table_files=seen.files, table_bytes=seen.bytes)
    for finding in seen.findings:
        more = f" (and {len(seen.findings) - 1} more: {command('preflight', job.name)})"
        return job.paused(finding.reason, finding.text + (more if len(seen.findings) > 1 else ""))
    job = job.with_record(rewritten={"files": seen.files, "bytes": seen.bytes} if seen.rewritten else None)
    names = Names.of(job)
    others = job_tables.list_job_tables(warehouse, names).keys() - {names.main}
    if others:
        taken = name_taken_finding(others)
        return job.paused(taken.reason, taken.text)
    if (rival := _rival(store, job)) is not None:
        refusal = Refused("NEW_NAME_OF_TWO_JOBS", table=rival.name, name=names.target, other=job.name)
        return job.paused(PauseReason.NAME_TAKEN, PauseFinding(PauseReason.NAME_TAKEN, refusal).text)
    if settings.require_owner and not job.tbl_owners:
        return job.paused(PauseReason.MISSING_OWNER)
    job = job.with_record(checked=job_tables.read_origin(warehouse, job.name) or {})
    return replace(job, state=State.READY, desired_state=State.WRITES_BLOCKED, to_be_processed=True)


def _rival(store: Store, job: Job) -> Job | None:
    """Return another job whose new table needs the same name; None if there is none.

    If neither job has been checked, the job that was added first gets the name.
    """
    names = Names.of(job)
    if not names.elsewhere:
        return None
    for other in store.jobs(jobs.c.tbl_name == job.tbl_name):
        waits = other.state is State.UNDEFINED and (other.migration_paused or other.task_id > job.task_id)
        ended = other.state is State.ICEBERG_DROPPED
        if other.task_id != job.task_id and Names.of(other).target == names.target and not (waits or ended):
            return other
    return None


def _summary(job: Job) -> str:
    """Describe the state of a job in one line."""
    if job.migration_paused:
        return f"paused: {job.pause_reason}"
    match job.pair:
        case State.READY, _:
            owners = ", ".join(job.tbl_owners) or "no owner"
            return (
                f"ready, {job.stg_format}, owned by {owners}, {counted(len(job.downstream_users), 'reader')}"
            )
        case _, State.HIVE_DROPPED if job.in_process:
            return "its probation is over"
        case _:
            return "completed"
