"""The Spark session of a command."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from tableferry.spark import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)


def resolve_session(
    warehouse: Path | None = None, *, iceberg: bool = False, kafka: bool = False
) -> SparkSession:
    """Return the Spark session, and log its kind."""
    return session.resolve(warehouse, iceberg=iceberg, kafka=kafka, say=_log.info)
