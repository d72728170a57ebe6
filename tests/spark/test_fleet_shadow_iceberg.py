"""Shadow runs after special snapshots of Iceberg."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests import conditions, soak
from tests.spark.fleet_shadowing import ICEBERG, Pair

from tableferry.fleet.hive_copy.update_plan import Action

ROWS = ((1, "a", "mon", 1), (2, "b", "mon", 1), (3, "c", "tue", 2))
MERGE_ON_READ = {f"write.{operation}.mode": "merge-on-read" for operation in ("delete", "update", "merge")}


@pytest.mark.parametrize("version", [2, 3])
@soak.slow
def test_delete_file_causes_a_rewrite_of_its_partition(
    spark: SparkSession, schema: str, tmp_path: Path, version: int
) -> None:
    options = MERGE_ON_READ | {"format-version": str(version)}
    pair = Pair(spark, schema, tmp_path, ICEBERG, options=options).make(*ROWS)
    pair.insert(*((number, "x", "mon", 1) for number in range(10, 20)))
    pair.shadow()
    pair.delete("id = 12", lambda row: row[0] == 12)
    entries = pair.sql(f"SELECT max(data_file.content) FROM {pair.target}.entries")
    assert entries[0][0] == 1
    assert pair.done() == {"day=mon/n=1": (Action.REWRITTEN, 11)}


@soak.slow
def test_rollback_causes_a_comparison(spark: SparkSession, schema: str, tmp_path: Path) -> None:
    pair = Pair(spark, schema, tmp_path, ICEBERG).make(*ROWS)
    before = pair.rows.copy()
    pair.insert((4, "d", "mon", 1), (5, "e", "wed", 3))
    pair.shadow()
    pair.sql(f"CALL ice.system.rollback_to_snapshot('{pair.target}', {pair.baseline})")
    pair.rows = before.copy()
    result = pair.shadow()
    assert "no longer in the table's history" in result.comparison_reason
    assert {change.partition: change.action for change in result.updates} == {
        "day=mon/n=1": Action.REWRITTEN,
        "day=wed/n=3": Action.EMPTIED,
    }
    # The run that copied a snapshot died, and then the snapshot was rolled back.
    pair.insert((6, "f", "tue", 2))
    assert pair.crash(1)
    assert pair.read() != before
    pair.sql(f"CALL ice.system.rollback_to_snapshot('{pair.target}', {pair.baseline})")
    pair.rows = before.copy()
    assert "half copied" in pair.shadow().comparison_reason


@soak.slow
def test_changes_after_a_new_partition_spec_are_copied(
    spark: SparkSession, schema: str, tmp_path: Path
) -> None:
    pair = Pair(spark, schema, tmp_path, ICEBERG).make(*ROWS)
    pair.sql(f"ALTER TABLE {pair.target} DROP PARTITION FIELD n")
    pair.sql(f"ALTER TABLE {pair.target} ADD PARTITION FIELD bucket(4, id)")
    pair.insert((4, "d", "mon", 1), (5, "e", "wed", 3))
    assert pair.done() == {"day=mon/n=1": (Action.APPENDED, 1), "day=wed/n=3": (Action.ADDED, 1)}
    pair.delete("id = 5", lambda row: row[0] == 5)
    assert pair.done() == {"day=wed/n=3": (Action.EMPTIED, None)}
    pair.sql(f"UPDATE {pair.target} SET n = 9 WHERE id = 4")
    pair.forget(lambda row: row[0] == 4)
    pair.rows[(4, "d", "mon", 9)] = 1
    assert pair.done() == {"day=mon/n=1": (Action.REWRITTEN, 2), "day=mon/n=9": (Action.ADDED, 1)}


@soak.slow
def test_expired_snapshot_of_replaced_files_causes_a_comparison(
    spark: SparkSession, schema: str, tmp_path: Path
) -> None:
    pair = Pair(spark, schema, tmp_path, ICEBERG).make(*ROWS)
    pair.sql(f"ALTER TABLE {pair.target} DROP PARTITION FIELD n")
    pair.insert((4, "d", "mon", 1), (5, "e", "wed", 3))
    pair.shadow()
    pair.delete("id = 5", lambda row: row[0] == 5)
    pair.sql(f"ALTER TABLE {pair.target} SET TBLPROPERTIES ('gc.enabled' = 'true')")
    now = pair.sql("SELECT CAST(current_timestamp() AS STRING)")[0][0]
    pair.sql(
        f"CALL ice.system.expire_snapshots(table => '{pair.target}', older_than => TIMESTAMP '{now}', "
        "retain_last => 1)"
    )
    assert "which has files that were replaced, has expired" in pair.shadow().comparison_reason
    pair.insert((6, "f", "mon", 1))
    assert pair.done() == {"day=mon/n=1": (Action.APPENDED, 1)}


def test_partition_value_that_hive_reads_as_null_is_refused(
    spark: SparkSession, schema: str, tmp_path: Path
) -> None:
    """Spark reads this value for a null partition of a text table, and users copy such rows."""
    pair = Pair(spark, schema, tmp_path, ICEBERG).make(*ROWS, (4, "d", None, 1))
    pair.insert((5, "e", "__HIVE_DEFAULT_PARTITION__", 1))
    with conditions.raises(
        "PARTITION_VALUE_IS_NULL_IN_HIVE", column="day", value="__HIVE_DEFAULT_PARTITION__"
    ):
        pair.run()


def test_purge_property_and_empty_partition_value_are_refused(
    spark: SparkSession, schema: str, tmp_path: Path
) -> None:
    pair = Pair(spark, schema, tmp_path, ICEBERG).make(*ROWS)
    pair.sql(f"ALTER TABLE {pair.hive} SET TBLPROPERTIES ('external.table.purge' = 'true')")
    with conditions.raises("DROP_REMOVES_FILES"):
        pair.run()
    pair.sql(f"ALTER TABLE {pair.hive} UNSET TBLPROPERTIES ('external.table.purge')")
    pair.insert((4, "d", "", 1))
    with conditions.raises("PARTITION_VALUE_EMPTY", column="day"):
        pair.run()
    pair.delete("day = ''", lambda row: row[2] == "")
    pair.shadow()


@soak.slow
def test_column_renamed_after_the_last_snapshot_causes_a_comparison(
    spark: SparkSession, schema: str, tmp_path: Path
) -> None:
    pair = Pair(spark, schema, tmp_path, ICEBERG).make(*ROWS)
    pair.insert((5, "e", "tue", 2))
    pair.sql(f"ALTER TABLE {pair.target} RENAME COLUMN name TO title")
    # The last snapshot has the column's old name.
    assert "after the last snapshot" in pair.shadow().comparison_reason


@soak.slow
def test_recreated_column_of_the_same_name_causes_a_comparison(
    spark: SparkSession, schema: str, tmp_path: Path
) -> None:
    pair = Pair(spark, schema, tmp_path, ICEBERG).make(*ROWS)
    # Only the id distinguishes the two columns.
    pair.add_column("extra")
    pair.insert((8, "h", 1, "tue", 2))
    assert pair.shadow().columns == ("extra",)
    pair.sql(f"ALTER TABLE {pair.target} DROP COLUMN extra")
    pair.sql(f"ALTER TABLE {pair.target} ADD COLUMN extra INT")
    pair.rows = Counter({(*row[:2], None, *row[3:]): times for row, times in pair.rows.items()})
    pair.insert((9, "i", 2, "tue", 2))
    assert "renamed, dropped or retyped" in pair.shadow().comparison_reason
    assert pair.shadow().comparison_reason == ""


@soak.slow
def test_added_column_with_a_default_causes_a_comparison(
    spark: SparkSession, schema: str, tmp_path: Path
) -> None:
    pair = Pair(spark, schema, tmp_path, ICEBERG, options={"format-version": "3"}).make(*ROWS)
    # Spark reads such a column, but has no statement that adds one.
    jvm = spark._jvm
    assert jvm is not None
    iceberg = jvm.org.apache.iceberg
    table = iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, pair.target)
    seven = iceberg.expressions.Literal.of(7)
    table.updateSchema().addColumn("extra", iceberg.types.Types.IntegerType.get(), seven).commit()
    pair.columns += ", extra INT"
    pair.rows = Counter({(*row[:2], 7, *row[2:]): times for row, times in pair.rows.items()})
    pair.insert((4, "d", 8, "tue", 2))
    assert "with a value for the rows before it" in pair.shadow().comparison_reason
    pair.insert((5, "e", 9, "tue", 2))
    assert pair.done() == {"day=tue/n=2": (Action.APPENDED, 1)}


def test_commit_of_a_writer_with_a_slow_clock_is_copied(
    spark: SparkSession, schema: str, tmp_path: Path
) -> None:
    pair = Pair(spark, schema, tmp_path, ICEBERG).make(*ROWS)
    pair.insert((4, "d", "mon", 1))
    [row] = pair.sql(f"SELECT max_by(file, timestamp) FROM {pair.target}.metadata_log_entries")
    file = Path(row[0].removeprefix("file:"))
    metadata = json.loads(file.read_text())
    metadata["last-updated-ms"] -= 30_000
    metadata["snapshots"][-1]["timestamp-ms"] -= 30_000
    metadata["snapshot-log"][-1]["timestamp-ms"] -= 30_000
    file.with_name(f".{file.name}.crc").unlink()
    file.write_text(json.dumps(metadata))
    pair.sql(f"REFRESH TABLE {pair.target}")
    assert pair.done() == {"day=mon/n=1": (Action.APPENDED, 1)}
