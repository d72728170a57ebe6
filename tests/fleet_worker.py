"""A worker on a queue, for tests that start workers in separate processes and kill them."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier

import pytest
from sqlalchemy import Connection, Engine, event
from tests.fleet_queue import NOW

from tableferry.fleet.jobs.job import Job, State
from tableferry.fleet.jobs.record import JobRecord
from tableferry.fleet.queue.conditions import chunks
from tableferry.fleet.queue.opening import open_store
from tableferry.fleet.queue.selections import to_preprocess

LEASE = timedelta(hours=1)
BATCH = 5


def work(
    url: str,
    worker: int,
    workers: int,
    migration_start: Barrier,
    now: datetime = NOW,
    dies_at: int = 0,
    at_commit: bool = False,
    batch: int = BATCH,
    per_save: int = 1,
) -> None:
    """Process all jobs, and record in each that it was processed.

    Args:
        url: The queue.
        worker: The worker's number.
        workers: The number of workers.
        migration_start: The barrier at which all wait until each has its first jobs.
        now: The time.
        dies_at: The number of the job at which it dies; 0 for never.
        at_commit: Whether it dies at the commit of that job; otherwise after it saved the earlier jobs.
        batch: The number of jobs per claim.
        per_save: The number of jobs per save.
    """
    writing = False

    def about_to_commit(connection: Connection) -> None:
        if writing:
            _die()

    event.listen(Engine, "commit", about_to_commit)
    store = open_store(url)

    def claim(limit: int = batch) -> Sequence[Job]:
        share = (worker, workers)
        return store.claim(to_preprocess(now), f"w{worker}", now=now, lease=LEASE, limit=limit, share=share)

    jobs = list(claim())
    # A worker that conflicts with another one gets fewer jobs; one that dies needs the number of the test.
    while dies_at and len(jobs) < batch and (more := claim(batch - len(jobs))):
        jobs += more
    migration_start.wait(timeout=600)
    done = 0
    while jobs:
        for some in chunks(jobs, per_save):
            begins, done = done, done + len(some)
            dies = begins < dies_at <= done
            if dies and not at_commit:
                some = some[: dies_at - begins - 1]
            writing = dies and at_commit
            after = [
                replace(
                    job,
                    state=State.READY,
                    record=JobRecord(others={"done": job.record.others.get("done", 0) + 1}),
                )
                for job in some
            ]
            if per_save == 1 and after:
                store.save(after[0], now, release=True)
            else:
                store.save_all(after, now, release=True)
            # A write to a Delta table is a commit.
            if dies:
                _die()
        jobs = list(claim())
    store.close()


def run(
    url: str,
    workers: int,
    now: datetime = NOW,
    deaths: Mapping[int, tuple[int, bool]] | None = None,
    batch: int = BATCH,
    per_save: int = 1,
    loaded: Sequence[str] = (),
) -> list[int]:
    """Run workers in separate processes, and return their exit codes.

    Args:
        url: The queue.
        workers: The number of workers.
        now: The time.
        deaths: For each worker that dies, the number of the job and whether it dies at the commit.
        batch: The number of jobs per claim.
        per_save: The number of jobs per save.
        loaded: Modules that all workers need and that take long to import.
    """
    context = get_context("forkserver")
    # Modules of the fork server are loaded once; the workers use this process's path.
    context.set_forkserver_preload(["tests.fleet_worker", *loaded])
    migration_start = context.Barrier(workers)
    processes = [
        context.Process(
            target=work,
            args=(
                url,
                number,
                workers,
                migration_start,
                now,
                *(deaths or {}).get(number, (0, False)),
                batch,
                per_save,
            ),
        )
        for number in range(workers)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        for process in processes:
            process.start()
    for process in processes:
        process.join()
    return [-1 if process.exitcode is None else process.exitcode for process in processes]


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
