"""A worker on a queue, for tests that start some in processes of their own and kill them."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from multiprocessing.synchronize import Barrier

from sqlalchemy import Connection, Engine, event
from tests.fleet_queue import NOW

from tableferry.fleet.job import Job, State
from tableferry.fleet.queue.opening import open_store
from tableferry.fleet.queue.selections import to_preprocess

LEASE = timedelta(hours=1)
BATCH = 5


def work(
    url: str,
    worker: int,
    workers: int,
    begun: Barrier,
    now: datetime = NOW,
    dies_at: int = 0,
    at_commit: bool = False,
) -> None:
    """Do jobs until none are left, noting in each that it was done.

    Args:
        url: The queue.
        worker: The worker's number.
        workers: How many there are.
        begun: Where all wait until each has its first jobs.
        now: The time.
        dies_at: At which job of its first ones it dies; 0 does all.
        at_commit: Whether it dies when that job is written and about to be committed, else before.
    """
    writing = 0

    def about_to_commit(connection: Connection) -> None:
        if at_commit and writing == dies_at > 0:
            _die()

    event.listen(Engine, "commit", about_to_commit)
    store = open_store(url)

    def claim() -> Sequence[Job]:
        share = (worker, workers)
        return store.claim(to_preprocess(now), f"w{worker}", now=now, lease=LEASE, limit=BATCH, share=share)

    jobs = claim()
    begun.wait(timeout=120)
    done = 0
    while jobs:
        for job in jobs:
            done += 1
            if done == dies_at and not at_commit:
                _die()
            times = job.record.get("done", 0) + 1
            writing = done
            store.save(replace(job, state=State.READY, record={"done": times}), now, release=True)
            writing = 0
        jobs = claim()
    store.close()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
