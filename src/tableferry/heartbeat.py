"""Renew a worker's claims while it works on them, so that a long step doesn't lose its lease."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from tableferry.errors import TableferryError

_log = logging.getLogger(__name__)


@contextmanager
def heartbeat(renew: Callable[[], None], lease: timedelta) -> Iterator[None]:
    """Renew claims in a background thread, three times per lease, until the ``with`` block ends.

    A worker that dies or sleeps renews nothing, so other workers can claim its jobs after the lease.
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
    """Renew claims after each third of the lease, until ``wait`` returns True."""
    while not wait(lease.total_seconds() / 3):
        try:
            renew()
        except Exception as error:
            # The next renewal may succeed after any error, such as a network failure. The worker checks its
            # claim before each effect, so an expired one does no harm.
            reason = error.one_line if isinstance(error, TableferryError) else error
            _log.warning("claims couldn't be renewed: %s", reason)
