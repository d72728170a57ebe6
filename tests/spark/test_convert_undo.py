"""A converted table of the catalog becomes Parquet again, with all that its entry said, on real Spark."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tableferry import convert
from tableferry.convert.catalog_partitions import partitions_of
from tableferry.convert.discover import list_files
from tableferry.convert.entries import entry
from tableferry.convert.entry import Entry
from tableferry.tables import TableName

NASTY = 'it\\\\\'s a \\\\\\\\ back\\nslash "é"'

COLUMNS = (
    f"(id int COMMENT '{NASTY}', v varchar(9), s struct<`a b`: int COMMENT 'x', c: map<string, array<int>>>"
)
FORMS = {
    "spark": f"{COLUMNS}, k int COMMENT 'kk', d date) USING parquet OPTIONS (compression = 'gzip') "
    "PARTITIONED BY (k, d)",
    "bucketed": f"{COLUMNS}, k int, d date) USING parquet PARTITIONED BY (k, d) "
    "CLUSTERED BY (id) SORTED BY (v) INTO 2 BUCKETS",
    "hive": f"{COLUMNS}) PARTITIONED BY (k int COMMENT 'kk', d date) STORED AS parquet",
    "serde": f"{COLUMNS}) PARTITIONED BY (k int, d date) "
    "ROW FORMAT SERDE 'org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe' "
    "WITH SERDEPROPERTIES ('a' = 'it\\'s') "
    "STORED AS INPUTFORMAT 'org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat' "
    "OUTPUTFORMAT 'org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat'",
}
TYPES = ("external", "managed")
"""A managed table's folder is in the warehouse, and goes with DROP."""


def make(spark: SparkSession, schema: str, form: str, kind: str, folder: Path) -> str:
    """Make a table of three rows in three partitions, of which one is null's."""
    table = f"{schema}.t"
    where = f"LOCATION '{folder}'" if kind == "external" else ""
    spark.sql(
        f"CREATE {'EXTERNAL ' if where and 'USING' not in FORMS[form] else ''}TABLE {table} "
        f"{FORMS[form]} {where} "
        f"COMMENT '{NASTY}' TBLPROPERTIES ('team' = 'a=b, c', 'k.sql.x' = '{NASTY}')"
    )
    for number, (k, d) in enumerate((("7", "DATE'2024-01-01'"), ("8", "DATE'2024-01-02'"), ("null", "null"))):
        spark.sql(
            f"INSERT INTO {table} PARTITION (k = {k}, d = {d}) "
            f"SELECT {number}, 'x{number}', named_struct('a b', {number}, 'c', map('m', array(1)))"
        )
    return table


def name(table: str) -> TableName:
    return TableName.parse(f"spark_catalog.{table}")


def rows(spark: SparkSession, table: str) -> list[str]:
    return sorted(str(row) for row in spark.table(table).collect())


def said(spark: SparkSession, table: str) -> list[str]:
    """What Spark says of a table and of its partitions, but for times."""
    serde = " AS SERDE" if entry(spark, name(table)).serde else ""
    statement = spark.sql(f"SHOW CREATE TABLE {table}{serde}").collect()[0][0]
    partitions = [row[0] for row in spark.sql(f"SHOW PARTITIONS {table}").collect()]
    return [*(line for line in statement.splitlines() if "transient_" not in line), *partitions]


def whole(found: Entry) -> Entry:
    found_properties = {key: of for key, of in found.properties.items() if not key.startswith("transient_")}
    return Entry(**{**found.__dict__, "properties": found_properties})


def content(root: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(root)): None if path.is_dir() else path.read_bytes()
        for path in sorted(root.rglob("*"))
    }


def neighbours(root: Path) -> list[str]:
    return [each for each in os.listdir(root.parent) if "undo" in each]


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("form", sorted(FORMS))
def test_a_table_is_parquet_again_with_all_that_its_entry_said(
    spark: SparkSession, schema: str, tmp_path: Path, form: str, kind: str
) -> None:
    table = make(spark, schema, form, kind, tmp_path / "a b%41")
    old = entry(spark, name(table))
    assert old.folder is not None
    before, files, shown = rows(spark, table), content(old.folder), said(spark, table)
    assert convert.run([table], spark).ok
    assert entry(spark, name(table)).is_delta

    assert convert.undo(table, spark) == ()

    again = entry(spark, name(table))
    assert whole(again) == whole(old)
    assert said(spark, table) == shown
    assert rows(spark, table) == before
    assert content(old.folder) == files
    assert neighbours(old.folder) == []
    assert not partitions_of(spark, again, list_files(old.folder))

    spark.sql(f"INSERT INTO {table} PARTITION (k = 9, d = null) SELECT 3, 'x3', null")
    assert convert.run([table], spark).ok
    assert spark.table(table).count() == 4
    spark.sql(f"DROP TABLE {table}")
    assert old.folder.exists() is (kind == "external")
