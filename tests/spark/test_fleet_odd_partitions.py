"""Partitions whose catalog spelling differs from Spark's, as after MSCK REPAIR of odd directories."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests import soak
from tests.spark.fleets import Fleet, dynamic_fleet, errors
from tests.spark.tables import tables_in

from tableferry.fleet.checks.preflight_run import precheck
from tableferry.fleet.jobs.job import PauseReason, TargetFormat

ICEBERG, DELTA = TargetFormat


@pytest.fixture
def ours(spark: SparkSession, schema: str, tmp_path: Path) -> Iterator[Fleet]:
    with dynamic_fleet(spark, schema, tmp_path) as ours:
        yield ours


def table(ours: Fleet, folder: Path, kind: str, *values: str) -> None:
    """Create a table with a row in each of several directories."""
    for number, value in enumerate(values, 1):
        directory = folder / "t" / f"p={value}"
        directory.mkdir(parents=True)
        pq.write_table(pa.table({"id": pa.array([number], pa.int32())}), directory / "a.parquet")
    name = ours.name("t").sql
    ours.spark.sql(
        f"CREATE EXTERNAL TABLE {name} (id INT) PARTITIONED BY (p {kind}) STORED AS PARQUET "
        f"LOCATION '{folder}/t'"
    )
    ours.spark.sql(f"MSCK REPAIR TABLE {name}")
    assert {row[0] for row in ours.spark.sql(f"SHOW PARTITIONS {name}").collect()} == {
        f"p={value}" for value in values
    }


@pytest.mark.parametrize(
    ("form", "kind", "values", "first"),
    [
        pytest.param(ICEBERG, "INT", ("01", "2"), "1", marks=soak.slow),
        pytest.param(DELTA, "INT", ("01", "2"), "1", marks=soak.slow),
        pytest.param(ICEBERG, "BOOLEAN", ("TRUE", "false"), "true", marks=soak.slow),
        pytest.param(DELTA, "BOOLEAN", ("TRUE", "false"), "true", marks=soak.slow),
        pytest.param(DELTA, "DECIMAL(5,2)", ("1.5", "2.00"), "1.5", marks=soak.slow),
        pytest.param(DELTA, "DATE", ("2024-1-5", "2024-01-06"), "DATE'2024-01-05'", marks=soak.slow),
    ],
)
def test_odd_partitions_are_migrated_and_reverted(
    ours: Fleet, tmp_path: Path, form: TargetFormat, kind: str, values: tuple[str, str], first: str
) -> None:
    table(ours, tmp_path, kind, *values)
    ours.to_probation("t", form=form)
    for statement in (
        f"INSERT INTO {{t}} VALUES (3, {first})",
        "UPDATE {t} SET id = 9 WHERE id = 1",
        f"INSERT INTO {{t}} VALUES (4, {first})",
        "DELETE FROM {t} WHERE id = 2",
    ):
        ours.write("t", statement)
        assert errors(ours.shadow()) == []
        assert ours.rows("t_hive") == ours.rows("t")
    after = ours.rows("t")
    assert [row[0] for row in after] == [3, 4, 9]
    assert errors(ours.revert("t")) == []
    assert ours.rows("t") == after
    assert tables_in(ours.spark, ours.schema) == ["t"]
    # No second partition with the same value was created.
    assert ours.spark.sql(f"SHOW PARTITIONS {ours.name('t').sql}").count() == 2


@pytest.mark.parametrize(
    ("form", "kind", "values", "text"),
    [
        (DELTA, "INT", ("1", "01"), "several partitions with the value p=1, in different spellings"),
        (ICEBERG, "DATE", ("2024-1-5",), "partition values that Spark spells differently"),
        pytest.param(ICEBERG, "DECIMAL(5,2)", ("1.5",), "that Spark spells differently", marks=soak.slow),
        pytest.param(DELTA, "DOUBLE", ("1",), "that Spark spells differently", marks=soak.slow),
    ],
)
def test_unsupported_partitions_are_refused_before_any_notification(
    ours: Fleet, tmp_path: Path, form: TargetFormat, kind: str, values: tuple[str, ...], text: str
) -> None:
    table(ours, tmp_path, kind, *values)
    ours.add("t", form=form)
    [seen] = precheck(ours.store, ours.warehouse, [ours.job("t")])
    first, *_ = seen.findings
    assert first.reason is PauseReason.UNSUPPORTED_LAYOUT
    assert text in first.text
    [refused] = errors(ours.preprocess())
    assert refused.startswith(f"UNSUPPORTED_LAYOUT: {first.text}")
