"""Lets a worker's claims hold while it works on them, however long a step takes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

from tableferry.errors import TableferryError
from tableferry.fleet.clock import Clock
from tableferry.fleet.queue.store import Store

_log = logging.getLogger(__name__)


@contextmanager
def heartbeat(
    store: Store, task_ids: Sequence[int], worker: str, clock: Clock, lease: timedelta
) -> Iterator[None]:
    """Renew a worker's claims from a thread of its own, three times a lease, until the block ends.

    A worker that dies or sleeps renews nothing, so its jobs are another's when the lease is over.

    Args:
        store: The queue.
        task_ids: The jobs that the worker claimed.
        worker: Who claimed them.
        clock: What time it is.
        lease: How long each renewal holds.
    """
    ended = threading.Event()
    thread = threading.Thread(
        target=renew, args=(store, task_ids, worker, clock, lease, ended.wait), daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def renew(
    store: Store,
    task_ids: Sequence[int],
    worker: str,
    clock: Clock,
    lease: timedelta,
    wait: Callable[[float], bool],
) -> None:
    """Renew claims each time that a third of the lease is over.

    Args:
        store: The queue.
        task_ids: The jobs that the worker claimed.
        worker: Who claimed them.
        clock: What time it is.
        lease: How long each renewal holds.
        wait: Waits so many seconds; True ends it.
    """
    while not wait(lease.total_seconds() / 3):
        try:
            store.renew(task_ids, worker, clock(), lease)
        except TableferryError as error:
            # The next one may succeed; and a claim that lapses is looked at before each effect.
            _log.warning("claims couldn't be renewed: %s", error)
