"""Reads the figures from a queue: what the command line calls."""

from __future__ import annotations

from datetime import datetime, timedelta

from tableferry.fleet.queue.suspects import Readable
from tableferry.fleet.queue.tallies import tally
from tableferry.fleet.status.counting import LISTED, figures
from tableferry.fleet.status.figures import Figures

DEFAULT_LEASE = timedelta(hours=1)


def status(store: Readable, now: datetime, *, lease: timedelta = DEFAULT_LEASE) -> Figures:
    """Return how far the fleet is.

    Args:
        store: The queue.
        now: The time.
        lease: How long a worker's claim holds; a job that is on its way and rests for three is stuck.
    """
    return figures(tally(store, now, lease, listed=LISTED), now)
