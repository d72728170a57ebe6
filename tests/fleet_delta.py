"""A queue in Delta tables for a test, in whichever session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tests.fleet_queue import Queue

from tableferry.fleet.job import Job
from tableferry.fleet.queue.delta import DeltaStore
from tableferry.fleet.queue.opening import open_store
from tableferry.fleet.queue.rows import of_job
from tableferry.fleet.queue.sparksql import arguments

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES = ("jobs", "jobs_archive", "letters")


def url(schema: str) -> str:
    """Return the address of a schema's queue."""
    return f"delta:spark_catalog.{schema}"


def store(spark: SparkSession, schema: str) -> DeltaStore:
    """Open a schema's queue."""
    opened = open_store(url(schema), spark)
    assert isinstance(opened, DeltaStore)
    return opened


def empty_queue(spark: SparkSession, schema: str) -> Queue:
    """Give a schema's queue, without what another test left in its tables."""
    for table in TABLES:
        if spark.sql(f"SELECT 1 FROM {schema}.{table} LIMIT 1").collect():
            spark.sql(f"DELETE FROM {schema}.{table}").collect()

    def put(jobs: Sequence[Job]) -> None:
        columns = spark.table(f"{schema}.jobs").schema
        rows = [{**arguments(of_job(job)), "events": None} for job in jobs]
        spark.createDataFrame([tuple(row[each] for each in columns.names) for row in rows], columns).writeTo(
            f"{schema}.jobs"
        ).append()

    return Queue(store(spark, schema), lambda: store(spark, schema), put)
