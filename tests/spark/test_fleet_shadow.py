"""Shadow runs write only changed partitions to the Hive copy, and resume after a crash."""

from __future__ import annotations

import json
from datetime import date, datetime
from decimal import Decimal
from itertools import pairwise
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests import soak
from tests.spark.fleet_shadowing import DELTA, ICEBERG, Pair

from tableferry.fleet.hive_copy.update_plan import Action
from tableferry.fleet.hive_tables.progress_properties import WATERMARK
from tableferry.fleet.jobs.job import TargetFormat

ROWS = ((1, "a", "mon", 1), (2, "b", "mon", 1), (3, "c", "tue", 2), (4, None, None, None))
# The changes after which a run ends: after the rows are written, and between changes; in a soak, each.
CHANGES = range(10) if soak.SOAKING else (1, 6)
MON, TUE = "day=mon/n=1", "day=tue/n=2"
NULLS = "day=__HIVE_DEFAULT_PARTITION__/n=__HIVE_DEFAULT_PARTITION__"


@soak.slow  # test_fleet_property.py tests the rows.
@pytest.mark.parametrize("form", soak.amount([DELTA], [ICEBERG, DELTA]))
def test_shadow_writes_only_changed_partitions(
    spark: SparkSession, schema: str, tmp_path: Path, form: TargetFormat
) -> None:
    pair = Pair(spark, schema, tmp_path, form).make(*ROWS)
    # Delta's files are in the directories that Hive reads, so appended rows need no copy.
    rows = 1 if form is ICEBERG else None
    assert pair.done() == {}
    pair.insert((5, "e", "mon", 1), (7, "g", "s p/a=c%e'\"é", 3), (8, "h", None, None))
    asked = pair.run(dry_run=True)
    assert pair.synced_folders() == set()
    odd = "day=s p%2Fa%3Dc%25e%27%22é/n=3"
    done = pair.done()
    assert done == {MON: (Action.APPENDED, rows), odd: (Action.ADDED, rows), NULLS: (Action.APPENDED, rows)}
    assert {entry.partition: entry.action for entry in asked.updates} == {
        key: what for key, (what, _) in done.items()
    }
    assert pair.done() == {}
    pair.delete("id = 1", lambda row: row[0] == 1)
    assert pair.done() == {MON: (Action.REWRITTEN, 2)}
    pair.insert((9, "i", "mon", 1))
    assert pair.done() == {MON: (Action.APPENDED, 1)}
    pair.delete("day = 'tue'", lambda row: row[2] == "tue")
    assert pair.done() == {TUE: (Action.EMPTIED, None)}
    # The directory may still contain its old files, so the copy no longer reads it.
    pair.insert((10, "j", "tue", 2))
    assert pair.done() == {TUE: (Action.APPENDED, 1)}
    before = pair.synced_folders()
    if not soak.SOAKING and form is DELTA:
        return  # test_fleet_shadow_random.py compacts, and test_fleet_shadow_columns.py adds columns.
    pair.compact()
    moved = {NULLS: (Action.REWRITTEN, 2)} if form is DELTA else {}
    assert pair.done() == moved
    pair.add_column("extra")
    pair.overwrite((11, "k", 1, "mon", 1), (12, "l", 2, "wed", 4))
    assert pair.run(dry_run=True).columns == ("extra",)
    assert pair.done() == {MON: (Action.REWRITTEN, 1), "day=wed/n=4": (Action.ADDED, rows)}
    # Files that no partition reads are removed.
    kept = {entry for entry in before if not entry.endswith(MON)}
    assert kept < pair.synced_folders()
    assert len([entry for entry in pair.synced_folders() if entry.endswith(MON)]) == 1


@soak.slow
def test_partition_column_with_a_leading_underscore_is_copied(
    spark: SparkSession, schema: str, tmp_path: Path
) -> None:
    pair = Pair(spark, schema, tmp_path, ICEBERG, keys="_p STRING")
    pair.make((1, "a", "x"), (2, "b", "y"), (3, "c", "x"), (4, "d", "y"))
    pair.delete("id < 3", lambda row: row[0] < 3)
    assert pair.done() == {"_p=x": (Action.REWRITTEN, 1), "_p=y": (Action.REWRITTEN, 1)}
    # Its directory is removed, and the other partition's directory is still read.
    pair.delete("id = 3", lambda row: row[0] == 3)
    assert pair.done() == {"_p=x": (Action.EMPTIED, None)}
    assert pair.done() == {}


@pytest.mark.parametrize("form", soak.amount([ICEBERG], [ICEBERG, DELTA]))
@soak.slow
def test_unpartitioned_table_is_copied(
    spark: SparkSession, schema: str, tmp_path: Path, form: TargetFormat
) -> None:
    pair = Pair(spark, schema, tmp_path, form, keys="").make((1, "a"), (2, "b"))
    pair.insert((3, "c"))
    assert pair.done() == {"": (Action.APPENDED, 1 if form is ICEBERG else None)}
    pair.delete("id = 1", lambda row: row[0] == 1)
    assert pair.done() == {"": (Action.REWRITTEN, 2)}
    pair.insert((4, "d"))
    assert pair.done() == {"": (Action.APPENDED, 1)}
    pair.delete("true", lambda row: True)
    assert pair.done() == {"": (Action.REWRITTEN, 0)}
    pair.insert((5, "e"))
    assert pair.done() == {"": (Action.APPENDED, 1)}
    assert len(pair.synced_folders()) == 1


@soak.only  # In make test, shadow runs of test_fleet_property.py die.
@pytest.mark.parametrize("form", [ICEBERG, DELTA])
def test_shadow_resumes_after_a_crash_at_any_change(
    spark: SparkSession, schema: str, tmp_path: Path, form: TargetFormat
) -> None:
    pair = Pair(spark, schema, tmp_path, form).make(*ROWS, (5, "x", "thu", 5))
    pair.delete("id = 1", lambda row: row[0] == 1)
    pair.shadow()
    for last, at in pairwise((-1, *CHANGES)):
        # New rows in a rewritten, a shared and a new partition; one partition loses rows, and one is emptied.
        pair.insert((10 + at, "y", "mon", 1), (50 + at, "y", None, None), (100 + at, "n", f"d{at}", at))
        pair.overwrite((200 + at, "z", "tue", 2))
        pair.sql(f"DELETE FROM {pair.target} WHERE day = 'd{last}'")
        pair.forget(lambda row: row[2] == f"d{last}")  # noqa: B023
        assert pair.crash(at)
        pair.shadow()
    used = {row["location"] for row in locations(pair)}
    assert {f"file:{pair.directory}_sync/{folder}" for folder in pair.synced_folders()} <= used


def locations(pair: Pair) -> list[dict[str, str]]:
    """Return the catalog's description of each partition."""
    paths = []
    for (spec,) in pair.sql(f"SHOW PARTITIONS {pair.hive}"):
        values = [level.partition("=")[2] for level in spec.split("/")]
        named = ", ".join(
            f"{key} = {'null' if value.startswith('__HIVE') else repr(value)}"
            for key, value in zip(("day", "n"), values, strict=True)
        )
        paths.append(
            json.loads(pair.sql(f"DESCRIBE TABLE EXTENDED {pair.hive} PARTITION ({named}) AS JSON")[0][0])
        )
    return paths


# Iceberg can't add files of partitions by timestamps.
KEYS = "day DATE, flag BOOLEAN, price DECIMAL(10, 2), small INT"
TYPED = (date(2024, 2, 29), True, Decimal("1.50"), -7)


@pytest.mark.parametrize("stored", soak.amount(["PARQUET", "ORC"], ["PARQUET", "ORC", "AVRO"]))
@soak.slow
def test_values_of_each_type_and_format_are_copied(
    spark: SparkSession, schema: str, tmp_path: Path, stored: str
) -> None:
    columns = "id INT, at TIMESTAMP, amount DECIMAL(10, 2), born DATE"
    at: object = datetime(2024, 3, 31, 1, 30, 0, 123456)
    if stored == "AVRO":
        # Hive's writer doesn't support microseconds.
        columns, at = columns.replace("TIMESTAMP", "STRING"), "half past one"
    first = (1, at, Decimal("12.30"), date(1999, 12, 31), *TYPED)
    pair = Pair(spark, schema, tmp_path, ICEBERG, columns, KEYS, stored).make(first)
    pair.insert((2, at, None, None, *TYPED), (3, None, Decimal("-0.01"), date(2024, 1, 1), *TYPED[:3], 8))
    assert [change.action for change in pair.shadow().updates] == [Action.APPENDED, Action.ADDED]
    pair.delete("id = 1", lambda row: row[0] == 1)
    assert [change.action for change in pair.shadow().updates] == [Action.REWRITTEN]
    # Without a valid watermark, a comparison of rows finds the changed partition.
    pair.sql(f"ALTER TABLE {pair.hive} SET TBLPROPERTIES ('{WATERMARK}' = '1')")
    pair.insert((4, at, Decimal("7.00"), None, *TYPED))
    result = pair.shadow()
    assert [change.action for change in result.updates] == [Action.REWRITTEN]
    assert "no longer in the table's history" in result.comparison_reason
