"""Retry an operation with backoff after a conflict: databases abort one of two conflicting writers."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_TIMES = 30


def pause(attempt: int, shortest: float = 0.01, longest: float = 1.0) -> None:
    """Sleep for a random number of seconds; the average doubles with each attempt up to ``longest``."""
    time.sleep(random.uniform(0, min(longest, shortest * 2**attempt)))


def retry(
    work: Callable[[], T],
    passing: Callable[[Exception], bool],
    shortest: float = 0.01,
    longest: float = 1.0,
    times: int = _TIMES,
) -> T:
    """Call an atomic function, and call it again after each transient error.

    Args:
        work: The function; it must have no effect if it fails.
        passing: Returns whether an error is transient.
        shortest: Upper limit of the first wait, in seconds, unless the attempt took longer.
        longest: Upper limit of each wait, in seconds.
        times: Number of attempts before the last one, whose error is always raised.
    """
    for attempt in range(times):
        started = time.monotonic()
        try:
            return work()
        except Exception as error:
            if not passing(error):
                raise
        # An immediate retry of a long operation slows down the processes that it conflicts with.
        pause(attempt, max(shortest, time.monotonic() - started), longest)
    return work()
