"""Run a mode's due jobs: claim them in small groups, and process each once, several tables concurrently."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, replace
from functools import partial

from tableferry.amounts import duration
from tableferry.fleet.clock import Clock
from tableferry.fleet.jobs.job import Job
from tableferry.fleet.modes.claims import ClaimableJobs, Claims, ListClaimable
from tableferry.fleet.modes.due import count_due, report_empty_run, select_due
from tableferry.fleet.modes.job_run import JobRun
from tableferry.fleet.modes.results import JobReport, ModeReport
from tableferry.fleet.queue.selections import Selection, least_recent
from tableferry.fleet.queue.store import Store
from tableferry.fleet.settings import FleetSettings
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.shared_directories import TableDirectories
from tableferry.fleet.warehouse.table_threads import TableThreads, warehouses_for_threads
from tableferry.fleet.warehouse.views import Views
from tableferry.heartbeat import heartbeat
from tableferry.progress import Task, task

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Worker:
    """A worker: the process that runs a mode, with its queue, warehouse and settings.

    Attributes:
        store: The queue.
        open_warehouse: Opens the warehouse, which may start Spark; called if a job is due, perhaps twice.
        settings: The fleet's settings.
        name: The worker's name, unique among processes.
        clock: Returns the time.
        batch_size: The maximum number of jobs in this run.
        share: The number of this worker, from zero, and the number of workers; each prefers different jobs.
        dry_run: Report the planned steps, and change nothing.
    """

    store: Store
    open_warehouse: Callable[[], Warehouse]
    settings: FleetSettings
    name: str
    clock: Clock
    batch_size: int = 5000
    share: tuple[int, int] = (0, 1)
    dry_run: bool = False

    def with_new_listings(self) -> Worker:
        """Return the worker with a warehouse that caches the catalog's listings for one run."""

        def opened() -> Warehouse:
            return replace(self.open_warehouse(), directories=TableDirectories(), views=Views())

        return replace(self, open_warehouse=opened)


def run_worker(
    worker: Worker,
    mode: str,
    claimable: ListClaimable,
    do: Callable[[JobRun], JobReport],
    dry_run_report: Callable[[Job, Warehouse], JobReport],
) -> ModeReport:
    """Run `do` once for each job that may be claimed; `do` releases the claim.

    The warehouse is opened only if the queue has a due job.

    Raises:
        Refused: A job's table has a format that this compute can't write.
    """
    due = count_due(worker.store, claimable)
    if not due:
        return report_empty_run(mode, worker.name)
    warehouse = _open_warehouse(worker, claimable)
    reports: list[JobReport] = []
    if due > worker.batch_size:
        claimable = _longest_waiting(worker, claimable)
    due = min(due, worker.batch_size)
    with task(_log, mode, worker=worker.name) as running:
        running.update("tables", 0, due)
        if worker.dry_run:
            for job in worker.store.jobs(select_due(claimable), limit=worker.batch_size):
                reports.append(dry_run_report(job, warehouse))
                _log_job(running, reports)
        else:
            table_count = min(worker.settings.tables_at_once, due)
            _run_jobs(worker, claimable, _timed(do), reports, running, warehouse, table_count)
    return ModeReport(tuple(reports))


def _open_warehouse(worker: Worker, claimable: ListClaimable) -> Warehouse:
    """Open the warehouse, and check that this compute can write the due tables' formats."""
    warehouse = worker.open_warehouse()
    if warehouse.serverless:
        formats = worker.store.counts(select_due(claimable), ("target_format",))
        warehouse.check_formats(str(group["target_format"]) for group in formats)
    return warehouse


def _run_jobs(
    worker: Worker,
    claimable: ListClaimable,
    do: Callable[[JobRun], JobReport],
    reports: list[JobReport],
    running: Task,
    warehouse: Warehouse,
    table_count: int,
) -> None:
    """Claim and run jobs until none is left, and report each when it ends."""
    warehouses = warehouses_for_threads(warehouse, table_count)

    def done(report: JobReport) -> None:
        claims.stop_renewing(report.job.task_id)
        reports.append(report)
        _log_job(running, reports)

    claims = Claims(
        worker.store,
        worker.name,
        worker.clock,
        worker.settings.lease,
        worker.share,
        worker.batch_size,
        claimable,
        threads=max(1, len(warehouses)),
    )
    with heartbeat(claims.renew, worker.settings.lease):
        if warehouses:
            _run_in_threads(worker, warehouses, claims, do, done)
            return
        while claimed := claims.claim_more():
            for job in claimed:
                done(do(_run(worker, job, warehouse)))


def _longest_waiting(worker: Worker, claimable: ListClaimable) -> ListClaimable:
    """Restrict a run with more due jobs than its limit to the jobs that were processed longest ago.

    In the order of their numbers, each run would process the first jobs again, because jobs on probation are
    due in every run.
    """
    limit = worker.batch_size * worker.share[1]
    chosen: dict[tuple[str, bool], Selection] = {}

    def list_longest_waiting() -> Iterator[ClaimableJobs]:
        for group in claimable():
            if group.key not in chosen:
                chosen[group.key] = least_recent(worker.store, group.selection, limit)
            yield replace(group, selection=group.selection & chosen[group.key])

    return list_longest_waiting


def _run_in_threads(
    worker: Worker,
    warehouses: Sequence[Warehouse],
    claims: Claims,
    do: Callable[[JobRun], JobReport],
    done: Callable[[JobReport], None],
) -> None:
    """Run jobs in one thread for each warehouse; an error that ends the run waits for the running jobs."""

    def run_one(job: Job, warehouse: Warehouse) -> JobReport:
        return do(_run(worker, job, warehouse))

    with TableThreads(warehouses) as threads:
        running: set[Future[JobReport]] = set()
        while True:
            # Claim ahead, so that a free thread needn't wait for a claim.
            if len(running) <= len(warehouses):
                running |= {threads.submit(partial(run_one, job)) for job in claims.claim_more()}
            if not running:
                return
            ended, running = wait(running, return_when=FIRST_COMPLETED)
            for future in ended:
                done(future.result())


def _run(worker: Worker, job: Job, warehouse: Warehouse) -> JobRun:
    return JobRun(job, worker.store, warehouse, worker.clock, worker.settings.lease)


def _timed(do: Callable[[JobRun], JobReport]) -> Callable[[JobRun], JobReport]:
    """Return `do` with the duration of the job recorded in its report."""

    def timed(run: JobRun) -> JobReport:
        began = time.monotonic()
        report = do(run)
        return replace(report, seconds=time.monotonic() - began)

    return timed


def _log_job(running: Task, reports: list[JobReport]) -> None:
    """Log a job's outcome, and count it.

    It's the job's only line at INFO; its steps are logged at DEBUG.
    """
    report, due = reports[-1], running.counts["tables"].total
    # Other processes may have added jobs during the run.
    running.update("tables", len(reports), max(due or 0, len(reports)))
    level = logging.INFO if report.outcome in ("done", "planned", "waiting") else logging.WARNING
    _log.log(
        level, "%s: %s at %s in %s, %d of %d tables", report.job.name, report.outcome, report.job.state,
        duration(report.seconds), len(reports), running.counts["tables"].total,
        extra={
            "event": "table", "table": str(report.job.name), "outcome": report.outcome,
            "state": str(report.job.state), "seconds": round(report.seconds, 3), "worker": running.worker,
        },
    )  # fmt: skip
