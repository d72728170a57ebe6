"""How many files are read at once, by the settings that Delta's own command has for that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tableferry.catalog import SPARK_ERRORS
from tableferry.errors import SessionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Their defaults are Delta's (DeltaSQLConf).
_STATISTICS = ("spark.databricks.delta.import.batchSize.statsCollection", 50_000)
_SCHEMAS = ("spark.databricks.delta.import.batchSize.schemaInference", 1_000_000)


def batch_size(spark: SparkSession, *, statistics: bool) -> int:
    """Return how many footers are read at once.

    Delta's own command infers schemas in batches of as many files as
    ``spark.databricks.delta.import.batchSize.schemaInference`` says, and collects statistics in batches of
    ``…statsCollection``. Here one pass gives both, so the smaller number counts, and that of the statistics
    only if there are any.

    Raises:
        SessionError: A setting isn't a positive number.
    """
    settings = (_SCHEMAS, _STATISTICS) if statistics else (_SCHEMAS,)
    return min(_setting(spark, name, default) for name, default in settings)


def _setting(spark: SparkSession, name: str, default: int) -> int:
    try:
        value = spark.conf.get(name, None) or str(default)
    except SPARK_ERRORS:  # Serverless compute shows few of its settings.
        return default
    if not value.isdecimal() or int(value) == 0:
        raise SessionError("READER_SETTING_INVALID", setting=name, value=value)
    return int(value)
