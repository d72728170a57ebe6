"""A worker on a queue, for tests that start some in processes of their own and kill them."""

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
from tableferry.fleet.queue.opening import open_store
from tableferry.fleet.queue.selections import to_preprocess
from tableferry.fleet.queue.statements import chunks

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
    at_once: int = 1,
) -> None:
    """Do jobs until none are left, noting in each that it was done.

    Args:
        url: The queue.
        worker: The worker's number.
        workers: How many there are.
        begun: Where all wait until each has its first jobs.
        now: The time.
        dies_at: At which job of its first ones it dies; 0 does all.
        at_commit: Whether it dies when that job is written, which in a database is about to be committed;
            else with those before it saved.
        batch: How many jobs it claims at once.
        at_once: How many of them it saves at once.
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
    # Who meets another one at the same job gets fewer; who is to die has as many as the test says.
    while dies_at and len(jobs) < batch and (more := claim(batch - len(jobs))):
        jobs += more
    migration_start.wait(timeout=600)
    done = 0
    while jobs:
        for some in chunks(jobs, at_once):
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
            if at_once == 1 and after:
                store.save(after[0], now, release=True)
            else:
                store.save_all(after, now, release=True)
            # A Delta table commits by itself.
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
    at_once: int = 1,
    loaded: Sequence[str] = (),
) -> list[int]:
    """Run workers in processes of their own, and return how they ended.

    Args:
        url: The queue.
        workers: How many.
        now: The time.
        deaths: By the numbers of workers that die, at which job and whether at its commit.
        batch: How many jobs each claims at once.
        at_once: How many of them it saves at once.
        loaded: Modules that all need and that take long to load.
    """
    context = get_context("forkserver")
    # What is loaded once, they all have; and they load what this process would.
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
                at_once,
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
