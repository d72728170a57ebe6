"""The number of SQL statements of a migration is limited, because a fleet has thousands of small tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests import soak
from tests.spark.fleets import Fleet, errors, fleet

from tableferry.fleet.jobs.job import State, TargetFormat


@pytest.fixture
def ours(spark: SparkSession, schema: str, tmp_path: Path) -> Fleet:
    return fleet(spark, schema, tmp_path)


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Record each statement of any session inside a ``with``."""
    statements: list[str] = []
    sql = SparkSession.sql

    def noting(self: SparkSession, text: str, *how: Any, **named: Any) -> Any:
        statements.append(text)
        return sql(self, text, *how, **named)

    with monkeypatch.context() as patch:
        patch.setattr(SparkSession, "sql", noting)
        yield statements


def make(ours: Fleet, folder: Path, table: str, *, partitions: int) -> None:
    """Create a table with comments, a property, and a file in each partition or in the table."""
    key = "PARTITIONED BY (day STRING) " if partitions else ""
    ours.spark.sql(
        f"CREATE EXTERNAL TABLE {ours.name(table).sql} (id INT COMMENT 'its number', name STRING) "
        f"COMMENT 'a table' {key}STORED AS PARQUET LOCATION '{folder / table}' TBLPROPERTIES ('team' = 'a')"
    )
    for number in range(partitions):
        ours.spark.sql(f"INSERT INTO {ours.name(table).sql} PARTITION (day = '{number}') VALUES (1, 'a')")
    if not partitions:
        ours.spark.sql(f"INSERT INTO {ours.name(table).sql} VALUES (1, 'a')")


# Delta takes two statements more than Iceberg, because the Hive copy gets a comment.
@pytest.mark.parametrize(
    ("form", "partitions", "most"),
    [(TargetFormat.ICEBERG, 0, 15), (TargetFormat.ICEBERG, 2, 27), (TargetFormat.DELTA, 0, 17)],
)
@soak.slow
def test_migration_of_a_table_takes_few_statements(
    ours: Fleet,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    form: TargetFormat,
    partitions: int,
    most: int,
) -> None:
    taken = []
    for tables in (["a"], ["b", "c", "d"]):
        for table in tables:
            make(ours, tmp_path, table, partitions=partitions)
        ours.add(*tables, form=form)
        assert errors(ours.preprocess()) == []
        ours.notify()
        ours.clock.turn(days=14)
        with counted(monkeypatch) as statements:
            assert errors(ours.migrate()) == []
        assert {ours.job(table).state for table in tables} == {State.WRITES_UNBLOCKED}
        taken.append(statements)
    # Statements that run once per run don't count.
    each = (len(taken[1]) - len(taken[0])) / 2
    assert each <= most, "\n".join(taken[0])
