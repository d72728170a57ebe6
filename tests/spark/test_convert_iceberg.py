"""Conversions of Iceberg tables of Spark: Spark reads the same rows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests import conditions, soak
from tests.spark.tables import schema_folder

from tableferry import convert
from tableferry.errors import TableferryError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TYPES = (
    "1 AS id, CAST(2 AS BIGINT) AS big, CAST(1.5 AS FLOAT) AS f, double('NaN') AS nan, 1.25BD AS price, "
    "'a' AS name, DATE '1500-01-01' AS day, TIMESTAMP '2026-01-01 10:00:00.123456' AS at, "
    "TIMESTAMP_NTZ '2026-01-01 10:00:00' AS local, true AS flag, X'00FF' AS raw, "
    "named_struct('x', 1, 'y', array(1, 2)) AS inner, map('k', named_struct('v', 1)) AS pairs"
)


@pytest.fixture
def root(schema: str, spark: SparkSession) -> Path:
    return schema_folder(spark, schema) / "t"


def same_rows(spark: SparkSession, table: str, root: Path) -> int:
    """Compare the rows of both tables, and return their number."""
    ice, delta = spark.table(table), spark.read.format("delta").load(str(root))
    assert delta.columns == ice.columns
    texts = [sorted(map(str, frame.collect())) for frame in (ice, delta)]
    assert texts[0] == texts[1]
    return len(texts[0])


def converted(root: Path, **options: bool) -> str | TableferryError:
    [report] = convert.run([str(root)], **options).tables  # type: ignore[arg-type]
    return report.error or report.outcome


def test_iceberg_and_delta_read_all_types_and_partitions_equally(
    spark: SparkSession, schema: str, root: Path
) -> None:
    spark.sql(
        f"CREATE TABLE ice.{schema}.t USING iceberg PARTITIONED BY (name, day) AS SELECT {TYPES} UNION ALL "
        f"SELECT * FROM VALUES (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)"
    )
    spark.sql(f"ALTER TABLE ice.{schema}.t ALTER COLUMN id TYPE bigint")
    spark.sql(f"ALTER TABLE ice.{schema}.t ADD COLUMN more string")
    spark.sql(f"INSERT INTO ice.{schema}.t SELECT {TYPES}, 'm'")
    assert converted(root) == "converted"
    assert same_rows(spark, f"ice.{schema}.t", root) == 3
    table = f"delta.`{root}`"
    assert spark.sql(f"SELECT more FROM {table} WHERE name = 'a' AND nan > 1 ORDER BY more").count() == 2
    assert spark.sql(f"SELECT id FROM {table} WHERE day = DATE '1500-01-01' AND id < 2").count() == 2
    spark.sql(f"INSERT INTO {table} (id, name) VALUES (9, 'new')")
    assert spark.table(f"ice.{schema}.t").count() == 3


@soak.slow
def test_renamed_columns_are_read_by_id(spark: SparkSession, tmp_path: Path) -> None:
    """Hive's metastore can't rename a column, so the test uses a Hadoop catalog."""
    catalog, warehouse = "spark.sql.catalog.had", tmp_path / "warehouse"
    spark.conf.set(catalog, "org.apache.iceberg.spark.SparkCatalog")
    spark.conf.set(f"{catalog}.type", "hadoop")
    spark.conf.set(f"{catalog}.warehouse", str(warehouse))
    ice, root = "had.db.t", warehouse / "db" / "t"
    spark.sql(
        f"CREATE TABLE {ice} USING iceberg PARTITIONED BY (k) AS "
        "SELECT 1 AS id, 'old' AS v, named_struct('x', 1) AS s, 'p' AS k"
    )
    spark.sql(f"ALTER TABLE {ice} RENAME COLUMN k TO l")
    spark.sql(f"ALTER TABLE {ice} RENAME COLUMN v TO w")
    spark.sql(f"ALTER TABLE {ice} RENAME COLUMN s.x TO y")
    spark.sql(f"ALTER TABLE {ice} ADD COLUMN v string")
    spark.sql(f"INSERT INTO {ice} VALUES (2, 'new', named_struct('y', 2), 'q', 'v')")
    conditions.check(converted(root), "ICEBERG_COLUMNS_NEED_IDS", table=root)
    assert converted(root, column_mapping=True) == "converted"
    assert same_rows(spark, ice, root) == 2
    assert spark.sql(f"SELECT id FROM delta.`{root}` WHERE w = 'old' AND v IS NULL").collect() == [(1,)]
    assert spark.sql(f"SELECT id FROM delta.`{root}` WHERE v = 'v' AND l = 'q'").collect() == [(2,)]
    assert spark.sql(f"SELECT s.y FROM delta.`{root}` WHERE s.y > 1").collect() == [(2,)]
    spark.sql(f"ALTER TABLE delta.`{root}` ADD COLUMN z int")
    spark.sql(f"INSERT INTO delta.`{root}` VALUES (3, 'w', named_struct('y', 3), 'q', 'v', 4)")
    assert [row["w"] for row in spark.sql(f"SELECT w FROM delta.`{root}` ORDER BY id").collect()] == [
        "old",
        "new",
        "w",
    ]


def test_delete_files_and_other_formats_are_refused(spark: SparkSession, schema: str, root: Path) -> None:
    ice = f"ice.{schema}.t"
    spark.sql(
        f"CREATE TABLE {ice} USING iceberg TBLPROPERTIES ('write.delete.mode' = 'merge-on-read', "
        "'format-version' = '2') AS SELECT id FROM range(10)"
    )
    spark.sql(f"DELETE FROM {ice} WHERE id % 2 = 0")
    conditions.check(
        converted(root), "ICEBERG_DELETE_FILES", table=root, files=re.compile(r"^[1-9]\d* files?$")
    )
    for procedure, option in (
        ("rewrite_data_files", "delete-file-threshold', '1"),
        ("rewrite_position_delete_files", "rewrite-all', 'true"),
    ):
        spark.sql(f"CALL ice.system.{procedure}(table => '{schema}.t', options => map('{option}'))")
    assert converted(root) == "converted"
    assert same_rows(spark, ice, root) == 5
    orc = "TBLPROPERTIES ('write.format.default' = 'orc')"
    spark.sql(f"CREATE TABLE ice.{schema}.o USING iceberg {orc} AS SELECT 1 AS id")
    conditions.check(
        converted(root.with_name("o")),
        "ICEBERG_FILE_NOT_PARQUET",
        file=re.compile(r"/o/data/.*\.orc$"),
        format="ORC",
    )
