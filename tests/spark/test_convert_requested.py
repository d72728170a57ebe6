"""Spark reads a table with requested properties like a table that Spark created."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from tests import soak

from tableferry import convert

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@soak.slow
def test_spark_reads_requested_clustering_and_properties(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "t"
    root.mkdir()
    schema = tmp_path / "columns.sql"
    schema.write_text("id bigint, name string, day date")
    for number in range(3):
        columns = {"id": pa.array([number, number + 10], pa.int32()), "name": ["a", "b"]}
        pq.write_table(pa.table(columns), root / f"{number}.parquet")
    properties = {"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": "true", "who": "ada"}
    assert convert.run([str(root)], cluster_by=["id"], properties=properties, schema=schema).ok

    table = f"delta.`{root}`"
    [detail] = spark.sql(f"DESCRIBE DETAIL {table}").collect()
    assert detail["clusteringColumns"] == ["id"]
    assert detail["properties"] == properties
    assert {"clustering", "changeDataFeed", "deletionVectors"} <= set(detail["tableFeatures"])
    before = spark.sql(f"SELECT * FROM {table}").collect()
    [metrics] = spark.sql(f"OPTIMIZE {table} FULL").collect()
    assert metrics["metrics"]["numFilesRemoved"] == 3
    assert sorted(spark.sql(f"SELECT * FROM {table}").collect(), key=str) == sorted(before, key=str)
    spark.sql(f"DELETE FROM {table} WHERE id = 1")
    changes = spark.read.format("delta").option("readChangeFeed", True).option("startingVersion", 2)
    [deleted] = changes.load(str(root)).collect()
    assert (deleted["id"], deleted["_change_type"]) == (1, "delete")
    assert [column.simpleString() for column in spark.table(table).schema] == [
        "id:bigint",
        "name:string",
        "day:date",
    ]
