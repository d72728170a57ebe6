"""Takes a mode's jobs from the queue, a few at a time, and does each once a run."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from tableferry.activity import Activity, activity
from tableferry.fleet.clock import Clock
from tableferry.fleet.job import Job
from tableferry.fleet.job_run import JobRun
from tableferry.fleet.queue.selections import Selection, behind
from tableferry.fleet.queue.store import Store
from tableferry.fleet.reports import JobReport, ModeReport
from tableferry.fleet.settings import FleetSettings
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.heartbeat import heartbeat

_log = logging.getLogger(__name__)

# Few enough that one that dies strands few; many enough that a claim, dear in a Delta table, is shared.
_AT_ONCE = 10


@dataclass(frozen=True)
class Worker:
    """Who works, on what, and for how long.

    Attributes:
        store: The queue.
        warehouse: The tables.
        settings: The fleet's.
        name: The worker's, unique among processes.
        clock: What time it is.
        batch_size: At most how many jobs in this run.
        share: Of N workers, the I-th prefers a share of its own.
        dry_run: Say what would be done, and do nothing.
    """

    store: Store
    warehouse: Warehouse
    settings: FleetSettings
    name: str
    clock: Clock
    batch_size: int = 5000
    share: tuple[int, int] = (0, 1)
    dry_run: bool = False


def run_worker(
    worker: Worker,
    mode: str,
    selection: Callable[[], Selection],
    do: Callable[[JobRun], JobReport],
    dry_run_report: Callable[[Job], JobReport],
) -> ModeReport:
    """Do each job of a selection, as it is now, once; `do` gives the claims back.

    Raises:
        Refused: Among them are tables of a format that this compute can't write.
    """
    if worker.warehouse.serverless:
        formats = worker.store.counts(selection(), ("target_format",))
        worker.warehouse.check_formats(str(group["target_format"]) for group in formats)
    reports: list[JobReport] = []
    due = sum(int(group["jobs"]) for group in worker.store.counts(selection(), ("state",)))
    with activity(_log, mode, worker=worker.name) as running:
        running.count("tables", 0, min(due, worker.batch_size))
        if worker.dry_run:
            for job in worker.store.jobs(selection(), limit=worker.batch_size):
                reports.append(dry_run_report(job))
                _count(running, reports)
        else:
            _work(worker, selection, do, reports, running)
    return ModeReport(tuple(reports))


def _work(
    worker: Worker,
    selection: Callable[[], Selection],
    do: Callable[[JobRun], JobReport],
    reports: list[JobReport],
    running: Activity,
) -> None:
    lease = worker.settings.lease
    while (left := worker.batch_size - len(reports)) > 0:
        claimed = worker.store.claim(
            # What failed, and what is on probation, would be claimed without end.
            selection() & behind((report.job.task_id for report in reports), worker.share),
            worker.name,
            now=worker.clock(),
            lease=lease,
            limit=min(left, _AT_ONCE),
            share=worker.share,
        )
        if not claimed:
            return
        numbers = [job.task_id for job in claimed]
        with heartbeat(partial(_renew, worker, numbers), lease):
            for job in claimed:
                reports.append(do(JobRun(job, worker.store, worker.warehouse, worker.clock, lease)))
                _count(running, reports)


def _renew(worker: Worker, task_ids: Sequence[int]) -> None:
    worker.store.renew(task_ids, worker.name, worker.clock(), worker.settings.lease)


def _count(running: Activity, reports: list[JobReport]) -> None:
    """Log what became of a job, and count it."""
    report, due = reports[-1], running.counts["tables"].total
    # Others may have added jobs meanwhile.
    running.count("tables", len(reports), max(due or 0, len(reports)))
    _log.info(
        "[%d/%d] %s: %s, %s", len(reports), running.counts["tables"].total, report.job.name, report.outcome,
        report.job.state,
        extra={
            "event": "table", "table": str(report.job.name), "outcome": report.outcome,
            "state": str(report.job.state), "worker": running.worker,
        },
    )  # fmt: skip
