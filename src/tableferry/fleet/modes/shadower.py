"""The shadower: copy the new table's changes to the Hive copy during probation."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from tableferry.fleet.checks.table_conditions import table_conditions
from tableferry.fleet.jobs.hand_changes import Condition
from tableferry.fleet.jobs.job import Job, State
from tableferry.fleet.jobs.names import Names
from tableferry.fleet.jobs.steps import CheckLate, Shadow
from tableferry.fleet.modes.due import select_claimable
from tableferry.fleet.modes.hand_change_pauses import (
    pausing_at_lost_metadata,
    report_hand_change,
    resolve_hand_changes,
)
from tableferry.fleet.modes.job_run import JobRun, run_and_report
from tableferry.fleet.modes.performer import perform
from tableferry.fleet.modes.results import JobReport, ModeReport
from tableferry.fleet.modes.worker import Worker, run_worker
from tableferry.fleet.warehouse import target_versions
from tableferry.fleet.warehouse.context import Warehouse

SHADOWING = "Shadowing"


def shadow(worker: Worker) -> ModeReport:
    """Update the Hive copies of tables on probation, and check for late files.

    Archived tables are also checked for some days, because an old Hive job may end that late. A worker that
    dies may leave its shadow status; another worker continues after the claim expires.
    """

    def has_changes(job: Job, warehouse: Warehouse) -> bool:
        current = target_versions.current_version(warehouse, Names.of(job).target, job.target_format)
        return current != job.shadow_watermark

    def work(run: JobRun) -> JobReport:
        resolve_hand_changes(run)
        with pausing_at_lost_metadata(run):
            match _step(run.job):
                case Shadow() if run.job.record.without_hive_copy:
                    run.end(run.job)
                case Shadow() as step:
                    _shadow_table(run, step)
                case CheckLate() as step:
                    _check_late_files(run, step)
        return JobReport(run.job, "done", tuple(run.actions))

    def dry_run_report(job: Job, warehouse: Warehouse) -> JobReport:
        if (stopped := report_hand_change(job, warehouse)) is not None:
            return stopped
        step = _step(job)
        if isinstance(step, Shadow) and job.record.without_hive_copy:
            return JobReport(job, "planned")
        needed = isinstance(step, CheckLate) or has_changes(job, warehouse)
        return JobReport(job, "planned", (str(step),) if needed else ())

    return run_worker(
        worker,
        "shadow",
        select_claimable("shadow", worker.store, worker.clock),
        partial(run_and_report, work=work),
        dry_run_report,
    )


def _shadow_table(run: JobRun, step: Shadow) -> None:
    job = run.save(replace(run.job, shadow_status=SHADOWING))
    # Even without changes, another process may have left files in the Hive copy's directories.
    done = perform(step, job, run.warehouse, run.save)
    if done.shadow_watermark != job.shadow_watermark:
        run.actions.append(str(step))
    # The watermark and the status change in one write.
    run.end(replace(done, shadow_status=None))


def _check_late_files(run: JobRun, step: CheckLate) -> None:
    # The archived table's properties name the file record; without the table, late files can't be found.
    if table_conditions(run.warehouse, run.job)[1] is Condition.SOUND:
        run.job = perform(step, run.job, run.warehouse, run.save)
    run.end(run.job)


def _step(job: Job) -> Shadow | CheckLate:
    names = Names.of(job)
    if job.state is State.HIVE_DROPPED:
        return CheckLate(names.target, names.archived, job.target_format, decide=False)
    return Shadow(names.target, names.hive, job.target_format)
