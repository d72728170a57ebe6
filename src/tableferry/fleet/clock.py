"""The type of the clock, which tests replace."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

Clock = Callable[[], datetime]
"""A function that returns the time in UTC."""
