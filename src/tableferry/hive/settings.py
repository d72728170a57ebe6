"""Spark settings that only make a statement faster or its answer longer, and may be refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from tableferry import session
from tableferry.errors import SessionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# By default there is a task for each of up to 10,000 directories: 15 s for 3,000, of which 1 s is work.
FEW_LISTING_TASKS = {"spark.sql.sources.parallelPartitionDiscovery.parallelism": "32"}

WHOLE_PLANS = {"spark.sql.maxMetadataStringLength": str(2**30)}


@contextmanager
def optional_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Apply those settings that Spark takes for the length of a ``with``: serverless compute takes few."""
    with ExitStack() as applied:
        for key, value in settings.items():
            try:
                applied.enter_context(session.settings(spark, {key: value}, "a setting that may be refused"))
            except SessionError:
                continue
        yield
