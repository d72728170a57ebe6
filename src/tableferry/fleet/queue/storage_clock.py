"""The time by the storage that a queue's Delta tables lie in, which all workers share: pure.

Workers have clocks of their own, and one that is ahead would take over what others have just claimed. So each
asks the storage for its time now and then, by a commit whose file the storage dates, and counts on from there
by a clock that only measures how long something takes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

# So long a measurement is counted on from; a machine that slept for longer measures anew when it wakes.
_SECONDS = 300.0


class _Measured(NamedTuple):
    time: datetime
    monotonic: float
    wall: float


@dataclass
class StorageClock:
    """Gives the storage's time, never ahead of it, and behind it by as long as a measurement takes.

    Attributes:
        measure: Gives the time of something that the storage has dated since it was called.
        monotonic: Counts seconds; it may stand still while the machine sleeps.
        wall: Counts seconds by the machine's own time, which may be wrong, but goes on while it sleeps.
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
            # Read after the measurement: whatever took time in it lets the clock be behind, and never ahead.
            last = self._measured = _Measured(dated, self.monotonic(), self.wall())
            monotonic = last.monotonic
        return last.time + timedelta(seconds=monotonic - last.monotonic)
