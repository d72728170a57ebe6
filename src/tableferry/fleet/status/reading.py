"""Reads the figures from a queue: what the command line calls."""

from __future__ import annotations

from datetime import datetime, timedelta

from tableferry.fleet.queue.aggregates import aggregate, by_wave
from tableferry.fleet.queue.store import Store
from tableferry.fleet.settings import STUCK_HOURS
from tableferry.fleet.status.counting import LISTED, figures, wave_counts
from tableferry.fleet.status.figures import Figures, WaveCount

DEFAULT_REST = timedelta(hours=STUCK_HOURS)


def read_status(store: Store, now: datetime, *, rest: timedelta = DEFAULT_REST) -> Figures:
    """Return how far the fleet is.

    Args:
        store: The queue.
        now: The time.
        rest: How long a job may stay where it should go on before it counts as stuck.
    """
    return figures(aggregate(store, now, rest, listed=LISTED), now)


def read_waves(store: Store) -> tuple[WaveCount, ...]:
    """Return what each wave is at."""
    return wave_counts(store.waves(), by_wave(store))
