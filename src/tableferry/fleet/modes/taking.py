"""Takes a mode's jobs from the queue, a few at a time, and does each once a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tableferry.fleet.clock import Clock
from tableferry.fleet.job import Job
from tableferry.fleet.queue.selections import Selection, but
from tableferry.fleet.queue.store import ClaimLost, Store
from tableferry.fleet.reports import JobReport, ModeReport, Told
from tableferry.fleet.settings import FleetSettings
from tableferry.fleet.walk import Walk
from tableferry.fleet.warehouse.context import Warehouse

# Few enough that a lease outlasts them; many enough that a claim, dear in a Delta table, is shared.
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
        told: Takes each job's report when it's there.
    """

    store: Store
    warehouse: Warehouse
    settings: FleetSettings
    name: str
    clock: Clock
    batch_size: int = 5000
    share: tuple[int, int] = (0, 1)
    dry_run: bool = False
    told: Told = lambda report: None


def take(
    worker: Worker,
    selection: Callable[[], Selection],
    do: Callable[[Walk], JobReport],
    outlook: Callable[[Job], JobReport],
) -> ModeReport:
    """Do each job of a selection once.

    Args:
        worker: Who does it.
        selection: Which jobs, now.
        do: Does a claimed one, and gives its claim back.
        outlook: Says what would be done, for a dry run.
    """
    reports: list[JobReport] = []
    if worker.dry_run:
        for job in worker.store.jobs(selection(), limit=worker.batch_size):
            reports.append(outlook(job))
            worker.told(reports[-1])
        return ModeReport(tuple(reports))
    lease = worker.settings.lease
    while (left := worker.batch_size - len(reports)) > 0:
        claimed = worker.store.claim(
            # What failed, and what is on probation, would be taken again and again.
            selection() & but(report.job.task_id for report in reports),
            worker.name,
            now=worker.clock(),
            lease=lease,
            limit=min(left, _AT_ONCE),
            share=worker.share,
        )
        if not claimed:
            break
        for job in claimed:
            one = Walk(job, worker.store, worker.warehouse, worker.clock, lease)
            try:
                one.save(job)  # The jobs before it may have taken long.
            except ClaimLost as error:
                reports.append(JobReport(job, "lost", (), str(error)))
            else:
                reports.append(do(one))
            worker.told(reports[-1])
    return ModeReport(tuple(reports))
