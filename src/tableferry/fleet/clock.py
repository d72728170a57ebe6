"""What time it is, so that tests can turn it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

Clock = Callable[[], datetime]
"""Gives the time, in UTC."""


def utc_now() -> datetime:
    """Return the time by the machine's clock, in UTC."""
    return datetime.now(UTC)
