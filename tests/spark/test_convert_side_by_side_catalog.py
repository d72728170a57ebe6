"""Conversions of a table by its name, by Spark and by ours."""

from __future__ import annotations

import shutil
from pathlib import Path

from pyspark.sql import SparkSession
from tests import soak
from tests.spark.side_by_side import differences, log

from tableferry import convert

COLUMNS = (
    "id int COMMENT 'the id', name varchar(4) COMMENT 'up to 4', s struct<x: int COMMENT 'inside'>, "
    "code char(3), k char(2) COMMENT 'kk'"
)


@soak.slow
def test_catalog_description_matches_native_command(spark: SparkSession, schema: str, tmp_path: Path) -> None:
    for name in ("ours", "native"):
        spark.sql(
            f"CREATE TABLE {schema}.{name} ({COLUMNS}) USING parquet PARTITIONED BY (k) COMMENT 'it' "
            f"LOCATION '{tmp_path / name}' TBLPROPERTIES ('a' = 'b')"
        )
    spark.sql(f"INSERT INTO {schema}.ours VALUES (1, 'bb', struct(1), 'a', 'k'), (2, 'b', null, null, 'kk')")
    before = spark.sql(f"SELECT id, k FROM {schema}.ours WHERE code = 'a' AND k = 'k'").collect()
    shutil.copytree(tmp_path / "ours", tmp_path / "native", dirs_exist_ok=True)
    spark.sql(f"MSCK REPAIR TABLE {schema}.native")

    done = convert.run([f"{schema}.ours"], spark)
    assert done.ok, done.tables[0].error
    spark.sql(f"CONVERT TO DELTA {schema}.native")

    our_log, other = log(tmp_path / "ours"), log(tmp_path / "native")
    # The native command drops the comment, and records an empty list of partitions.
    assert differences(our_log, other) == {"description: it for None"}
    assert [side.info["operationParameters"]["partitionedBy"] for side in (our_log, other)] == ['["k"]', "[]"]
    for name in ("ours", "native"):
        rows = spark.sql(f"SELECT id, k FROM {schema}.{name} WHERE code = 'a' AND k = 'k'").collect()
        assert rows == before == [(1, "k ")]
