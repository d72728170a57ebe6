"""Lets a worker's claims hold while it works on them, however long a step takes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

_log = logging.getLogger(__name__)


@contextmanager
def heartbeat(renew: Callable[[], None], lease: timedelta) -> Iterator[None]:
    """Renew claims from a thread of its own, three times a lease, until the block ends.

    A worker that dies or sleeps renews nothing, so its jobs are another's when the lease is over.
    """
    ended = threading.Event()
    thread = threading.Thread(target=beat, args=(renew, lease, ended.wait), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def beat(renew: Callable[[], None], lease: timedelta, wait: Callable[[float], bool]) -> None:
    """Renew claims each time that a third of the lease is over, until waiting for that ends with True."""
    while not wait(lease.total_seconds() / 3):
        try:
            renew()
        except Exception as error:
            # Whatever it was (a network may fail in many ways), the next one may succeed; and a claim that
            # lapses is looked at before each effect.
            _log.warning("claims couldn't be renewed: %s", error)
