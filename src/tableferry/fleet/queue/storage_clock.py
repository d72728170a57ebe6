"""The clock of the storage of a queue in Delta tables, which all workers share.

The clocks of workers differ, and a worker whose clock is ahead would claim jobs of other workers. So each
worker reads the storage's time regularly, from a commit whose file the storage dates. Between the reads it
adds the time of its monotonic clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

# The time until the next measurement; a machine that slept for longer measures again when it wakes.
_SECONDS = 300.0


class _Measured(NamedTuple):
    time: datetime
    monotonic: float
    wall: float


@dataclass
class StorageClock:
    """The storage's time; it is never ahead, and late by at most the time of a measurement.

    Attributes:
        measure: Returns the time that the storage gave to a commit since the call.
        monotonic: Counts seconds; it may stop while the machine sleeps.
        wall: The machine's time in seconds, which may be wrong, but continues while the machine sleeps.
    """

    measure: Callable[[], datetime]
    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    _measured: _Measured | None = None

    def __call__(self) -> datetime:
        """Return the time."""
        last, monotonic, wall = self._measured, self.monotonic(), self.wall()
        if last is None or max(monotonic - last.monotonic, abs(wall - last.wall)) > _SECONDS:
            dated = self.measure()
            # Read after the measurement, whose duration makes the clock late and never ahead.
            last = self._measured = _Measured(dated, self.monotonic(), self.wall())
            monotonic = last.monotonic
        return last.time + timedelta(seconds=monotonic - last.monotonic)
