"""What time it is, so that tests can turn it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

Clock = Callable[[], datetime]
"""Gives the time, in UTC."""
