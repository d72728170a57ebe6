"""Catalog entries and the native engine through databricks-connect, which can't access Spark's files."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from pyspark.sql import SparkSession
from tests import conditions, soak

from tableferry.convert.catalog.entries import entry, tables
from tableferry.convert.catalog.native_engine import convert, convert_table, list_files
from tableferry.convert.catalog.partitions import partitions_of, register_partitions
from tableferry.convert.catalog.switch import switch_to_delta
from tableferry.spark.tables import TableName


def test_catalog_table_is_converted_and_switched_to_delta(
    spark: SparkSession, schema: str, tmp_path: Path
) -> None:
    root = tmp_path / "t"
    spark.sql(
        f"CREATE TABLE {schema}.t (id int COMMENT 'the id', k int) USING parquet PARTITIONED BY (k) "
        f"COMMENT 'c' LOCATION '{root}' TBLPROPERTIES ('a' = 'b')"
    )
    spark.sql(f"INSERT INTO {schema}.t VALUES (1, 1), (2, null)")
    spark.sql(f"ALTER TABLE {schema}.t ADD PARTITION (k = 2)")
    spark.sql(f"ALTER TABLE {schema}.t ADD PARTITION (k = 3)")
    spark.sql(f"ALTER TABLE {schema}.t ADD PARTITION (k = 4) LOCATION '{tmp_path}/out'")
    shutil.rmtree(root / "k=3")
    [name] = tables(spark, [schema]).tables
    table_entry = entry(spark, name)
    assert table_entry.folder is None

    mismatches = partitions_of(spark, table_entry, list_files(spark, table_entry.location))
    assert [partition.spec for partition in mismatches.missing] == ["k=3"]
    assert [partition.location for partition in mismatches.outside] == [f"file:{tmp_path}/out"]
    spark.sql(f"ALTER TABLE {schema}.t DROP PARTITION (k = 4)")
    register_partitions(spark, table_entry.name)
    assert not partitions_of(spark, table_entry, list_files(spark, table_entry.location))

    with conditions.raises("DELTA_LOG_MISSING", table=table_entry.name):
        switch_to_delta(spark, table_entry)
    convert_table(spark, table_entry, statistics=True)
    assert entry(spark, name).is_delta
    assert [tuple(row) for row in spark.sql(f"SELECT id FROM {schema}.t WHERE k IS NULL").collect()] == [(2,)]
    detail = spark.sql(f"DESCRIBE DETAIL {schema}.t").collect()[0]
    assert (detail["description"], dict(detail["properties"])) == ("c", {"a": "b"})


@soak.slow
def test_missing_table_or_folder_is_refused_with_same_condition(
    spark: SparkSession, schema: str, tmp_path: Path
) -> None:
    with conditions.raises("TABLE_NOT_FOUND", table=re.compile(f"{schema}.nothing$")):
        entry(spark, TableName((schema, "nothing")))
    with conditions.raises("NATIVE_FOLDER_MISSING", reason=re.compile("nothing doesn't exist")):
        convert(spark, f"file:{tmp_path}/nothing", (), statistics=True)
    with conditions.raises("FOLDER_MISSING", folder=f"file:{tmp_path}/nothing"):
        list_files(spark, f"file:{tmp_path}/nothing")
    (tmp_path / "empty").mkdir()
    with conditions.raises("NATIVE_CONVERSION_FAILED", advice=re.compile("nothing to convert")):
        convert(spark, f"file:{tmp_path}/empty", (), statistics=True)
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "README").write_bytes(b"no Parquet")
    with conditions.raises(
        "NATIVE_CONVERSION_OF_OTHER_FILES", reason=re.compile("README is not a Parquet file")
    ):
        convert(spark, f"file:{tmp_path}/odd", (), statistics=True)
