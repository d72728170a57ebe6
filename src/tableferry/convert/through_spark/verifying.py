"""Compares what the Parquet files of a table hold with what the Delta table over them shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from tableferry import session, types, verify
from tableferry.tables import TableName
from tableferry.types import Struct

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def compare_rows(
    spark: SparkSession, location: str, schema: Struct | None, partition_columns: Sequence[str]
) -> verify.Verdict:
    """Compare the rows of a converted folder, read as Parquet and as Delta.

    Spark itself lists the folder and reads the partitions' values from the directories' names, so what is
    compared with the log isn't what the log was made of. Without a schema Spark merges those of the files.
    """
    reader = spark.read.option("mergeSchema", True)
    if schema is not None:
        # What the log says besides names and types, such as mapped names, isn't said of the files.
        bare = types.changed(schema, lambda column: replace(column, metadata={}))
        reader = reader.schema(StructType.fromJson(types.plain(bare)))
    if partition_columns:
        reader = reader.option("basePath", location)
    else:
        reader = reader.option("recursiveFileLookup", True)
    # Databricks refuses to read a Delta table's folder as Parquet, as nobody else means to.
    with session.settings(spark, {"spark.databricks.delta.formatCheck.enabled": "false"}, "verify"):
        return verify.verify(
            reader.parquet(location),
            spark.sql(f"SELECT * FROM {TableName.at(location).sql}"),
            partition_columns=partition_columns,
            source_label="Parquet",
            target_label="Delta",
        )
