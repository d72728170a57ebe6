"""Reads the figures from a queue: what the command line calls."""

from __future__ import annotations

from datetime import datetime, timedelta

from tableferry.fleet.queue.aggregates import aggregate
from tableferry.fleet.queue.stuck_jobs import Readable
from tableferry.fleet.status.counting import LISTED, figures
from tableferry.fleet.status.figures import Figures

DEFAULT_REST = timedelta(hours=3)


def read_status(store: Readable, now: datetime, *, rest: timedelta = DEFAULT_REST) -> Figures:
    """Return how far the fleet is.

    Args:
        store: The queue.
        now: The time.
        rest: How long a job may stay where it should go on before it counts as stuck.
    """
    return figures(aggregate(store, now, rest, listed=LISTED), now)
