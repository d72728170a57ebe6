"""Reads, streams and maintenance by Spark of a table that is synced with its folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from tests import conditions, soak
from tests.spark.tables import schema_folder

from tableferry import convert

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def write(path: Path, ids: list[int], kind: pa.DataType | None = None, **more: list[Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": pa.array(ids, kind or pa.int32()), **more}), path)


def synced(source: str, spark: SparkSession) -> convert.TableSync:
    [table] = convert.sync([source], spark).tables
    return table


def ids(spark: SparkSession, table: str) -> list[int]:
    return sorted(row[0] for row in spark.sql(f"SELECT id FROM {table}").collect())


@soak.slow
def test_streams_of_synced_table_read_each_row_once(spark: SparkSession, schema: str, tmp_path: Path) -> None:
    root, stream = tmp_path / "events", f"{schema}.stream"
    write(root / "day=1" / "a.parquet", [1, 2])
    assert convert.run([str(root)]).ok
    spark.sql(f"CREATE TABLE {stream} (id BIGINT, day INT, name STRING) USING delta")

    def read(checkpoint: str = "first", **options: int) -> None:
        """Process all new rows; a stream stops at a new column, and resumes after a restart."""
        for attempt in range(2):
            frame = spark.readStream.format("delta").options(**options).load(str(root))
            query = (
                frame.writeStream.format("delta")
                .option("checkpointLocation", str(tmp_path / checkpoint))
                .option("mergeSchema", "true")
                .trigger(availableNow=True)
                .toTable(stream)
            )
            try:
                query.awaitTermination()
                return
            except StreamingQueryException as error:
                if attempt or "DELTA_SCHEMA_CHANGED" not in str(error):
                    raise

    read()
    write(root / "day=2" / "b.parquet", [3])
    assert synced(str(root), spark).outcome == "synced"
    read()
    write(root / "day=2" / "c.parquet", [4], name=["x"])
    assert synced(str(root), spark).outcome == "synced"
    write(root / "day=3" / "d.parquet", [5])
    assert synced(str(root), spark).outcome == "synced"
    read()
    assert ids(spark, stream) == [1, 2, 3, 4, 5]
    # A stream can't read a wider type, so a new stream starts after the rows that it has read.
    write(root / "day=2" / "e.parquet", [2**40], pa.int64())
    report = synced(str(root), spark)
    assert report.changes is not None
    assert "streams that read the table can't continue" in report.notes[0]
    with pytest.raises(StreamingQueryException, match="DELTA_SCHEMA_CHANGED"):
        read()
    read("second", startingVersion=report.changes.version)
    write(root / "day=3" / "f.parquet", [6])
    assert synced(str(root), spark).outcome == "synced"
    read("second", startingVersion=report.changes.version)
    assert ids(spark, stream) == [1, 2, 3, 4, 5, 6, 2**40] == ids(spark, f"delta.`{root}`")
    assert spark.sql(f"SELECT id FROM delta.`{root}` WHERE id > 100").collect() == [(2**40,)]


def test_sync_updates_catalog_table_and_its_schema(spark: SparkSession, schema: str, tmp_path: Path) -> None:
    for name in ("orders", "others"):
        write(tmp_path / name / "a.parquet", [1])
        spark.sql(f"CREATE TABLE {schema}.{name} (id INT) USING parquet LOCATION '{tmp_path / name}'")
    spark.sql(f"CREATE TABLE {schema}.born (id INT) USING delta")
    spark.sql(f"CREATE VIEW {schema}.seen AS SELECT 1 AS number")
    table = f"{schema}.orders"
    assert convert.run([table], spark).ok
    assert synced(table, spark).outcome == "current"
    # Operations of other users that change no rows.
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('who' = 'others', 'delta.checkpointInterval' = '2')")
    spark.sql(f"COMMENT ON TABLE {table} IS 'of others'")
    spark.sql(f"VACUUM {table}")
    write(tmp_path / "orders" / "b.parquet", [2])
    reports = {report.source: report for report in convert.sync([f"{schema}.*"], spark).tables}
    assert {source.rpartition(".")[2]: report.outcome for source, report in reports.items()} == {
        "orders": "synced",
        "others": "skipped",
        "born": "skipped",
        "seen": "skipped",
    }
    assert {
        source.rpartition(".")[2]: report.skipped for source, report in reports.items() if report.skipped
    } == {
        "seen": f"{schema}.seen is a view",
    }
    conditions.check(reports[f"{schema}.others"].error, "SYNC_OF_PARQUET_TABLE_IN_CATALOG")
    conditions.check(reports[f"{schema}.born"].error, "SYNC_OF_DELTA_TABLE")
    assert ids(spark, table) == [1, 2]
    assert synced(f"{schema}.born", spark).outcome == "refused"
    assert synced(f"{schema}.others", spark).outcome == "refused"
    [properties] = spark.sql(f"SHOW TBLPROPERTIES {table} ('who')").collect()
    assert properties["value"] == "others"
    for number in (3, 4, 5):
        write(tmp_path / "orders" / f"{number}.parquet", [number])
        assert synced(table, spark).notes == ()
    assert list((tmp_path / "orders" / "_delta_log").glob("*.checkpoint.parquet"))
    spark.sql(f"REFRESH TABLE {table}")
    assert ids(spark, table) == [1, 2, 3, 4, 5]
    spark.sql(f"OPTIMIZE {table}")
    write(tmp_path / "orders" / "6.parquet", [6])
    refused = synced(table, spark)
    assert refused.outcome == "refused"
    conditions.check(
        refused.error, "TABLE_WRITTEN_AS_DELTA", operation="OPTIMIZE", change="changes its files"
    )


@soak.slow
def test_sync_updates_natively_converted_table(spark: SparkSession, schema: str) -> None:
    root = schema_folder(spark, schema) / "lake"
    write(root / "day=1" / "a.parquet", [1])
    spark.sql(f"CONVERT TO DELTA parquet.`{root}` PARTITIONED BY (day INT)")
    write(root / "day=2" / "b c.parquet", [2], name=["x"])
    assert synced(str(root), spark).outcome == "synced"
    assert ids(spark, f"delta.`{root}`") == [1, 2]
    [row] = spark.sql(f"DESCRIBE HISTORY delta.`{root}` LIMIT 1").collect()
    assert (row["operation"], row["operationMetrics"]["numOutputRows"]) == ("SYNC", "1")


def test_spark_reads_mapped_names_and_features_of_synced_table(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "t"
    write(root / "a.parquet", [1], **{"a b": [1.5]})
    assert convert.run([str(root)], column_mapping=True).ok
    when = pa.array([1_000_000], pa.timestamp("us"))
    pq.write_table(pa.table({"id": pa.array([2], pa.int32()), "c;d": ["x"], "at": when}), root / "b.parquet")
    assert synced(str(root), spark).outcome == "synced"
    rows = spark.sql(f"SELECT id, `a b`, `c;d`, string(at) FROM delta.`{root}` ORDER BY id").collect()
    assert [tuple(row) for row in rows] == [
        (1, 1.5, None, None),
        (2, None, "x", "1970-01-01 00:00:01"),
    ]
    # A Delta writer can write to it.
    spark.sql(f"ALTER TABLE delta.`{root}` ADD COLUMN e INT")
    spark.sql(f"INSERT INTO delta.`{root}` SELECT 3, 2.5, 'y', TIMESTAMP_NTZ '2026-01-01 00:00:00', 5")
    assert ids(spark, f"delta.`{root}`") == [1, 2, 3]
    [detail] = spark.sql(f"DESCRIBE DETAIL delta.`{root}`").collect()
    assert {"columnMapping", "timestampNtz"} <= set(detail["tableFeatures"])
    assert json.loads(spark.table(f"delta.`{root}`").schema.json())["fields"][4]["name"] == "e"
