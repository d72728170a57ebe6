"""The example migrates: its history is copied and new rows are processed, each exactly once."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tableferry import pipelines, verify

from sample.load import JOBS, load

SAMPLE = Path(__file__).parents[1] / "src" / "sample"


def phases(project: Path, spark: SparkSession) -> dict[str, str]:
    """Return the phase of each table's migration."""
    targets = pipelines.status(project, spark, environment="dev").plan.targets
    return {target.target.table: target.phase for target in targets}


def test_every_row_arrives_exactly_once(spark: SparkSession, schema: str, project: Path) -> None:
    load(spark, SAMPLE, schema, "history")
    for _ in range(2):  # running again changes nothing
        assert pipelines.run(project, spark, environment="dev").ok
        assert phases(project, spark) == {"customers": "waiting", "orders": "waiting"}
        assert spark.table(f"{schema}.customers").count() == 13
        assert verify.verify_tables(spark, f"{schema}.orders_legacy", f"{schema}.orders").matches

    load(spark, SAMPLE, schema, "new")
    assert pipelines.run(project, spark, environment="dev").ok
    assert phases(project, spark) == {"customers": "complete", "orders": "complete"}

    # The pipeline's tables equal those that the retired jobs would create from all rows.
    columns = "customer_id, name, city, valid_from AS __START_AT, valid_to AS __END_AT"
    orders, customers = (JOBS[job].format(schema=schema) for job in ("orders_legacy", "customers_legacy"))
    spark.sql(f"CREATE TABLE {schema}.orders_check USING delta AS {orders}")
    spark.sql(f"CREATE TABLE {schema}.customers_check USING delta AS SELECT {columns} FROM ({customers})")
    assert verify.verify_tables(spark, f"{schema}.orders_check", f"{schema}.orders").matches
    assert verify.verify_tables(spark, f"{schema}.customers_check", f"{schema}.customers").matches
    assert spark.table(f"{schema}.orders").count() == 28
    assert spark.table(f"{schema}.customers").count() == 16


@pytest.mark.workspace
def test_status_reads_the_tables_of_the_workspace(spark: SparkSession, schema: str, project: Path) -> None:
    load(spark, SAMPLE, schema, "history")
    status = pipelines.status(project, spark, environment="dev")
    assert status.plan.refusals == ()
    assert phases(project, spark) == {"customers": "new", "orders": "new"}
    assert spark.table(f"{schema}.orders_legacy").count() == 20
