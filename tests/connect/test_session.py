"""The session of databricks-connect on an open-source server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tableferry.spark import session
from tableferry.spark.driver import in_process

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_spark_remote_selects_a_session_on_the_server(spark: SparkSession, server: str) -> None:
    messages: list[str] = []
    assert session.resolve(say=messages.append) is spark
    assert messages == [f"Spark: Spark Connect at {server}"]
    assert spark.version == "4.1.4"
    assert not in_process(spark)


def test_local_rows_of_the_client_reach_the_server(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, "é"), (2, None)], "id int, name string")
    assert [tuple(row) for row in frame.orderBy("id").collect()] == [(1, "é"), (2, None)]
