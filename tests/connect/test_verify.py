"""Comparisons of tables through databricks-connect have the same verdicts and messages as in Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests import conditions

from tableferry.verify import verify_tables
from tableferry.verify.verdict import RowDifference, ValueDifference

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_verify_reports_match_difference_and_incomparable_columns(spark: SparkSession, schema: str) -> None:
    old, new = f"{schema}.old", f"{schema}.new"
    spark.sql(f"CREATE TABLE {old} (id INT, tags MAP<STRING, DOUBLE>, v STRING) USING delta")
    spark.sql(f"INSERT INTO {old} VALUES (1, MAP('a', 1.5D), 'x'), (2, NULL, 'é'), (3, MAP(), NULL)")
    spark.sql(f"CREATE TABLE {new} USING delta PARTITIONED BY (v) AS SELECT * FROM {old}")
    assert verify_tables(spark, old, new, keys=["id"]).matches

    spark.sql(f"UPDATE {new} SET v = 'other' WHERE id = 2")
    spark.sql(f"DELETE FROM {new} WHERE id = 3")
    verdict = verify_tables(spark, old, new, keys=["id"])
    assert not verdict.matches
    assert verdict.partition_columns == ("v",)
    assert verdict.keys is not None
    assert (verdict.keys.source_only, verdict.keys.target_only, verdict.keys.different) == (1, 0, 1)
    assert verdict.keys.rows[0] == RowDifference(("2",), "different", (ValueDifference("v", "é", "other"),))
    assert verify_tables(spark, f"{old}@1", f"{new}@0").matches

    for name in (f"{schema}.nothing", "no_schema.nothing"):
        with conditions.raises("TABLE_NOT_FOUND", table=name):
            verify_tables(spark, name, new)
    with conditions.raises("VERSION_NOT_READABLE", table=old, version=9):
        verify_tables(spark, f"{old}@9", new)
