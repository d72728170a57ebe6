"""Compare the rows in a table's Parquet files with the rows of the Delta table in the same folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from tableferry import verify
from tableferry.spark import session, types
from tableferry.spark.tables import TableName
from tableferry.spark.types import Struct

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def compare_rows(
    spark: SparkSession, location: str, schema: Struct | None, partition_columns: Sequence[str]
) -> verify.Verdict:
    """Compare the rows of a converted folder, read as Parquet and as Delta.

    Spark lists the folder and parses partition values from directory names, so the comparison is independent
    of the conversion's own listing. Without a schema, Spark merges the schemas of the files.
    """
    reader = spark.read.option("mergeSchema", True)
    if schema is not None:
        # Column metadata in the log, such as physical names, must not affect the reader of the files.
        bare = types.changed(schema, lambda column: replace(column, metadata={}))
        reader = reader.schema(StructType.fromJson(types.plain(bare)))
    if partition_columns:
        reader = reader.option("basePath", location)
    else:
        reader = reader.option("recursiveFileLookup", True)
    # Databricks refuses to read a Delta table's folder as Parquet unless this check is off.
    with session.settings(spark, {"spark.databricks.delta.formatCheck.enabled": "false"}, "verify"):
        return verify.verify(
            reader.parquet(location),
            spark.sql(f"SELECT * FROM {TableName.at(location).sql}"),
            partition_columns=partition_columns,
            source_label="Parquet",
            target_label="Delta",
        )
