"""Retry with backoff what failed because others were faster, as databases end one of two that conflict."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_TIMES = 30


def pause(attempt: int, shortest: float = 0.01, longest: float = 1.0) -> None:
    """Wait for a random time, on average twice as long after each attempt; seconds."""
    time.sleep(random.uniform(0, min(longest, shortest * 2**attempt)))


def retry(
    work: Callable[[], T],
    passing: Callable[[Exception], bool],
    shortest: float = 0.01,
    longest: float = 1.0,
    times: int = _TIMES,
) -> T:
    """Do a piece of work, which does all or nothing, again after each error that passes by itself.

    The first wait is about the shortest, in seconds, or as long as the attempt took.
    """
    for attempt in range(times):
        started = time.monotonic()
        try:
            return work()
        except Exception as error:
            if not passing(error):
                raise
        # Whoever tries a long thing again at once makes those slower who would else be done.
        pause(attempt, max(shortest, time.monotonic() - started), longest)
    return work()
