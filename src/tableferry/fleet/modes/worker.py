"""Takes a mode's jobs from the queue, a few at a time, and does each once a run: several tables at once."""

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
from tableferry.fleet.modes.claims import Claims, Portion, Takes
from tableferry.fleet.modes.due import all_due, count_due, nothing_done
from tableferry.fleet.modes.job_run import JobRun
from tableferry.fleet.modes.results import JobReport, ModeReport
from tableferry.fleet.queue.selections import Selection, longest_ago
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
    """Who works, on what, and for how long.

    Attributes:
        store: The queue.
        open_warehouse: Opens the tables, which may start Spark; it's called when a job is due, maybe twice.
        settings: The fleet's.
        name: The worker's, unique among processes.
        clock: What time it is.
        batch_size: At most how many jobs in this run.
        share: Of N workers, the I-th prefers a share of its own.
        dry_run: Say what would be done, and do nothing.
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
        """Return the worker with a warehouse that reads the catalog's listings once, in this run."""

        def opened() -> Warehouse:
            return replace(self.open_warehouse(), directories=TableDirectories(), views=Views())

        return replace(self, open_warehouse=opened)


def run_worker(
    worker: Worker,
    mode: str,
    takes: Takes,
    do: Callable[[JobRun], JobReport],
    dry_run_report: Callable[[Job, Warehouse], JobReport],
) -> ModeReport:
    """Do each job that a run takes, as these are now, once; `do` gives the claims back.

    The queue is asked first: the warehouse is opened if at least one job is due.

    Raises:
        Refused: Among them are tables of a format that this compute can't write.
    """
    due = count_due(worker.store, takes)
    if not due:
        return nothing_done(mode, worker.name)
    warehouse = _opened(worker, takes)
    reports: list[JobReport] = []
    if due > worker.batch_size:
        takes = _longest_waiting(worker, takes)
    due = min(due, worker.batch_size)
    with task(_log, mode, worker=worker.name) as running:
        running.update("tables", 0, due)
        if worker.dry_run:
            for job in worker.store.jobs(all_due(takes), limit=worker.batch_size):
                reports.append(dry_run_report(job, warehouse))
                _count(running, reports)
        else:
            at_once = min(worker.settings.tables_at_once, due)
            _work(worker, takes, _timed(do), reports, running, warehouse, at_once)
    return ModeReport(tuple(reports))


def _opened(worker: Worker, takes: Takes) -> Warehouse:
    """Open the warehouse, and make sure that this compute can write what is due."""
    warehouse = worker.open_warehouse()
    if warehouse.serverless:
        formats = worker.store.counts(all_due(takes), ("target_format",))
        warehouse.check_formats(str(group["target_format"]) for group in formats)
    return warehouse


def _work(
    worker: Worker,
    takes: Takes,
    do: Callable[[JobRun], JobReport],
    reports: list[JobReport],
    running: Task,
    warehouse: Warehouse,
    at_once: int,
) -> None:
    """Claim jobs and do them, until there are no more, and report each as it ends."""
    warehouses = warehouses_for_threads(warehouse, at_once)

    def done(report: JobReport) -> None:
        claims.ended(report.job.task_id)
        reports.append(report)
        _count(running, reports)

    claims = Claims(
        worker.store,
        worker.name,
        worker.clock,
        worker.settings.lease,
        worker.share,
        worker.batch_size,
        takes,
        threads=max(1, len(warehouses)),
    )
    with heartbeat(claims.renew, worker.settings.lease):
        if warehouses:
            _do_at_once(worker, warehouses, claims, do, done)
            return
        while claimed := claims.more():
            for job in claimed:
                done(do(_run(worker, job, warehouse)))


def _longest_waiting(worker: Worker, takes: Takes) -> Takes:
    """Let a run that takes fewer jobs than there are take those that were seen to longest ago.

    By their numbers alone, each run would take the first ones again: jobs on probation are due in every run.
    """
    together = worker.batch_size * worker.share[1]
    chosen: dict[tuple[str, bool], Selection] = {}

    def taken() -> Iterator[Portion]:
        for portion in takes():
            if portion.key not in chosen:
                chosen[portion.key] = longest_ago(worker.store, portion.selection, together)
            yield replace(portion, selection=portion.selection & chosen[portion.key])

    return taken


def _do_at_once(
    worker: Worker,
    warehouses: Sequence[Warehouse],
    claims: Claims,
    do: Callable[[JobRun], JobReport],
    done: Callable[[JobReport], None],
) -> None:
    """Do jobs in a thread for each warehouse. Those under way are ended first, if one ends the whole run."""

    def one(job: Job, warehouse: Warehouse) -> JobReport:
        return do(_run(worker, job, warehouse))

    with TableThreads(warehouses) as threads:
        under_way: set[Future[JobReport]] = set()
        while True:
            # So that a thread that has ended one needn't wait for a claim.
            if len(under_way) <= len(warehouses):
                under_way |= {threads.submit(partial(one, job)) for job in claims.more()}
            if not under_way:
                return
            ended, under_way = wait(under_way, return_when=FIRST_COMPLETED)
            for future in ended:
                done(future.result())


def _run(worker: Worker, job: Job, warehouse: Warehouse) -> JobRun:
    return JobRun(job, worker.store, warehouse, worker.clock, worker.settings.lease)


def _timed(do: Callable[[JobRun], JobReport]) -> Callable[[JobRun], JobReport]:
    """Let a job's report record how long the run worked on it."""

    def timed(run: JobRun) -> JobReport:
        began = time.monotonic()
        report = do(run)
        return replace(report, seconds=time.monotonic() - began)

    return timed


def _count(running: Task, reports: list[JobReport]) -> None:
    """Log what became of a job, and count it.

    It's the only line of a job at INFO: its steps are at DEBUG.
    """
    report, due = reports[-1], running.counts["tables"].total
    # Others may have added jobs meanwhile.
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
