"""The migrator: move announced tables to probation, and tables after their probation to the archive."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from tableferry.fleet.jobs.job import State
from tableferry.fleet.jobs.transitions import FORWARD
from tableferry.fleet.modes.job_run import JobRun, advance, dry_run_report, run_and_report
from tableferry.fleet.modes.results import JobReport, ModeReport
from tableferry.fleet.modes.wave_gate import WaveGate
from tableferry.fleet.modes.worker import Worker, run_worker
from tableferry.fleet.warehouse import job_tables


def migrate(worker: Worker) -> ModeReport:
    """Migrate tables whose first notification is old enough, and resume jobs that have started.

    A table that reaches ``WritesUnblocked`` is on probation; one that reaches ``HiveDropped`` is completed.
    """
    gate = WaveGate(worker.store, worker.clock, worker.dry_run)
    return run_worker(
        worker.with_new_listings(),
        "migrate",
        gate.list_claimable,
        partial(start_or_resume, gate=gate),
        partial(dry_run_report, transitions=FORWARD),
    )


def _is_recreated(run: JobRun) -> bool:
    """Return whether the table was recreated since the preprocessor checked it."""
    # Earlier versions didn't record the check.
    if not (before := run.job.record.checked):
        return False
    now = job_tables.read_origin(run.warehouse, run.job.name)
    return now is not None and not job_tables.is_same_origin(before, now)


def _return_to_preprocess(run: JobRun) -> JobReport:
    """Return the job to the preprocessor: its table is checked and announced again."""
    run.end(
        replace(
            run.job.with_record(checked={}),
            state=State.UNDEFINED,
            desired_state=State.UNDEFINED,
            to_be_processed=False,
            comm_level1_date=None,
        )
    )
    why = (
        "the table was recreated since it was checked: preprocess checks it again, and communicate announces"
    )
    return JobReport(run.job, "waiting", error=f"{why} it again")


def start_or_resume(run: JobRun, gate: WaveGate) -> JobReport:
    """Start or resume a job's migration; errors of the job are reported and never raised."""

    def work(run: JobRun) -> JobReport:
        starts, archives = run.job.to_be_processed, run.job.desired_state is State.HIVE_DROPPED
        if (starts or archives) and (why := gate.reason_to_wait(run.job)):
            run.release(run.job)
            return JobReport(run.job, "waiting", error=why)
        if starts and _is_recreated(run):
            return _return_to_preprocess(run)
        if starts:
            run.save(replace(run.job, in_process=True, to_be_processed=False, begun_at=run.clock()))
        return advance(run, FORWARD)

    return run_and_report(run, work)
