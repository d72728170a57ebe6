"""Provide a Spark session only when it's needed, because the conversion of a local folder needs none."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkProvider:
    """Provides one session, which the first call creates."""

    def __init__(self, spark: SparkSession | None, make: Callable[[], SparkSession]) -> None:
        self._spark, self._make = spark, make

    @property
    def running(self) -> SparkSession | None:
        """The session, if it already exists."""
        return self._spark

    def session(self) -> SparkSession:
        """Return the session, and create it if it doesn't exist.

        Raises:
            SessionError: No session can be created.
        """
        if self._spark is None:
            self._spark = self._make()
        return self._spark
