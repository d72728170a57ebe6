"""Choose the number of files per batch, from the settings of Delta's ``CONVERT TO DELTA``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tableferry.errors import SessionError
from tableferry.spark.catalog import SPARK_ERRORS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The defaults are those of Delta (DeltaSQLConf).
_STATISTICS = ("spark.databricks.delta.import.batchSize.statsCollection", 50_000)
_SCHEMAS = ("spark.databricks.delta.import.batchSize.schemaInference", 1_000_000)


def batch_size(spark: SparkSession, *, statistics: bool) -> int:
    """Return the number of footers to read per batch.

    Delta has one setting for schemas, ``spark.databricks.delta.import.batchSize.schemaInference``, and one
    for statistics, ``…statsCollection``. Tableferry reads both in one pass, so the smaller number counts.
    Without ``statistics``, only the first setting counts.

    Raises:
        SessionError: A setting isn't a positive integer.
    """
    settings = (_SCHEMAS, _STATISTICS) if statistics else (_SCHEMAS,)
    return min(_setting(spark, name, default) for name, default in settings)


def _setting(spark: SparkSession, name: str, default: int) -> int:
    try:
        value = spark.conf.get(name, None) or str(default)
    except SPARK_ERRORS:  # Serverless compute gives access to few settings.
        return default
    if not value.isdecimal() or int(value) == 0:
        raise SessionError("READER_SETTING_INVALID", setting=name, value=value)
    return int(value)
