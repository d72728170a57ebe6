"""The shadower: during probation, what is written to the new table is copied to the Hive one."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from tableferry.fleet.checks.table_conditions import table_conditions
from tableferry.fleet.jobs.hand_changes import Condition
from tableferry.fleet.jobs.job import Job, State
from tableferry.fleet.jobs.names import Names
from tableferry.fleet.jobs.steps import CheckLate, Shadow
from tableferry.fleet.modes.due import takes
from tableferry.fleet.modes.hand_change_stops import (
    report_hand_change,
    resolve_hand_changes,
    stopping_at_lost_metadata,
)
from tableferry.fleet.modes.job_run import JobRun, reported
from tableferry.fleet.modes.performer import perform
from tableferry.fleet.modes.results import JobReport, ModeReport
from tableferry.fleet.modes.worker import Worker, run_worker
from tableferry.fleet.warehouse import target_versions
from tableferry.fleet.warehouse.context import Warehouse

SHADOWING = "Shadowing"


def shadow(worker: Worker) -> ModeReport:
    """Bring the Hive copies of tables on probation in step, and look whether anybody wrote to them.

    Archived ones are looked at too, for some days: a job that started before the switch may end that late.

    A status that a worker left when it died is no obstacle: its claim lapses.
    """

    def behind(job: Job, warehouse: Warehouse) -> bool:
        current = target_versions.current_version(warehouse, Names.of(job).target, job.target_format)
        return current != job.shadow_watermark

    def work(run: JobRun) -> JobReport:
        resolve_hand_changes(run)
        with stopping_at_lost_metadata(run):
            match _step(run.job):
                case Shadow() if run.job.record.without_hive_copy:
                    run.end(run.job)
                case Shadow() as step:
                    _keep_in_step(run, step)
                case CheckLate() as step:
                    _look_for_late_files(run, step)
        return JobReport(run.job, "done", tuple(run.did))

    def dry_run_report(job: Job, warehouse: Warehouse) -> JobReport:
        if (stopped := report_hand_change(job, warehouse)) is not None:
            return stopped
        step = _step(job)
        if isinstance(step, Shadow) and job.record.without_hive_copy:
            return JobReport(job, "planned")
        needed = isinstance(step, CheckLate) or behind(job, warehouse)
        return JobReport(job, "planned", (str(step),) if needed else ())

    return run_worker(
        worker,
        "shadow",
        takes("shadow", worker.store, worker.clock),
        partial(reported, work=work),
        dry_run_report,
    )


def _keep_in_step(run: JobRun, step: Shadow) -> None:
    job = run.save(replace(run.job, shadow_status=SHADOWING))
    # Where nothing was written, somebody may have left files in the Hive copy's directories.
    done = perform(step, job, run.warehouse, run.save)
    if done.shadow_watermark != job.shadow_watermark:
        run.did.append(str(step))
    # The watermark and the status in one go.
    run.end(replace(done, shadow_status=None))


def _look_for_late_files(run: JobRun, step: CheckLate) -> None:
    # With the archived table the record of its files is gone, and nothing to compare them with is left.
    if table_conditions(run.warehouse, run.job)[1] is Condition.SOUND:
        run.job = perform(step, run.job, run.warehouse, run.save)
    run.end(run.job)


def _step(job: Job) -> Shadow | CheckLate:
    names = Names.of(job)
    if job.state is State.HIVE_DROPPED:
        return CheckLate(names.target, names.archived, job.target_format, decide=False)
    return Shadow(names.target, names.hive, job.target_format)
