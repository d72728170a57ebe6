"""What the tests ask of Spark's catalog."""

from __future__ import annotations

from pyspark.sql import SparkSession


def tables_in(spark: SparkSession, schema: str) -> list[str]:
    """Name a schema's own tables; `SHOW TABLES` lists the session's temporary views with every schema's."""
    shown = spark.sql(f"SHOW TABLES IN {schema}").where("NOT isTemporary").sort("tableName")
    return [row["tableName"] for row in shown.collect()]
