"""The shadower: during probation, what is written to the new table is copied to the Hive one."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from tableferry.fleet.job import Job
from tableferry.fleet.job_run import JobRun, reported
from tableferry.fleet.modes.worker import Worker, run_worker
from tableferry.fleet.naming import Names
from tableferry.fleet.perform import perform
from tableferry.fleet.queue.selections import to_shadow
from tableferry.fleet.reports import JobReport, ModeReport
from tableferry.fleet.steps import Shadow
from tableferry.fleet.warehouse import versions

SHADOWING = "Shadowing"


def shadow(worker: Worker) -> ModeReport:
    """Bring the Hive copies of tables on probation in step, and look whether anybody wrote to them.

    A status that a worker left when it died is no obstacle: its claim lapses.
    """

    def behind(job: Job) -> bool:
        current = versions.current(worker.warehouse, job.name, job.target_format)
        return current != job.shadow_watermark

    def copy(run: JobRun) -> JobReport:
        step = _step(run.job)
        job = run.save(replace(run.job, shadow_status=SHADOWING))
        # Where nothing was written, somebody may have left files in the Hive copy's directories.
        done = perform(step, job, run.warehouse, run.save)
        if done.shadow_watermark != job.shadow_watermark:
            run.did.append(str(step))
        # The watermark and the status in one go.
        run.release(replace(done, shadow_status=None))
        return JobReport(run.job, "done", tuple(run.did))

    def dry_run_report(job: Job) -> JobReport:
        return JobReport(job, "planned", (str(_step(job)),) if behind(job) else ())

    return run_worker(worker, "shadow", to_shadow, partial(reported, work=copy), dry_run_report)


def _step(job: Job) -> Shadow:
    names = Names.of(job)
    return Shadow(names.main, names.hive, job.target_format)
