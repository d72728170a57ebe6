"""Shadow runs after special commits of Delta, whose files are in the Hive copy's directories."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests import soak
from tests.spark.fleet_shadowing import DELTA, Pair

from tableferry.fleet.hive_copy.update_plan import Action
from tableferry.spark import session

ROWS = ((1, "a", "mon", 1), (2, "b", "mon", 1), (3, "c", "tue", 2))
MON = "day=mon/n=1"


@soak.slow
def test_uncommitted_file_is_not_copied(spark: SparkSession, schema: str, tmp_path: Path) -> None:
    pair = Pair(spark, schema, tmp_path, DELTA).make(*ROWS)
    pair.insert((4, "d", "mon", 1))
    [some, *_] = (pair.directory / MON).glob("*.parquet")
    shutil.copy(some, some.with_name("part-of-a-write-that-failed.parquet"))
    assert pair.done() == {MON: (Action.REWRITTEN, 3)}


@soak.slow
def test_deletion_vector_causes_a_rewrite_of_its_partition(
    spark: SparkSession, schema: str, tmp_path: Path
) -> None:
    options = {"delta.enableDeletionVectors": "true"}
    pair = Pair(spark, schema, tmp_path, DELTA, options=options).make(*ROWS)
    pair.insert(*((number, "x", "mon", 1) for number in range(10, 20)))
    pair.shadow()
    pair.delete("id = 12", lambda row: row[0] == 12)
    detail = pair.sql(f"DESCRIBE HISTORY {pair.target} LIMIT 1")[0]["operationMetrics"]
    assert detail["numDeletionVectorsAdded"] == "1"
    assert pair.done() == {MON: (Action.REWRITTEN, 11)}


@soak.slow
def test_removed_commit_causes_a_comparison(spark: SparkSession, schema: str, tmp_path: Path) -> None:
    options = {"delta.checkpointInterval": "1"}
    pair = Pair(spark, schema, tmp_path, DELTA, options=options).make(*ROWS)
    pair.delete("id = 3", lambda row: row[0] == 3)
    pair.insert((4, "d", "mon", 1))
    (pair.directory / "_delta_log" / f"{2:020}.json").unlink()
    result = pair.shadow()
    assert "no longer has every commit" in result.comparison_reason
    assert [(change.partition, change.action) for change in result.updates] == [
        ("day=tue/n=2", Action.EMPTIED)
    ]


@soak.slow
def test_column_mapping_causes_a_comparison(spark: SparkSession, schema: str, tmp_path: Path) -> None:
    pair = Pair(spark, schema, tmp_path, DELTA).make(*ROWS)
    mapping = (
        "'delta.columnMapping.mode' = 'name', 'delta.minReaderVersion' = '2', 'delta.minWriterVersion' = '5'"
    )
    pair.sql(f"ALTER TABLE {pair.target} SET TBLPROPERTIES ({mapping})")
    pair.add_column("extra")
    pair.insert((4, "d", 7, "mon", 1))
    result = pair.shadow()
    assert "renamed, dropped or retyped" in result.comparison_reason
    assert result.columns == ("extra",)
    pair.insert((5, "e", 8, "tue", 2))
    assert pair.done() == {"day=tue/n=2": (Action.REWRITTEN, 2)}
    # The rename is a separate version without a new row.
    pair.rename_column("name", "title")
    assert "name of the Hive copy were renamed" in pair.shadow().comparison_reason


@pytest.mark.parametrize("stored", ["USING parquet", "STORED AS PARQUET"])
@soak.slow
def test_bucketed_table_stays_bucketed(spark: SparkSession, schema: str, tmp_path: Path, stored: str) -> None:
    """After a revert, a reader that finds buckets by file names reads all rows."""
    stored += " CLUSTERED BY (id) INTO 2 BUCKETS"
    pair = Pair(spark, schema, tmp_path, DELTA, keys="day STRING", stored=stored)
    pair.make((1, "a", "mon"), (2, "b", "mon"), (3, "c", "tue"))
    pair.insert((4, "d", "mon"), (5, "e", "wed"))
    assert pair.done() == {"day=mon": (Action.REWRITTEN, 3), "day=wed": (Action.ADDED, 1)}
    pair.insert((6, "f", "mon"))
    assert pair.done() == {"day=mon": (Action.APPENDED, 1)}
    pair.delete("id = 3", lambda row: row[0] == 3)
    pair.shadow()
    by_bucket = {"spark.sql.sources.bucketing.autoBucketedScan.enabled": "false"}
    with session.settings(spark, by_bucket, "a test"):
        counts = pair.sql(f"SELECT id, count(*) FROM {pair.hive} GROUP BY id")
    assert sorted(map(tuple, counts)) == [(1, 1), (2, 1), (4, 1), (5, 1), (6, 1)]
    pair.sql(f"INSERT INTO {pair.hive} VALUES (7, 'g', 'mon')")
    pair.rows[(7, "g", "mon")] += 1
    assert pair.read() == pair.rows


@soak.slow
def test_restored_file_with_a_name_of_another_partition_is_copied(
    spark: SparkSession, schema: str, tmp_path: Path
) -> None:
    """Tasks of Spark and Hive give their files the same name in all partitions."""
    options = {"delta.enableDeletionVectors": "true"}
    pair = Pair(spark, schema, tmp_path, DELTA, keys="day STRING", options=options)
    with session.settings(spark, {"spark.sql.leafNodeDefaultParallelism": "1"}, "a test"):
        pair.make((1, "a", "mon"), (2, "b", "tue"), (3, "c", "tue"))
    [mon], [tue] = (list((pair.directory / f"day={day}").glob("part-*")) for day in ("mon", "tue"))
    assert mon.name == tue.name
    pair.delete("id = 2", lambda row: row[0] == 2)
    kept = pair.sql(f"DESCRIBE HISTORY {pair.target} LIMIT 1")[0]["version"]
    pair.delete("id = 1", lambda row: row[0] == 1)
    pair.shadow()
    pair.sql(f"RESTORE TABLE {pair.target} TO VERSION AS OF {kept}")
    pair.rows[(1, "a", "mon")] = 1
    pair.insert((4, "d", "tue"))
    assert pair.done() == {"day=mon": (Action.APPENDED, 1), "day=tue": (Action.APPENDED, 1)}


@soak.slow
def test_recreated_table_causes_a_comparison(spark: SparkSession, schema: str, tmp_path: Path) -> None:
    pair = Pair(spark, schema, tmp_path, DELTA, keys="day STRING").make((1, "a", "mon"), (2, "b", "tue"))
    pair.insert((3, "c", "mon"))
    pair.shadow()
    pair.sql(f"DROP TABLE {pair.target}")
    pair.sql(f"CREATE TABLE {pair.target} (id INT, name STRING, day STRING) USING delta PARTITIONED BY (day)")
    pair.rows.clear()
    for number in range(3):
        pair.insert((number, "new", "wed"))
    # Also after a run that died immediately after it recorded the new table.
    assert pair.crash(0)
    assert pair.shadow().comparison_reason == "there is no watermark"


@soak.slow
def test_rows_with_a_char_column_are_copied(spark: SparkSession, schema: str, tmp_path: Path) -> None:
    pair = Pair(spark, schema, tmp_path, DELTA, keys="day STRING").make((1, "a", "mon"))
    pair.sql(f"ALTER TABLE {pair.target} ADD COLUMNS (code CHAR(4))")
    pair.columns += ", code CHAR(4)"
    pair.rows.clear()
    pair.rows[(1, "a", None, "mon")] = 1
    pair.insert((2, "b", "xy  ", "mon"))
    pair.delete("id = 1", lambda row: row[0] == 1)
    assert pair.done() == {"day=mon": (Action.REWRITTEN, 1)}
    pair.insert((3, "c", "xy  ", "mon"))
    assert pair.done() == {"day=mon": (Action.APPENDED, 1)}
