"""The Hive copy follows its target, through every kind of change and every crash."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.spark.fleet_shadowing import DELTA, ICEBERG, Pair

from tableferry.errors import Refused
from tableferry.fleet.job import TargetFormat
from tableferry.fleet.warehouse.shadow import What

BOTH = pytest.mark.parametrize("form", [ICEBERG, DELTA], ids=["iceberg", "delta"])
ROWS = ((1, "a", "mon", 1), (2, "b", "mon", 1), (3, "c", "tue", 2), (4, None, None, None))


def what(found: Any) -> dict[str, tuple[What, int | None]]:
    return {each.partition: (each.what, each.rows) for each in found.done}


@BOTH
def test_each_change_costs_its_partitions_alone(
    spark: SparkSession, schema: str, tmp_path: Path, form: TargetFormat
) -> None:
    pair = Pair(spark, schema, tmp_path, form).make(*ROWS)
    assert pair.shadow().done == ()
    odd = "s p/a=c%e'\"é"
    pair.insert((5, "e", "mon", 1), (6, "f", "tue", 2), (7, "g", odd, 3), (8, "h", None, None))
    asked = pair.run(dry_run=True)
    first = pair.shadow()
    assert [each.partition for each in asked.done] == [each.partition for each in first.done]
    print(first)
    assert pair.shadow().done == ()
    pair.delete("id = 1", lambda row: row[0] == 1)
    second = pair.shadow()
    print(second)
    assert what(second) == {"day=mon/n=1": (What.REWRITTEN, 2)}
    pair.insert((9, "i", "mon", 1))
    assert what(pair.shadow()) == {"day=mon/n=1": (What.APPENDED, 1)}
    pair.delete("day = 'tue'", lambda row: row[2] == "tue")
    assert what(pair.shadow()) == {"day=tue/n=2": (What.DROPPED, None)}
    pair.insert((10, "j", "tue", 2))
    print(pair.shadow())
    pair.sql(f"ALTER TABLE {pair.target} ADD COLUMNS (extra INT)")
    pair.rows = type(pair.rows)({(*row[:2], None, *row[2:]): count for row, count in pair.rows.items()})
    print(pair.shadow())


@BOTH
def test_tables_without_partitions(
    spark: SparkSession, schema: str, tmp_path: Path, form: TargetFormat
) -> None:
    pair = Pair(spark, schema, tmp_path, form, partitioned=False).make((1, "a"), (2, "b"))
    pair.insert((3, "c"))
    print(pair.shadow())
    pair.delete("id = 1", lambda row: row[0] == 1)
    print(pair.shadow())
    pair.insert((4, "d"))
    print(pair.shadow())
    pair.delete("true", lambda row: True)
    print(pair.shadow())
    pair.insert((4, "d"))
    print(pair.shadow())
