"""A Spark session that is asked for only when it's needed, for converting a local folder needs none."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkProvider:
    """Gives one session, made at the first call."""

    def __init__(self, spark: SparkSession | None, make: Callable[[], SparkSession]) -> None:
        self._spark, self._make = spark, make

    @property
    def running(self) -> SparkSession | None:
        """The session, if there is one already."""
        return self._spark

    def session(self) -> SparkSession:
        """Return the session, and start it if there is none.

        Raises:
            SessionError: No session can be had.
        """
        if self._spark is None:
            self._spark = self._make()
        return self._spark
